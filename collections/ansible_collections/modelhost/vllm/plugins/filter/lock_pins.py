# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: lock_pins
short_description: What the lock of each engine pins
description:
  - Reads each engine's lock on the controller.
positional: _input
options:
  _input:
    description: The engines by name.
    type: dict
    required: true
  folder:
    description: Folder of the locks that are not given by an absolute path.
    type: path
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
pins: "{{ modelhost_engines | modelhost.vllm.lock_pins('roles/vllm/files/locks') }}"
"""

RETURN = r"""
_value:
  description: By engine, the version of each package. An engine without a readable lock is left out.
  type: dict
  sample:
    vllm-0.33.0: {torch: 2.14.0, vllm: 0.33.0}
"""

from pathlib import Path
from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.versions import parse_pins


def lock_pins(engines: Any, folder: str) -> dict[str, dict[str, str]]:
    pins = {}
    for name, engine in engines.items() if isinstance(engines, dict) else ():
        lock = engine.get("lock") if isinstance(engine, dict) else None
        if isinstance(lock, str) and (Path(folder) / lock).is_file():
            pins[name] = parse_pins((Path(folder) / lock).read_text(encoding="utf-8"))
    return pins


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"lock_pins": lock_pins}
