# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: size_bytes
short_description: The bytes of a size
description:
  - Reads V(10GB) as powers of 1000 and V(10GiB) as powers of 1024, as all of modelhost does. Ansible's own C(human_to_bytes) takes both
    for powers of 1024.
positional: _input
options:
  _input:
    description: The size, with its unit.
    type: str
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
bytes: "{{ '64GB' | modelhost.vllm.size_bytes }}"
"""

RETURN = r"""
_value:
  description: The number of bytes.
  type: int
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.module_utils.host_findings import SizeError, parse_size


def size_bytes(size: str) -> int:
    try:
        return parse_size(size)
    except SizeError as error:
        raise AnsibleFilterError(f"{size!r} is no size: write 10GB (10 x 10^9 bytes) or 10GiB (10 x 2^30 bytes)") from error


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"size_bytes": size_bytes}
