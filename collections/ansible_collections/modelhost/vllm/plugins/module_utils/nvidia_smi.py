# GNU General Public License v3.0+ (see LICENSE)
"""What nvidia-smi prints, as data. Nothing is guessed: a value that it does not give is None, "" or []."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

# How nvidia-smi writes that it has no value; the last two come with a GPU that has failed.
_NO_VALUE = {"", "N/A", "None", "Requested functionality has been deprecated", "Not Supported", "Unknown Error", "GPU requires reset"}
_YES_OR_NO = {"Enabled": True, "Yes": True, "Disabled": False, "No": False}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
# Schema 12 has one counter of uncorrectable errors of the SRAM, schema 13 two (by parity, by SECDED).
_UNCORRECTED = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
_CORRECTED = ("sram_correctable", "dram_correctable")


class QueryError(ValueError):
    """A text that is not the XML of `nvidia-smi -q -x`."""


def parse_query(text: str) -> dict[str, Any]:
    """Versions and GPUs of `nvidia-smi -q -x` (schemas nvsmi_device_v12 and v13)."""
    try:
        log = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise QueryError(f"no XML: {error}") from error
    return {
        "driver": _text(log, "driver_version"),
        "cuda": _text(log, "cuda_version"),
        "gpus": [_gpu(index, element) for index, element in enumerate(log.findall("gpu"))],
    }


def parse_compute_capabilities(text: str) -> dict[int, str]:
    """Compute capability by index, of `nvidia-smi --query-gpu=index,compute_cap --format=csv,noheader`: {0: "12.0"}."""
    return {int(index): capability for index, capability in re.findall(r"^(\d+), *(\d+\.\d+)\s*$", text, re.MULTILINE)}


def parse_matrix(text: str) -> dict[str, dict[str, str]]:
    """The cells between GPUs of `nvidia-smi topo -m` or `topo -p2p r`, by row and column: {"0": {"1": "NODE"}}."""
    columns: list[str] = []
    cells: dict[str, dict[str, str]] = {}
    for words in (_ESCAPE.sub("", line).split() for line in text.splitlines()):
        if not columns and words[:2] == ["GPU0", "GPU1"]:
            columns = words
        elif columns and words and re.fullmatch(r"GPU\d+", words[0]):
            row = zip(columns, words[1:])
            cells[words[0][3:]] = {
                column[3:]: cell for column, cell in row if re.fullmatch(r"GPU\d+", column) and column != words[0]}
    return cells


def parse_nvlinks(text: str) -> dict[int, int]:
    """Active links by index of the GPU, of `nvidia-smi nvlink --status`: {0: 18}."""
    active: dict[int, int] = {}
    gpu = -1
    for line in text.splitlines():
        head = re.match(r"GPU (\d+):", line)
        if head:
            gpu = int(head.group(1))
            active[gpu] = 0
        elif gpu >= 0 and re.match(r"\s+Link \d+: [\d.]+ GB/s", line):
            active[gpu] += 1
    return active


def sentence(text: str) -> str:
    """What nvidia-smi says when it fails, on one line."""
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def pci_address(text: str) -> str:
    """The address as sysfs writes it: "00000000:C1:00.0" -> "0000:c1:00.0"."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest else ""


def _gpu(index: int, gpu: ElementTree.Element) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": _text(gpu, "uuid"),
        "name": _text(gpu, "product_name"),
        "architecture": _text(gpu, "product_architecture"),
        "compute_capability": "",
        "pci_address": pci_address(_text(gpu, "pci/pci_bus_id") or gpu.get("id", "")),
        "memory_total_mib": _integer(gpu, "fb_memory_usage/total"),
        "memory_used_mib": _integer(gpu, "fb_memory_usage/used"),
        "persistence_mode": _flag(gpu, "persistence_mode"),
        "mig_mode": _flag(gpu, "mig_mode/current_mig"),
        "power": {
            "limit_w": _number(gpu, "gpu_power_readings/current_power_limit"),
            "default_w": _number(gpu, "gpu_power_readings/default_power_limit"),
            "min_w": _number(gpu, "gpu_power_readings/min_power_limit"),
            "max_w": _number(gpu, "gpu_power_readings/max_power_limit"),
        },
        "ecc": {
            "enabled": _flag(gpu, "ecc_mode/current_ecc"),
            "uncorrected": _sum(gpu, "ecc_errors/volatile", _UNCORRECTED),
            "corrected": _sum(gpu, "ecc_errors/volatile", _CORRECTED),
        },
        "rows": {
            "remapped_correctable": _integer(gpu, "remapped_rows/remapped_row_corr"),
            "remapped_uncorrectable": _integer(gpu, "remapped_rows/remapped_row_unc"),
            "pending": _flag(gpu, "remapped_rows/remapped_row_pending"),
            "failure": _flag(gpu, "remapped_rows/remapped_row_failure"),
        },
        "retired_pages": {
            "single_bit": _integer(gpu, "retired_pages/multiple_single_bit_retirement/retired_count"),
            "double_bit": _integer(gpu, "retired_pages/double_bit_retirement/retired_count"),
            "pending": _flag(gpu, "retired_pages/pending_retirement"),
        },
        "link": {
            "generation": _integer(gpu, "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
            "generation_max": _integer(gpu, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
            "width": _integer(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width"),
            "width_max": _integer(gpu, "pci/pci_gpu_link_info/link_widths/max_link_width"),
        },
        "nvlinks": None,
        "processes": [
            {"pid": _integer(each, "pid"), "name": _text(each, "process_name"), "memory_mib": _integer(each, "used_memory")}
            for each in gpu.findall("processes/process_info")],
    }


def _text(element: ElementTree.Element, path: str) -> str:
    text = (element.findtext(path) or "").strip().strip("[]")
    return "" if text in _NO_VALUE else text


def _number(element: ElementTree.Element, path: str) -> float | None:
    """The number before a unit: "97887 MiB", "16x", "600.00 W"."""
    match = re.match(r"\d+(\.\d+)?", _text(element, path))
    return float(match.group()) if match else None


def _integer(element: ElementTree.Element, path: str) -> int | None:
    number = _number(element, path)
    return None if number is None else int(number)


def _flag(element: ElementTree.Element, path: str) -> bool | None:
    return _YES_OR_NO.get(_text(element, path))


def _sum(element: ElementTree.Element, path: str, counters: tuple[str, ...]) -> int | None:
    counted = [_integer(element, f"{path}/{counter}") for counter in counters]
    known = [count for count in counted if count is not None]
    return sum(known) if known else None
