# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: switch_plan
short_description: What a switch has to do
description:
  - Decides from the state of the host and from what is asked for, before anything is touched.
  - A model that is loading is never stopped unless O(force), and nothing is stopped at all unless O(replace).
positional: _input
options:
  _input:
    description: What P(modelhost.vllm.model_state_info#module) returned.
    type: dict
    required: true
  models:
    description: The GPUs of each model of the catalogue.
    type: dict
    required: true
  requested:
    description: The model asked for explicitly, or an empty text.
    type: str
    required: true
  wish:
    description: The model that the inventory wishes.
    type: str
    required: true
  replace:
    description: Whether a served model may be stopped.
    type: bool
    required: true
  force:
    description: Whether a loading model may be stopped.
    type: bool
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
plan: "{{ state | modelhost.vllm.switch_plan(gpus, '', 'kimi-k25-int4', true, false) }}"
"""

RETURN = r"""
_value:
  description: C(action), C(target), C(stop), C(previous), C(replaces) and C(reason).
  type: dict
  sample:
    action: replace
    target: kimi-k25-int4
    stop: [minimax-m25]
    previous: [minimax-m25]
    replaces: [minimax-m25]
    reason: replace minimax-m25 by kimi-k25-int4
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.switching import switch_plan


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"switch_plan": switch_plan}
