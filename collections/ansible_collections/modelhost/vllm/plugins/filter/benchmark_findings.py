# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: benchmark_findings
short_description: Why the numbers of a benchmark are worth nothing
description:
  - C(vllm bench serve) exits with 0 when every request failed, and reports a time to first token of 0.0 ms. So its counts are held
    against what was asked for first; only where they are right do its numbers have to be more than 0.
positional: _input
options:
  _input:
    description: The result file of C(vllm bench serve).
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.assert:
    that: result | modelhost.vllm.benchmark_findings == []
"""

RETURN = r"""
_value:
  description: The findings, none where the numbers count.
  type: list
  elements: str
  sample: ["0 of 4 requests completed, 4 failed"]
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"benchmark_findings": benchmark.findings}
