"""What nvidia-smi prints, as data."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import nvidia_smi


def test_a_gpu_of_which_little_is_known():
    found = nvidia_smi.parse_query('<nvidia_smi_log><gpu id="00000000:C1:00.0"><product_name>N/A</product_name></gpu></nvidia_smi_log>')
    (gpu,) = found["gpus"]
    assert (gpu["name"], gpu["pci_address"], gpu["memory_total_mib"], gpu["persistence_mode"]) == ("", "0000:c1:00.0", None, None)
    assert gpu["ecc"] == {"enabled": None, "uncorrected": None, "corrected": None}
    assert (found["driver"], found["cuda"]) == ("", "")


@pytest.mark.parametrize("text", ["", "Unable to determine the device handle for GPU0000:C1:00.0: GPU is lost.", "<nvidia_smi_log>"])
def test_what_is_no_query(text):
    with pytest.raises(nvidia_smi.QueryError):
        nvidia_smi.parse_query(text)


def test_uncorrected_errors_of_both_schemas_are_added():
    text = (
        "<nvidia_smi_log><gpu><ecc_errors><volatile><sram_correctable>3</sram_correctable><sram_uncorrectable_parity>1"
        "</sram_uncorrectable_parity><sram_uncorrectable_secded>2</sram_uncorrectable_secded><dram_correctable>N/A</dram_correctable>"
        "<dram_uncorrectable>4</dram_uncorrectable></volatile></ecc_errors></gpu></nvidia_smi_log>")
    assert nvidia_smi.parse_query(text)["gpus"][0]["ecc"] == {"enabled": None, "uncorrected": 7, "corrected": 3}


def test_a_matrix_with_network_adapters_and_escapes():
    text = (
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
        "GPU0\t X \tSYS\tPHB\tSYS\t0-55,112-167\t0\n"
        "GPU1\tSYS\t X \tSYS\tPIX\t56-111\t1\n"
        "NIC0\tPHB\tSYS\t X \tSYS\t\t\n"
        "NIC1\tSYS\tPIX\tSYS\t X \t\t\n"
        "\nLegend:\n\n  X    = Self\n")
    assert nvidia_smi.parse_matrix(text) == {"0": {"1": "SYS"}, "1": {"0": "SYS"}}


def test_a_matrix_of_one_gpu_has_no_cells():
    assert nvidia_smi.parse_matrix("\tGPU0\tCPU Affinity\nGPU0\t X \t0-15\n") == {}


def test_nvlinks():
    text = (
        "GPU 0: NVIDIA RTX A4000 (UUID: GPU-0)\nDevice does not have or support Nvlink\n"
        "GPU 1: Quadro RTX 5000 (UUID: GPU-1)\nNVML: Unable to retrieve Nvlink information as all links are inActive\n"
        "GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-2)\n\t Link 0: 25 GB/s\n\t Link 1: 26.562 GB/s\n\t Link 2: <inactive>\n")
    assert nvidia_smi.parse_nvlinks(text) == {0: 0, 1: 0, 2: 2}


def test_compute_capabilities():
    assert nvidia_smi.parse_compute_capabilities("0, 12.0\n1, [N/A]\n10, 8.6\n") == {0: "12.0", 10: "8.6"}


def test_a_failure_is_one_sentence():
    assert nvidia_smi.sentence("Failed to initialize NVML: Unknown Error\n\n  again\n") == "Failed to initialize NVML: Unknown Error; again"
