#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: unit_stopped_info
short_description: Prove that a model's unit is gone
description:
  - Fails unless the unit is inactive, no process that it started is left, and nothing listens on its port. An engine process that outlives
    its API server keeps the GPU's memory while the port looks free (vLLM issue 55510).
  - Processes are found by the unit's cgroup, and by C(MODELHOST_MODEL) in their environment, which the unit sets, in case one has left the
    cgroup.
options:
  model:
    description: Name of the model.
    type: str
    required: true
  port:
    description: Port of the server.
    type: int
    required: true
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Looks and reports, and never fails, since nothing was stopped.
"""

EXAMPLES = r"""
- name: Prove that it is stopped
  modelhost.vllm.unit_stopped_info:
    model: minimax-m25
    port: 8000
"""

RETURN = r"""
processes:
  description: Process ids that are left.
  type: list
  elements: int
  returned: always
listening:
  description: Whether something listens on the port.
  type: bool
  returned: always
"""

import os
import re
import socket

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models


PROC = "/proc"


def left_over(model: str) -> list[int]:
    """Processes that a model's unit started, wherever they are."""
    unit, marker = models.unit_name(model), f"MODELHOST_MODEL={model}"
    return [
        int(name) for name in os.listdir(PROC)
        if name.isdigit() and (unit in parts(f"{PROC}/{name}/cgroup", r"[/\n]") or marker in parts(f"{PROC}/{name}/environ", r"\0"))]


def parts(path: str, separator: str) -> list[str]:
    """The parts of a file of /proc; none where the process has ended or hides it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return re.split(separator, stream.read())
    except OSError:
        return []


def listens(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    module = AnsibleModule(
        argument_spec={"model": {"type": "str", "required": True}, "port": {"type": "int", "required": True}},
        supports_check_mode=True,
    )
    model, port = module.params["model"], module.params["port"]
    state = models.show([model])[model]["ActiveState"]
    found = {"processes": left_over(model), "listening": listens(port)}
    if not module.check_mode and (state not in ("inactive", "failed") or found["processes"] or found["listening"]):
        module.fail_json(msg="{0} is not gone: its unit is {1}, processes left: {2}, port {3} {4}".format(
            model, state, found["processes"] or "none", port, "still answers" if found["listening"] else "is free"), **found)
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
