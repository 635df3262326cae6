# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: benchmark_plan
short_description: Which model a benchmark measures, where, and with which load
description:
  - Chooses the model that serves. Engine, address and port are those that were applied, whatever the inventory wishes meanwhile.
  - A profile is one point or more. V(single_stream) is one, with the options as they are. V(concurrency) is a ladder of requests at a time,
    which the model's C(max-num-seqs) bounds. V(long_context) has prompts near the model's C(max-model-len).
positional: _input
options:
  _input:
    description: What P(modelhost.vllm.model_state_info#module) returned.
    type: dict
    required: true
  requested:
    description: The model asked for explicitly, or an empty text.
    type: str
    required: true
  models:
    description: The models of the catalogue.
    type: list
    elements: dict
    required: true
  engines:
    description: The engines of the inventory.
    type: list
    elements: dict
    required: true
  load:
    description:
      - C(profile), its name; C(options) of C(vllm bench serve) for every model; C(concurrency), the steps of the ladder; and
        C(long_context), the most input tokens.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
plan: "{{ state | modelhost.vllm.benchmark_plan('', models, engines, load) }}"
"""

RETURN = r"""
_value:
  description:
    - C(finding) is one sentence that says why nothing can be measured, or an empty text. Without a finding, C(model) and C(engine) are
      the entries, C(url) is the server's address on the host itself, and C(points) are the profile's, each with the options that it adds.
  type: dict
  sample:
    finding: ""
    model: {name: kimi-k25-int4}
    engine: {name: vllm-0.33.0}
    url: "http://127.0.0.1:8000"
    points: [{name: single_stream, options: {}}]
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"benchmark_plan": benchmark.plan}
