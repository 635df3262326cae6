# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: audit_lines
short_description: What an audit found, for people
description:
  - The verdict with what it rests on, then a line for each finding, with its diff, then the notes.
positional: name
options:
  _input:
    description: What P(modelhost.vllm.engine_audit_info#module) returned.
    type: dict
    required: true
  name:
    description: Name of the engine, or path of the environment.
    type: str
    required: true
  most:
    description: How many findings are shown at most.
    type: int
    default: 100
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ audit | modelhost.vllm.audit_lines('vllm-0.33.0') }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from typing import Any

SOURCES = {"manifest": "the manifest", "wheel": "the wheel", "record": "RECORD alone"}


def audit_lines(audit: dict[str, Any], name: str, most: int = 100) -> list[str]:
    known = ", ".join(f"{len(names)} by {SOURCES[source]}" for source, names in audit["reference"].items() if names)
    patches = f", patches: {', '.join(audit['patches'])}" if audit["patches"] else ""
    lines = [f"{name}: {audit['verdict']} ({known or 'no'} distributions{patches}; {audit['seconds']:.1f} s)"]
    for each in audit["findings"][:most]:
        lines.append(f"  {each['kind']}: {each['path']} {each['message']}")
        lines += [f"    {line}" for line in each["diff"].splitlines()]
    if len(audit["findings"]) > most:
        lines.append(f"  and {len(audit['findings']) - most} more")
    return [*lines, *(f"  note: {note}" for note in audit["notes"])]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"audit_lines": audit_lines}
