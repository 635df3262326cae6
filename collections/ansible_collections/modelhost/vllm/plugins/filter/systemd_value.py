# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_value
short_description: A text, as the value of a unit file's directive
description:
  - Specifiers (%) are not expanded (systemd.unit(5)). A value of more than one line is refused.
positional: _input
options:
  _input:
    description: The value.
    type: raw
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
description: "{{ item.description | modelhost.vllm.systemd_value }}"
"""

RETURN = r"""
_value:
  description: The value.
  type: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd


def systemd_value(value: object) -> str:
    try:
        return systemd.quote_value(value)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"systemd_value": systemd_value}
