# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: served_model
short_description: Which model serves on a host, and where
description:
  - Chooses the model that serves. Engine, address and port are those that were applied, whatever the inventory wishes meanwhile.
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
author:
  - The modelhost authors
"""

EXAMPLES = r"""
chosen: "{{ state | modelhost.vllm.served_model('', models, engines) }}"
"""

RETURN = r"""
_value:
  description:
    - C(finding) is one sentence that says why there is none, or an empty text. Without a finding, C(model) and C(engine) are the entries and
      C(url) is the server's address on the host itself.
  type: dict
  sample: {finding: "", model: {name: kimi-k25-int4}, engine: {name: vllm-0.33.0}, url: "http://127.0.0.1:8000"}
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import served


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"served_model": served.choose}
