"""Recordings of GPU machines: each file says where it is from, and what was constructed has nothing that was never published."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

RECORDINGS = Path(__file__).resolve().parents[1] / "molecule/shared/gpu/recordings"
NAMES = sorted(path.name for path in RECORDINGS.iterdir())
QUERIES = sorted(path.parent.name for path in RECORDINGS.glob("*/query.xml"))


def provenance(name: str) -> dict[str, dict[str, Any]]:
    return yaml.safe_load((RECORDINGS / name / "provenance.yml").read_text())


def schema(name: str) -> str:
    return re.search(r'SYSTEM "(nvsmi_device_v\d+)\.dtd"', (RECORDINGS / name / "query.xml").read_text())[1]


def elements(name: str) -> set[str]:
    """The path of each element of a query."""
    def below(element: ElementTree.Element, path: str) -> set[str]:
        return {path}.union(*(below(child, f"{path}/{child.tag}") for child in element))

    root = ElementTree.parse(RECORDINGS / name / "query.xml").getroot()
    return below(root, root.tag)


def test_the_machines() -> None:
    assert NAMES == [
        "a100-sxm4-mig", "geforce-3090", "h100-sxm-x8", "hung", "mismatch", "mixed", "no-driver", "no-gpu", "rtx-pro-6000-maxq",
        "rtx-pro-6000-x7", "rtx-pro-6000-x8"]


@pytest.mark.parametrize("name", NAMES)
def test_each_file_says_where_it_is_from(name: str) -> None:
    told = provenance(name)
    assert set(told) == {path.name for path in (RECORDINGS / name).iterdir()} - {"provenance.yml"}
    for file, origin in told.items():
        assert set(origin) == {"kind", "source", "driver", "changed"}, file
        assert origin["kind"] in ("recorded", "public", "constructed"), file
        assert origin["source"] and origin["changed"], file
        if origin["kind"] == "public":
            assert origin["source"].startswith("https://") and origin["driver"], file
        elif origin["kind"] == "constructed":
            assert origin["source"].startswith("https://") or (RECORDINGS / origin["source"]).is_file(), file


@pytest.mark.parametrize("name", [name for name in QUERIES if provenance(name)["query.xml"]["kind"] == "constructed"])
def test_what_was_constructed_has_only_elements_that_were_published(name: str) -> None:
    public = [other for other in QUERIES if provenance(other)["query.xml"]["kind"] == "public" and schema(other) == schema(name)]
    assert public
    assert elements(name) - set().union(*map(elements, public)) == set()


@pytest.mark.parametrize("name", QUERIES)
def test_both_halves_of_a_recording_know_the_same_gpus(name: str) -> None:
    """The device on the bus (machine.json) and the GPU of nvidia-smi (query.xml): address, device id, width of the link."""
    devices = json.loads((RECORDINGS / name / "machine.json").read_text())["devices"]
    on_bus = {device["address"]: (device["id"], device["link"][1]) for device in devices if device["class"].startswith("03")}
    answering = {}
    for gpu in ElementTree.parse(RECORDINGS / name / "query.xml").getroot().findall("gpu"):
        number = gpu.findtext("pci/pci_device_id")
        width = gpu.findtext("pci/pci_gpu_link_info/link_widths/current_link_width")
        address = gpu.findtext("pci/pci_bus_id").lower().removeprefix("0000")
        answering[address] = (f"{number[4:]}:{number[:4]}".lower(), int(width.rstrip("x")))
    assert answering == on_bus


@pytest.mark.parametrize("name", NAMES)
def test_no_serial_number_and_no_uuid_of_a_real_gpu(name: str) -> None:
    text = "".join(path.read_text() for path in (RECORDINGS / name).iterdir())
    assert "<serial>" not in text
    assert re.findall(r"GPU-(?!00000000|12345678-aaaa)[0-9a-f]{8}-[0-9a-f-]+", text) == []
