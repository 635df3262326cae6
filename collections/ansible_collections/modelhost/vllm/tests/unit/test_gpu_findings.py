"""What is wrong with the GPUs of a host: the rules, on facts as gpu_info returns them."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import gpu_findings

ADDRESSES = ["0000:01:00.0", "0000:21:00.0"]
GPU = {
    "index": 0, "uuid": "GPU-0", "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "architecture": "Blackwell",
    "compute_capability": "12.0", "pci_address": "", "memory_total_mib": 97887, "memory_used_mib": 3, "persistence_mode": True,
    "mig_mode": False, "power": {"limit_w": 600.0, "default_w": 600.0, "min_w": 300.0, "max_w": 600.0},
    "ecc": {"enabled": True, "uncorrected": 0, "corrected": 12},
    "rows": {"remapped_correctable": 1, "remapped_uncorrectable": 0, "pending": False, "failure": False},
    "retired_pages": {"single_bit": None, "double_bit": None, "pending": None},
    "link": {"generation": 1, "generation_max": 5, "width": 16, "width_max": 16}, "nvlinks": 0, "processes": [],
}
PCI = {
    "address": "", "device_id": "10de:2bb5", "name": "", "generation": "Blackwell", "driver": "nvidia", "numa_node": 0,
    "link": {"speed_gts": 2.5, "speed_max_gts": 32.0, "width": 16, "width_max": 16}, "iommu_group": "11", "iommu_type": "identity",
    "bridges": ["0000:00:01.1"],
}
FACTS = {
    "gpus": [{**copy.deepcopy(GPU), "index": index, "pci_address": address} for index, address in enumerate(ADDRESSES)],
    "pci": [{**copy.deepcopy(PCI), "address": address} for address in ADDRESSES],
    "acs": [{"bridge": "0000:00:01.1", "source_validation": False, "request_redirect": False, "completion_redirect": False}],
    "driver": {
        "loaded": "580.105.08", "on_disk": "580.105.08", "license": "Dual MIT/GPL", "signer": "", "open": True, "userspace": "580.105.08",
        "cuda": "13.0", "error": "", "nvswitch": False},
    "topology": {"links": {}, "p2p_read": {}},
    "kernel": {"release": "6.12.48", "cmdline": "", "modules": ["nvidia", "nvidia_uvm"], "uvm_disable_hmm": False},
    "secure_boot": "disabled", "xids": [], "unknown": [],
}
MACHINE = {
    "count": 2, "name": "RTX PRO 6000 Blackwell", "compute_capability": "12.0", "memory": "96GB", "link_generation": 5, "link_width": 16,
    "nvlink": False,
}


def judge(change=None, machine=None):
    """The findings of a host that is in order but for `change`, which is made to a copy of its facts."""
    facts = copy.deepcopy(FACTS)
    if change:
        change(facts)
    return gpu_findings.judge(facts, {**MACHINE, **(machine or {})})


def put(path, value):
    """A change: facts at a path such as gpus.1.mig_mode."""
    def change(facts):
        *parents, last = path.split(".")
        for name in parents:
            facts = facts[int(name) if name.isdigit() else name]
        facts[last] = value
    return change


def without_driver(facts):
    facts["gpus"] = []
    facts["driver"] = {**facts["driver"], "loaded": "", "on_disk": "", "license": "", "open": None, "userspace": "", "cuda": ""}
    facts["kernel"]["modules"] = []
    facts["unknown"] = [{"what": "gpus", "why": "no driver is loaded"}, {"what": "pci.name", "why": "lspci is not installed"}]
    for gpu in facts["pci"]:
        gpu["driver"] = ""


def test_a_machine_in_order_is_silent():
    assert judge() == []


def test_only_what_is_declared_is_asked():
    assert gpu_findings.judge(FACTS, {"count": 2}) == []


def test_a_host_before_its_driver_is_in_order():
    assert judge(without_driver) == []


@pytest.mark.parametrize(("change", "check", "severity", "variable", "seen", "needed"), [
    (put("gpus.1.name", "NVIDIA GeForce RTX 3090"), "gpu_name", "error", "modelhost_gpus.name",
     "GPU 1: NVIDIA GeForce RTX 3090", "a name with 'RTX PRO 6000 Blackwell' in it"),
    (put("gpus.0.compute_capability", "8.6"), "gpu_compute_capability", "error", "modelhost_gpus.compute_capability", "GPU 0: 8.6", "12.0"),
    (put("gpus.0.memory_total_mib", 49140), "gpu_memory", "error", "modelhost_gpus.memory", "GPU 0: 51.5 GB", "96GB each"),
    (put("gpus.1.link.generation_max", 4), "gpu_link_generation", "error", "modelhost_gpus.link_generation",
     "GPU 1: generation 4 at most", "generation 5"),
    (put("pci.1.link.width", 8), "gpu_link_width", "error", "modelhost_gpus.link_width", "0000:21:00.0: x8 of x16", "x16"),
    (put("gpus.0.rows.failure", True), "gpu_memory_errors", "error", "", "GPU 0: a row of memory could not be replaced",
     "memory without faults"),
    (put("gpus.0.rows.pending", True), "gpu_memory_errors", "warning", "",
     "GPU 0: a faulty part of the memory waits to be replaced", "nothing pending"),
    (put("gpus.1.retired_pages.pending", True), "gpu_memory_errors", "warning", "",
     "GPU 1: a faulty part of the memory waits to be replaced", "nothing pending"),
    (put("gpus.1.ecc.uncorrected", 3), "gpu_memory_errors", "warning", "",
     "GPU 1: 3 uncorrected ECC errors since the driver was loaded", "no uncorrected errors"),
    (put("gpus.0.mig_mode", True), "gpu_mig", "error", "", "GPU 0: MIG is on", "whole GPUs"),
    (put("gpus.1.persistence_mode", False), "gpu_persistence", "warning", "modelhost_tuning.persistence_mode",
     "GPU 1: persistence mode is off", "on"),
    (put("unknown", [{"what": "xids", "why": "the kernel log is root's"}]), "gpu_unknown", "warning", "",
     "the kernel log is root's", "an answer"),
    (put("unknown", [{"what": "acs of 0000:00:01.1", "why": "readable by root only"}]), "gpu_unknown", "warning", "",
     "readable by root only", "an answer"),
])
def test_each_finding(change, check, severity, variable, seen, needed):
    (found,) = judge(change)
    assert found == {
        "check": check, "severity": severity, "variable": variable, "seen": seen, "needed": needed, "fix": found["fix"]}
    assert found["fix"]


@pytest.mark.case("H7")
def test_a_gpu_is_missing_and_the_kernel_log_says_which():
    def gone(facts):
        facts["gpus"], facts["pci"] = facts["gpus"][:1], facts["pci"][:1]
        facts["xids"] = [
            {"time": "2026-11-30T06:00:31+00:00", "pci_address": "0000:21:00.0", "xid": 79, "text": "GPU has fallen off the bus."},
            {"time": "2026-11-30T06:00:31+00:00", "pci_address": "0000:21:00.0", "xid": 154, "text": "recovery: Node Reboot Required"}]

    missing, xid = judge(gone)
    assert (missing["check"], missing["severity"], missing["variable"], missing["needed"]) == (
        "gpu_count", "error", "modelhost_gpus.count", "2 GPUs")
    assert missing["seen"] == "1 of 2 GPUs (0000:01:00.0); 0000:21:00.0 is gone from the PCI bus"
    assert (xid["check"], xid["severity"]) == ("xid", "error")
    assert xid["seen"] == (
        "0000:21:00.0: Xid 79 (GPU has fallen off the bus) at 2026-11-30T06:00:31+00:00,"
        " Xid 154 (recovery: Node Reboot Required) at 2026-11-30T06:00:31+00:00")


@pytest.mark.case("H7")
@pytest.mark.parametrize(("change", "seen"), [
    (lambda facts: facts["gpus"].pop(), "1 of 2 GPUs (0000:01:00.0); 0000:21:00.0 is on the PCI bus, and nvidia-smi does not show it"),
    (put("pci.1.driver", "vfio-pci"), "1 of 2 GPUs (0000:01:00.0); 0000:21:00.0 is held by vfio-pci"),
    (lambda facts: (without_driver(facts), facts["pci"].pop()), "1 of 2 GPUs (0000:01:00.0)"),
    (lambda facts: (without_driver(facts), facts["pci"].clear()), "0 of 2 GPUs (none)"),
])
def test_fewer_gpus_than_declared(change, seen):
    (found,) = judge(change)
    assert (found["check"], found["severity"], found["seen"]) == ("gpu_count", "error", seen)


def test_more_gpus_than_declared_is_a_warning():
    (found,) = judge(machine={"count": 1})
    assert (found["check"], found["severity"], found["seen"]) == ("gpu_count", "warning", "2 GPUs: 0000:01:00.0, 0000:21:00.0")


@pytest.mark.parametrize(("xid", "severity"), [
    *((xid, "error") for xid in (48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140)),
    *((xid, "warning") for xid in (13, 31, 43, 45, 63, 92, 94, 154)),
])
def test_which_errors_of_a_gpu_keep_a_model_from_serving(xid, severity):
    found = judge(put("xids", [{"time": "now", "pci_address": "0000:01:00.0", "xid": xid, "text": "said"}]))
    assert [(each["check"], each["severity"]) for each in found] == [("xid", severity)]


def test_an_idle_link_has_lowered_its_generation():
    def idle(facts):
        facts["gpus"][0]["link"]["generation"], facts["pci"][0]["link"]["speed_gts"] = 1, 2.5
    assert judge(idle) == []


def test_a_narrow_link_without_a_declaration():
    (found,) = judge(put("pci.0.link.width", 4), {"link_width": 0})
    assert (found["severity"], found["seen"], found["needed"]) == ("warning", "0000:01:00.0: x4 of x16", "the width of the GPU")


@pytest.mark.case("H5")
def test_peers_over_pci_express():
    def hindered(facts):
        for gpu in facts["pci"]:
            gpu["iommu_type"] = "DMA-FQ"
        facts["acs"][0]["request_redirect"] = True

    iommu, acs = judge(hindered)
    assert (iommu["severity"], iommu["variable"], iommu["seen"]) == (
        "warning", "modelhost_tuning.kernel_arguments", "the IOMMU translates addresses (DMA-FQ) of 2 GPUs")
    assert iommu["fix"] == "modelhost_tuning.kernel_arguments: [iommu=pt], and a reboot; or switch the IOMMU off in the firmware"
    assert (acs["severity"], acs["variable"], acs["seen"]) == (
        "warning", "modelhost_tuning.acs_redirect_off",
        "PCI Express Access Control Services are on at 0000:00:01.1: what GPUs send each other takes the way through the root")
    assert acs["fix"] == "modelhost_tuning.acs_redirect_off: true; or switch ACS off in the firmware"


@pytest.mark.case("H5")
@pytest.mark.parametrize(("count", "nvlinks"), [(1, 0), (2, 18)])
def test_where_nothing_goes_over_pci_express(count, nvlinks):
    def hindered(facts):
        facts["gpus"], facts["pci"] = facts["gpus"][:count], facts["pci"][:count]
        facts["gpus"][0]["nvlinks"] = nvlinks
        facts["pci"][0]["iommu_type"], facts["acs"][0]["request_redirect"] = "DMA", True
    assert judge(hindered, {"count": count}) == []


@pytest.mark.parametrize(("nvlinks", "seen", "needed"), [
    ([0, 0], "GPU 0 and 1: 0 active links", "active links"),
    ([None, None], "GPU 0 and 1: 0 active links", "active links"),
    ([18, 17], "GPU 1: 17 active links", "18 active links each"),
])
def test_links_that_are_missing(nvlinks, seen, needed):
    def change(facts):
        for gpu, count in zip(facts["gpus"], nvlinks):
            gpu["nvlinks"] = count
    (found,) = judge(change, {"nvlink": True})
    assert (found["check"], found["severity"], found["seen"], found["needed"]) == ("gpu_nvlink", "error", seen, needed)


def test_links_that_are_all_there():
    assert judge(lambda facts: [gpu.update(nvlinks=18) for gpu in facts["gpus"]], {"nvlink": True}) == []


@pytest.mark.case("H6")
def test_nouveau_is_said_and_left_to_the_role_that_repairs_it():
    def nouveau(facts):
        without_driver(facts)
        facts["kernel"]["modules"] = ["nouveau"]
    (found,) = judge(nouveau)
    assert (found["check"], found["severity"], found["seen"]) == ("nouveau", "warning", "the module nouveau is loaded")
    assert "-e reboot_allowed=true" in found["fix"]


@pytest.mark.case("H3")
def test_secure_boot_before_there_is_a_module_is_left_to_the_role_that_chooses_it():
    assert judge(lambda facts: (without_driver(facts), facts.update(secure_boot="enabled"))) == []


@pytest.mark.case("H3")
def test_secure_boot_with_a_module_that_was_not_loaded():
    def secure(facts):
        without_driver(facts)
        facts["driver"]["on_disk"], facts["secure_boot"] = "580.105.08", "enabled"
    (found,) = judge(secure)
    assert (found["check"], found["severity"], found["variable"], found["seen"]) == (
        "secure_boot", "warning", "modelhost_driver.secure_boot", "Secure Boot is on, and module 580.105.08 is not signed")
    assert "signed" in found["fix"] and "enrol" in found["fix"]


@pytest.mark.case("H3")
def test_secure_boot_with_a_module_for_the_next_boot():
    def secure(facts):
        facts["secure_boot"], facts["driver"]["on_disk"] = "enabled", "590.48.01"
    assert [(each["check"], each["seen"]) for each in judge(secure)] == [
        ("gpu_driver", "module 580.105.08 is loaded, 590.48.01 is on the disk"),
        ("secure_boot", "Secure Boot is on, and module 590.48.01 is not signed")]


@pytest.mark.case("H3")
@pytest.mark.parametrize("signer", ["", "Canonical Ltd. Kernel Module Signing"])
def test_secure_boot_with_a_module_that_was_accepted(signer):
    def secure(facts):
        facts["secure_boot"], facts["driver"]["signer"] = "enabled", signer
    assert judge(secure) == []


def test_nvlinks_are_missed_only_where_they_are_declared():
    missed = put("unknown", [{"what": "gpus.nvlinks", "why": "nvidia-smi nvlink --status: exit status 255"}])
    assert judge(missed) == []
    assert [each["check"] for each in judge(missed, {"nvlink": True})] == ["gpu_nvlink", "gpu_unknown"]


@pytest.mark.parametrize(("changes", "seen"), [
    ({"userspace": "580.126", "error": "Failed to initialize NVML: Driver/library version mismatch"},
     "module 580.105.08 is loaded, the library is 580.126 (Failed to initialize NVML: Driver/library version mismatch)"),
    ({"userspace": "580.10", "error": "mismatch"}, "module 580.105.08 is loaded, the library is 580.10 (mismatch)"),
    ({"on_disk": "590.48.01"}, "module 580.105.08 is loaded, 590.48.01 is on the disk"),
    ({"userspace": "", "error": "No devices were found"}, "nvidia-smi: No devices were found"),
])
def test_a_driver_that_does_not_answer_as_it_should(changes, seen):
    (found,) = judge(lambda facts: facts["driver"].update(changes))
    assert (found["check"], found["severity"], found["seen"]) == ("gpu_driver", "warning", seen)


def test_a_driver_that_hangs():
    def hung(facts):
        facts["gpus"], facts["driver"]["userspace"] = [], ""
        facts["unknown"] = [{"what": "gpus", "why": "nvidia-smi -q -x did not answer within 30 s"}]
    (found,) = judge(hung)
    assert (found["check"], found["severity"], found["seen"]) == ("gpu_driver", "error", "nvidia-smi -q -x did not answer within 30 s")


@pytest.mark.parametrize(("unit", "seen"), [
    ("vllm-small.service", None),
    ("modelhost-job-1.service", None),
    ("ollama.service", "GPU 1: process 4711 (/usr/bin/ollama) of ollama.service, 20000 MiB"),
    ("", "GPU 1: process 4711 (/usr/bin/ollama) of no unit, 20000 MiB"),
    ("myvllm-small.service", "GPU 1: process 4711 (/usr/bin/ollama) of myvllm-small.service, 20000 MiB"),
])
def test_memory_that_others_hold(unit, seen):
    found = judge(put("gpus.1.processes", [{"pid": 4711, "name": "/usr/bin/ollama", "memory_mib": 20000, "unit": unit}]))
    assert [(each["check"], each["severity"], each["seen"]) for each in found] == ([("gpu_processes", "warning", seen)] if seen else [])


def test_everything_is_said_at_once():
    def much(facts):
        facts["gpus"][0].update(mig_mode=True, persistence_mode=False)
        facts["pci"][1]["link"]["width"] = 8
        facts["gpus"].pop()
        facts["driver"]["on_disk"], facts["secure_boot"] = "590.48.01", "enabled"
    assert [each["check"] for each in judge(much)] == [
        "gpu_count", "gpu_driver", "secure_boot", "gpu_link_width", "gpu_mig", "gpu_persistence"]
