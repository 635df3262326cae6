# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: benchmark_lines
short_description: A short table of a benchmark, with its verdict
description:
  - Each number is the median over the repetitions of a point; behind the rates stand the lowest and the highest.
  - Times are in milliseconds, with vLLM's names. TTFT is the time to the first token; TPOT the mean time per output token of one
    request after its first; ITL the time between two tokens.
  - There are two rates in tokens per second. C(decode) is 1000 / mean TPOT, the speed of one stream after its first token.
    C(output_throughput) is the number of all output tokens divided by the whole duration.
positional: _input
options:
  _input:
    description: A document as the role P(smoke_benchmark#role) stores it.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ document | modelhost.vllm.benchmark_lines | join('\n') }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"benchmark_lines": benchmark.lines}
