# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: tuning_findings
short_description: Everything that is wrong with the wished settings of a host, without asking it
description:
  - Holds the wishes against the argument specification of the role C(host_tuning), and against each other.
  - What only the host can tell (its memory, the limits of its GPUs, its boot loader) the role says before it changes anything.
positional: _input
options:
  _input:
    description: The wishes, C(modelhost_tuning) of the inventory.
    type: dict
    required: true
  options:
    description: The options in the argument specification of the role C(host_tuning).
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
findings: "{{ modelhost_tuning | modelhost.vllm.tuning_findings(specification.argument_specs.main.options) }}"
"""

RETURN = r"""
_value:
  description: The findings, each a sentence; empty where nothing is wrong.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.findings import spec_findings
from ansible_collections.modelhost.vllm.plugins.module_utils.tuning_rules import VARIABLE, wish_findings

# How the role treats the wishes, and not a wish
SWITCHES = ("force",)


def tuning_findings(wish: dict[str, Any], options: dict[str, Any]) -> list[str]:
    known = {name.removeprefix("host_tuning_"): option for name, option in options.items()}
    known = {name: option for name, option in known.items() if name not in SWITCHES}
    return spec_findings(VARIABLE, wish, known) or wish_findings({**{name: option["default"] for name, option in known.items()}, **wish})


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"tuning_findings": tuning_findings}
