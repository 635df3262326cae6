# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_environment
short_description: Variables, as the text of a file for EnvironmentFile=
description:
  - Each value reaches the process byte for byte, or is refused with the reason. Rules from systemd.exec(5), EnvironmentFile=, and
    systemd's env_value_is_valid().
positional: _input
options:
  _input:
    description: Values by name of the variable.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
content: "{{ item.environment | modelhost.vllm.systemd_environment }}"
"""

RETURN = r"""
_value:
  description: One assignment a line.
  type: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd


def systemd_environment(value: dict[str, object]) -> str:
    try:
        return systemd.quote_environment(value)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"systemd_environment": systemd_environment}
