#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: engine_info
short_description: Whether engines are complete, absent, partial or changed
description:
  - An engine counts as installed when the last step of its installation has written C(.complete), which holds the digest of its lock.
options:
  root:
    description: Folder of the engines.
    type: path
    default: /opt/modelhost/engines
  engines:
    description: SHA-256 of the lock that each engine shall be built from, by name of the engine.
    type: dict
    required: true
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Look at the engines
  modelhost.vllm.engine_info:
    engines:
      vllm-0.33.0: "{{ lookup('ansible.builtin.file', 'vllm-0.33.0-py312.txt', rstrip=false) | hash('sha256') }}"
"""

RETURN = r"""
engines:
  description: State by engine.
  type: dict
  returned: always
  contains:
    state:
      description:
        - V(complete); V(absent); V(partial) where an installation was interrupted; V(changed) where it is complete but was built
          from another lock.
      type: str
    used_by:
      description: Units that run from it.
      type: list
      elements: str
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd


def state(folder: str, lock_sha256: str) -> str:
    if not os.path.isdir(folder):
        return "absent"
    try:
        with open(os.path.join(folder, ".complete"), encoding="utf-8") as stream:
            return "complete" if json.load(stream)["lock_sha256"] == lock_sha256 else "changed"
    except FileNotFoundError:
        return "partial"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/opt/modelhost/engines"},
            "engines": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    units = systemd.show("vllm-*.service", ["ActiveState", "ExecStart"])
    running = {unit: each["ExecStart"] for unit, each in units.items() if each["ActiveState"] not in ("inactive", "failed")}
    found = {}
    for engine, lock_sha256 in module.params["engines"].items():
        folder = os.path.join(module.params["root"], engine)
        found[engine] = {
            "state": state(folder, lock_sha256),
            "used_by": [unit for unit, command in running.items() if folder + "/" in command],
        }
    module.exit_json(changed=False, engines=found)


if __name__ == "__main__":
    main()
