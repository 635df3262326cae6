#!/usr/bin/python3
"""What a boot does on the recorded machine: load the driver that the disk has, and show the machine in /sys and /proc.

    replay.py start|stop

Run by gpu-replay.service at each boot. The recording is /srv/gpu/recording, what comes of it is below /run/gpu. From the disk it reads
what a kernel would: /lib/modules/RELEASE/**/nvidia.ko, the files of modprobe.d, and the command line in /boot/grub/grub.cfg.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import machine

STATE = Path("/run/gpu")
RECORDING = Path(__file__).resolve().parent / "recording"
MOUNTED = ("/sys/bus/pci", "/sys/module", "/sys/firmware", "/proc/driver", "/proc/cmdline")
MODPROBE = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d")
GRUB = Path("/boot/grub/grub.cfg")
# A container may not write to /proc/sys. These belong to its own namespaces and to no other host.
OWN_SETTINGS = ("/proc/sys/net", *(f"/proc/sys/kernel/{name}" for name in ("shmmax", "shmall", "shmmni", "sem", "msgmax", "msgmnb")))


def modprobe_lines() -> list[list[str]]:
    """The words of each line of modprobe.d(5)."""
    files = [path for folder in MODPROBE for path in sorted(Path(folder).glob("*.conf"))]
    return [line.split() for path in files for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def module_options(lines: list[list[str]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for words in lines:
        if words[0] == "options":
            pairs = (word.partition("=") for word in words[2:])
            found.setdefault(words[1].replace("-", "_"), {}).update({name: value for name, _, value in pairs})
    return found


def module_on_disk() -> dict[str, str]:
    """The fields of the section .modinfo of nvidia.ko; none where there is no such file."""
    for path in sorted(Path("/lib/modules", os.uname().release).rglob("nvidia.ko")):
        fields = re.findall(rb"(?:^|\0)(version|license|signer)=([^\0]*)", path.read_bytes())
        return {name.decode(): value.decode() for name, value in fields}
    return {}


def command_line(recorded: str) -> str:
    """As GRUB passes the first entry of its menu; the recorded one where there is no menu."""
    match = re.search(r"^\s*linux\s+(.*)$", GRUB.read_text(), re.MULTILINE) if GRUB.is_file() else None
    return "BOOT_IMAGE=" + " ".join(match[1].split()) if match else recorded


def boot(recorded: dict[str, Any]) -> dict[str, Any]:
    lines = modprobe_lines()
    on_disk = module_on_disk()
    nouveau = ["blacklist", "nouveau"] not in lines
    refused = recorded["secure_boot"] == "enabled" and not on_disk.get("signer")
    loaded = "nouveau" if nouveau else "nvidia" if on_disk and not refused else ""
    return {
        "loaded": loaded, "version": on_disk.get("version", ""), "open": on_disk.get("license") != "NVIDIA",
        "cmdline": command_line(recorded["cmdline"]), "options": module_options(lines),
    }


def start() -> None:
    stop()
    recorded = machine.load(RECORDING)
    booted = boot(recorded)
    machine.build(recorded, booted, STATE / "root")
    (STATE / "boot.json").write_text(json.dumps(booted))
    for path in MOUNTED:
        subprocess.run(["mount", "--bind", f"{STATE}/root{path}", path], check=True)
    for path in OWN_SETTINGS:
        if not os.access(path, os.W_OK):
            subprocess.run(["mount", "--bind", path, path], check=True)
            subprocess.run(["mount", "-o", "remount,bind,rw", path], check=True)


def stop() -> None:
    """Undo start, so that the host boots anew without a reboot. /sys/firmware has a mount of the container too, which stays."""
    mounts = [line.split()[3:5] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for path in MOUNTED:
        if [f"/gpu/root{path}", path] in mounts:
            subprocess.run(["umount", "--lazy", path], check=True)
    shutil.rmtree(STATE, ignore_errors=True)
    STATE.mkdir(mode=0o755)


if __name__ == "__main__":
    {"start": start, "stop": stop}[sys.argv[1]]()
