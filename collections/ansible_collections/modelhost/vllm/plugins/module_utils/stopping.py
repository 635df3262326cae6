# GNU General Public License v3.0+ (see LICENSE)
"""The stop of models, with the proof that nothing is left of them.

An engine process that outlives its API server keeps the GPU's memory while the port looks free (vLLM issue 55510). Processes are found by the
unit's cgroup, and by MODELHOST_MODEL in their environment, which the unit sets, in case one has left the cgroup.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time

from ansible_collections.modelhost.vllm.plugins.module_utils import models, systemd

PROC = "/proc"


class NotGone(Exception):
    """What is left of a model, in one sentence."""


def stop(names: list[str], patience: int) -> dict[str, list[int]]:
    """Stop the units, and give the processes by model that outlived theirs and were ended.

    Each unit has its own TimeoutStopSec; then `patience` seconds are what the kernel gets to end processes and to free the ports. Raises
    NotGone, and CalledProcessError where systemd cannot stop a unit.
    """
    if names:
        systemd.run(["systemctl", "stop", *map(models.unit_name, names)])
    return {name: _prove(name, patience) for name in names}


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


def _prove(model: str, patience: int) -> list[int]:
    state = models.show([model])[model]["ActiveState"]
    if state not in ("inactive", "failed"):
        raise NotGone(f"{model} is not gone: its unit is {state}")
    port = models.address(model, models.read_applied())[1]
    deadline = time.monotonic() + patience
    found = left_over(model)
    _end(found)
    left, listening = left_over(model), listens(port)
    while (left or listening) and time.monotonic() < deadline:
        time.sleep(0.1)
        _end(left)
        left, listening = left_over(model), listens(port)
    if left or listening:
        raise NotGone("{0} is not gone after {1} s: processes left: {2}, port {3} {4}".format(
            model, patience, left or "none", port, "still answers" if listening else "is free"))
    return found


def _end(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
