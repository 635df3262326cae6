# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: status_lines
short_description: The state of a host's models, for people
description:
  - A line about the switch that is under way or was interrupted, then one line a model, the served one first.
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

from ansible_collections.modelhost.vllm.plugins.plugin_utils.controller import has_ended


def switch_line(switch: dict[str, Any]) -> str:
    """A switch that is under way, or one that was interrupted: then a reboot or the next run decides what serves."""
    owner = switch["owner"]
    who = f"switch to {switch['model']} by {owner['user']}@{owner['controller']} since {switch['since']}"
    if switch["interrupted"] or has_ended(owner):
        return (
            f"{who}: interrupted at step {switch['step']!r}. What serves now is below; switch_model.yml finishes it or serves the wish, and a "
            "reboot boots what was applied")
    progress = f" ({switch['progress']})" if switch["progress"] else ""
    return f"{who}: at step {switch['step']!r}{progress}, last sign of life {switch['age']} s ago"


def status_lines(state: dict[str, Any], wish: str) -> list[str]:
    lines = [switch_line(state["switch"])] if state["switch"] else []
    for model, each in sorted(state["models"].items(), key=lambda pair: (pair[1]["state"] != "serving", pair[0])):
        applied = each["applied"]
        notes = [f"since {each['unit']['ExecMainStartTimestamp']}"] if each["state"] in ("serving", "loading") else []
        if each["progress"]:
            notes.append(each["progress"])
        if each["foreign"]:
            notes.append("a unit that modelhost did not write: take it over with -e adopt=true")
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
