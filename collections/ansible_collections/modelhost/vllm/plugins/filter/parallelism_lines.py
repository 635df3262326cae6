# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: parallelism_lines
short_description: Whether another way to share a model out over the GPUs would be faster
description:
  - Predicts what a token of decode costs under tensor, expert, pipeline, data and decode context parallelism and mixes of them, split into
    reading weights, communication, arithmetic and a fixed cost for each layer.
  - The model of costs, with the source of each constant, is written down in docs/parallelism.md.
  - What vLLM or the memory does not allow is said by the rules of C(roles/model_switch/files/constraints.yml).
positional: _input, model, shapes, costs, measured, streams
options:
  _input:
    description: What P(modelhost.vllm.constraint_findings#filter) takes.
    type: dict
    required: true
  model:
    description: Name of the model.
    type: str
    required: true
  shapes:
    description: The shapes that M(modelhost.vllm.model_shape_info) found on the host. They go before those of C(constraints.yml).
    type: dict
    required: true
  costs:
    description: Content of the file C(costs.yml) of the role P(parallelism_advice#role).
    type: dict
    required: true
  measured:
    description: A result as the role P(all_reduce#role) stores it, or an empty dict.
    type: dict
    required: true
  streams:
    description: How many streams are many.
    type: int
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ modelhost_constraints | modelhost.vllm.parallelism_lines('kimi-k25-int4', {}, costs, {}, 64) }}"
"""

RETURN = r"""
_value:
  description: A table, what it rests on, the answer in one paragraph, and what to try next.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import parallelism
from ansible_collections.modelhost.vllm.plugins.module_utils.parallelism_lines import lines


def parallelism_lines(
    declared: dict[str, Any], model: str, shapes: dict[str, Any], costs: dict[str, Any], measured: dict[str, Any], streams: int,
) -> list[str]:  # fmt: skip
    advice = parallelism.advise(model, declared, shapes, costs, measured, streams)
    return lines(advice, declared["engines"][declared["models"][model]["engine"]], declared["gpus"])


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"parallelism_lines": parallelism_lines}
