# GNU General Public License v3.0+ (see LICENSE)
"""What may be wished of a host's settings, and what it takes to make them so. Nothing here asks a host."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.host_findings import SizeError, parse_size, show_size

VARIABLE = "modelhost_tuning"
GRUB = "/etc/default/grub.d/90-modelhost.cfg"
MODPROBE = "/etc/modprobe.d/modelhost-tuning.conf"
MARKER = "/run/modelhost/reboot-required.d/host_tuning"
# The two reasons that nothing but the marker remembers, once the files are without what they had
STILL = "kernel arguments that are still in /proc/cmdline: "
GIVEN = "options that the loaded kernel module {} was given: "

# GRUB puts the words into a shell script of its own, where any other character may end the command or begin a quotation.
_ARGUMENT = re.compile(r"[A-Za-z0-9_.,:=/*@+-]+\Z")
_SYSCTL = re.compile(r"[a-z][a-z0-9_]*(\.[A-Za-z0-9_-]+)+\Z")
_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")
_WORD = re.compile(r"[^\s\"'\\#]+\Z")
_OFF = ("iommu=off", "intel_iommu=off", "amd_iommu=off")


def wish_findings(wish: dict[str, Any]) -> list[str]:
    """What is wrong with the wishes by themselves; each is of its type already."""
    found = []
    if wish["shm"]:
        try:
            parse_size(wish["shm"])
        except SizeError:
            found.append(f"{VARIABLE}.shm: {wish['shm']!r} is no size: write 64GB (64 x 10^9 bytes) or 64GiB (64 x 2^30 bytes)")
    for name, unit in (("hugepages", "huge pages"), ("power_limit", "watts")):
        if wish[name] < 0:
            found.append(f"{VARIABLE}.{name}: {wish[name]} is no number of {unit}: write one above 0, or remove the line")
    for name, value in wish["sysctl"].items():
        if not _SYSCTL.match(str(name)):
            found.append(f"{VARIABLE}.sysctl.{name}: this is no name that sysctl knows: write one such as net.core.somaxconn")
        elif name == "vm.nr_hugepages":
            found.append(f"{VARIABLE}.sysctl.{name}: say it in {VARIABLE}.hugepages, which is held against the host's memory")
        elif not _is_plain(value) or "\n" in str(value):
            found.append(f"{VARIABLE}.sysctl.{name}: {value!r} is no value of a kernel setting: write a number or a text of one line")
    return found + _argument_findings(wish["kernel_arguments"]) + _option_findings(wish["module_options"])


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and str(value) != ""


def _argument_findings(arguments: list[str]) -> list[str]:
    where = f"{VARIABLE}.kernel_arguments"
    found = [
        f"{where}: {word!r} has a character that GRUB's menu would read otherwise: use letters, digits and _.,:=/*@+- in one word"
        for word in arguments if not _ARGUMENT.match(word)]
    names = [word.partition("=")[0] for word in arguments]
    for name in sorted({name for name in names if names.count(name) > 1}):
        words = ", ".join(word for word in arguments if word.partition("=")[0] == name)
        found.append(f"{where}: {words}: the kernel takes the last one of these: write one")
    off = [word for word in arguments if word in _OFF]
    if "iommu=pt" in arguments and off:
        found.append(f"{where}: iommu=pt and {', '.join(off)}: without an IOMMU nothing passes through one: write one of them")
    return found


def _option_findings(modules: dict[str, Any]) -> list[str]:
    found = []
    for module, options in modules.items():
        where = f"{VARIABLE}.module_options.{module}"
        if not isinstance(options, dict) or not options or not _NAME.match(str(module)):
            found.append(f"{where}: {options!r}: write the options of one kernel module below its name, as {{uvm_disable_hmm: 1}}")
            continue
        for name, value in options.items():
            if not _NAME.match(str(name)) or not _is_plain(value) or not _WORD.match(str(value)):
                found.append(f"{where}.{name}: {value!r} is no value of a module's option: write a number or one word, as modinfo -p says")
    return found


def host_findings(wish: dict[str, Any], host: dict[str, Any]) -> list[str]:
    """What this host cannot do."""
    found = []
    memory, shm, pages = host["memory"], parse_size(wish["shm"]) if wish["shm"] else 0, wish["hugepages"] * host["hugepage"]
    if shm + pages > memory:
        names = [name for name, size in (("shm", shm), ("hugepages", pages)) if size]
        sizes = " and ".join(show_size(size) for size in (shm, pages) if size)
        found.append(
            f"{VARIABLE}.{' and '.join(names)}: {sizes} of memory, and the host has {show_size(memory)}: wish for less, since what fills "
            "them cannot be given to anybody else")
    found += [f"{VARIABLE}.sysctl.{name}: this kernel has no such setting: remove the line" for name in host["unknown_sysctls"]]
    if wish["power_limit"]:
        found += _limit_findings(wish["power_limit"], host["gpus"])
    if wish["acs_redirect_off"] and host["lockdown"]:
        found.append(
            f"{VARIABLE}.acs_redirect_off: this kernel is locked down ({host['lockdown']}, as with Secure Boot) and lets nobody write to "
            "the bridges: switch ACS off in the firmware's settings, or Secure Boot")
    if wish["acs_redirect_off"] and host["vfio"]:
        found.append(
            f"{VARIABLE}.acs_redirect_off: {', '.join(host['vfio'])}: held by vfio-pci for a virtual machine, which ACS keeps apart from the "
            "other devices: remove the line")
    missing = [word for word in wish["kernel_arguments"] if word not in host["cmdline"]]
    if missing and not host["grub"]:
        found.append(
            f"{VARIABLE}.kernel_arguments: this host was not started by GRUB, the one boot loader that is set up here: add "
            f"'{' '.join(missing)}' to the kernel command line by hand and reboot; what is in /proc/cmdline is not asked for again")
    return found


def _limit_findings(limit: int, gpus: list[dict[str, str]]) -> list[str]:
    alike: dict[tuple[str, str], list[str]] = {}  # GPUs of one range
    for index, gpu in enumerate(gpus):
        if not gpu["max"] or not float(gpu["min"] or 0) <= limit <= float(gpu["max"]):
            alike.setdefault((gpu["min"], gpu["max"]), []).append(str(index))
    return [
        f"{VARIABLE}.power_limit: {limit} W; what can be set on GPU {', '.join(which)}: {f'{low} to {high} W' if high else 'nothing'}: "
        "write a limit that each GPU can keep"
        for (low, high), which in alike.items()]


def fragment_words(text: str) -> list[str]:
    """The kernel arguments in a fragment of GRUB's configuration that this role wrote."""
    match = re.search(r'^GRUB_CMDLINE_LINUX_DEFAULT="\$GRUB_CMDLINE_LINUX_DEFAULT ([^"]*)"$', text, re.MULTILINE)
    return match.group(1).split() if match else []


def menu_words(text: str) -> list[str]:
    """The kernel arguments of the first entry in GRUB's menu."""
    match = re.search(r"^\s*linux\S*\s+(.*)$", text, re.MULTILINE)
    return match.group(1).split() if match else []


def option_lines(text: str) -> dict[str, dict[str, str]]:
    """The options by module in a file of modprobe.d(5)."""
    found: dict[str, dict[str, str]] = {}
    for words in (line.split() for line in text.splitlines()):
        if words[:1] == ["options"]:
            found.setdefault(words[1], {}).update(dict(word.partition("=")[::2] for word in words[2:]))
    return found


def same_option(one: str, other: str) -> bool:
    """A kernel's bool reads 1, y and Y alike, and says Y; texts are shown in quotes."""
    plain = [{"y": "1", "n": "0"}.get(text.lower(), text).strip('"') for text in (one, other)]
    return plain[0] == plain[1]


def taken_out(before: dict[str, str]) -> tuple[list[str], dict[str, dict[str, str]]]:
    """Kernel arguments, and options by module, that may be in effect though no longer wished: those of the files, and of the marker."""
    words, options = fragment_words(before[GRUB]), option_lines(before[MODPROBE])
    for line in before[MARKER].splitlines():
        said, module = line.rpartition(": ")[2].split(), re.match(GIVEN.format("(.+)"), line)
        if line.startswith(STILL):
            words += said
        elif module:
            options[module[1]] = {**dict(word.partition("=")[::2] for word in said), **options.get(module[1], {})}
    return list(dict.fromkeys(words)), options


def reboot_reasons(wish: dict[str, Any], before: dict[str, str], host: dict[str, Any]) -> list[str]:
    """Why the kernel that runs is not the wished one. before: the two files and the marker as they are, with the last wishes."""
    reasons = []
    old_words, old_options = taken_out(before)
    missing = [word for word in wish["kernel_arguments"] if word not in host["cmdline"]]
    if missing:
        reasons.append(f"kernel arguments that are not in /proc/cmdline yet: {' '.join(missing)}")
    dropped = [word for word in old_words if word not in wish["kernel_arguments"] and word in host["cmdline"]]
    if dropped:
        reasons.append(STILL + " ".join(dropped))
    options = {module: {name: str(value) for name, value in each.items()} for module, each in wish["module_options"].items()}
    for module, each in options.items():
        live = host["options"].get(module, {})
        differ = [f"{name}={value}" for name, value in each.items() if name in live and not same_option(live[name], value)]
        if differ:
            reasons.append(f"options of the loaded kernel module {module} that are not set yet: {' '.join(differ)}")
    for module, each in old_options.items():
        live = host["options"].get(module)
        if live is None:
            continue
        # One that the module does not show may be in effect
        dropped = [
            f"{name}={value}" for name, value in each.items()
            if name not in options.get(module, {}) and same_option(live.get(name, value), value)]
        if dropped:
            reasons.append(GIVEN.format(module) + " ".join(dropped))
    return reasons


def change_lines(files: dict[str, str], before: dict[str, str], live: dict[str, Any], unit: str) -> list[str]:
    """What would be changed, for people."""
    lines = [
        f"{path} is {'removed' if not text else 'changed' if before[path] else 'written'}"
        for path, text in files.items() if text != before[path]]
    alike: dict[tuple, list[str]] = {}  # GPUs and bridges whose setting goes the same way
    for setting, (value, target) in live.items():
        kind, _, which = setting.partition(" ")
        alike.setdefault((kind, value, target), []).extend([which] if which else [])
    lines += [f"{' '.join([kind, *which])}: {value or 'unknown'} -> {target}" for (kind, value, target), which in alike.items()]
    return lines + ([unit] if unit else [])
