# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_sweep_folder
short_description: Whether an earlier sweep goes on, and what is left of it
description:
  - The newest sweep that has a point with the same inputs goes on. A point that it has is not measured again.
positional: _input, files, again
options:
  _input:
    description: The points, as P(modelhost.vllm.nccl_sweep_plan#filter) returns them.
    type: list
    elements: dict
    required: true
  files:
    description: Paths of the results that the host has of this model.
    type: list
    elements: str
    required: true
  again:
    description: Whether to begin a new sweep in any case.
    type: bool
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
sweep: "{{ plan.points | modelhost.vllm.nccl_sweep_folder(['/var/lib/modelhost/nccl_sweeps/m/20261130T094500Z/0a1b.json'], false) }}"
"""

RETURN = r"""
_value:
  description: Where to go on.
  type: dict
  contains:
    started:
      description: The start of the sweep that goes on, an empty text for a new one.
      type: str
    left:
      description: The points that are not measured yet.
      type: list
      elements: dict
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import nccl_sweep


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"nccl_sweep_folder": nccl_sweep.folder}
