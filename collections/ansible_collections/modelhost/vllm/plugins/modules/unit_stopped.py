#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: unit_stopped
short_description: Make sure that nothing is left of a model's unit
description:
  - Fails unless the unit is inactive. Ends every process that it started and that outlived it. Then waits until these are gone and nothing
    listens on the port of its configuration. An engine process that outlives its API server keeps the GPU's memory while the port looks free
    (vLLM issue 55510).
  - Processes are found by the unit's cgroup, and by C(MODELHOST_MODEL) in their environment, which the unit sets, in case one has left the
    cgroup. They get SIGKILL; those that the kernel does not end within O(patience) are a failure.
options:
  model:
    description: Name of the model.
    type: str
    required: true
  patience:
    description: Seconds until processes and port have to be gone.
    type: int
    default: 20
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Looks and reports, and never fails, since nothing was stopped.
"""

EXAMPLES = r"""
- name: Make sure that it is gone
  modelhost.vllm.unit_stopped:
    model: minimax-m25
"""

RETURN = r"""
processes:
  description: Process ids that outlived the unit. Outside of check mode they have been ended.
  type: list
  elements: int
  returned: always
listening:
  description: Whether something listens on the port.
  type: bool
  returned: always
"""

import contextlib
import os
import re
import signal
import socket
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models

PROC = "/proc"


def left_over(model: str) -> list[int]:
    """Processes that a model's unit started, wherever they are; without those that have ended and wait to be reaped."""
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


def end(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "patience": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    model = module.params["model"]
    port = models.address(model, models.read_applied())[1]
    state = models.show([model])[model]["ActiveState"]
    found = left_over(model)
    if module.check_mode:
        module.exit_json(changed=False, processes=found, listening=listens(port))
    if state not in ("inactive", "failed"):
        module.fail_json(msg=f"{model} is not gone: its unit is {state}", processes=found, listening=listens(port))
    deadline = time.monotonic() + module.params["patience"]
    end(found)
    left, listening = left_over(model), listens(port)
    while (left or listening) and time.monotonic() < deadline:
        time.sleep(0.2)
        end(left)
        left, listening = left_over(model), listens(port)
    if left or listening:
        module.fail_json(
            processes=left, listening=listening,
            msg="{0} is not gone after {1} s: processes left: {2}, port {3} {4}".format(
                model, module.params["patience"], left or "none", port, "still answers" if listening else "is free"))
    if found:
        module.warn(f"{model}: {len(found)} of its processes outlived the unit and were ended: {found}")
    module.exit_json(changed=bool(found), processes=found, listening=False)


if __name__ == "__main__":
    main()
