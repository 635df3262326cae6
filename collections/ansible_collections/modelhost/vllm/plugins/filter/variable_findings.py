# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: variable_findings
short_description: Variables that nothing reads, without asking a host
description:
  - A variable whose name is misspelt has no effect, and Ansible says nothing about it.
  - Known is every name that the playbooks, their C(group_vars) and the roles have in their texts.
positional: playbooks, roles
options:
  _input:
    description: Names of variables.
    type: list
    elements: str
    required: true
  playbooks:
    description: Folder of the playbooks, on the controller.
    type: path
    required: true
  roles:
    description: Folder of the roles, on the controller.
    type: path
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
findings: "{{ query('ansible.builtin.varnames', '.') | modelhost.vllm.variable_findings('playbooks', 'roles') }}"
"""

RETURN = r"""
_value:
  description: The findings, each a sentence that names the variable, the rule and the fix. Values are never said.
  type: dict
  contains:
    errors:
      description: Names that begin with C(modelhost_).
      type: list
      elements: str
    warnings:
      description: Names that begin as those of a role do, or as the extra variables C(tune_), which may be an operator's own.
      type: list
      elements: str
"""

import functools
import re
from pathlib import Path
from typing import Any, Iterable

from ansible_collections.modelhost.vllm.plugins.module_utils import findings


@functools.lru_cache
def known(*folders: str) -> frozenset[str]:
    """Every word in the YAML files below the folders."""
    return frozenset(
        word for folder in folders for path in Path(folder).rglob("*.yml") for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))


def variable_findings(names: Iterable[str], playbooks: str, roles: str) -> dict[str, list[str]]:
    prefixes = ["tune_", *(path.name + "_" for path in Path(roles).iterdir() if path.is_dir())]
    return findings.variable_findings(names, known(str(playbooks), str(roles)), prefixes)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"variable_findings": variable_findings}
