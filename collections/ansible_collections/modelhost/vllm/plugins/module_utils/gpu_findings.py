# GNU General Public License v3.0+ (see LICENSE)
"""What gpu_info knows of a host, judged against the machine that the inventory describes (modelhost_gpus).

An error is what keeps a model from serving and what no later role repairs. What nvidia_driver, host_tuning or a reboot repairs is a
warning, since nvidia_driver proves in the end that the driver answers for all GPUs. A host whose driver is not installed yet is judged by
its PCI bus alone.
"""

from __future__ import annotations

import fnmatch
from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.host_findings import finding, parse_size, show_size

Facts = dict[str, Any]
Findings = list[dict[str, str]]

GPUS = "modelhost_gpus"
TUNING = "modelhost_tuning"
OWN_UNITS = ("vllm-*.service", "modelhost-*")

# Errors after which a GPU does not work again before it is reset or the host is booted: the immediate action RESET_GPU, RESTART_BM or a
# workflow that ends in a reset, in https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (September 2026). The others ask
# for no more than a restart of the application, or are information.
FATAL_XIDS = {
    48: "double bit ECC error", 62: "internal micro-controller halt", 64: "memory remapping failure", 74: "NVLink error",
    79: "GPU has fallen off the bus", 95: "uncontained memory error", 109: "context switch timeout", 110: "security fault",
    119: "GSP RPC timeout", 120: "GSP error", 136: "NVLink training failed", 140: "unrecovered ECC error",
}  # fmt: skip


def judge(facts: Facts, wishes: dict[str, Any]) -> Findings:
    """Every finding about the GPUs, in the order in which an operator would repair them."""
    return [
        *count(facts, wishes),
        *driver(facts),
        *secure_boot(facts),
        *xids(facts),
        *kind(facts, wishes),
        *links(facts, wishes),
        *nvlinks(facts, wishes),
        *memory_errors(facts),
        *sharing(facts),
        *peer_access(facts, wishes),
        *persistence(facts),
        *unknown(facts, wishes),
    ]


def count(facts: Facts, wishes: dict[str, Any]) -> Findings:
    """How many are on the bus, and how many of these the driver has. A GPU that has gone is named where the kernel log or the bus tells."""
    wanted, present = wishes["count"], [gpu["address"] for gpu in facts["pci"]]
    usable = [gpu["address"] for gpu in facts["pci"] if gpu["driver"] != "vfio-pci"]
    if facts["gpus"]:
        answering = [gpu["pci_address"] for gpu in facts["gpus"]]
        usable = [address for address in usable if address in answering]
    needed, variable = f"{wanted} GPUs", f"{GPUS}.count"
    if len(usable) > wanted:
        seen, fix = f"{len(usable)} GPUs: {', '.join(usable)}", "correct the variable; a GPU that only drives a display counts too"
        return [finding("gpu_count", variable, seen, needed, fix, "warning")]
    if len(usable) == wanted:
        return []
    gone = dict.fromkeys(each["pci_address"] for each in facts["xids"] if each["xid"] == 79 and each["pci_address"] not in present)
    reasons = [
        *(f"{address} is gone from the PCI bus" for address in gone),
        *(f"{gpu['address']} is held by vfio-pci" for gpu in facts["pci"] if gpu["driver"] == "vfio-pci"),
        *(f"{gpu['address']} is on the PCI bus, and nvidia-smi does not show it"
          for gpu in facts["pci"] if gpu["driver"] != "vfio-pci" and gpu["address"] not in usable),
    ]
    seen = f"{len(usable)} of {wanted} GPUs ({', '.join(usable) or 'none'})" + "".join(f"; {reason}" for reason in reasons)
    fix = (
        "switch the machine off and on (a reboot alone may not bring a GPU back); then check its seat, power cables, riser and switch, and"
        " Above 4G Decoding in the firmware; or lower the variable")
    return [finding("gpu_count", variable, seen, needed, fix)]


def driver(facts: Facts) -> Findings:
    """Whether the driver can answer. Which version and kind it has to be is the affair of the chain of versions."""
    known, found = facts["driver"], []
    if "nouveau" in facts["kernel"]["modules"]:
        fix = "none by hand: nvidia_driver blacklists it; the reboot that it asks for is made with -e reboot_allowed=true"
        found.append(finding("nouveau", "", "the module nouveau is loaded", "NVIDIA's module", fix, "warning"))
    reboot = "reboot the host (-e reboot_allowed=true lets provision.yml do it)"
    hung = next((each["why"] for each in facts["unknown"] if each["what"] == "gpus" and "did not answer" in each["why"]), "")
    if hung:
        found.append(finding("gpu_driver", "", hung, "an answer of the driver", "reboot the host; the kernel log says why it hangs"))
    elif known["loaded"] and known["userspace"] and not matches(known["loaded"], known["userspace"]):
        seen = f"module {known['loaded']} is loaded, the library is {known['userspace']}"
        found.append(finding("gpu_driver", "", seen + (f" ({known['error']})" if known["error"] else ""), "one version", reboot, "warning"))
    elif known["loaded"] and known["on_disk"] and known["loaded"] != known["on_disk"]:
        seen = f"module {known['loaded']} is loaded, {known['on_disk']} is on the disk"
        found.append(finding("gpu_driver", "", seen, "one version", reboot, "warning"))
    elif known["loaded"] and known["error"]:
        fix = "none by hand: nvidia_driver installs what is declared, and says at its end why the driver does not answer"
        found.append(finding("gpu_driver", "", f"nvidia-smi: {known['error']}", "an answer of the driver", fix, "warning"))
    return found


def matches(version: str, beginning: str) -> bool:
    """Whether 580.178 is the beginning of 580.178.04, of which nvidia-smi says two parts in a mismatch."""
    parts = beginning.split(".")
    return version.split(".")[:len(parts)] == parts


def secure_boot(facts: Facts) -> Findings:
    """The module that the next boot would load has to be signed; one that is loaded was accepted. Before there is one, nvidia_driver knows
    what it will install, and refuses or prepares a key."""
    known = facts["driver"]
    if facts["secure_boot"] != "enabled" or known["signer"] or known["on_disk"] in ("", known["loaded"]):
        return []
    fix = (
        "modelhost_driver.secure_boot: enrol (prepares a key, which somebody confirms at the console), or modelhost_driver.source:"
        " distribution (Ubuntu's modules are signed), or switch Secure Boot off in the firmware")
    needed = "a module that the kernel may load"
    return [finding("secure_boot", "modelhost_driver.secure_boot", f"Secure Boot is on, and module {known['on_disk']} is not signed", needed, fix, "warning")]


def xids(facts: Facts) -> Findings:
    """The errors of this boot, one finding a GPU."""
    found = []
    for address in dict.fromkeys(each["pci_address"] for each in facts["xids"]):
        own = {each["xid"]: each for each in facts["xids"] if each["pci_address"] == address}
        fatal = [xid for xid in own if xid in FATAL_XIDS]
        said = [f"Xid {xid} ({FATAL_XIDS.get(xid) or own[xid]['text'] or 'no text'}) at {own[xid]['time']}" for xid in own]
        fix = "reboot the host, so that the GPU is initialised again; if it comes back, have the GPU replaced" if fatal else (
            "look at what used the GPU then; NVIDIA's Xid catalog says what the number means")
        found.append(finding("xid", "", f"{address}: {', '.join(said)}", "no error since the boot", fix, "error" if fatal else "warning"))
    return found


def kind(facts: Facts, wishes: dict[str, Any]) -> Findings:
    """Name, compute capability and memory of each GPU against what is declared; where nothing is declared nothing is asked."""
    found = []
    name, capability, memory = (wishes.get(key) or "" for key in ("name", "compute_capability", "memory"))
    fix = "correct the variable, or the machine"
    others = [gpu for gpu in facts["gpus"] if name.lower() not in gpu["name"].lower()]
    if others:
        found.append(finding("gpu_name", f"{GPUS}.name", per_gpu(others, lambda gpu: gpu["name"]), f"a name with {name!r} in it", fix))
    others = [gpu for gpu in facts["gpus"] if capability and gpu["compute_capability"] not in ("", capability)]
    if others:
        seen = per_gpu(others, lambda gpu: gpu["compute_capability"])
        found.append(finding("gpu_compute_capability", f"{GPUS}.compute_capability", seen, capability, fix))
    others = [gpu for gpu in facts["gpus"] if memory and size(gpu) and size(gpu) < parse_size(memory)]
    if others:
        found.append(finding("gpu_memory", f"{GPUS}.memory", per_gpu(others, lambda gpu: show_size(size(gpu))), f"{memory} each", fix))
    return found


def links(facts: Facts, wishes: dict[str, Any]) -> Findings:
    """The width never changes while a GPU idles, so that it is judged as it is. The generation does: only its maximum is judged."""
    found = []
    wanted = wishes.get("link_width") or 0
    narrow = [gpu for gpu in facts["pci"] if gpu["link"]["width"] and gpu["link"]["width"] < (wanted or gpu["link"]["width_max"] or 0)]
    if narrow:
        seen = ", ".join(f"{gpu['address']}: x{gpu['link']['width']} of x{gpu['link']['width_max']}" for gpu in narrow)
        fix = "reseat the card or its riser, clean the contacts, and look at the slot's lanes in the firmware (bifurcation)"
        needed, severity = (f"x{wanted}", "error") if wanted else ("the width of the GPU", "warning")  # a slot may be made that narrow
        found.append(finding("gpu_link_width", f"{GPUS}.link_width", seen, needed, fix, severity))
    generation = wishes.get("link_generation") or 0
    slow = [gpu for gpu in facts["gpus"] if gpu["link"]["generation_max"] and gpu["link"]["generation_max"] < generation]
    if slow:
        seen = per_gpu(slow, lambda gpu: f"generation {gpu['link']['generation_max']} at most")
        fix = "set the slot's speed in the firmware, or use a slot, riser or cable for that generation"
        found.append(finding("gpu_link_generation", f"{GPUS}.link_generation", seen, f"generation {generation}", fix))
    return found


def nvlinks(facts: Facts, wishes: dict[str, Any]) -> Findings:
    counts = [gpu["nvlinks"] or 0 for gpu in facts["gpus"]]
    if not wishes.get("nvlink") or not counts or (min(counts) == max(counts) and min(counts) > 0):
        return []
    few = [gpu for gpu in facts["gpus"] if not gpu["nvlinks"] or gpu["nvlinks"] < max(counts)]
    fix = "with NVSwitches, nvidia-fabricmanager has to run in the driver's version; else reseat the bridges and read the kernel log"
    needed = f"{max(counts)} active links each" if max(counts) else "active links"
    return [finding("gpu_nvlink", f"{GPUS}.nvlink", per_gpu(few, lambda gpu: f"{gpu['nvlinks'] or 0} active links"), needed, fix)]


def memory_errors(facts: Facts) -> Findings:
    found = []
    failed = [gpu for gpu in facts["gpus"] if gpu["rows"]["failure"]]
    if failed:
        seen = per_gpu(failed, lambda gpu: "a row of memory could not be replaced")
        found.append(finding("gpu_memory_errors", "", seen, "memory without faults", "have the GPU replaced"))
    pending = [gpu for gpu in facts["gpus"] if gpu["rows"]["pending"] or gpu["retired_pages"]["pending"]]
    if pending:
        seen = per_gpu(pending, lambda gpu: "a faulty part of the memory waits to be replaced")
        fix = "reboot the host, or reset the GPU while it is idle"
        found.append(finding("gpu_memory_errors", "", seen, "nothing pending", fix, "warning"))
    errors = [gpu for gpu in facts["gpus"] if gpu["ecc"]["uncorrected"]]
    if errors:
        seen = per_gpu(errors, lambda gpu: f"{gpu['ecc']['uncorrected']} uncorrected ECC errors since the driver was loaded")
        fix = "reboot the host; if they come back, have the GPU replaced"
        found.append(finding("gpu_memory_errors", "", seen, "no uncorrected errors", fix, "warning"))
    return found


def sharing(facts: Facts) -> Findings:
    """What takes a part of a GPU away from the model."""
    found = []
    split = [gpu for gpu in facts["gpus"] if gpu["mig_mode"]]
    if split:
        fix = "nvidia-smi --multi-instance-gpu=0 on an idle GPU, then a reboot"
        found.append(finding("gpu_mig", "", per_gpu(split, lambda gpu: "MIG is on"), "whole GPUs", fix))
    foreign = [
        (gpu, process) for gpu in facts["gpus"] for process in gpu["processes"]
        if not any(fnmatch.fnmatch(process["unit"], pattern) for pattern in OWN_UNITS)]
    if foreign:
        seen = ", ".join(
            f"GPU {gpu['index']}: process {process['pid']} ({process['name']}) of {process['unit'] or 'no unit'},"
            f" {process['memory_mib'] or '?'} MiB"
            for gpu, process in foreign)
        fix = "end it before a model is started: a model that lacks this memory fails to load"
        found.append(finding("gpu_processes", "", seen, "no memory held but by models", fix, "warning"))
    return found


def peer_access(facts: Facts, wishes: dict[str, Any]) -> Findings:
    """What keeps GPUs from talking to each other over PCI Express: they hang, give wrong data or are slow (NCCL documentation,
    "Troubleshooting", PCI Access Control Services). With NVLink nothing depends on it."""
    if len(facts["pci"]) < 2 or wishes.get("nvlink") or any(gpu["nvlinks"] for gpu in facts["gpus"]):
        return []
    found = []
    translated = [gpu for gpu in facts["pci"] if gpu["iommu_type"].startswith("DMA")]
    if translated:
        seen = f"the IOMMU translates addresses ({translated[0]['iommu_type']}) of {len(translated)} GPUs"
        fix = f"{TUNING}.kernel_arguments: [iommu=pt], and a reboot; or switch the IOMMU off in the firmware"
        needed = "GPUs that reach each other's memory directly"
        found.append(finding("iommu", f"{TUNING}.kernel_arguments", seen, needed, fix, "warning"))
    redirecting = [each["bridge"] for each in facts["acs"] if any(on for name, on in each.items() if name != "bridge")]
    if redirecting:
        where = ", ".join(redirecting)
        seen = f"PCI Express Access Control Services are on at {where}: what GPUs send each other takes the way through the root"
        fix = f"{TUNING}.acs_redirect_off: true; or switch ACS off in the firmware"
        found.append(finding("acs", f"{TUNING}.acs_redirect_off", seen, "off at each bridge above a GPU", fix, "warning"))
    return found


def persistence(facts: Facts) -> Findings:
    off = [gpu for gpu in facts["gpus"] if gpu["persistence_mode"] is False]
    if not off:
        return []
    fix = f"{TUNING}.persistence_mode: true, or the service nvidia-persistenced: without it each first use initialises the GPUs anew"
    seen = per_gpu(off, lambda gpu: "persistence mode is off")
    return [finding("gpu_persistence", f"{TUNING}.persistence_mode", seen, "on", fix, "warning")]


def unknown(facts: Facts, wishes: dict[str, Any]) -> Findings:
    """What was not judged, since it could not be learned. Without a driver that is most of it, and no news."""
    asked = {
        "xids": True, "acs": True, "secure_boot": True, "gpus.compute_capability": facts["gpus"], "gpus.nvlinks": wishes.get("nvlink")}
    missed = dict.fromkeys(each["why"] for each in facts["unknown"] if asked.get(each["what"].split(" ")[0]))
    return [finding("gpu_unknown", "", why, "an answer", "run as root, and repair what is named", "warning") for why in missed]


def per_gpu(gpus: list[Facts], say: Any) -> str:
    """What is to be said of several GPUs, once where it is the same."""
    said: dict[str, list[str]] = {}
    for gpu in gpus:
        said.setdefault(say(gpu), []).append(str(gpu["index"]))
    return ", ".join(f"GPU {' and '.join(indexes) if len(indexes) < 3 else ', '.join(indexes)}: {text}" for text, indexes in said.items())


def size(gpu: Facts) -> int:
    return (gpu["memory_total_mib"] or 0) * 2**20
