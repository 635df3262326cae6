# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What to install so that a host has NVIDIA's driver at one exact version, what speaks against it, and whether it answers."""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Iterable

Facts = dict[str, Any]

# "580.105.08" and "580.142" are versions of the driver, "580" is a branch.
_EXACT = re.compile(r"\d{3,}(\.\d+){1,2}\Z")
# A name of dpkg with a driver's branch in it: nvidia-dkms-580-open
_BRANCH = re.compile(r"-(\d{3})(?=-|\Z)")
# And the release of a kernel, which may look like one: 5.15.0-164-generic
_RELEASE = re.compile(r"-\d+\.\d+\.\d+-\d+.*")
_MODULE_PACKAGES = ("nvidia-*dkms*", "nvidia-kernel-*dkms*", "linux-modules-nvidia-*")


def driver_plan(
    facts: Facts, system: str, wishes: dict[str, Any], data: dict[str, Any], dpkg: str = "", offers: str | None = None, fresh: bool = True,
) -> Facts:
    """Everything that follows before anything is touched. `dpkg` and `offers` are the texts of dpkg-query and of apt-cache madison."""
    version, branch = wishes["version"], branch_of(wishes["version"])
    rule = _rule(data["packages"], wishes["source"], system, branch)
    modules = choose_modules(generations(facts), wishes["modules"], branch, data)
    installed, offered = parse_dpkg(dpkg), parse_madison(offers or "")
    exact, free = names(rule, modules, facts, installed, version) if rule else ([], [])
    # A driver that is loaded was signed with a key that is trusted, and dkms signs the next one with the same.
    enrol = bool(facts["secure_boot"] == "enabled" and rule and not rule.get("signed") and not facts["driver"]["loaded"])
    free += ["mokutil"] if enrol else []
    family = [name for name in installed if _matches(name, data["family"])]
    behind = [name for name in family if not has_version(installed[name]["version"], version) and _offers(offered, name, version)]
    missing = [name for name in exact if not has_version(installed.get(name, {}).get("version", ""), version)]
    missing += [name for name in free if name not in installed]
    refusals = [
        *_refuse_version(version),
        *_refuse_gpus(facts, wishes, data, rule, branch),
        *_refuse_rule(rule, system, wishes, facts, branch),
        *_refuse_secure_boot(enrol, wishes),
        *_refuse_installer(facts, installed),
    ]
    if not refusals and offers is not None and (fresh or exact[0] in offered):
        refusals += _refuse_offers(missing, exact, offered, system, wishes)
    return {
        "refusals": refusals,
        "modules": modules,
        "packages": exact + free,
        "ask": sorted({*exact, *free, *family}),
        "install": [f"{name}={version}-*" for name in sorted({*exact, *behind})] + free,
        "missing": sorted({*missing, *behind}),
        "superseded": sorted(name for name in family if name not in exact + free and _other_branch(name, branch)),
        "hold": sorted(name for name in family if installed[name]["want"] != "hold" and (
            name in exact + free or has_version(installed[name]["version"], version))),
        "enrol": enrol,
    }


def driver_state(facts: Facts, wishes: dict[str, Any], data: dict[str, Any]) -> dict[str, list[str]]:
    """Why the host has to be rebooted, and what keeps the driver from answering as it was wished."""
    driver, nouveau = facts["driver"], "nouveau" in facts["kernel"]["modules"]
    loaded, on_disk = driver["loaded"] or "", driver["on_disk"] or ""
    reboot = []
    if on_disk and loaded != on_disk:
        reboot.append(f"driver {on_disk} is installed, " + (f"{loaded} is loaded" if loaded else "none is loaded"))
    if on_disk and not loaded and facts["secure_boot"] == "enabled" and wishes["secure_boot"] == "enrol":
        reboot.append("its key is confirmed at the console while the host boots: Enroll MOK, Continue, Yes, the password")
    if nouveau:
        reboot.append("nouveau is loaded, which cannot make room for NVIDIA's driver while the host runs")
    return {"reboot": reboot, "findings": [*_findings(facts, wishes, nouveau), *_finding_modules(facts, data)]}


def branch_of(version: str) -> int:
    return int(version.split(".")[0]) if re.match(r"\d+", version) else 0


def generations(facts: Facts) -> list[str]:
    return sorted({gpu["generation"] for gpu in facts["pci"] if gpu["generation"]})


def choose_modules(found: Iterable[str], wish: str, branch: int, data: dict[str, Any]) -> str:
    """open or closed. Open where nothing asks for the others, as NVIDIA recommends since branch 560."""
    if wish != "auto":
        return wish
    known = [data["generations"][name]["modules"] for name in found if name in data["generations"]]
    return "closed" if known and all(modules == ["closed"] for modules in known) else "open"


def names(rule: dict[str, Any], modules: str, facts: Facts, installed: dict[str, Any], version: str) -> tuple[list[str], list[str]]:
    """Names of packages with the version of the driver, and of packages with one of their own, such as those of a kernel."""
    wanted = [*rule["exact"], *rule[modules], *(rule["fabric"] if facts["driver"]["nvswitch"] else [])]
    free = [*rule["free"], *(name for name in wanted if "{release}" in name)]
    filled = {name: name.format(branch=branch_of(version), release=facts["kernel"]["release"]) for name in [*wanted, *free]}
    headers = headers_of(installed) if "linux-headers-{release}" in free else []
    return [filled[name] for name in wanted if name not in free], [filled[name] for name in free] + headers


def headers_of(installed: Iterable[str]) -> list[str]:
    """The header packages that follow the kernel packages of the host, so that dkms builds for the next kernel too."""
    follows = (re.fullmatch(r"linux-image-(?!unsigned-|extra-)([a-z].*)", name) for name in installed)
    return sorted("linux-headers-" + match.group(1) for match in follows if match and not match.group(1).endswith("dbg"))


def parse_dpkg(text: str) -> dict[str, dict[str, str]]:
    """What is installed, from rows of ${Package} ${Version} ${db:Status-Want} ${db:Status-Status}."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: {"version": row[1], "want": row[2]} for row in rows if len(row) == 4 and row[3] not in ("not-installed", "config-files")}


def parse_madison(text: str) -> dict[str, list[str]]:
    """The versions of each package that apt knows, newest first, from rows "name | version | source"."""
    found: dict[str, list[str]] = {}
    for row in (line.split("|") for line in text.splitlines()):
        if len(row) == 3 and not row[2].endswith("Sources"):
            found.setdefault(row[0].strip(), []).append(row[1].strip())
    return found


def has_version(package: str, driver: str) -> bool:
    """Whether a version of dpkg, such as 580.105.08-1 or 580.105.08-0ubuntu1, is one of this driver."""
    return re.sub(r"^\d+:", "", package).startswith(driver + "-")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _offers(offered: dict[str, list[str]], name: str, version: str) -> bool:
    return any(has_version(each, version) for each in offered.get(name, []))


def _other_branch(name: str, branch: int) -> bool:
    match = _BRANCH.search(_RELEASE.sub("", name))
    return match is not None and int(match.group(1)) != branch


def _rule(rules: list[dict[str, Any]], source: str, system: str, branch: int) -> dict[str, Any] | None:
    """The names of a source for a branch on a system, "Debian 13" by its first word."""
    fitting = (rule for rule in rules if rule["source"] == source and rule["system"] == system.split(" ")[0])
    return next((rule for rule in fitting if rule["first"] <= branch <= rule["last"]), None)


def _refuse_version(version: str) -> list[str]:
    if _EXACT.match(version):
        return []
    return [f"modelhost_driver.version is {version!r}: it must be one exact version, such as 580.105.08"]


def _refuse_gpus(facts: Facts, wishes: dict[str, Any], data: dict[str, Any], rule: dict[str, Any] | None, branch: int) -> list[str]:
    """What the GPUs cannot be driven by."""
    found, version = generations(facts), wishes["version"]
    modules = choose_modules(found, wishes["modules"], branch, data)
    refusals = []
    for name in (each for each in found if each in data["generations"]):
        limits = data["generations"][name]
        where = f"{name} GPU {next(gpu['address'] for gpu in facts['pci'] if gpu['generation'] == name)}"
        fitting = f", for example {_package(rule, limits['modules'][0], branch)}" if rule else ""
        if modules not in limits["modules"]:
            refusals.append(
                f"modelhost_driver.modules: the {modules} kernel modules cannot drive the {where}: it needs the "
                f"{limits['modules'][0]} ones{fitting}")
        if branch and not limits["first"] <= branch <= limits["last"]:
            needed = f"{limits['first']} or later" if branch < limits["first"] else f"{limits['last']} or earlier"
            refusals.append(
                f"modelhost_driver.version: {version} cannot drive the {where}: it needs a branch {needed}, and its "
                f"{limits['modules'][0]} kernel modules{fitting}")
    if modules == "closed" and branch > data["closed_last"]:
        refusals.append(
            f"modelhost_driver.modules: {version} has no closed kernel modules, branch {data['closed_last']} was the last: take the open ones")
    return refusals


def _package(rule: dict[str, Any], modules: str, branch: int) -> str:
    return rule[modules][0].format(branch=branch, release="KERNEL")


def _refuse_rule(rule: dict[str, Any] | None, system: str, wishes: dict[str, Any], facts: Facts, branch: int) -> list[str]:
    if rule is None and branch:
        return [
            f"modelhost_driver: no packages are known for branch {branch} from the source {wishes['source']} on {system}: "
            "choose another branch or source, or install the driver by hand and take the source present"]
    if rule and facts["driver"]["nvswitch"] and not rule["fabric"]:
        return [
            f"modelhost_driver.source: this machine has NVSwitches, which need NVIDIA's fabric manager, and {system} has none: "
            "take the source nvidia"]
    return []


def _refuse_secure_boot(enrol: bool, wishes: dict[str, Any]) -> list[str]:
    if not enrol:
        return []
    said = "modelhost_driver.secure_boot: Secure Boot is on, and the kernel loads no module that is built on this host: "
    if wishes["secure_boot"] == "refuse":
        return [
            said + "set it to enrol, which prepares a key of this host and needs a person at its console once; or take signed modules "
            "(Ubuntu, source distribution); or turn Secure Boot off in the firmware"]
    return [] if wishes["password"] else [said + "enrol needs modelhost_mok_password, which is typed at the console after the reboot"]


def _refuse_installer(facts: Facts, installed: dict[str, Any]) -> list[str]:
    on_disk = facts["driver"]["on_disk"]
    if not on_disk or not installed or any(_matches(name, _MODULE_PACKAGES) for name in installed):
        return []
    return [
        f"driver {on_disk} is on the host and no package has brought it, so NVIDIA's .run installer has: remove it with "
        "nvidia-uninstall, or take modelhost_driver.source: present"]


def _refuse_offers(
    missing: list[str], exact: list[str], offered: dict[str, list[str]], system: str, wishes: dict[str, Any],
) -> list[str]:
    """What apt would fail with, said before anything is changed."""
    version, source = wishes["version"], wishes["source"]
    refusals = []
    for name in missing:
        if name in exact and not _offers(offered, name, version):
            known = ", ".join(offered.get(name, [])) or "none"
            refusals.append(f"modelhost_driver.version: apt offers no {name} of {version}. It offers: {known}")
        elif name not in exact and not offered.get(name):
            refusals.append(f"apt offers no {name}: upgrade the kernel and boot it, or make the package available")
    if refusals and not any(offered.get(name) for name in missing if name in exact):
        refusals.append({
            "nvidia": "No source of this host has NVIDIA's packages: modelhost_nvidia_url names the repository, modelhost_offline a "
                      "directory made by build_offline.yml",
            "distribution": f"{system} has the driver in components that are not enabled here: contrib, non-free and non-free-firmware on "
                            "Debian, restricted on Ubuntu",
        }[source])
    return refusals


def _findings(facts: Facts, wishes: dict[str, Any], nouveau: bool) -> list[str]:
    driver, gpus = facts["driver"], len(facts["gpus"])
    answers, version, minimum = driver["userspace"] or "", wishes["version"], wishes["minimum"]
    if driver["error"] or not answers or not gpus:
        return [f"nvidia-smi does not answer: {driver['error'] or 'it lists no GPU'}", *_reasons(facts, nouveau)]
    findings = []
    if version and answers != version:
        findings.append(f"driver {answers} answers, modelhost_driver.version is {version}")
    if minimum and _numbers(answers) < _numbers(minimum):
        findings.append(f"driver {answers} answers; what this host is to run needs {minimum} or later (modelhost_driver)")
    if wishes["gpus"] and gpus != wishes["gpus"]:
        findings.append(f"{gpus} of {wishes['gpus']} GPUs answer (modelhost_gpus.count)")
    return findings


def _reasons(facts: Facts, nouveau: bool) -> list[str]:
    """What is known to keep a driver from answering."""
    driver = facts["driver"]
    loaded, on_disk = driver["loaded"] or "", driver["on_disk"] or ""
    reasons = []
    if nouveau:
        reasons.append("nouveau is loaded and holds the GPUs: reboot, now that it is blacklisted; in an old initramfs it is not")
    if not on_disk:
        reasons.append(
            f"there is no module nvidia for the kernel {facts['kernel']['release']}: dkms status and /var/lib/dkms/nvidia/*/build/make.log say why")
    elif loaded and loaded != on_disk:
        reasons.append(f"{loaded} is loaded and {on_disk} is installed: reboot")
    elif not loaded and facts["secure_boot"] == "enabled":
        reasons.append("Secure Boot is on and the module is not loaded: its key is not enrolled, see mokutil --list-new and --list-enrolled")
    elif not loaded:
        reasons.append(f"{on_disk} is installed and not loaded: modprobe nvidia says why, or the host was not rebooted")
    return reasons


def _finding_modules(facts: Facts, data: dict[str, Any]) -> list[str]:
    if facts["driver"]["open"] is None:
        return []
    has = "open" if facts["driver"]["open"] else "closed"
    wrong = [name for name in generations(facts) if has not in data["generations"].get(name, {"modules": [has]})["modules"]]
    return [f"the loaded kernel modules are the {has} ones, which cannot drive {name}" for name in wrong]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
