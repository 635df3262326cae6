# GNU General Public License v3.0+ (see LICENSE)
"""Who runs a playbook, and whether that run is still there."""

from __future__ import annotations

import getpass
import os
import platform
from pathlib import Path
from typing import Any

PROC = Path("/proc")


def this_run() -> dict[str, Any]:
    """The run that this process, a worker of ansible-playbook, belongs to."""
    pid = os.getppid()
    return {"user": getpass.getuser(), "controller": platform.node(), "pid": pid, "run": f"{_machine()} {pid} {_started(pid)}"}


def has_ended(owner: dict[str, Any]) -> bool:
    """Whether the run is known to have ended: it was one of this machine, and its process is gone. False where that cannot be known."""
    machine, _pid, started = owner["run"].split(" ")
    return machine == _machine() != "" and started != _started(owner["pid"])


def _machine() -> str:
    """This boot of this machine; empty where there is no /proc to ask."""
    try:
        return platform.node() + ":" + (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""


def _started(pid: int) -> str:
    """When a process began, which tells it from a later one of the same number; "gone" for one that has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        return "gone"
    return "gone" if fields[0] in "ZX" else fields[19]  # proc_pid_stat(5): state, starttime
