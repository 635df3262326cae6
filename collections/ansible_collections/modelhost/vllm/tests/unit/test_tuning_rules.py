"""Wishes that are refused, with the sentence; why a reboot is asked for; what the role is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.modelhost.vllm.plugins.filter.size_bytes import size_bytes
from ansible_collections.modelhost.vllm.plugins.filter.tuning_findings import tuning_findings
from ansible_collections.modelhost.vllm.plugins.module_utils import tuning_rules as rules

ROLE = Path(__file__).resolve().parents[6] / "roles/host_tuning"
OPTIONS = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
KEYS = "acs_redirect_off, hugepages, kernel_arguments, module_options, persistence_mode, power_limit, shm, sysctl"

NOTHING = {
    "shm": "", "hugepages": 0, "sysctl": {}, "persistence_mode": False, "power_limit": 0, "acs_redirect_off": False, "kernel_arguments": [],
    "module_options": {}}
HOST = {
    "memory": 512 * 10**9, "hugepage": 2 * 2**20, "unknown_sysctls": [], "gpus": [{"min": "300", "max": "600"}] * 2, "lockdown": "", "vfio": [],
    "cmdline": ["BOOT_IMAGE=/vmlinuz", "ro", "quiet"], "grub": True, "options": {}}
GRUB = '#\n# Ansible managed\n#\nGRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT iommu=pt pcie_aspm=off"\n'
MODPROBE = "#\n# Ansible managed\n#\noptions nvidia_uvm uvm_disable_hmm=1\noptions nvidia NVreg_A=1 NVreg_B=x\n"
EMPTY = {rules.GRUB: "", rules.MODPROBE: "", rules.MARKER: ""}


@pytest.mark.parametrize(("wish", "expected"), [
    ({}, []),
    ({"shm": "64GB", "hugepages": 512, "sysctl": {"net.core.somaxconn": 4096}, "persistence_mode": True, "power_limit": 450,
      "acs_redirect_off": True, "kernel_arguments": ["iommu=pt", "pcie_aspm=off", "pci=disable_acs_redir=pci:10de:*"],
      "module_options": {"nvidia_uvm": {"uvm_disable_hmm": 1}, "nvidia": {"NVreg_RegistryDwords": "A=1;B=0x2"}}}, []),
    ({"shmm": "64GB"}, [f"modelhost_tuning.shmm: 'shmm' is not one of {KEYS}. Did you mean 'shm'?"]),
    ({"force": True}, [f"modelhost_tuning.force: 'force' is not one of {KEYS}."]),
    ({"shm": 64}, ["modelhost_tuning.shm: 64 is int, str is needed, in quotes: Size of /dev/shm, such as 64GB."]),
    ({"shm": "64"}, ["modelhost_tuning.shm: '64' is no size: write 64GB (64 x 10^9 bytes) or 64GiB (64 x 2^30 bytes)"]),
    ({"shm": "half"}, ["modelhost_tuning.shm: 'half' is no size: write 64GB (64 x 10^9 bytes) or 64GiB (64 x 2^30 bytes)"]),
    ({"hugepages": -1}, ["modelhost_tuning.hugepages: -1 is no number of huge pages: write one above 0, or remove the line"]),
    ({"power_limit": -450}, ["modelhost_tuning.power_limit: -450 is no number of watts: write one above 0, or remove the line"]),
    ({"persistence_mode": "on"},
     ["modelhost_tuning.persistence_mode: 'on' is str, bool is needed, without quotes: Whether the driver of each GPU "
      "stays initialized while nobody uses it."]),
    ({"sysctl": {"swappiness": 1}},
     ["modelhost_tuning.sysctl.swappiness: this is no name that sysctl knows: write one such as net.core.somaxconn"]),
    ({"sysctl": {"vm/../../etc/passwd": 1}},
     ["modelhost_tuning.sysctl.vm/../../etc/passwd: this is no name that sysctl knows: write one such as net.core.somaxconn"]),
    ({"sysctl": {"vm.overcommit_memory": True}},
     ["modelhost_tuning.sysctl.vm.overcommit_memory: True is no value of a kernel setting: write a number or a text of one line"]),
    ({"sysctl": {"kernel.sem": "250\n32000"}},
     ["modelhost_tuning.sysctl.kernel.sem: '250\\n32000' is no value of a kernel setting: write a number or a text of one line"]),
    ({"sysctl": {"vm.nr_hugepages": 512}},
     ["modelhost_tuning.sysctl.vm.nr_hugepages: say it in modelhost_tuning.hugepages, which is held against the host's memory"]),
    ({"kernel_arguments": ["iommu=pt; reboot"]},
     ["modelhost_tuning.kernel_arguments: 'iommu=pt; reboot' has a character that GRUB's menu would read otherwise: use letters, digits and "
      "_.,:=/*@+- in one word"]),
    ({"kernel_arguments": ["iommu=pt", "iommu=off"]},
     ["modelhost_tuning.kernel_arguments: iommu=pt, iommu=off: the kernel takes the last one of these: write one",
      "modelhost_tuning.kernel_arguments: iommu=pt and iommu=off: without an IOMMU nothing passes through one: write one of them"]),
    ({"kernel_arguments": ["amd_iommu=off", "iommu=pt"]},
     ["modelhost_tuning.kernel_arguments: iommu=pt and amd_iommu=off: without an IOMMU nothing passes through one: write one of them"]),
    ({"module_options": {"nvidia_uvm": "uvm_disable_hmm=1"}},
     ["modelhost_tuning.module_options.nvidia_uvm: 'uvm_disable_hmm=1': write the options of one kernel module below its name, as "
      "{uvm_disable_hmm: 1}"]),
    ({"module_options": {"nvidia_uvm": {"uvm_disable_hmm": True}}},
     ["modelhost_tuning.module_options.nvidia_uvm.uvm_disable_hmm: True is no value of a module's option: write a number or one word, as "
      "modinfo -p says"]),
    ({"module_options": {"nvidia": {"NVreg_A": "1 NVreg_B=2"}}},
     ["modelhost_tuning.module_options.nvidia.NVreg_A: '1 NVreg_B=2' is no value of a module's option: write a number or one word, as "
      "modinfo -p says"]),
])
def test_wishes_without_a_host(wish, expected):
    assert tuning_findings(wish, OPTIONS) == expected


LESS = "wish for less, since what fills them cannot be given to anybody else"
EACH = "write a limit that each GPU can keep"


@pytest.mark.parametrize(("wish", "host", "expected"), [
    ({"shm": "64GB", "hugepages": 1000, "power_limit": 600, "kernel_arguments": ["iommu=pt"], "acs_redirect_off": True}, {}, []),
    ({"shm": "513GB"}, {}, [f"modelhost_tuning.shm: 513.0 GB of memory, and the host has 512.0 GB: {LESS}"]),
    ({"hugepages": 250000}, {}, [f"modelhost_tuning.hugepages: 524.3 GB of memory, and the host has 512.0 GB: {LESS}"]),
    ({"shm": "256GB", "hugepages": 125000}, {},
     [f"modelhost_tuning.shm and hugepages: 256.0 GB and 262.1 GB of memory, and the host has 512.0 GB: {LESS}"]),
    ({"sysctl": {"kernel.nothing": 1}}, {"unknown_sysctls": ["kernel.nothing"]},
     ["modelhost_tuning.sysctl.kernel.nothing: this kernel has no such setting: remove the line"]),
    ({"power_limit": 700}, {}, [f"modelhost_tuning.power_limit: 700 W; what can be set on GPU 0, 1: 300 to 600 W: {EACH}"]),
    ({"power_limit": 250}, {"gpus": [{"min": "200", "max": "300"}, {"min": "300", "max": "600"}]},
     [f"modelhost_tuning.power_limit: 250 W; what can be set on GPU 1: 300 to 600 W: {EACH}"]),
    ({"power_limit": 250}, {"gpus": [{"min": "", "max": ""}]},
     [f"modelhost_tuning.power_limit: 250 W; what can be set on GPU 0: nothing: {EACH}"]),
    ({"power_limit": 250}, {"gpus": []}, []),  # no driver yet: nvidia-smi itself refuses what is outside, when it is there
    ({"acs_redirect_off": True}, {"lockdown": "integrity"},
     ["modelhost_tuning.acs_redirect_off: this kernel is locked down (integrity, as with Secure Boot) and lets nobody write to the bridges: "
      "switch ACS off in the firmware's settings, or Secure Boot"]),
    ({"acs_redirect_off": True}, {"vfio": ["0000:05:00.0", "0000:05:00.1"]},
     ["modelhost_tuning.acs_redirect_off: 0000:05:00.0, 0000:05:00.1: held by vfio-pci for a virtual machine, which ACS keeps apart from the "
      "other devices: remove the line"]),
    ({}, {"vfio": ["0000:05:00.0"]}, []),
    ({"kernel_arguments": ["iommu=pt", "quiet"]}, {"grub": False},
     ["modelhost_tuning.kernel_arguments: this host was not started by GRUB, the one boot loader that is set up here: add 'iommu=pt' to the "
      "kernel command line by hand and reboot; what is in /proc/cmdline is not asked for again"]),
    ({"kernel_arguments": ["quiet"]}, {"grub": False}, []),
])
def test_wishes_that_this_host_cannot_keep(wish, host, expected):
    assert rules.host_findings({**NOTHING, **wish}, {**HOST, **host}) == expected


UVM = {"nvidia_uvm": {"uvm_disable_hmm": 1}}


@pytest.mark.parametrize(("wish", "before", "host", "expected"), [
    ({}, {}, {}, []),
    ({"kernel_arguments": ["iommu=pt", "quiet"]}, {}, {}, ["kernel arguments that are not in /proc/cmdline yet: iommu=pt"]),
    ({"kernel_arguments": ["iommu=pt"]}, {rules.GRUB: GRUB}, {"cmdline": ["iommu=pt", "pcie_aspm=off"]},
     ["kernel arguments that are still in /proc/cmdline: pcie_aspm=off"]),
    ({}, {rules.GRUB: GRUB}, {}, []),  # written, never booted, taken out again
    ({"module_options": UVM}, {}, {"options": {}}, []),  # not loaded: it will be, with these options
    ({"module_options": UVM}, {}, {"options": {"nvidia_uvm": {"uvm_disable_hmm": "N"}}},
     ["options of the loaded kernel module nvidia_uvm that are not set yet: uvm_disable_hmm=1"]),
    ({"module_options": UVM}, {}, {"options": {"nvidia_uvm": {"uvm_disable_hmm": "Y"}}}, []),
    ({"module_options": {"nvidia": {"NVreg_RegistryDwords": "A=1;B=2"}}}, {},
     {"options": {"nvidia": {"NVreg_RegistryDwords": '"A=1;B=2"'}}}, []),
    ({}, {rules.MODPROBE: MODPROBE}, {"options": {"nvidia_uvm": {"uvm_disable_hmm": "Y"}}},
     ["options that the loaded kernel module nvidia_uvm was given: uvm_disable_hmm=1"]),
    ({}, {rules.MODPROBE: MODPROBE}, {"options": {"nvidia_uvm": {"uvm_disable_hmm": "N"}}}, []),  # written, never booted
    ({}, {rules.MODPROBE: MODPROBE}, {"options": {"nvidia": {"NVreg_A": "1"}}},
     ["options that the loaded kernel module nvidia was given: NVreg_A=1 NVreg_B=x"]),
])
def test_why_a_reboot_is_needed(wish, before, host, expected):
    assert rules.reboot_reasons({**NOTHING, **wish}, {**EMPTY, **before}, {**HOST, **host}) == expected


STILL = "kernel arguments that are still in /proc/cmdline: iommu=pt pcie_aspm=off"
GIVEN_UVM = "options that the loaded kernel module nvidia_uvm was given: uvm_disable_hmm=1"
GIVEN_NVIDIA = "options that the loaded kernel module nvidia was given: NVreg_A=1 NVreg_B=x"
SEEN = {
    "cmdline": ["quiet", "iommu=pt", "pcie_aspm=off"],
    "options": {"nvidia_uvm": {"uvm_disable_hmm": "Y"}, "nvidia": {"NVreg_A": "1"}}}


@pytest.mark.parametrize(("wish", "before", "host", "expected"), [
    # the files know no more of what was taken out, and the boot has not come yet
    ({}, {}, {}, [STILL, GIVEN_UVM, GIVEN_NVIDIA]),
    # something else is taken out now
    ({}, {rules.GRUB: 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT quiet"\n'}, {},
     [STILL.replace("iommu", "quiet iommu"), GIVEN_UVM, GIVEN_NVIDIA]),
    # wished again
    ({"kernel_arguments": ["iommu=pt"], "module_options": UVM}, {}, {}, [STILL.replace("iommu=pt ", ""), GIVEN_NVIDIA]),
    # loaded again by hand, without the options; the one that the module does not show cannot be known
    ({}, {}, {"options": {"nvidia_uvm": {"uvm_disable_hmm": "N"}, "nvidia": {"NVreg_A": "0"}}},
     [STILL, GIVEN_NVIDIA.replace("NVreg_A=1 ", "")]),
    ({}, {}, {"cmdline": ["quiet"], "options": {}}, []),
])
def test_a_reason_stays_as_long_as_it_is_true(wish, before, host, expected):
    marker = "".join(line + "\n" for line in (STILL, GIVEN_UVM, GIVEN_NVIDIA))
    assert rules.reboot_reasons({**NOTHING, **wish}, {**EMPTY, rules.MARKER: marker, **before}, {**HOST, **SEEN, **host}) == expected


@pytest.mark.parametrize("reason", [
    "kernel arguments that are not in /proc/cmdline yet: iommu=pt", "options of the loaded kernel module nvidia that are not set yet: NVreg_A=1"])
def test_a_reason_that_the_wish_gave_goes_with_it(reason):
    assert rules.reboot_reasons(NOTHING, {**EMPTY, rules.MARKER: reason + "\n"}, {**HOST, **SEEN}) == []


def test_what_the_files_say_is_read_back():
    assert rules.fragment_words(GRUB) == ["iommu=pt", "pcie_aspm=off"]
    assert rules.fragment_words("") == []
    assert rules.option_lines(MODPROBE) == {"nvidia_uvm": {"uvm_disable_hmm": "1"}, "nvidia": {"NVreg_A": "1", "NVreg_B": "x"}}
    # as grub-mkconfig of Debian 13 writes it; the recovery entry comes later
    menu = "menuentry 'Debian GNU/Linux' {\n\tlinux\t/boot/vmlinuz-6.12.0-1-amd64 root=/dev/sda1 ro  quiet iommu=pt\n}\n"
    recovery = "\t\tlinux\t/boot/vmlinuz-6.12.0-1-amd64 root=/dev/sda1 ro single dis_ucode_ldr\n"
    assert rules.menu_words(menu + recovery) == ["/boot/vmlinuz-6.12.0-1-amd64", "root=/dev/sda1", "ro", "quiet", "iommu=pt"]


def test_changes_for_people():
    files = {"/a": "new", "/b": "", "/c": "same", "/d": "new"}
    before = {"/a": "old", "/b": "old", "/c": "same", "/d": ""}
    live = {"shm": ("1", "2"), "power_limit 0": ("600", "450"), "power_limit 1": ("600", "450"), "power_limit 2": ("", "450")}
    assert rules.change_lines(files, before, live, "modelhost-tuning.service is inactive") == [
        "/a is changed", "/b is removed", "/d is written", "shm: 1 -> 2", "power_limit 0 1: 600 -> 450", "power_limit 2: unknown -> 450",
        "modelhost-tuning.service is inactive"]
    assert rules.change_lines({"/c": "same"}, before, {}, "") == []


@pytest.mark.parametrize(("size", "count"), [("64GB", 64_000_000_000), ("64GiB", 68_719_476_736), ("1.5 GB", 1_500_000_000)])
def test_the_bytes_of_a_size(size, count):
    assert size_bytes(size) == count
