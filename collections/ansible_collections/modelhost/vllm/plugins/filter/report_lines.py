# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: report_lines
short_description: The summary of a host's report, for one screen
description:
  - At most about 40 lines of 100 characters. What is left out is said, and stands in C(report.md).
positional: _input
options:
  _input:
    description: A document of P(modelhost.vllm.host_report#filter).
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ document | modelhost.vllm.report_lines | join('\n') }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import report_words


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"report_lines": report_words.screen}
