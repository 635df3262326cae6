# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: unknown_name
short_description: What to say about a name that is not among the known ones
description:
  - Lists the known names and suggests the nearest.
positional: _input
options:
  _input:
    description: The name.
    type: str
    required: true
  variable:
    description: The variable that holds it.
    type: str
    required: true
  known:
    description: The known names.
    type: list
    elements: str
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
fail_msg: "{{ model | modelhost.vllm.unknown_name('model', modelhost_models) }}"
"""

RETURN = r"""
_value:
  description: One or two sentences.
  type: str
  sample: "model: 'kimi' is not one of glm-5-gguf, kimi-k25-int4. Did you mean 'kimi-k25-int4'?"
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.findings import unknown


def unknown_name(name: str, variable: str, known: Any) -> str:
    return unknown(variable, name, known)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"unknown_name": unknown_name}
