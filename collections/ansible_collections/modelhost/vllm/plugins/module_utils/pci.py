# GNU General Public License v3.0+ (see LICENSE)
"""What the kernel shows of NVIDIA GPUs and of the bridges above them (Documentation/ABI/testing/sysfs-bus-pci), driver or not."""

from __future__ import annotations

import os
import re
from typing import Any

VENDOR = "10de"
# Base class and subclass of a device (PCI Code and ID Assignment): VGA and 3D controllers. NVSwitches are bridges of no other kind.
_GPU_CLASSES = ("0300", "0302")
_NVSWITCH_CLASS = "0680"
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")

# Device ids, first and last, of each generation by the name that nvidia-smi gives it: the code names (GM, GP, GV, TU, GA, GH, AD, GB) that
# pci.ids, https://pci-ids.ucw.cz, gives to the ids of vendor 10de in each of these blocks.
_GENERATIONS = (
    (0x1340, 0x15EF, "Maxwell"), (0x15F0, 0x15FF, "Pascal"), (0x1600, 0x17FF, "Maxwell"), (0x1B00, 0x1D7F, "Pascal"),
    (0x1D80, 0x1DFF, "Volta"), (0x1E00, 0x1FFF, "Turing"), (0x2080, 0x20FF, "Ampere"), (0x2180, 0x21FF, "Turing"),
    (0x2200, 0x22FF, "Ampere"), (0x2300, 0x23FF, "Hopper"), (0x2400, 0x25FF, "Ampere"), (0x2680, 0x28FF, "Ada Lovelace"),
    (0x2900, 0x31FF, "Blackwell"),
)  # fmt: skip

# PCI Express Base Specification, "Access Control Services": id of the extended capability, offset and bits of its control register.
_ACS_CAPABILITY = 0x000D
_ACS_CONTROL = 6
_ACS_BITS = {"source_validation": 0x01, "request_redirect": 0x04, "completion_redirect": 0x08}
_EXTENDED = 0x100


def generation(device_id: str) -> str:
    """The generation of "10de:2bb5"; "" for one that the table does not have."""
    number = int(device_id.partition(":")[2], 16)
    return next((name for first, last, name in _GENERATIONS if first <= number <= last), "")


def gpus(sys: str) -> list[dict[str, Any]]:
    """Every NVIDIA GPU on the bus, in the order of its address. `sys` is where sysfs is mounted."""
    return [_gpu(folder) for folder in _nvidia(sys) if _read(folder, "class")[2:6] in _GPU_CLASSES]


def has_nvswitch(sys: str) -> bool:
    return any(_read(folder, "class")[2:6] == _NVSWITCH_CLASS for folder in _nvidia(sys))


def acs(sys: str, bridge: str) -> dict[str, Any] | None:
    """Which of a bridge's access controls are on. None without the capability; PermissionError where it is root's to read."""
    with open(os.path.join(sys, "bus/pci/devices", bridge, "config"), "rb") as stream:
        config = stream.read(4096)
    if len(config) < _EXTENDED:  # the kernel gives others than root the first 64 bytes
        raise PermissionError(f"the configuration space of {bridge} is readable by root only")
    control = acs_control(config)
    return None if control is None else {"bridge": bridge, **{name: bool(control & bit) for name, bit in _ACS_BITS.items()}}


def acs_control(config: bytes) -> int | None:
    """The control register of the ACS capability in a configuration space."""
    offset, seen = _EXTENDED, set()
    while _EXTENDED <= offset <= len(config) - 8 and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset:offset + 4], "little")
        if header & 0xFFFF == _ACS_CAPABILITY:
            return int.from_bytes(config[offset + _ACS_CONTROL:offset + _ACS_CONTROL + 2], "little")
        offset = header >> 20
    return None


def _nvidia(sys: str) -> list[str]:
    devices = os.path.join(sys, "bus/pci/devices")
    folders = [os.path.join(devices, name) for name in sorted(os.listdir(devices))] if os.path.isdir(devices) else []
    return [folder for folder in folders if _read(folder, "vendor") == f"0x{VENDOR}"]


def _gpu(folder: str) -> dict[str, Any]:
    device_id = f"{VENDOR}:{_read(folder, 'device')[2:]}"
    node = _read(folder, "numa_node")
    return {
        "address": os.path.basename(folder),
        "device_id": device_id,
        "name": "",
        "generation": generation(device_id),
        "driver": _target(folder, "driver"),
        "numa_node": int(node) if node.isdigit() else None,  # -1 where the firmware does not say
        "link": {
            "speed_gts": _leading_number(_read(folder, "current_link_speed")),
            "speed_max_gts": _leading_number(_read(folder, "max_link_speed")),
            "width": _width(_read(folder, "current_link_width")),
            "width_max": _width(_read(folder, "max_link_width")),
        },
        "iommu_group": _target(folder, "iommu_group"),
        "iommu_type": _read(folder, "iommu_group/type"),
        "bridges": [part for part in os.path.realpath(folder).split(os.sep)[:-1] if _ADDRESS.match(part)],
    }


def _read(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def _target(folder: str, link: str) -> str:
    path = os.path.join(folder, link)
    return os.path.basename(os.path.realpath(path)) if os.path.exists(path) else ""


def _leading_number(text: str) -> float | None:
    """32.0 of "32.0 GT/s PCIe"; None of "Unknown"."""
    match = re.match(r"\d+(\.\d+)?", text)
    return float(match.group()) if match else None


def _width(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) else None
