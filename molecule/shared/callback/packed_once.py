"""A callback of the tests: a module that Ansible has packed for one play is there for the next, which is a quarter of what a play costs.

Ansible keeps what it has packed for as long as a play takes (ansible-core 2.21, executor/module_common.py, _find_module_utils). The tests
give it a folder of their own in MODELHOST_PACKED, which must not outlive the text of the modules.
"""

from __future__ import annotations

import os

from ansible import constants
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "packed_once"

    def v2_playbook_on_start(self, playbook):
        os.symlink(os.environ["MODELHOST_PACKED"], os.path.join(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache"))
