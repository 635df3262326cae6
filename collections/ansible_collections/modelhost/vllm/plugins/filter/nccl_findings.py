# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_findings
short_description: Everything that is wrong with the NCCL variables of the models, without asking a host
description:
  - Holds names, types, ranges and spellings against the rules with which NCCL reads its variables. NCCL itself ignores an unknown name,
    and most of what it cannot read, without a word.
  - The rules, with their sources in NCCL, are in C(module_utils/nccl.py); the variables in C(roles/nccl/files/parameters.yml).
  - NCCL's variables in a model's C(environment) are refused, since they are said in its C(nccl).
positional: _input, parameters, pins
options:
  _input:
    description: The models by name.
    type: dict
    required: true
  parameters:
    description: Path of the file C(parameters.yml), which has the variables that NCCL reads.
    type: path
    required: true
  pins:
    description:
      - The version of each package by engine, as P(modelhost.vllm.lock_pins#filter) returns them. The NCCL of a model's engine follows
        from it; an engine that is not there is taken to have the NCCL that the table was checked with.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
findings: >-
  {{ modelhost_models | modelhost.vllm.nccl_findings(
     'roles/nccl/files/parameters.yml', {'vllm-0.33.0': {'nvidia-nccl-cu13': '2.30.7'}}) }}
"""

RETURN = r"""
_value:
  description: The findings, each a sentence that names the variable, the value, the rule and the fix.
  type: dict
  contains:
    errors:
      description: What NCCL ignores, reads otherwise than it was meant, or does not start with.
      type: list
      elements: str
    warnings:
      description: What NCCL takes, and its documentation advises against or does not know.
      type: list
      elements: str
"""

import functools
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelhost.vllm.plugins.module_utils import nccl


@functools.lru_cache
def table(path: str) -> dict[str, Any]:
    # As plain data: through a lookup and from_yaml, the 250 rules would cost a tenth of a second each time.
    return yaml.load(Path(path).read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def nccl_findings(models: Any, parameters: str, pins: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    return nccl.nccl_findings(models, table(str(parameters)), pins)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"nccl_findings": nccl_findings}
