"""A recorded machine as files: the parts of /sys and /proc from which a host learns about its GPUs.

A recording's machine.json says what the hardware is (devices, IOMMU, firmware), and `boot` what a boot made of it: the loaded modules, the
kernel command line, the options of modules. Unit tests and the replaying host (replay.py) build the same files from it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

ACS = {"source_validation": 0x01, "request_redirect": 0x04, "completion_redirect": 0x08, "upstream_forwarding": 0x10}
EFI_GLOBAL, EFI_SHIM = "8be4df61-93ca-11d2-aa0d-00e098032b8c", "605dab50-e046-4300-abb6-3dd810dd8b23"
NVIDIA_MODULES = ("nvidia", "nvidia_modeset", "nvidia_uvm")


def load(recording: Path) -> dict[str, Any]:
    return json.loads((recording / "machine.json").read_text())


def build(machine: dict[str, Any], boot: dict[str, Any], root: Path) -> None:
    """Write the files below `root`/sys and `root`/proc.

    `boot`: loaded ("nvidia", "nouveau" or ""), version, open, cmdline, options (of modules, by module and name).
    """
    loaded = boot["loaded"]
    iommu = iommu_type(machine["iommu"], boot["cmdline"])
    put(root / "proc/cmdline", boot["cmdline"] + "\n")
    build_bus(machine["devices"], iommu, loaded, root / "sys/bus/pci")
    build_modules(boot, root)
    build_firmware(machine["secure_boot"], root / "sys/firmware")


def iommu_type(recorded: str, cmdline: str) -> str:
    """Documentation/admin-guide/kernel-parameters.txt: iommu=, intel_iommu=, amd_iommu=, iommu.passthrough=."""
    words = cmdline.split()
    if not recorded or {"iommu=off", "intel_iommu=off", "amd_iommu=off"} & set(words):
        return ""
    return "identity" if {"iommu=pt", "iommu.passthrough=1"} & set(words) else recorded


def build_bus(devices: list[dict[str, Any]], iommu: str, loaded: str, bus: Path) -> None:
    """Devices lie below their bridges in `tree`, as they do in /sys/devices; bus/pci/devices has links to them."""
    folders: dict[str, Path] = {}
    (bus / "devices").mkdir(parents=True, exist_ok=True)
    for device in devices:
        address = device["address"]
        parent = folders.get(device.get("parent", ""), bus / "tree" / f"pci{address[:7]}")
        folder = folders[address] = parent / address
        vendor, number = device["id"].split(":")
        speed, width, speed_max, width_max = device.get("link", (0, 0, 0, 0))
        for name, text in {
            "vendor": f"0x{vendor}", "device": f"0x{number}", "class": f"0x{device['class']}", "irq": "0", "revision": "0xa1",
            "subsystem_vendor": "0x0000", "subsystem_device": "0x0000", "numa_node": str(device.get("numa", -1)),
            "current_link_speed": speed_text(speed), "max_link_speed": speed_text(speed_max),
            "current_link_width": str(width), "max_link_width": str(width_max),
        }.items():
            put(folder / name, text + "\n")
        put(folder / "resource", "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13)
        (folder / "config").write_bytes(configuration(device, below(devices, address)))
        link(bus / "devices" / address, folder)
        driver = loaded if vendor == "10de" and device["class"].startswith("03") else device.get("driver", "")
        if driver:
            (bus / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            link(folder / "driver", bus / "drivers" / driver)
        if iommu and "group" in device:
            group = bus / "tree/iommu_groups" / str(device["group"])
            put(group / "type", iommu + "\n")
            link(folder / "iommu_group", group)


def configuration(device: dict[str, Any], buses: tuple[int, int, int]) -> bytes:
    """A configuration space that lspci and setpci read: header, PCI Express capability, and Access Control Services where it has them."""
    space = bytearray(4096)
    vendor, number = device["id"].split(":")
    bridge = device["class"].startswith("0604")

    def word(offset: int, value: int, size: int = 2) -> None:
        space[offset:offset + size] = value.to_bytes(size, "little")

    word(0x00, int(vendor, 16))
    word(0x02, int(number, 16))
    word(0x04, 0x0407)
    word(0x06, 0x0010)  # there is a list of capabilities
    word(0x08, int(device["class"], 16) << 8 | 0xA1, 4)
    word(0x0E, 1 if bridge else 0, 1)
    if bridge:
        space[0x18:0x1B] = bytes(buses)
    word(0x34, 0x40, 1)
    kind = 0 if not bridge else 5 if device.get("parent") else 4  # endpoint, upstream port of a switch, root port
    word(0x40, 0x0010 | (2 | kind << 4) << 16, 4)
    if "acs" in device:
        word(0x100, 0x0001000D, 4)
        word(0x104, 0x005F)
        word(0x106, sum(ACS[name] for name in device["acs"]))
    return bytes(space)


def below(devices: list[dict[str, Any]], address: str) -> tuple[int, int, int]:
    """Primary, secondary and last bus of a bridge."""
    buses = [int(address[5:7], 16)]
    wanted = {address}
    for device in devices:
        if device.get("parent") in wanted:
            wanted.add(device["address"])
            buses.append(int(device["address"][5:7], 16))
    return buses[0], min(buses[1:], default=0), max(buses[1:], default=0)


def build_modules(boot: dict[str, Any], root: Path) -> None:
    modules = root / "sys/module"
    modules.mkdir(parents=True, exist_ok=True)
    (root / "proc/driver").mkdir(parents=True, exist_ok=True)
    if boot["loaded"] == "nouveau":
        put(modules / "nouveau/initstate", "live\n")
    if boot["loaded"] != "nvidia":
        return
    for name in NVIDIA_MODULES:
        put(modules / name / "version", boot["version"] + "\n")
    options = boot.get("options", {})
    off = options.get("nvidia_uvm", {}).get("uvm_disable_hmm", "0").lower() in ("1", "y")
    put(modules / "nvidia_uvm/parameters/uvm_disable_hmm", "Y\n" if off else "N\n")
    kind = "Open Kernel Module for x86_64" if boot["open"] else "x86_64 Kernel Module"
    put(root / "proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {kind}  {boot['version']}  Release Build\n")
    parameters = {name.removeprefix("NVreg_"): value for name, value in options.get("nvidia", {}).items()}
    put(root / "proc/driver/nvidia/params", "".join(f"{name}: {value}\n" for name, value in sorted(parameters.items())))


def build_firmware(secure_boot: str, firmware: Path) -> None:
    firmware.mkdir(parents=True, exist_ok=True)
    if secure_boot != "unsupported":
        variables = firmware / "efi/efivars"
        variables.mkdir(parents=True)
        (variables / f"SecureBoot-{EFI_GLOBAL}").write_bytes(bytes((6, 0, 0, 0, secure_boot != "disabled")))
        if secure_boot == "disabled in shim":
            (variables / f"MokSBStateRT-{EFI_SHIM}").write_bytes(bytes((6, 0, 0, 0, 1)))


def speed_text(speed: float) -> str:
    return f"{speed:.1f} GT/s PCIe" if speed else "Unknown"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(path: Path, target: Path) -> None:
    """A relative link, so that the tree may be mounted elsewhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))
