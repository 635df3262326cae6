# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: coherence_summary
short_description: The verdict on a model, from its answers to the battery
description:
  - The worst verdict of the items that bind. The same question asked twice at temperature 0 may get two answers, by batching, prefix cache
    or the order of sums; that is a note and no fault.
positional: _input
options:
  _input:
    description: The results of a loop of P(modelhost.vllm.coherence_info#module) over the battery.
    type: list
    elements: dict
    required: true
  binds:
    description: Names of the items that bind. Without any, all do.
    type: list
    elements: str
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
summary: "{{ answers.results | modelhost.vllm.coherence_summary(['fact']) }}"
"""

RETURN = r"""
_value:
  description:
    - C(verdict) and C(reason), the names of the items that it comes from; C(notes); and C(items), of which each has C(name), C(kind),
      C(verdict), C(reason), C(answer), C(seconds) and C(binding).
  type: dict
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import coherence


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"coherence_summary": coherence.summary}
