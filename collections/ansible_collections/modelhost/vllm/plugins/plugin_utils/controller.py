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
    return {
        "user": getpass.getuser(), "controller": platform.node(), "pid": pid,
        "run": f"{platform.node()} {_numbering() or '-'} {pid} {_started(pid)}"}


def has_ended(owner: dict[str, Any]) -> bool:
    """Whether the run is known to have ended: it was one of this machine, and its process is gone. False where that cannot be known."""
    machine, numbering, _pid, started = owner["run"].rsplit(" ", 3)
    here = machine == platform.node() and numbering == _numbering() != ""
    return here and _started(owner["pid"]) not in (started, "hidden")


def _numbering() -> str:
    """Where the number of a process means the same one: this boot, and this namespace (a container's). Empty without a /proc to ask."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{os.readlink(PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process began, which tells it from a later one of the same number; "gone" for one that has ended.

    "hidden" for one that is there, but whose /proc is another user's (proc(5), hidepid=).
    """
    try:
        fields = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "hidden" if _exists(pid) else "gone"
    return "gone" if fields[0] in "ZX" else fields[19]  # proc_pid_stat(5): state, starttime


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
