#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: What a host knows about its NVIDIA GPUs and their driver
version_added: 0.1.0
description:
  - Works on any host, with a driver that answers, with one that does not, without one, and without a GPU. Nothing is changed and nothing is
    judged.
  - What cannot be learned is V(None), an empty text or an empty list, and C(unknown) says why.
  - Reads C(/sys/bus/pci), C(/sys/module), C(/sys/firmware/efi), C(/proc/driver/nvidia) and C(/proc/cmdline), and runs C(nvidia-smi),
    C(modinfo), C(lspci) and C(journalctl), where they are.
  - C(nvidia-smi), which as root would load a driver, is only run where one is loaded.
  - Each command has half a minute. With a driver that hangs, C(nvidia-smi) cannot even be killed. It is not waited for then, and not run
    again.
  - Others than root learn less, since the kernel log and the configuration space of bridges are root's.
options: {}
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Works the same in check mode.
"""

EXAMPLES = r"""
- name: Look at the GPUs
  modelhost.vllm.gpu_info:
  register: gpu
"""

RETURN = r"""
gpus:
  description: What C(nvidia-smi) says of each GPU, in its order.
  returned: always
  type: list
  elements: dict
  contains:
    index: {description: Index of C(nvidia-smi)., type: int}
    uuid: {description: Identity of the GPU., type: str}
    name: {description: Product name., type: str}
    architecture: {description: Generation such as V(Blackwell)., type: str}
    compute_capability: {description: Compute capability such as V(12.0)., type: str}
    pci_address: {description: Address as sysfs writes it., type: str}
    memory_total_mib: {description: Memory in MiB., type: int}
    memory_used_mib: {description: Memory in use in MiB., type: int}
    persistence_mode: {description: Whether the driver stays initialised without a client., type: bool}
    mig_mode: {description: Whether the GPU is partitioned; V(None) where it cannot be., type: bool}
    power:
      description: Power limits in watts.
      type: dict
      contains:
        limit_w: {description: The limit in force., type: float}
        default_w: {description: The limit after a boot., type: float}
        min_w: {description: The lowest that can be set., type: float}
        max_w: {description: The highest that can be set., type: float}
    ecc:
      description: Errors of the memory since the driver was loaded.
      type: dict
      contains:
        enabled: {description: Whether errors are corrected., type: bool}
        uncorrected: {description: Errors that were not corrected., type: int}
        corrected: {description: Errors that were corrected., type: int}
    rows:
      description: Rows of memory that were replaced by spare ones (Ampere and later).
      type: dict
      contains:
        remapped_correctable: {description: Rows replaced because of corrected errors., type: int}
        remapped_uncorrectable: {description: Rows replaced because of uncorrected errors., type: int}
        pending: {description: Whether a replacement waits for a reset of the GPU., type: bool}
        failure: {description: Whether a replacement failed., type: bool}
    retired_pages:
      description: Pages of memory that are no longer used (before Ampere).
      type: dict
      contains:
        single_bit: {description: Pages retired because of corrected errors., type: int}
        double_bit: {description: Pages retired because of uncorrected errors., type: int}
        pending: {description: Whether a retirement waits for a boot., type: bool}
    link:
      description: PCI Express link. An idle GPU lowers the generation, never the width.
      type: dict
      contains:
        generation: {description: Generation in use., type: int}
        generation_max: {description: Highest generation of GPU and slot together., type: int}
        width: {description: Lanes in use., type: int}
        width_max: {description: Highest number of lanes of GPU and slot together., type: int}
    nvlinks: {description: Active NVLinks., type: int}
    processes:
      description: Processes that hold memory of the GPU.
      type: list
      elements: dict
      contains:
        pid: {description: Process id., type: int}
        name: {description: Command., type: str}
        memory_mib: {description: Memory in MiB; V(None) with MIG., type: int}
        unit: {description: The systemd unit that it belongs to; empty for none., type: str}
pci:
  description: Every NVIDIA GPU on the PCI bus, whatever its driver, in the order of its address.
  returned: always
  type: list
  elements: dict
  contains:
    address: {description: Address such as V(0000:01:00.0)., type: str}
    device_id: {description: Vendor and device such as V(10de:2bb5)., type: str}
    name: {description: What C(lspci) calls it., type: str}
    generation: {description: Generation by the device id; empty where the id is not known., type: str}
    driver: {description: 'V(nvidia), V(nouveau), V(vfio-pci) or empty.', type: str}
    numa_node: {description: NUMA node; V(None) where the firmware does not say., type: int}
    link:
      description: PCI Express link as the kernel sees it.
      type: dict
      contains:
        speed_gts: {description: Speed in GT/s; an idle GPU lowers it., type: float}
        speed_max_gts: {description: Highest speed of the GPU in GT/s., type: float}
        width: {description: Lanes in use., type: int}
        width_max: {description: Highest number of lanes of the GPU., type: int}
    iommu_group: {description: Group of the IOMMU; empty without one., type: str}
    iommu_type: {description: 'V(DMA) or V(DMA-FQ) where addresses are translated, V(identity), or empty.', type: str}
    bridges: {description: Addresses of the bridges above it, type: list, elements: str}
acs:
  description: Bridges above GPUs that have PCI Express Access Control Services, and which of them are on.
  returned: always
  type: list
  elements: dict
  contains:
    bridge: {description: Address of the bridge., type: str}
    source_validation: {description: Whether the source of requests is validated., type: bool}
    request_redirect: {description: Whether requests between GPUs take the way through the root., type: bool}
    completion_redirect: {description: Whether completions take that way., type: bool}
driver:
  description: The driver, as it is loaded, on the disk, and in user space.
  returned: always
  type: dict
  contains:
    loaded: {description: Version of the loaded module; empty where none is., type: str}
    on_disk: {description: Version of the module that the next boot would load., type: str}
    license: {description: 'License of the module on the disk: V(Dual MIT/GPL) is the open one.', type: str}
    signer: {description: Who signed the module on the disk; empty for nobody., type: str}
    open: {description: 'Whether the loaded module, or else that on the disk, is the open one.', type: bool}
    userspace: {description: Version of C(nvidia-smi)'s library; of three parts only two are known in a mismatch., type: str}
    cuda: {description: Highest CUDA version that it runs., type: str}
    error: {description: 'What C(nvidia-smi) said when it failed; or that it was not asked, since no driver is loaded.', type: str}
    nvswitch: {description: Whether NVSwitches are on the PCI bus., type: bool}
topology:
  description: How pairs of GPUs are connected, by index.
  returned: always
  type: dict
  contains:
    links: {description: 'C(nvidia-smi topo -m): V(NV18), V(PIX), V(PXB), V(PHB), V(NODE) or V(SYS).', type: dict}
    p2p_read: {description: 'C(nvidia-smi topo -p2p r): V(OK), V(CNS), V(GNS), V(TNS), V(NS).', type: dict}
kernel:
  description: The running kernel.
  returned: always
  type: dict
  contains:
    release: {description: Its release., type: str}
    cmdline: {description: Its command line., type: str}
    modules: {description: 'Modules of GPUs that are loaded.', type: list, elements: str}
    uvm_disable_hmm: {description: Whether nvidia_uvm was loaded without heterogeneous memory management., type: bool}
secure_boot:
  description: V(enabled), V(disabled), V(unsupported) without UEFI, or empty.
  returned: always
  type: str
xids:
  description: Errors of GPUs in the kernel log of this boot.
  returned: always
  type: list
  elements: dict
  contains:
    time: {description: Time of the line., type: str}
    pci_address: {description: Address of the GPU., type: str}
    xid: {description: Number of the error., type: int}
    text: {description: The rest of the line., type: str}
unknown:
  description: What could not be learned.
  returned: always
  type: list
  elements: dict
  contains:
    what: {description: Which of the values., type: str}
    why: {description: The reason., type: str}
"""

import os
import re
import shlex
import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.process import get_bin_path
from ansible_collections.modelhost.vllm.plugins.module_utils import kernel_log, nvidia_smi, pci
from ansible_collections.modelhost.vllm.plugins.module_utils.host_findings import unit_of

SYS = "/sys"
PROC = "/proc"
TIMEOUT = 30
GPU_MODULES = ("nvidia", "nouveau")
# UEFI Specification, "Globally Defined Variables"; and shim's switch, after which the kernel takes Secure Boot for off
# (drivers/firmware/efi/libstub/secureboot.c). In a file of efivarfs four bytes of attributes come before the value.
SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM_DISABLED = "MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"


class CannotLearn(Exception):
    """Why a command gave no answer."""


class Machine:
    """Asks the host, and keeps what it could not learn."""

    def __init__(self) -> None:
        self.unknown: list[dict[str, str]] = []
        self.hung = ""  # the call of nvidia-smi that did not answer: each further one would leave one more process that cannot be killed

    def run(self, argv: list[str]) -> subprocess.CompletedProcess:
        if self.hung and argv[0] == "nvidia-smi":
            raise CannotLearn(f"{' '.join(argv)} was not run, since {self.hung} did not answer")
        try:
            path = get_bin_path(argv[0])
        except ValueError as error:
            raise CannotLearn(f"{argv[0]} is not installed") from error
        # Its own session: what waits in the kernel for a GPU cannot be killed, and must not hold this process's terminal or pipes.
        process = subprocess.Popen(
            [path, *argv[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
            errors="replace", start_new_session=True, env={**os.environ, "LC_ALL": "C"})
        try:
            out, err = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired as error:
            process.kill()
            if argv[0] == "nvidia-smi":
                self.hung = " ".join(argv)
            raise CannotLearn(f"{' '.join(argv)} did not answer within {TIMEOUT} s") from error
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def output(self, what: str, argv: list[str]) -> str:
        """Standard output of a command that succeeds; "" for one that does not, and the reason is kept."""
        try:
            done = self.run(argv)
            if done.returncode == 0:
                return done.stdout
            why = f"{' '.join(argv)}: " + (nvidia_smi.sentence(done.stdout + done.stderr) or f"exit status {done.returncode}")
        except CannotLearn as error:
            why = str(error)
        self.miss(what, why)
        return ""

    def miss(self, what: str, why: str) -> None:
        self.unknown.append({"what": what, "why": why})

    def names(self, gpus: list) -> None:
        """Add what lspci calls them."""
        if not gpus:
            return
        lines = map(shlex.split, self.output("pci.name", ["lspci", "-D", "-mm", "-d", f"{pci.VENDOR}:"]).splitlines())
        called = {words[0]: words[3] for words in lines if len(words) > 3}
        for gpu in gpus:
            gpu["name"] = called.get(gpu["address"], "")

    def acs(self, gpus: list) -> list:
        found = []
        for bridge in dict.fromkeys(bridge for gpu in gpus for bridge in gpu["bridges"]):
            try:
                found.append(pci.acs(SYS, bridge))
            except OSError as error:
                self.miss(f"acs of {bridge}", str(error))
        return [each for each in found if each]

    def on_disk(self) -> dict:
        """The module that modprobe would load; without one there is nothing to know."""
        fields = {"on_disk": "", "license": "", "signer": ""}
        try:
            for field, name in zip(fields, ("version", "license", "signer")):
                done = self.run(["modinfo", "-F", name, "nvidia"])
                fields[field] = done.stdout.strip() if done.returncode == 0 else ""
        except CannotLearn as error:
            self.miss("driver.on_disk", str(error))
        return fields

    def query(self, driver: dict) -> list:
        """GPUs as nvidia-smi knows them; fills in what it says of the driver. As root it loads one where none is loaded, so it is not asked."""
        if not driver["loaded"]:
            driver["error"] = "no driver is loaded"
            self.miss("gpus", driver["error"])
            return []
        try:
            done = self.run(["nvidia-smi", "-q", "-x"])
            if done.returncode != 0:
                driver["error"] = nvidia_smi.sentence(done.stdout + done.stderr)
                library = re.search(r"NVML library version: ([\d.]+)", driver["error"])
                driver["userspace"] = library.group(1) if library else ""
                raise CannotLearn(f"nvidia-smi: {driver['error']}")
            found = nvidia_smi.parse_query(done.stdout)
        except (CannotLearn, nvidia_smi.QueryError) as error:
            self.miss("gpus", str(error))
            return []
        driver["userspace"], driver["cuda"] = found["driver"], found["cuda"]
        capabilities = nvidia_smi.parse_compute_capabilities(
            self.output("gpus.compute_capability", ["nvidia-smi", "--query-gpu=index,compute_cap", "--format=csv,noheader"]))
        nvlinks = nvidia_smi.parse_nvlinks(self.output("gpus.nvlinks", ["nvidia-smi", "nvlink", "--status"]))
        for gpu in found["gpus"]:
            gpu["compute_capability"] = capabilities.get(gpu["index"], "")
            gpu["nvlinks"] = nvlinks.get(gpu["index"])
            for process in gpu["processes"]:
                process["unit"] = unit_of(read(os.path.join(PROC, str(process["pid"]), "cgroup")))
        return found["gpus"]

    def topology(self, gpus: list) -> dict:
        asked = {"links": ["topo", "-m"], "p2p_read": ["topo", "-p2p", "r"]} if len(gpus) > 1 else {}
        found = {name: nvidia_smi.parse_matrix(self.output(f"topology.{name}", ["nvidia-smi", *argv])) for name, argv in asked.items()}
        return {"links": {}, "p2p_read": {}, **found}

    def xids(self) -> list:
        argv = ["journalctl", "--dmesg", "--boot", "--no-pager", "--output=short-iso"]
        try:
            done = self.run(argv)
        except CannotLearn as error:
            self.miss("xids", str(error))
            return []
        if "not seeing messages" in done.stderr:
            self.miss("xids", "the kernel log is shown to root and to the groups adm and systemd-journal only")
        elif done.returncode != 0:
            self.miss("xids", f"journalctl: {nvidia_smi.sentence(done.stderr)}")
        return kernel_log.parse_xids(done.stdout)

    def secure_boot(self) -> str:
        variables = os.path.join(SYS, "firmware/efi/efivars")
        if not os.path.isdir(os.path.join(SYS, "firmware/efi")):
            return "unsupported"
        enabled, shim_disabled = (read_bytes(os.path.join(variables, name))[4:5] for name in (SECURE_BOOT, SHIM_DISABLED))
        if not enabled:
            self.miss("secure_boot", f"{variables}/{SECURE_BOOT} cannot be read")
            return ""
        return "enabled" if enabled == b"\1" and shim_disabled != b"\1" else "disabled"


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def read(path: str) -> str:
    return read_bytes(path).decode(errors="replace").strip()


def loaded() -> dict:
    """The module that is loaded, as in "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build"."""
    text = read(os.path.join(PROC, "driver/nvidia/version")).partition("\n")[0]
    version = re.search(r" Kernel Module .*?(\d+(?:\.\d+)+)", text)
    return {
        "loaded": version.group(1) if version else read(os.path.join(SYS, "module/nvidia/version")),
        "open": "Open Kernel Module" in text if version else None,
    }


def kernel() -> dict:
    folder = os.path.join(SYS, "module")
    hmm = read(os.path.join(folder, "nvidia_uvm/parameters/uvm_disable_hmm"))
    return {
        "release": os.uname().release,
        "cmdline": read(os.path.join(PROC, "cmdline")),
        "modules": sorted(name for name in os.listdir(folder) if name.startswith(GPU_MODULES)),
        "uvm_disable_hmm": {"Y": True, "N": False}.get(hmm),
    }


def learn() -> dict:
    machine = Machine()
    gpus = pci.gpus(SYS)
    machine.names(gpus)
    driver = {**loaded(), **machine.on_disk(), "userspace": "", "cuda": "", "error": "", "nvswitch": pci.has_nvswitch(SYS)}
    if driver["open"] is None and driver["license"]:
        driver["open"] = driver["license"] != "NVIDIA"
    answered = machine.query(driver) if gpus else []
    return {
        "gpus": answered, "pci": gpus, "acs": machine.acs(gpus), "driver": driver, "topology": machine.topology(answered),
        "kernel": kernel(), "secure_boot": machine.secure_boot(), "xids": machine.xids(), "unknown": machine.unknown,
    }


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, **learn())


if __name__ == "__main__":
    main()
