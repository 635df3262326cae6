# GNU General Public License v3.0+ (see LICENSE)
"""What the kernel log says of GPUs."""

from __future__ import annotations

import re
from typing import Any

# Lines of `journalctl --dmesg --output=short-iso`; in older drivers without "PCI:", and with the function of the device or without.
_XID = re.compile(
    r"^(?P<time>\S+) \S+ kernel: NVRM: Xid \((?:PCI:)?(?P<address>[0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+)(?:\.\d)?\):"
    r" (?P<xid>\d+),? ?(?P<text>.*)$")
# What newer drivers write of a lost GPU instead of Xid 79, over several lines.
_GPU = re.compile(r"^(?P<time>\S+) \S+ kernel: NVRM: The NVIDIA GPU (?P<address>[0-9a-fA-F:.]+)")
_FALLEN = "fallen off the bus"


def parse_xids(text: str) -> list[dict[str, Any]]:
    """The Xid errors of a kernel log: {"time", "pci_address", "xid", "text"}."""
    found = []
    speaking: re.Match[str] | None = None
    for line in text.splitlines():
        match = _XID.match(line)
        if match:
            found.append({
                "time": match["time"], "pci_address": match["address"].lower() + ".0", "xid": int(match["xid"]),
                "text": match["text"].strip()})
            continue
        speaking = _GPU.match(line) or speaking
        if speaking and _FALLEN in line:
            found.append({
                "time": speaking["time"], "pci_address": speaking["address"].lower(), "xid": 79, "text": "GPU has fallen off the bus"})
            speaking = None
    return found
