# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """The module of the same name, after the modules of `questions`; what one of them cannot learn is said in its place."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        questions = self._task.args.get("questions", {})
        answers: dict[str, dict[str, Any]] = {}
        unknown: dict[str, str] = {}
        asked = [*((name, each["module"], each.get("options", {})) for name, each in questions.items()), ("kept", None, self._task.args)]
        try:
            for name, module, options in asked:
                answer = self._execute_module(module_name=module, module_args=options, task_vars=task_vars)
                if answer.get("failed"):
                    unknown[name] = reason(answer)
                else:
                    answers[name] = answer
        except AnsibleConnectionFailure as error:
            return {"changed": False, "reached": False, "reason": " ".join(str(error).split()), "answers": {}, "unknown": {}}
        return {"changed": False, "reached": True, "reason": "", "answers": answers, "unknown": unknown}


def reason(answer: dict[str, Any]) -> str:
    """What a module said; where it crashed, with what; where it could not even begin, what the host said."""
    crash = getattr(getattr(answer.get("exception"), "event", None), "msg", "")
    told = (answer.get("module_stderr") or "").strip().partition("\n")[0] or answer.get("msg") or crash or "no reason was given"
    return " ".join(str(told).split())
