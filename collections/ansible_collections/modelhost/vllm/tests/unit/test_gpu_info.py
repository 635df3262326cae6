"""gpu_info on recorded machines: their /sys and /proc below a temporary folder, and the stand-in of nvidia-smi on the PATH."""

from __future__ import annotations

import importlib.util
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelhost.vllm.plugins.module_utils import gpu_findings, host_report, report_words
from ansible_collections.modelhost.vllm.plugins.modules import gpu_info

ROOT = Path(__file__).resolve().parents[6]
SHARED = ROOT / "molecule/shared/gpu"


def load_machine() -> Any:
    spec = importlib.util.spec_from_file_location("machine", SHARED / "machine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MACHINE = load_machine()


def command(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A recorded machine, booted as it was recorded."""

    def boot(name: str) -> Path:
        recording, commands, state = SHARED / "recordings" / name, tmp_path / "bin", tmp_path / "state"
        recorded = MACHINE.load(recording)
        booted = {**recorded["booted"], "cmdline": recorded["cmdline"]}
        MACHINE.build(recorded, booted, tmp_path)
        commands.mkdir()
        state.mkdir()
        (state / "boot.json").write_text(json.dumps(booted))
        (commands / "nvidia-smi").symlink_to(SHARED / "nvidia-smi")
        command(commands, "journalctl", f"cat {recording}/kernel.log 2>/dev/null || true")
        command(commands, "modinfo", "exit 1")
        command(commands, "lspci", "exit 0")
        monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        monkeypatch.setenv("GPU_RECORDING", str(recording))
        monkeypatch.setenv("GPU_STATE", str(state))
        monkeypatch.setattr(gpu_info, "SYS", str(tmp_path / "sys"))
        monkeypatch.setattr(gpu_info, "PROC", str(tmp_path / "proc"))
        return tmp_path

    return boot


def test_a_gpu_of_eight(replay, call):
    replay("rtx-pro-6000-x8")
    found = call(gpu_info)
    assert found["changed"] is False
    assert len(found["gpus"]) == 8
    assert found["gpus"][7] == {
        "index": 7, "uuid": "GPU-00000000-0000-4000-8000-000000000007", "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "architecture": "Blackwell", "compute_capability": "12.0", "pci_address": "0000:e1:00.0",
        "memory_total_mib": 97887, "memory_used_mib": 3, "persistence_mode": False, "mig_mode": False,
        "power": {"limit_w": 600.0, "default_w": 600.0, "min_w": 300.0, "max_w": 600.0},
        "ecc": {"enabled": True, "uncorrected": 0, "corrected": 0},
        "rows": {"remapped_correctable": 0, "remapped_uncorrectable": 0, "pending": False, "failure": False},
        "retired_pages": {"single_bit": None, "double_bit": None, "pending": None},
        "link": {"generation": 1, "generation_max": 5, "width": 16, "width_max": 16}, "nvlinks": 0, "processes": [],
    }
    assert found["pci"][7] == {
        "address": "0000:e1:00.0", "device_id": "10de:2bb5", "name": "", "generation": "Blackwell", "driver": "nvidia", "numa_node": 1,
        "link": {"speed_gts": 2.5, "speed_max_gts": 32.0, "width": 16, "width_max": 16},
        "iommu_group": "25", "iommu_type": "DMA-FQ", "bridges": ["0000:e0:01.1"],
    }
    assert found["acs"][0] == {
        "bridge": "0000:00:01.1", "source_validation": True, "request_redirect": True, "completion_redirect": True}
    assert len(found["acs"]) == 8
    assert found["driver"] == {
        "loaded": "580.105.08", "on_disk": "", "license": "", "signer": "", "open": True, "userspace": "580.105.08", "cuda": "13.0",
        "error": "", "nvswitch": False}
    assert found["topology"]["links"]["0"] == {"1": "PHB", "2": "PHB", "3": "PHB", "4": "SYS", "5": "SYS", "6": "SYS", "7": "SYS"}
    assert found["topology"]["p2p_read"]["7"] == {"0": "OK", "1": "OK", "2": "OK", "3": "OK", "4": "OK", "5": "OK", "6": "OK"}
    assert found["kernel"]["cmdline"] == "BOOT_IMAGE=/boot/vmlinuz-6.12.48+deb13-amd64 root=/dev/nvme0n1p2 ro quiet"
    assert found["kernel"]["modules"] == ["nvidia", "nvidia_modeset", "nvidia_uvm"]
    assert found["kernel"]["uvm_disable_hmm"] is False
    assert (found["secure_boot"], found["xids"], found["unknown"]) == ("disabled", [], [])


def test_nvlink_and_nvswitch(replay, call):
    replay("h100-sxm-x8")
    found = call(gpu_info)
    assert [gpu["nvlinks"] for gpu in found["gpus"]] == [18] * 8
    assert found["driver"]["nvswitch"] is True
    assert found["topology"]["links"]["3"]["5"] == "NV18"
    assert found["pci"][0]["bridges"] == ["0000:15:01.0", "0000:16:00.0", "0000:17:00.0"]
    assert [each["bridge"] for each in found["acs"]][:2] == ["0000:15:01.0", "0000:17:00.0"]
    assert found["acs"][0]["request_redirect"] is False
    assert (found["pci"][0]["iommu_group"], found["pci"][0]["iommu_type"]) == ("", "")


def test_a_published_recording_with_a_process(replay, call):
    replay("rtx-pro-6000-maxq")
    (gpu,) = call(gpu_info)["gpus"]
    assert gpu["processes"] == [{"pid": 116860, "name": "/opt/llama.cpp/build/bin/llama-server", "memory_mib": 65710, "unit": ""}]
    assert (gpu["persistence_mode"], gpu["mig_mode"]) == (True, None)
    assert gpu["ecc"] == {"enabled": False, "uncorrected": None, "corrected": None}
    assert gpu["link"] == {"generation": 1, "generation_max": 4, "width": 16, "width_max": 16}
    assert gpu["power"] == {"limit_w": 300.0, "default_w": 300.0, "min_w": 250.0, "max_w": 325.0}


def test_a_process_and_its_unit(replay, call):
    root = replay("rtx-pro-6000-maxq")
    (root / "proc/116860").mkdir()
    (root / "proc/116860/cgroup").write_text("0::/system.slice/vllm-small.service\n")
    assert call(gpu_info)["gpus"][0]["processes"][0]["unit"] == "vllm-small.service"


def test_mig_and_the_older_schema(replay, call):
    replay("a100-sxm4-mig")
    found = call(gpu_info)
    (gpu,) = found["gpus"]
    assert (gpu["mig_mode"], gpu["ecc"]["uncorrected"], gpu["rows"]["failure"], gpu["nvlinks"]) == (True, 0, None, 0)
    assert (found["driver"]["open"], found["driver"]["cuda"], found["pci"][0]["generation"]) == (False, "12.2", "Ampere")


def test_gpus_of_two_kinds(replay, call):
    replay("mixed")
    found = call(gpu_info)
    assert [(gpu["name"], gpu["compute_capability"]) for gpu in found["gpus"]] == [
        ("NVIDIA GeForce RTX 3090", "8.6"), ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0")]
    assert [gpu["generation"] for gpu in found["pci"]] == ["Ampere", "Blackwell"]
    assert found["topology"]["p2p_read"] == {"0": {"1": "NS"}, "1": {"0": "NS"}}
    assert found["secure_boot"] == "enabled"


@pytest.mark.case("H7")
def test_a_gpu_that_has_gone_and_a_narrow_link(replay, call):
    replay("rtx-pro-6000-x7")
    found = call(gpu_info)
    assert len(found["pci"]) == len(found["gpus"]) == 7
    assert found["xids"] == [
        {"time": "2026-11-30T06:00:31+00:00", "pci_address": "0000:c1:00.0", "xid": 79,
         "text": "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."},
        {"time": "2026-11-30T06:00:31+00:00", "pci_address": "0000:c1:00.0", "xid": 154,
         "text": "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"},
    ]
    assert [gpu["link"]["width"] for gpu in found["gpus"]] == [16, 16, 16, 8, 16, 16, 16]


def test_no_gpu_is_nothing_unknown(replay, call):
    replay("no-gpu")
    found = call(gpu_info)
    assert (found["gpus"], found["pci"], found["acs"], found["unknown"]) == ([], [], [], [])


@pytest.mark.case("H6")
def test_nouveau_instead_of_the_driver(replay, call):
    replay("no-driver")
    found = call(gpu_info)
    assert (found["gpus"], found["pci"][0]["driver"], found["kernel"]["modules"]) == ([], "nouveau", ["nouveau"])
    assert (found["driver"]["loaded"], found["driver"]["error"], found["driver"]["open"]) == ("", "no driver is loaded", None)
    assert found["unknown"] == [{"what": "gpus", "why": "no driver is loaded"}]


def test_no_driver_is_loaded_by_asking(replay, call):
    root = replay("no-driver")
    (root / "bin/nvidia-smi").unlink()
    command(root / "bin", "nvidia-smi", f"touch {root}/asked")
    call(gpu_info)
    assert not (root / "asked").exists()


def test_driver_and_library_do_not_match(replay, call):
    replay("mismatch")
    driver = call(gpu_info)["driver"]
    assert (driver["loaded"], driver["userspace"], driver["open"]) == ("580.173.02", "580.178", False)
    assert driver["error"] == "Failed to initialize NVML: Driver/library version mismatch; NVML library version: 580.178"


def test_a_driver_that_hangs_is_not_waited_for(replay, call, monkeypatch):
    replay("hung")
    monkeypatch.setattr(gpu_info, "TIMEOUT", 1)
    begun = time.monotonic()
    found = call(gpu_info)
    assert time.monotonic() - begun < 5
    assert found["unknown"] == [{"what": "gpus", "why": "nvidia-smi -q -x did not answer within 1 s"}]
    assert (found["pci"][0]["driver"], found["driver"]["loaded"]) == ("nvidia", "580.105.08")


def test_what_cannot_be_killed_is_not_waited_for_either(replay, call, monkeypatch):
    replay("hung")
    spared = []
    kill = gpu_info.subprocess.Popen.kill
    monkeypatch.setattr(gpu_info.subprocess.Popen, "kill", lambda self: spared.append(self))  # as in uninterruptible sleep
    monkeypatch.setattr(gpu_info, "TIMEOUT", 1)
    begun = time.monotonic()
    found = call(gpu_info)
    (process,) = spared
    kill(process)
    assert time.monotonic() - begun < 5
    assert found["unknown"] == [{"what": "gpus", "why": "nvidia-smi -q -x did not answer within 1 s"}]


def test_a_driver_that_begins_to_hang_is_not_asked_again(replay, call, monkeypatch):
    root = replay("rtx-pro-6000-x8")
    (root / "bin/nvidia-smi").unlink()
    smi = f"echo x >> {root}/asked; case $1 in -q) exec {SHARED}/nvidia-smi -q -x;; *) exec sleep 60;; esac"
    command(root / "bin", "nvidia-smi", smi)
    monkeypatch.setattr(gpu_info, "TIMEOUT", 2)
    found = call(gpu_info)
    hung = "nvidia-smi --query-gpu=index,compute_cap --format=csv,noheader"
    assert found["unknown"] == [
        {"what": "gpus.compute_capability", "why": f"{hung} did not answer within 2 s"},
        {"what": "gpus.nvlinks", "why": f"nvidia-smi nvlink --status was not run, since {hung} did not answer"},
        {"what": "topology.links", "why": f"nvidia-smi topo -m was not run, since {hung} did not answer"},
        {"what": "topology.p2p_read", "why": f"nvidia-smi topo -p2p r was not run, since {hung} did not answer"},
    ]
    assert (root / "asked").read_text() == "x\nx\n"
    assert len(found["gpus"]) == 8


def test_the_module_on_the_disk(replay, call):
    root = replay("rtx-pro-6000-x8")
    command(root / "bin", "modinfo", 'case $2 in version) echo 590.48.01;; license) echo "Dual MIT/GPL";; signer) echo Example;; esac')
    driver = call(gpu_info)["driver"]
    assert (driver["loaded"], driver["on_disk"]) == ("580.105.08", "590.48.01")
    assert (driver["license"], driver["signer"]) == ("Dual MIT/GPL", "Example")


def test_lspci_names_them(replay, call):
    root = replay("rtx-pro-6000-maxq")
    line = '0000:61:00.0 "VGA compatible controller" "NVIDIA Corporation" "GB202GL [RTX PRO 6000]" -ra1 "NVIDIA Corporation" "Device 204c"'
    command(root / "bin", "lspci", f"echo '{line}'")
    assert call(gpu_info)["pci"][0]["name"] == "GB202GL [RTX PRO 6000]"


def test_commands_that_are_not_there(replay, call, monkeypatch):
    replay("rtx-pro-6000-x8")

    def missing(name):
        raise ValueError(name)

    monkeypatch.setattr(gpu_info, "get_bin_path", missing)
    found = call(gpu_info)
    assert found["unknown"] == [
        {"what": "pci.name", "why": "lspci is not installed"},
        {"what": "driver.on_disk", "why": "modinfo is not installed"},
        {"what": "gpus", "why": "nvidia-smi is not installed"},
        {"what": "xids", "why": "journalctl is not installed"},
    ]
    assert (found["driver"]["loaded"], len(found["pci"]), len(found["acs"])) == ("580.105.08", 8, 8)


def test_what_others_than_root_do_not_see(replay, call):
    root = replay("rtx-pro-6000-maxq")
    config = root / "sys/bus/pci/devices/0000:60:01.1/config"
    config.write_bytes(config.read_bytes()[:64])  # what the kernel gives them
    command(root / "bin", "journalctl", "echo 'Hint: You are currently not seeing messages from other users and the system.' >&2")
    assert call(gpu_info)["unknown"] == [
        {"what": "acs of 0000:60:01.1", "why": "the configuration space of 0000:60:01.1 is readable by root only"},
        {"what": "xids", "why": "the kernel log is shown to root and to the groups adm and systemd-journal only"},
    ]


@pytest.mark.parametrize(("firmware", "found"), [
    ("unsupported", "unsupported"), ("disabled", "disabled"), ("enabled", "enabled"), ("disabled in shim", "disabled")])
def test_secure_boot(tmp_path, monkeypatch, firmware, found):
    MACHINE.build_firmware(firmware, tmp_path / "firmware")
    monkeypatch.setattr(gpu_info, "SYS", str(tmp_path))
    assert gpu_info.Machine().secure_boot() == found


PRO_6000 = {
    "count": 8, "name": "RTX PRO 6000 Blackwell", "compute_capability": "12.0", "memory": "96GB", "link_generation": 5, "link_width": 16}


@pytest.mark.parametrize(("name", "machine", "found"), [
    ("rtx-pro-6000-x8", PRO_6000, ["iommu: warning", "acs: warning", "gpu_persistence: warning"]),
    ("rtx-pro-6000-x7", PRO_6000, [
        "gpu_count: error", "xid: error", "gpu_link_width: error", "iommu: warning", "acs: warning", "gpu_persistence: warning"]),
    ("rtx-pro-6000-maxq", {**PRO_6000, "count": 1}, ["gpu_link_generation: error", "gpu_processes: warning"]),
    ("geforce-3090", {"count": 1, "name": "RTX 3090", "compute_capability": "8.6", "memory": "24GB", "link_width": 16}, []),
    ("a100-sxm4-mig", {"count": 1, "name": "A100-SXM4", "memory": "80GB"}, ["gpu_mig: error", "gpu_persistence: warning"]),
    ("h100-sxm-x8", {"count": 8, "name": "H100", "compute_capability": "9.0", "memory": "80GB", "nvlink": True}, []),
    ("mixed", {"count": 2, "compute_capability": "12.0"}, ["gpu_compute_capability: error", "iommu: warning", "acs: warning"]),
    ("no-gpu", {"count": 1}, ["gpu_count: error"]),
    ("no-driver", {"count": 1}, ["nouveau: warning"]),
    ("mismatch", {"count": 1}, ["gpu_driver: warning"]),
    ("hung", {"count": 1}, ["gpu_driver: error"]),
])
def test_what_is_found_on_each_machine(replay, call, monkeypatch, name, machine, found):
    replay(name)
    monkeypatch.setattr(gpu_info, "TIMEOUT", 2)
    findings = gpu_findings.judge(call(gpu_info), machine)
    assert [f"{finding['check']}: {finding['severity']}" for finding in findings] == found


@pytest.mark.parametrize("name", ["rtx-pro-6000-x7", "rtx-pro-6000-maxq", "no-driver"])
def test_what_is_returned_is_what_is_documented(replay, call, name):
    def agree(value, documented, where):
        described = documented.get("contains")
        for each in value if isinstance(value, list) else [value]:
            if described and isinstance(each, dict):
                assert set(each) == set(described), where
                for key in described:
                    agree(each[key], described[key], f"{where}.{key}")

    replay(name)
    found = call(gpu_info)
    documented = yaml.safe_load(gpu_info.RETURN)
    assert set(found) - {"changed"} == set(documented)
    for key in documented:
        agree(found[key], documented[key], key)


@pytest.mark.parametrize(("name", "said"), [
    ("rtx-pro-6000-x8", [
        "8x NVIDIA RTX PRO 6000 Blackwell Server Edition, 97887 MiB, compute capability 12.0, PCIe gen 5 x16 of x16",
        "driver 580.105.08, which runs CUDA 13.0"]),
    ("mixed", [
        "1x NVIDIA GeForce RTX 3090, 24576 MiB, compute capability 8.6, PCIe gen 4 x16 of x16",
        "1x NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition, 97887 MiB, compute capability 12.0, PCIe gen 4 x16 of x16",
        "driver 590.44.01, which runs CUDA 13.1"]),
    ("no-driver", ["1 GPU on the PCI bus, and nvidia-smi says nothing of them: no driver is loaded"]),
    ("no-gpu", ["no NVIDIA GPU"]),
])
def test_what_a_report_says_of_a_machine(replay, call, name: str, said: list[str]):
    replay(name)
    declared = yaml.safe_load((ROOT / "inventory/example/group_vars/gpu_hosts/machine.yml").read_text())["modelhost_gpus"]
    pins = yaml.safe_load((ROOT / "inventory/example/group_vars/all/versions.yml").read_text())
    chain = {
        "driver": pins["modelhost_driver"], "cuda": pins["modelhost_cuda"], "uv": pins["modelhost_uv"], "gpus": declared, "engines": {},
        "models": {}, "pins": {},
        "compatibility": yaml.safe_load((ROOT / "roles/host_check/files/compatibility.yml").read_text())}
    looked = {"reached": True, "reason": "", "unknown": {}, "answers": {"gpu": call(gpu_info)}}
    wanted = {"models": [], "engines": [], "wish": "", "gpus": declared, "versions": chain}
    found = host_report.report("h", "20261130T110000Z", looked, wanted, {})
    assert report_words.gpus(found["hardware"]) == said
    assert ("gpu_count" in [each["check"] for each in found["findings"]]) == (name != "rtx-pro-6000-x8")
