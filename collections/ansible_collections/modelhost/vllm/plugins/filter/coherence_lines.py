# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: coherence_lines
short_description: A coherence check for people
description:
  - A line for each answer, those that do not bind in brackets, and the verdict. What is wrong comes with what was said.
positional: _input
options:
  _input:
    description: A result as the role P(coherence_check#role) stores it.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ document | modelhost.vllm.coherence_lines | join('\n') }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import coherence


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"coherence_lines": coherence.lines}
