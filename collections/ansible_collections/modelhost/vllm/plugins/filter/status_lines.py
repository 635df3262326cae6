# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: status_lines
short_description: The state of a host's models, for people
description:
  - One line a model, the served one first, then what is pending.
positional: _input
options:
  _input:
    description: What P(modelhost.vllm.model_state_info#module) returned.
    type: dict
    required: true
  wish:
    description: The model that the inventory wishes.
    type: str
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ state | modelhost.vllm.status_lines('kimi-k25-int4') }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from typing import Any


def status_lines(state: dict[str, Any], wish: str) -> list[str]:
    lines = []
    for model, each in sorted(state["models"].items(), key=lambda pair: (pair[1]["state"] != "serving", pair[0])):
        applied = each["applied"]
        notes = [f"since {each['unit']['ExecMainStartTimestamp']}"] if each["state"] in ("serving", "loading") else []
        if applied:
            notes.append(f"http://{applied['host']}:{applied['port']}/v1, engine {applied['engine']}")
        if each["unit"]["UnitFileState"] == "enabled":
            notes.append("starts at boot")
        if applied and model != wish:
            notes.append(
                "chosen with -e model=" if applied["wish"] == wish else f"the inventory now wishes {wish}: apply with switch_model.yml")
        if each["pending"]:
            notes.append(f"{len(each['pending'])} changes pending, apply with switch_model.yml")
        lines.append(f"{model}: {', '.join([each['state'], *notes])}")
    return lines


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"status_lines": status_lines}
