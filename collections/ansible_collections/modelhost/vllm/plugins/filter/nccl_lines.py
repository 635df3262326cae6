# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_lines
short_description: The NCCL variables in effect, for people
description:
  - A line for each variable of a running model, with its origin and what NCCL said of it, and what should be looked at behind them.
positional: _input
options:
  _input:
    description: What P(modelhost.vllm.nccl_info#module) returned.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ nccl | modelhost.vllm.nccl_lines }}"
"""

RETURN = r"""
_value:
  description: The lines. None where no model runs, or none has a variable.
  type: list
  elements: str
  sample:
    - "kimi-k25-int4: NCCL_P2P_LEVEL=SYS (unit; NCCL took it as SYS)"
    - "kimi-k25-int4: NCCL_IB_DISABLE=1 (/etc/nccl.conf:2)"
"""

from typing import Any

_SAID = {"yes": "; NCCL took it as {said}", "no": "; NCCL did not take it", "unknown": ""}


def nccl_lines(nccl: dict[str, Any]) -> list[str]:
    lines = [line(model, each) for model, found in nccl["models"].items() if found["running"] for each in found["effective"]]
    return lines + nccl["notes"]


def line(model: str, each: dict[str, str]) -> str:
    if each["origin"] == "default":
        return f"{model}: {each['name']} is declared, and the running processes have not got it: apply with switch_model.yml"
    return f"{model}: {each['name']}={each['value']} ({each['origin']}{_SAID[each['taken']].format(said=each['said'])})"


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"nccl_lines": nccl_lines}
