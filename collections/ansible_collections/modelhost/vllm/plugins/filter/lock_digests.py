# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: lock_digests
short_description: The engines, each with the digest and the place of its lock
description:
  - Reads each engine's lock on the controller and checks that it pins the version that the engine declares.
positional: _input
options:
  _input:
    description: The engines, with C(name), C(distribution), C(version) and C(lock).
    type: list
    elements: dict
    required: true
  folder:
    description: Folder of the locks that are not given by an absolute path.
    type: path
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
locked: "{{ vllm_engines | modelhost.vllm.lock_digests(role_path ~ '/files/locks') }}"
"""

RETURN = r"""
_value:
  description: The engines, each with C(lock) as an absolute path and C(lock_sha256).
  type: list
  elements: dict
"""

import hashlib
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError


def lock_digests(engines: list[dict[str, Any]], folder: str) -> list[dict[str, Any]]:
    locked = []
    for engine in engines:
        path = Path(folder) / engine["lock"]
        where = f"modelhost_engines.{engine['name']}"
        if not path.is_file():
            raise AnsibleFilterError(f"{where}.lock: {str(path)!r} is not a file: make it with `make lock ENGINE={engine['name']}`")
        text = path.read_text(encoding="utf-8")
        pin = f"{engine['distribution']}=={engine['version']} "
        if not any(line.startswith(pin) for line in text.splitlines()):
            raise AnsibleFilterError(
                f"{where}.version: its lock {path.name} does not pin {pin.strip()}: correct the version, or make the lock anew")
        locked.append({**engine, "lock": str(path), "lock_sha256": hashlib.sha256(text.encode()).hexdigest()})
    return locked


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"lock_digests": lock_digests}
