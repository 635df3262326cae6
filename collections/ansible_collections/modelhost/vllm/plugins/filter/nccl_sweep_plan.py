# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_sweep_plan
short_description: The points of a sweep over NCCL variables
description:
  - Every combination of the values, and the variables as they are declared first. Values are held against the rules of
    P(modelhost.vllm.nccl_findings#filter).
positional: _input, inputs, limit, parameters, pins
options:
  _input:
    description: Values by variable. Null leaves the variable as it is declared.
    type: dict
    required: true
  inputs:
    description: What else a measurement depends on, with C(engine) and C(nccl), the variables that the model has.
    type: dict
    required: true
  limit:
    description: How many points there may be.
    type: int
    required: true
  parameters:
    description: Path of the file C(parameters.yml), which has the variables that NCCL reads.
    type: path
    required: true
  pins:
    description: The version of each package by engine, as P(modelhost.vllm.lock_pins#filter) returns them.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
plan: >-
  {{ {'NCCL_PROTO': [null, 'LL']} | modelhost.vllm.nccl_sweep_plan({'engine': 'vllm-0.33.0', 'nccl': {}}, 24, 'parameters.yml', {}) }}
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    errors:
      description: What is wrong with the grid.
      type: list
      elements: str
    warnings:
      description: What NCCL takes, and its documentation advises against.
      type: list
      elements: str
    points:
      description: The points, each with C(name), the variables C(tried), all of C(nccl), and a C(key) over all that it depends on.
      type: list
      elements: dict
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.filter.nccl_findings import table
from ansible_collections.modelhost.vllm.plugins.module_utils import nccl_sweep


def nccl_sweep_plan(
    grid: dict[str, Any], inputs: dict[str, Any], limit: int, parameters: str, pins: dict[str, dict[str, str]],
) -> dict[str, Any]:  # fmt: skip
    return nccl_sweep.plan(grid, inputs, limit, table(str(parameters)), pins)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"nccl_sweep_plan": nccl_sweep_plan}
