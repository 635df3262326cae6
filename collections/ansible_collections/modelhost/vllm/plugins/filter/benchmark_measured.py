# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: benchmark_measured
short_description: The points of a benchmark with their results
description:
  - Puts the result of each run to its point. That of the warm-up belongs to none, and is left out.
positional: _input
options:
  _input:
    description: The points, as P(modelhost.vllm.benchmark_plan#filter) returns them.
    type: list
    elements: dict
    required: true
  runs:
    description: The runs, as P(modelhost.vllm.benchmark_runs#filter) returns them.
    type: list
    elements: dict
    required: true
  results:
    description: The result file of C(vllm bench serve) of each run, in the same order.
    type: list
    elements: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
points: "{{ plan.points | modelhost.vllm.benchmark_measured(runs, read.results) }}"
"""

RETURN = r"""
_value:
  description: The points, each with C(results).
  type: list
  elements: dict
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"benchmark_measured": benchmark.measured}
