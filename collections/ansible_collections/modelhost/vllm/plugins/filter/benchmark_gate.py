# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: benchmark_gate
short_description: The verdict on a benchmark
description:
  - C(vllm bench serve) exits with 0 when every request failed, and reports a time to first token of 0.0 ms. So its counts are held
    against what was asked for first; a run that did not complete fails, and its numbers are not looked at.
  - The medians of the repetitions are then held against what the model's entry expects, and against earlier runs of the same load by the
    same engine on this host. docs/benchmark.md has the rule and its reasons.
  - Too few earlier runs, or repetitions, leave the question of a regression open; that alone is no failure.
positional: _input
options:
  _input:
    description: The document of a run, without its verdict.
    type: dict
    required: true
  history:
    description: Earlier runs, as P(modelhost.vllm.benchmark_results_info#module) returns them.
    type: list
    elements: dict
    required: true
  expect:
    description: The C(expect) of the model's entry.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
gate: "{{ document | modelhost.vllm.benchmark_gate(read.history, model.expect) }}"
"""

RETURN = r"""
_value:
  description: C(verdict) is V(pass), V(fail) or V(inconclusive); C(findings) are the sentences it follows from.
  type: dict
  sample:
    verdict: fail
    findings: ["decode_tok_s is 61.2, and modelhost_models.kimi-k25-int4.expect asks for 75 at least"]
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark_gate


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"benchmark_gate": benchmark_gate.gate}
