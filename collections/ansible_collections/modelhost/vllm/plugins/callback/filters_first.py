# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: filters_first
type: aggregate
short_description: Load the filters once and not in each task
description:
  - Ansible forks a process for each task, and in each the first filter of a collection makes it compile all of them (ansible-core 2.21,
    C(plugins/loader.py), C(Jinja2Loader.get_with_context)), 0.2 seconds of a processor every time. Loaded before the first fork, they are
    there in all. Says and changes nothing.
author:
  - The modelhost authors
requirements:
  - enabled in C(callbacks_enabled) of ansible.cfg
"""

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import filter_loader


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "modelhost.vllm.filters_first"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: object) -> None:
        filter_loader.get("modelhost.vllm.entries")
