# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_exec
short_description: A list of words, as a command line for ExecStart=
description:
  - Each word reaches the process byte for byte. Specifiers (%) and variables ($) are not expanded. Rules from systemd.service(5),
    "Command lines".
positional: _input
options:
  _input:
    description: The words; the first is an absolute path.
    type: list
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
exec_start: "{{ ['/opt/modelhost/engines/vllm-0.33.0/bin/vllm', 'serve', '--config', path] | modelhost.vllm.systemd_exec }}"
"""

RETURN = r"""
_value:
  description: The command line.
  type: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd


def systemd_exec(value: list[object]) -> str:
    try:
        return systemd.quote_exec(value)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"systemd_exec": systemd_exec}
