#!/usr/bin/python3
# GNU General Public License v3.0+ (see LICENSE)
"""The settings of a host that do not survive a boot, as the file /etc/modelhost-tuning.conf wishes them.

    modelhost-tuning apply      what is wished is set; what is no longer wished gets the value that it had before
    modelhost-tuning restore    everything gets the value that it had before

modelhost-tuning.service runs it at each boot, so this file needs nothing but Python. What a setting was before it was first touched is kept
in /run, and so for one boot: each boot begins with the values of the kernel and of the system's own configuration.
"""

from __future__ import annotations

import configparser
import functools
import glob
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from typing import Any, Callable, Dict, List, Tuple

CONF = "/etc/modelhost-tuning.conf"
RECORD = "/run/modelhost-tuning.json"
SHM = "/dev/shm"
PROC = "/proc"
PCI = "/sys/bus/pci/devices"
NVIDIA_SMI = "nvidia-smi"
TIMEOUT = 60

# Values by setting: "shm", "sysctl vm.nr_hugepages", "power_limit 0" (of a GPU), "acs 0000:00:01.1" (of a bridge)
Values = Dict[str, str]

# PCI Express Base Specification, "Access Control Services Extended Capability": its number, and where its control register is. NCCL's
# documentation (troubleshooting, "PCI Access Control Services") has all of that register cleared: setpci -s BRIDGE ECAP_ACS+0x6.w=0000
ACS_CAPABILITY, ACS_CONTROL = 0x000D, 6
NVIDIA, DISPLAY = "0x10de", "0x03"
BRIDGE = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")


class Failed(Exception):
    """A setting that cannot be read or made."""


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except OSError as error:
        raise Failed("%s: %s" % (path, error.strerror)) from error


def run(*words: str) -> str:
    """Output of a command. One that hangs in the kernel cannot be killed, and so is not waited for."""
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        said = process.communicate(timeout=TIMEOUT)[0]
    except OSError as error:
        raise Failed("%s: %s" % (words[0], error.strerror)) from error
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise Failed("`%s` did not end within %d s" % (" ".join(words), TIMEOUT)) from error
    if process.returncode:
        raise Failed("`%s` ended with status %d: %s" % (" ".join(words), process.returncode, " ".join(said.split())))
    return said


def parse(text: str) -> Dict[str, Dict[str, str]]:
    """Sections and names of the configuration, as they are spelled."""
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return {section: dict(parser[section]) for section in parser.sections()}


def wished(conf: Dict[str, Dict[str, str]], kind: str) -> Values:
    """The value of each single setting of one kind on this host: a wish about GPUs is one about each of them."""
    host = conf.get("host", {})
    if kind == "sysctl":
        return {"sysctl " + name: " ".join(value.split()) for name, value in conf.get("sysctl", {}).items()}
    if kind not in host:
        return {}
    if kind == "shm":
        page = os.sysconf("SC_PAGE_SIZE")
        return {"shm": str(-(-int(host["shm"]) // page) * page)}  # whole pages, as tmpfs has it
    if kind == "acs":
        return {"acs " + bridge: "0x0000" for bridge in bridges_with_acs()}
    return {"%s %d" % (kind, index): "%g" % float(host[kind]) for index in range(len(gpus()))}


def driver_is_loaded() -> bool:
    return os.path.exists(PROC + "/driver/nvidia/version")


@functools.lru_cache(maxsize=1)
def gpus() -> List[Values]:
    """What nvidia-smi says of each GPU, by its own numbers. None where no driver is loaded: as root, nvidia-smi would load one."""
    return parse_gpus(run(NVIDIA_SMI, "-q", "-x")) if driver_is_loaded() else []


def load_driver() -> None:
    """Early in a boot nobody may have used it yet. Where there is none, its settings wait."""
    try:
        run(NVIDIA_SMI, "-L")
    except Failed as error:
        print("no driver is loaded: %s" % error, flush=True)


def parse_gpus(text: str) -> List[Values]:
    """The element of the power limits was power_readings, its limit power_limit, up to version 11 of the document type (driver 525)."""
    try:
        found = xml.fromstring(text).findall("gpu")
    except xml.ParseError as error:
        raise Failed("nvidia-smi -q -x: %s" % error) from error
    values = []
    for gpu in found:
        power = gpu.find("gpu_power_readings")
        power = gpu.find("power_readings") if power is None else power
        text_of = {} if power is None else {element.tag: watts(element.text or "") for element in power}
        values.append({
            "persistence_mode": "1" if gpu.findtext("persistence_mode") == "Enabled" else "0",
            "power_limit": text_of.get("current_power_limit", text_of.get("power_limit", "")),
            "min": text_of.get("min_power_limit", ""),
            "max": text_of.get("max_power_limit", ""),
        })
    return values


def watts(text: str) -> str:
    """"450" of "450.00 W"; an empty text of "N/A"."""
    match = re.match(r"\d+(\.\d+)?", text)
    return "%g" % float(match.group()) if match else ""


def bridges_with_acs() -> List[str]:
    """The bridges above NVIDIA's GPUs that have ACS, the nearest to the processor first."""
    found: List[str] = []
    for device in sorted(glob.glob(PCI + "/*")):
        if read(device + "/vendor").strip() == NVIDIA and read(device + "/class").startswith(DISPLAY):
            above = [part for part in os.path.realpath(device).split("/")[:-1] if BRIDGE.match(part)]
            found += [bridge for bridge in above if bridge not in found and now("acs " + bridge)]
    return found


def acs_control(bridge: str) -> int:
    """Where the control register lies in the configuration space; 0 for a bridge without ACS. Only root sees this far."""
    with open("%s/%s/config" % (PCI, bridge), "rb") as stream:
        space = stream.read()
    at = 0x100  # where the extended capabilities begin, each with its number and the place of the next one
    seen = set()
    while at and at not in seen and at + 8 <= len(space):
        seen.add(at)
        header = int.from_bytes(space[at:at + 4], "little")
        if header & 0xFFFF == ACS_CAPABILITY:
            return at + ACS_CONTROL
        at = header >> 20
    return 0


def read_acs(bridge: str) -> str:
    at = acs_control(bridge)
    with open("%s/%s/config" % (PCI, bridge), "rb") as stream:
        stream.seek(at)
        return "0x%04x" % int.from_bytes(stream.read(2), "little") if at else ""


def write_acs(bridge: str, value: str) -> None:
    at = acs_control(bridge)
    if not at:  # another device has taken the address
        raise Failed("there is no ACS any more")
    with open("%s/%s/config" % (PCI, bridge), "r+b", buffering=0) as stream:
        stream.seek(at)
        stream.write(int(value, 16).to_bytes(2, "little"))


def sysctl_path(name: str) -> str:
    return "%s/sys/%s" % (PROC, name.replace(".", "/"))


def read_sysctl(name: str) -> str:
    with open(sysctl_path(name), encoding="utf-8") as stream:
        return " ".join(stream.read().split())


def write_sysctl(name: str, value: str) -> None:
    with open(sysctl_path(name), "w", encoding="utf-8") as stream:
        stream.write(value)


def shm_size() -> str:
    space = os.statvfs(SHM)
    return str(space.f_blocks * space.f_frsize)


# How each kind of setting is read and made, in the order in which they are made: a driver that unloads forgets its power limit.
KINDS: Dict[str, Tuple[Callable[[str], str], Callable[[str, str], Any]]] = {
    "shm": (lambda _: shm_size(), lambda _, size: run("mount", "-o", "remount,size=" + size, SHM)),
    "sysctl": (read_sysctl, write_sysctl),
    "persistence_mode": (lambda gpu: gpus()[int(gpu)]["persistence_mode"], lambda gpu, mode: run(NVIDIA_SMI, "-i", gpu, "-pm", mode)),
    "power_limit": (lambda gpu: gpus()[int(gpu)]["power_limit"], lambda gpu, limit: run(NVIDIA_SMI, "-i", gpu, "-pl", limit)),
    "acs": (read_acs, write_acs),
}


def now(setting: str) -> str:
    """The value; an empty text where there is no such setting, or no longer, as with a GPU that is gone."""
    kind, _, which = setting.partition(" ")
    try:
        return KINDS[kind][0](which)
    except (OSError, IndexError):
        return ""


def make(setting: str, value: str) -> None:
    kind, _, which = setting.partition(" ")
    try:
        KINDS[kind][1](which, value)
    except OSError as error:
        raise Failed(str(error)) from error


def recorded() -> Values:
    return json.loads(read(RECORD)) if os.path.exists(RECORD) else {}


def record(before: Values) -> None:
    if before:
        with open(RECORD, "w", encoding="utf-8") as stream:
            json.dump(before, stream, indent=1)
    elif os.path.exists(RECORD):
        os.unlink(RECORD)


def differences(wish: Values) -> Dict[str, Tuple[str, str]]:
    """What is otherwise: for each setting its value now, and the wished one or else the one that it had before."""
    targets = {**recorded(), **wish}
    values = {setting: now(setting) for setting in targets}
    return {
        setting: (values[setting], target) for setting, target in targets.items()
        if values[setting] != target and (setting in wish or values[setting])}


def apply(wish: Values) -> List[str]:
    """Make what is wished, give back the rest, and believe only what can be read afterwards; what failed."""
    before = recorded()
    record({**{setting: now(setting) for setting in wish}, **before})
    failed: Dict[str, str] = {}
    wanted = differences(wish)
    for setting, (_, target) in wanted.items():
        try:
            make(setting, target)
        except Failed as error:
            failed[setting] = "%s: %s" % (setting, error)
    gpus.cache_clear()
    for setting, (value, target) in wanted.items():
        after = now(setting)
        if after == target:
            print("%s: %s -> %s" % (setting, value, target), flush=True)
        else:
            failed.setdefault(setting, "%s: %s was asked for, and it is %s" % (setting, target, after or "unknown"))
    record({setting: value for setting, value in recorded().items() if setting in wish or setting in failed})
    return list(failed.values())


def main(words: List[str]) -> int:
    if words not in (["apply"], ["restore"]):
        print(__doc__, file=sys.stderr)
        return 2
    wish: Values = {}
    failed = []
    try:
        conf = parse(read(CONF)) if words == ["apply"] else {}
        if {"persistence_mode", "power_limit"} & set(conf.get("host", {})) and not driver_is_loaded():
            load_driver()
        for kind in KINDS:
            try:
                wish.update(wished(conf, kind))
            except Failed as error:  # without the driver's answer, memory is set all the same
                failed.append("%s: %s" % (kind, error))
        failed += apply(wish)
    except Failed as error:
        failed.append(str(error))
    for each in failed:
        print(each, file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
