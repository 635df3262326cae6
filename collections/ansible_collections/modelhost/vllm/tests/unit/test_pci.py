"""Device ids and configuration spaces."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import pci


@pytest.mark.parametrize(("device_id", "generation"), [
    # As pci.ids names them
    ("10de:13c2", "Maxwell"),       # GM204 [GeForce GTX 970]
    ("10de:15f8", "Pascal"),        # GP100GL [Tesla P100 PCIe 16GB]
    ("10de:17c8", "Maxwell"),       # GM200 [GeForce GTX 980 Ti]
    ("10de:1b06", "Pascal"),        # GP102 [GeForce GTX 1080 Ti]
    ("10de:1db6", "Volta"),         # GV100GL [Tesla V100 PCIe 32GB]
    ("10de:1eb8", "Turing"),        # TU104GL [Tesla T4]
    ("10de:20b2", "Ampere"),        # GA100 [A100 SXM4 80GB]
    ("10de:2184", "Turing"),        # TU116 [GeForce GTX 1660]
    ("10de:2204", "Ampere"),        # GA102 [GeForce RTX 3090]
    ("10de:2330", "Hopper"),        # GH100 [H100 SXM5 80GB]
    ("10de:2335", "Hopper"),        # GH100 [H200 SXM 141GB]
    ("10de:2571", "Ampere"),        # GA106 [RTX A2000 12GB]
    ("10de:26b5", "Ada Lovelace"),  # AD102GL [L40]
    ("10de:2901", "Blackwell"),     # GB100 [B200]
    ("10de:2b85", "Blackwell"),     # GB202 [GeForce RTX 5090]
    ("10de:2bb1", "Blackwell"),     # GB202GL [RTX PRO 6000 Blackwell Workstation Edition]
    ("10de:2bb4", "Blackwell"),     # GB202GL [RTX PRO 6000 Blackwell Max-Q Workstation Edition]
    ("10de:2bb5", "Blackwell"),     # GB202GL [RTX PRO 6000 Blackwell Server Edition]
    ("10de:0fc6", ""),              # GK107 [GeForce GTX 650]: older than any driver that serves
    ("10de:ffff", ""),
])
def test_the_generation_of_a_device(device_id, generation):
    assert pci.generation(device_id) == generation


def space(capabilities):
    """A configuration space with extended capabilities: offset, id, next, and its first register."""
    config = bytearray(4096)
    for offset, number, following, register in capabilities:
        config[offset:offset + 4] = (number | 1 << 16 | following << 20).to_bytes(4, "little")
        config[offset + 4:offset + 8] = register.to_bytes(4, "little")
    return bytes(config)


@pytest.mark.parametrize(("config", "control"), [
    (space([(0x100, 0x000D, 0, 0x001D005F)]), 0x001D),
    (space([(0x100, 0x0001, 0x148, 0), (0x148, 0x000D, 0, 0x0000005F)]), 0x0000),
    (space([(0x100, 0x0001, 0x148, 0), (0x148, 0x0003, 0, 7)]), None),
    (space([(0x100, 0x0001, 0x148, 0), (0x148, 0x0003, 0x100, 0)]), None),  # a ring
    (bytes([0xFF] * 4096), None),  # a device that has gone
    (bytes(256), None),  # conventional PCI
])
def test_access_control_services(config, control):
    assert pci.acs_control(config) == control


@pytest.mark.case("H5")
@pytest.mark.parametrize(("control", "expected"), [
    (0x1D, (True, True, True)), (0x00, (False, False, False)), (0x01, (True, False, False)), (0x04, (False, True, False)),
    (0x08, (False, False, True)), (0x10, (False, False, False))])
def test_the_bits_of_access_control_services(tmp_path, control, expected):
    folder = tmp_path / "bus/pci/devices/0000:00:01.1"
    folder.mkdir(parents=True)
    (folder / "config").write_bytes(space([(0x100, 0x000D, 0, control << 16 | 0x5F)]))
    validation, request, completion = expected
    assert pci.acs(str(tmp_path), "0000:00:01.1") == {
        "bridge": "0000:00:01.1", "source_validation": validation, "request_redirect": request, "completion_redirect": completion}
