"""Errors of GPUs in the kernel log, in the spellings of several drivers."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import kernel_log

TIME = "2026-02-14T05:03:41+0000 node-1 kernel: "


@pytest.mark.parametrize(("line", "address", "xid", "text"), [
    ("NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus", "0000:44:00.0", 79, "GPU has fallen off the bus"),
    ("NVRM: Xid (PCI:0000:DC:00): 45, pid=1818990, name=python3, Ch 1", "0000:dc:00.0", 45, "pid=1818990, name=python3, Ch 1"),
    ("NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.", "0000:10:1c.0", 63,
     "pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate."),
    ("NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000", "0000:01:00.0", 31,
     "Ch 0000000b, engmask 00000120, intr 10000000"),
    ("NVRM: Xid (PCI:0000:01:00.0): 13", "0000:01:00.0", 13, ""),
])
def test_an_error(line, address, xid, text):
    assert kernel_log.parse_xids(TIME + line) == [
        {"time": "2026-02-14T05:03:41+0000", "pci_address": address, "xid": xid, "text": text}]


def test_a_lost_gpu_over_several_lines():
    text = (
        TIME + "NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "                                             NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "                                             NVRM: fallen off the bus and is not responding to commands.\n"
        + TIME + "NVRM: The NVIDIA probe routine failed for 1 device(s).\n")
    assert kernel_log.parse_xids(text) == [
        {"time": "2026-02-14T05:03:41+0000", "pci_address": "0000:b3:00.0", "xid": 79, "text": "GPU has fallen off the bus"}]


def test_other_lines():
    text = "-- No entries --\n" + TIME + "nvidia 0000:01:00.0: enabling device\n" + TIME + "NVRM: loading NVIDIA UNIX Open Kernel Module\n"
    assert kernel_log.parse_xids(text) == []
