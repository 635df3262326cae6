# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_files
short_description: The NCCL environment files of the models
description:
  - Each is the head, and behind it the model's variables as P(modelhost.vllm.systemd_environment#filter) writes them.
positional: _input, head
options:
  _input:
    description: The models, each with C(name) and, if it has any, C(nccl).
    type: list
    elements: dict
    required: true
  head:
    description: Text that each file begins with.
    type: str
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
files: "{{ nccl_models | modelhost.vllm.nccl_files(lookup('ansible.builtin.template', 'head.j2')) }}"
"""

RETURN = r"""
_value:
  description: The files, as P(modelhost.vllm.model_files#module) takes them.
  type: list
  elements: dict
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.module_utils.systemd import quote_environment


def nccl_files(models: list[dict[str, Any]], head: str) -> list[dict[str, str]]:
    try:
        return [
            {"model": each["name"], "name": f"{each['name']}.nccl.env", "content": head + quote_environment(each.get("nccl", {}))}
            for each in models]
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"nccl_files": nccl_files}
