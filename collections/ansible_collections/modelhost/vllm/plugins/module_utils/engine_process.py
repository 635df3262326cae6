# GNU General Public License v3.0+ (see LICENSE)
"""What the processes of an engine have loaded, and what their environment makes them load."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Iterable

from ansible_collections.modelhost.vllm.plugins.module_utils.engine_tree import Layout

PROC = "/proc"
# ld.so(8); Python's "Environment variables"; vLLM's envs.py; CUPTI, NVTX and NCCL plug-ins: each puts code before, or in place of, the
# engine's own. Paths below the engine are fine: the CPU build preloads two libraries of its own.
INJECTING = (
    "LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "VLLM_NCCL_SO_PATH",
    "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "TRITON_PTXAS_PATH")
SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/bin", "/usr/local/cuda", "/dev", "/memfd:", "/SYSV")
WRITABLE = ("/dev/shm",)  # everybody's, within those
_MAPPED = re.compile(r"[0-9a-f]+-[0-9a-f]+ (?P<mode>\S+) \S+ \S+ \S+ +(?P<path>/.*)\Z")
_LIBRARY = re.compile(r"\.so[.0-9]* \(deleted\)\Z")  # else a deleted file is memory that a library has asked for
_PATH = "import json, sys; json.dump([sys.path, sys.base_prefix], sys.stdout)"


def environment_findings(values: dict[str, str], allowed: Iterable[str]) -> list[str]:
    """What the variables of a process make it load from elsewhere than from `allowed` folders."""
    found = []
    for name in INJECTING:
        # A word without a slash is a folder for Python; else a switch, such as NCCL_NET_PLUGIN=none, or looked for on the library path.
        places = [place for place in re.split(r"[:\s]+", values.get(name, ""))
                  if place and ("/" in place or name.startswith("PYTHON")) and not _below(place, allowed)]
        if places:
            found.append("%s=%s makes it load from %s" % (name, values[name], ", ".join(places)))
    return found


def users(root: str) -> list[int]:
    """The processes that run from the environment at `root`: started as a program of it, or with a file of it mapped."""
    found = []
    for pid in sorted(int(name) for name in os.listdir(PROC) if name.isdigit()):
        try:
            with open("%s/%d/cmdline" % (PROC, pid), "rb") as stream:
                program = stream.read().partition(b"\0")[0]
            if program.startswith(os.fsencode(root) + b"/") or any(path.startswith(root + "/") for path in mapped(pid)):
                found.append(pid)
        except OSError:
            continue
    return found


def environment_of(pid: int) -> dict[str, str]:
    with open("%s/%d/environ" % (PROC, pid), encoding="utf-8", errors="surrogateescape") as stream:
        return dict(each.partition("=")[::2] for each in stream.read().split("\0") if "=" in each)


def arguments_of(pid: int) -> list[str]:
    with open("%s/%d/cmdline" % (PROC, pid), encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read().split("\0")[:-1]


def main_folder(arguments: list[str], cwd: str) -> str:
    """What begins the sys.path of a Python process that says nothing else: its folder for -c and -m, else that of its script.

    "/" where the process has written a title over its arguments.
    """
    words = iter(arguments[1:])
    for word in words:
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(words, None)
        elif not word.startswith("-"):
            return os.path.dirname(os.path.realpath(os.path.join(cwd, word)))
        elif not word.startswith(("-W", "-X", "--")) and ("c" in word or "m" in word):
            return cwd
    return "/"


def started(pid: int) -> float:
    """When a process began, in seconds since the epoch (proc(5): field 22 of stat, in ticks since the boot, whose time is in /proc/stat)."""
    with open("%s/%d/stat" % (PROC, pid), encoding="utf-8", errors="surrogateescape") as stream:
        ticks = int(stream.read().rpartition(")")[2].split()[19])
    with open(PROC + "/stat", encoding="utf-8") as stream:
        boot = next(int(line.split()[1]) for line in stream if line.startswith("btime "))
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def mapped(pid: int) -> list[str]:
    """The files that a process has mapped as code."""
    with open("%s/%d/maps" % (PROC, pid), encoding="utf-8", errors="surrogateescape") as stream:
        matches = map(_MAPPED.match, stream.read().splitlines())
    return sorted({match["path"] for match in matches if match and "x" in match["mode"]})


def map_findings(paths: Iterable[str], root: str, allowed: Iterable[str]) -> list[tuple[str, str]]:
    """The mapped files that are not the engine's, or that are not on the disk any more."""
    found = []
    for path in paths:
        if path.endswith(" (deleted)") and path.startswith(root + "/"):
            found.append((path[:-len(" (deleted)")], "is loaded in a text that is not on the disk any more"))
        elif (_LIBRARY.search(path) or not path.endswith(" (deleted)")) and not _below(path, [root, *allowed]):
            found.append((path, "is loaded, and is no file of the engine"))
    return found


def search_path(layout: Layout, environment: dict[str, str], folder: str, uid: int, gid: int) -> tuple[list[str], str]:
    """The sys.path and the base prefix that a process has with this environment, folder and user.

    What the interpreter imports at its start runs, as it has run in the process, and as the same user.
    """
    if not layout.interpreter:
        return [], ""
    environment = {name: value for name, value in environment.items() if name not in ("LD_PRELOAD", "LD_AUDIT")}
    become = {"user": uid, "group": gid, "extra_groups": []} if os.geteuid() == 0 else {}
    answer = subprocess.run(
        [layout.python, "-c", _PATH], env=environment, cwd=folder, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        universal_newlines=True, timeout=60, **become)
    return tuple(json.loads(answer.stdout))


def path_findings(path: Iterable[str], folder: str, allowed: Iterable[str]) -> list[tuple[str, str]]:
    """The entries of a sys.path that are not the engine's or its interpreter's."""
    found = []
    for entry in path:
        place = os.path.join(folder, entry) if entry else folder
        if not _below(place, allowed) and _modules(place):
            found.append((place, "is on sys.path, with %s" % ", ".join(_modules(place)[:5])))
    return found


def _modules(folder: str) -> list[str]:
    """What can be imported from a folder."""
    if not os.path.isdir(folder):
        return [os.path.basename(folder)] if os.path.isfile(folder) else []
    return sorted(name for name in os.listdir(folder) if name.endswith((".py", ".so", ".pyc"))
                  or os.path.isfile(os.path.join(folder, name, "__init__.py")))


def _below(path: str, folders: Iterable[str]) -> bool:
    path = path if path.startswith("/memfd:") else os.path.normpath(path)
    if any(path == folder or path.startswith(folder + "/") for folder in WRITABLE):
        return False
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") or folder.endswith(":") and path.startswith(folder)
               for folder in folders if folder)
