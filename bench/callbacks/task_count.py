"""Count the tasks of a run, and those that asked the host, into the file that MODELHOST_TASK_COUNT names."""

from __future__ import annotations

DOCUMENTATION = """
name: task_count
type: aggregate
short_description: Count the tasks of a run
description:
  - Writes the numbers C(tasks) and C(on_host) as JSON at the end of a run. For bench/bench.py.
"""

import json
import os
from pathlib import Path

from ansible.plugins.callback import CallbackBase

# These run on the controller and never ask the host.
ON_CONTROLLER = {"assert", "debug", "fail", "include_tasks", "set_fact", "validate_argument_spec"}


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_count"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.count = {"tasks": 0, "on_host": 0}

    def v2_runner_on_ok(self, result) -> None:
        self.count["tasks"] += 1
        self.count["on_host"] += result.task.action.rpartition(".")[2] not in ON_CONTROLLER

    def v2_playbook_on_stats(self, stats) -> None:
        Path(os.environ["MODELHOST_TASK_COUNT"]).write_text(json.dumps(self.count))
