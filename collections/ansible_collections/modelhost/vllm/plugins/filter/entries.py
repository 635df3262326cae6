# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: entries
short_description: A dict of entries by name, as a list of entries that know their name
description:
  - The inventory keeps models and engines as dicts by name. Roles take lists, since an argument specification can describe the
    entries of a list.
positional: _input
options:
  _input:
    description: Entries by name.
    type: dict
    required: true
  defaults:
    description: What an entry says where the inventory says nothing.
    type: dict
    default: {}
author:
  - The modelhost authors
"""

EXAMPLES = r"""
model_unit_models: "{{ modelhost_models | modelhost.vllm.entries({'host': '127.0.0.1'}) }}"
"""

RETURN = r"""
_value:
  description: The entries in the order of the dict, each with C(name) in front.
  type: list
  elements: dict
"""

from typing import Any


def entries(by_name: dict[str, dict[str, Any]], defaults: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [{"name": name, **(defaults or {}), **entry} for name, entry in by_name.items()]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"entries": entries}
