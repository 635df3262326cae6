# GNU General Public License v3.0+ (see LICENSE)
"""Long waits that show where they are."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class PollingAction(ActionBase):
    """Call the module of the same name again and again until it says `finished`.

    Each call lasts a few seconds on the host and returns `progress` (a line for people) and `resume` (handed to the next call). The line is
    shown when it changes, and at least every `SHOW_EVERY` seconds, so that a long wait is never silent.
    """

    SHOW_EVERY = 30.0

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        started = shown_at = time.monotonic()
        shown = resume = None
        while True:
            result = self._execute_module(module_args={**self._task.args, "resume": resume}, task_vars=task_vars)
            resume, progress = result.pop("resume", None), result.pop("progress", None)
            if result.get("failed") or result.pop("finished", True):
                return result
            now = time.monotonic()
            if not self._task.no_log and (progress != shown or now - shown_at >= self.SHOW_EVERY):
                if shown is None:
                    display.display(f"\n{task_vars['inventory_hostname']}: {self._task.get_name()}")
                display.display(f"  {now - started:5.0f} s  {progress}")
                shown, shown_at = progress, now
