#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: engine_info
short_description: Whether engines are complete, absent, partial or changed
description:
  - An engine counts as installed when the last step of its installation has written C(.complete), which holds the digest of what it was
    built from.
  - What else lies in the folder of the engines is reported too, with everything on the host that still refers to it.
options:
  root:
    description: Folder of the engines.
    type: path
    default: /opt/modelhost/engines
  engines:
    description: Digest of the lock and the patches that each engine shall be built from, by name of the engine.
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
          from another lock or other patches.
      type: str
    used_by:
      description: Units that run from it.
      type: list
      elements: str
undeclared:
  description:
    - What refers to each engine that is on the host and not in O(engines). Units that run from it; unit files, live, on trial or declared;
      what was applied; processes that were started from it. Of the files of earlier generations, which nothing starts, none counts.
  type: dict
  returned: always
  sample:
    vllm-0.31.0: [the unit file /etc/systemd/system/vllm-small.service]
    vllm-0.30.0: []
"""

import glob
import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, systemd


def state(folder: str, digest: str) -> str:
    if not os.path.isdir(folder):
        return "absent"
    try:
        with open(os.path.join(folder, ".complete"), encoding="utf-8") as stream:
            return "complete" if json.load(stream).get("digest") == digest else "changed"
    except (FileNotFoundError, ValueError):
        return "partial"


def present(root: str) -> list[str]:
    """Names of the engines of which anything is there: each has its lock beside its folder, from before the first attempt to build it."""
    return [os.path.basename(path)[:-len(".lock")] for path in sorted(glob.glob(os.path.join(glob.escape(root), "*.lock")))]


def references(root: str, running: dict[str, str]) -> list[tuple[str, str]]:
    """Everything that may name an engine: how it is called, and its text."""
    found = [(unit, command) for unit, command in running.items()]
    folders = (models.LIVE_UNITS, models.TRIAL_UNITS, os.path.join(models.DECLARED, "*"))
    for path in sorted(path for folder in folders for path in glob.glob(os.path.join(folder, "vllm-*.service"))):
        found.append((f"the unit file {path}", models.read(path) or ""))
    for model, applied in models.read_applied().items():
        found.append((f"what was applied for {model}", os.path.join(root, str(applied.get("engine"))) + "/"))
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            found.append((f"the process {path.split('/')[2]}", (models.read(path) or "").replace("\0", " ")))
        except (OSError, UnicodeDecodeError):  # it has ended, or its name is no text
            continue
    return found


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/opt/modelhost/engines"},
            "engines": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    root = module.params["root"]
    units = systemd.show("vllm-*.service", ["ActiveState", "ExecStart"])
    running = {unit: each["ExecStart"] for unit, each in units.items() if each["ActiveState"] not in ("inactive", "failed")}
    found = {}
    for engine, digest in module.params["engines"].items():
        folder = os.path.join(root, engine)
        found[engine] = {
            "state": state(folder, digest),
            "used_by": [unit for unit, command in running.items() if folder + "/" in command],
        }
    undeclared = [engine for engine in present(root) if engine not in found]
    named = references(root, running) if undeclared else []
    module.exit_json(changed=False, engines=found, undeclared={
        engine: [what for what, text in named if os.path.join(root, engine) + "/" in text] for engine in undeclared})


if __name__ == "__main__":
    main()
