# GNU General Public License v3.0+ (see LICENSE)
"""NCCL on a host: variables that a library knows, that files add to those of a unit, that processes have, and that NCCL speaks of."""

from __future__ import annotations

import glob
import mmap
import os
import re
from typing import Any, Dict, Iterable, List, Optional

from ansible_collections.modelhost.vllm.plugins.module_utils import engine_process

# initEnvFunc(), src/misc/param.cc: this one comes last, behind $NCCL_CONF_FILE or, without that, .nccl.conf in the home of the user
SYSTEM_FILE = "/etc/nccl.conf"

# A text that ends like this is a name: the linker lays a name into the end of a longer text, so that no NUL need be in front of it.
_NAME = re.compile(rb"NCCL_[A-Z0-9_]+\0")
_VERSION = re.compile(rb"NCCL version ([0-9]+(?:\.[0-9]+)+)")

# What ncclDebugLog(), src/debug.cc, puts before a message, and the messages themselves, as they are in the library of NCCL 2.30.7
_MESSAGE = re.compile(r"NCCL (?:INFO|WARN) (.*)")
_TAKEN = [
    re.compile(r"(?P<name>NCCL_[A-Z0-9_]+) set (?:by environment )?to (?P<value>.*?)\.?\Z"),
    re.compile(r"Comm config \w+ reset to (?:\S+ by )?(?P<name>NCCL_[A-Z0-9_]+)=(?P<value>.*)\Z"),
    re.compile(r"Parsed environment variable (?P<name>NCCL_CTA_POLICY)=(?P<value>.*) to \d+\Z"),
]
_REFUSED = [
    re.compile(r"Invalid value .* for (?P<name>NCCL_[A-Z0-9_]+), using default"),
    re.compile(r"Invalid (?P<name>NCCL_[A-Z0-9_]+) "),
    re.compile(r"Unable to recognize (?P<name>NCCL_[A-Z0-9_]+)="),
    re.compile(r"No valid CTA policies found in (?P<name>NCCL_CTA_POLICY)="),
    re.compile(
        r"(?:NET/\w+ ?: ?)?(?P<name>NCCL_[A-Z0-9_]+)\b.* (?:too (?:low|big)|is not valid|being ignored|(?:unknown|invalid) value|"
        r"out of range|is (?:greater|less) than|not a power of two)"),
    re.compile(r"Error : no algorithm/protocol available for function .*?(?P<name>NCCL_(?:ALGO|PROTO)) was set to"),
    re.compile(r'Unrecognized (?:prefix|element) token ".*" when parsing "(?P<value>.*)"'),  # of NCCL_ALGO or NCCL_PROTO
]


def library(engine: str) -> str:
    """Path of the NCCL library of an engine, which torch brings; "" where it has none."""
    found = glob.glob(os.path.join(glob.escape(engine), "lib", "python3.*", "site-packages", "nvidia", "nccl", "lib", "libnccl.so.2"))
    return found[0] if found else ""


def library_facts(path: str) -> Dict[str, Any]:
    """Version of a library and all texts in it that may be the name of a variable; some of them are other constants.

    A name that is not among them is one that this library does not read.
    """
    names, version = set(), ""
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        at = text.find(b"NCCL_")
        while at >= 0:
            match = _NAME.match(text, at)
            if match:
                names.add(match.group()[:-1].decode())
            at = text.find(b"NCCL_", at + 1)
        at = text.find(b"NCCL version ")
        while at >= 0 and not version:
            match = _VERSION.match(text, at)
            version = match.group(1).decode() if match else ""
            at = text.find(b"NCCL version ", at + 1)
    return {"library": path, "version": version, "names": sorted(names)}


def file_settings(paths: Iterable[str]) -> Dict[str, Dict[str, str]]:
    """The variables that these files set, in their order: the first line that sets one counts.

    As setEnvFile() reads them: # in the first column, nothing is trimmed but the end of the line, quotes belong to the value.
    """
    found: Dict[str, Dict[str, str]] = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
                lines = stream.read().split("\n")
        except OSError:
            continue
        for number, line in enumerate(lines, 1):
            name, equals, value = line.rstrip("\r").partition("=")
            if equals and name.startswith("NCCL_"):
                found.setdefault(name, {"value": value, "origin": f"{path}:{number}"})
    return found


def files_of(environment: Dict[str, str], home: str) -> List[str]:
    """The files that NCCL reads in a process with this environment, of a user with this home."""
    own = environment.get("NCCL_CONF_FILE") or (os.path.join(home, ".nccl.conf") if home else "")
    return [path for path in (own, SYSTEM_FILE) if path]


def nccl_variables(pid: int) -> Optional[Dict[str, str]]:
    """NCCL's variables of a process; None where it has ended, or has written its title over its environment, as vLLM's engine does."""
    try:
        environment = engine_process.environment_of(pid)
    except OSError:
        return None
    return {name: value for name, value in environment.items() if name.startswith("NCCL_")} if environment else None


def processes_of(unit: str) -> List[int]:
    """The processes in the control group of a unit."""
    found = []
    for pid in sorted(int(name) for name in os.listdir(engine_process.PROC) if name.isdigit()):
        try:
            with open(f"{engine_process.PROC}/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as stream:
                if unit in re.split(r"[/\n]", stream.read()):
                    found.append(pid)
        except OSError:
            continue
    return found


def said(lines: Iterable[str], values: Dict[str, str]) -> Dict[str, Dict[str, str]]:
    """What NCCL said of each variable in its log: `taken` yes with the value that it read, or no with its message."""
    found: Dict[str, Dict[str, str]] = {}
    for line in lines:
        match = _MESSAGE.search(line)
        if not match:
            continue
        message = match.group(1).strip()
        for pattern in _REFUSED:
            refused = pattern.match(message)
            if refused:
                groups = refused.groupdict()
                names = [groups["name"]] if "name" in groups else [
                    name for name in ("NCCL_ALGO", "NCCL_PROTO") if values.get(name) == groups["value"]]
                found.update({name: {"taken": "no", "said": message} for name in names})
        for pattern in _TAKEN:
            taken = pattern.match(message)
            if taken and found.get(taken["name"], {}).get("taken") != "no":
                found[taken["name"]] = {"taken": "yes", "said": taken["value"]}
    return found


def effective(
    declared: Dict[str, str], processes: List[Dict[str, str]], files: Dict[str, Dict[str, str]], heard: Dict[str, Dict[str, str]],
) -> List[Dict[str, str]]:
    """Each variable that is set somewhere: name, value, origin, whether NCCL took it, and what it said.

    processes: NCCL's variables of the processes of a running unit, its main process first; without any, what is declared counts.
    """
    main = processes[0] if processes else declared
    merged = {name: {"value": "", "origin": "default"} for name in declared}  # a running process may still be without it
    merged.update(files)
    merged.update({name: {"value": value, "origin": "unit"} for name, value in main.items()})
    for each in processes[1:]:
        merged.update({name: {"value": value, "origin": "engine"} for name, value in each.items() if main.get(name) != value})
    return [{"name": name, **merged[name], **heard.get(name, {"taken": "unknown", "said": ""})} for name in sorted(merged)]
