# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: catalogue_findings
short_description: Everything that is wrong with the catalogue, without asking a host
description:
  - Holds models and engines against the argument specifications of the roles that use them, and against each other.
  - Each finding is a sentence that names the variable, the value, the rule and the fix.
positional: _input
options:
  _input:
    description: The models by name.
    type: dict
    required: true
  engines:
    description: The engines by name.
    type: dict
    required: true
  served:
    description: Name of the model that shall be served.
    type: str
    required: true
  requested:
    description: Name of the model asked for with C(-e model=), or an empty text.
    type: str
    required: true
  keys_of:
    description: The API keys by model. None of them is ever said.
    type: dict
    required: true
  model_options:
    description: The options of one model in the argument specification of the role C(model_unit).
    type: dict
    required: true
  engine_options:
    description: The options of one engine in the argument specification of the role C(vllm).
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
findings: >-
  {{ modelhost_models | modelhost.vllm.catalogue_findings(
     modelhost_engines, modelhost_served_model, model | default(""), {}, model_options, engine_options) }}
"""

RETURN = r"""
_value:
  description: The findings; empty where nothing is wrong.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.findings import catalogue_findings


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"catalogue_findings": catalogue_findings}
