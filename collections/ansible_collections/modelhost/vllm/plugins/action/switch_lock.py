# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.modelhost.vllm.plugins.plugin_utils.controller import has_ended, this_run


class ActionModule(ActionBase):
    """The module of the same name, told who runs the playbook; a holder that ran here and has ended is no holder."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = {**self._task.args, "owner": this_run()}
        result = self._execute_module(module_args=arguments, task_vars=task_vars)
        if "holder" in result and has_ended(result["holder"]["owner"]):
            result = self._execute_module(module_args={**arguments, "dead": result["holder"]["owner"]["run"]}, task_vars=task_vars)
        return result
