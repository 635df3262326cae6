# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: all_reduce_lines
short_description: A short table of a measurement of all-reduce
description:
  - Latencies are in microseconds. The bus bandwidth is that of nccl-tests, size / time x 2(n-1)/n, in GB/s.
positional: _input
options:
  _input:
    description: A result as the role P(all_reduce#role) stores it.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ document | modelhost.vllm.all_reduce_lines }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import all_reduce


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"all_reduce_lines": all_reduce.lines}
