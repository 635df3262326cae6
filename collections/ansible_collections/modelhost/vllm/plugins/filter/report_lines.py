# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: report_lines
short_description: The summary of a host's report, for one screen
description:
  - About 30 lines of at most 100 characters. What is left out is said, and stands in C(report.md).
positional: _input
options:
  _input:
    description: A document of P(modelhost.vllm.host_report#filter).
    type: dict
    required: true
  looked:
    description: What it was made from.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ document | modelhost.vllm.report_lines(looked) | join('\n') }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.filter.nccl_lines import nccl_lines
from ansible_collections.modelhost.vllm.plugins.filter.status_lines import status_lines
from ansible_collections.modelhost.vllm.plugins.module_utils import report_words


def report_lines(document: dict[str, Any], looked: dict[str, Any]) -> list[str]:
    answers = looked["answers"]
    models = status_lines(answers["state"], document["wish"]) if "state" in answers else []
    return report_words.screen(document, models, nccl_lines(answers["nccl"]) if "nccl" in answers else [])


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"report_lines": report_lines}
