# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: benchmark_runs
short_description: The runs of a benchmark, warm-up first
description:
  - One short run of the last point warms the server up and does not count; then each point is run as often as was asked for.
  - Each run has a seed of its own, from the start, since prompts that were sent before are found in the prefix cache. An option C(seed)
    goes before it.
positional: _input
options:
  _input:
    description: The points, as P(modelhost.vllm.benchmark_plan#filter) returns them.
    type: list
    elements: dict
    required: true
  asked:
    description: The options of C(vllm bench serve) that all points have in common.
    type: dict
    required: true
  repetitions:
    description: How often each point is run.
    type: int
    required: true
  started:
    description: The start, in UTC, such as 20261130T094500Z.
    type: str
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
runs: "{{ plan.points | modelhost.vllm.benchmark_runs(options, 3, '20261130T094500Z') }}"
"""

RETURN = r"""
_value:
  description: For each run C(name), for people; C(point), an empty text for the warm-up; C(key), for its file; and C(options).
  type: list
  elements: dict
  sample:
    - name: single_stream, 1 of 3
      point: single_stream
      key: 20261130T094500Z-1
      options: {num-prompts: 4, seed: 130094501}
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"benchmark_runs": benchmark.runs}
