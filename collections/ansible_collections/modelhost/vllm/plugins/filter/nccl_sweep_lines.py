# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_sweep_lines
short_description: The results of a sweep over NCCL variables, and the best of them for each load
description:
  - Of all-reduce, the loads are one stream (the smallest message), many streams (that of 64 tokens) and prefill (the largest).
  - Of the served model, they are one stream (the first step of the ladder, by its speed after the first token) and many streams (the last
    step, by all tokens of all streams). Each number is the median over the repetitions.
  - A point that is not faster by 5 % than what is declared is none to change anything for.
positional: _input, left
options:
  _input:
    description: The results, as the role P(nccl_sweep#role) stores them.
    type: list
    elements: dict
    required: true
  left:
    description: How many points were not measured.
    type: int
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ results | modelhost.vllm.nccl_sweep_lines(0) }}"
"""

RETURN = r"""
_value:
  description: A table, the best for each load, and the lines of YAML to paste into the inventory.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import nccl_sweep


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"nccl_sweep_lines": nccl_sweep.lines}
