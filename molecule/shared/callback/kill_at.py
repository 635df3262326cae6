"""A callback of the tests: the controller is killed, as by kill -9, when the task named in MODELHOST_KILL_AT begins."""

from __future__ import annotations

import os
import signal

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kill_at"

    def v2_playbook_on_task_start(self, task, is_conditional):
        if task.name == os.environ.get("MODELHOST_KILL_AT"):
            os.kill(os.getpid(), signal.SIGKILL)
