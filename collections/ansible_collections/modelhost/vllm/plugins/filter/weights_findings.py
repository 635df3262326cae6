# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: weights_findings
short_description: Everything that is wrong with where weights lie, without asking a host
description:
  - Holds the roots of the weights, and the paths of weights that are used in place, against what units see.
  - Each finding is a sentence that names the variable, the value, the rule and the fix.
positional: roots, hidden
options:
  _input:
    description: The catalogue, C(modelhost_models); null where the inventory has none.
    type: dict
    required: true
  roots:
    description: The directories under which fetched weights lie, C(modelhost_weights_roots).
    type: list
    elements: path
    required: true
  hidden:
    description: Folders that units do not see or that a reboot empties.
    type: list
    elements: path
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
findings: "{{ modelhost_models | modelhost.vllm.weights_findings(['/var/lib/modelhost/weights'], ['/home', '/tmp']) }}"
"""

RETURN = r"""
_value:
  description: The findings; empty where nothing is wrong.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.weights import weights_findings


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"weights_findings": weights_findings}
