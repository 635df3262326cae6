"""Which driver is installed how, and what is refused. Names of packages and rules are those of the role."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelhost.vllm.plugins.module_utils.driver import (
    driver_plan,
    driver_state,
    has_version,
    parse_dpkg,
    parse_madison,
)

ROOT = Path(__file__).resolve().parents[6]
ROLE = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text())
# What the role writes for unattended-upgrades
BLACKLIST = re.findall(r'"(.+)";', (ROOT / "tests/golden/example/nvidia_driver/52modelhost-nvidia.golden").read_text())
DATA = {name: ROLE[f"__nvidia_driver_{name}"] for name in ("packages", "generations", "closed_last", "family")}
WISHES = {
    "source": "nvidia", "version": "580.105.08", "modules": "auto", "secure_boot": "refuse", "password": False, "minimum": "", "gpus": 8}
KERNEL = "6.12.48+deb13-amd64"
# dpkg-query of Debian 13 with the driver of NVIDIA's repository
INSTALLED = """\
linux-image-6.12.48+deb13-amd64 6.12.48-1 install installed
linux-image-amd64 6.12.48-1 install installed
libcuda1 580.105.08-1 hold installed
libnvidia-ml1 580.105.08-1 hold installed
nvidia-driver-cuda 580.105.08-1 hold installed
nvidia-kernel-open-dkms 580.105.08-1 hold installed
nvidia-persistenced 580.105.08-1 hold installed
linux-headers-6.12.48+deb13-amd64 6.12.48-1 install installed
linux-headers-amd64 6.12.48-1 install installed
"""


def facts(*found: str, release: str = KERNEL, secure_boot: str = "disabled", modules: tuple[str, ...] = (), **driver: Any) -> dict[str, Any]:
    """What gpu_info says of a host with GPUs of these generations."""
    return {
        "pci": [{"generation": name, "address": f"0000:{number:02x}:00.0"} for number, name in enumerate(found, start=1)],
        "gpus": [],
        "driver": {"loaded": "", "on_disk": "", "userspace": "", "error": "", "open": None, "nvswitch": False, **driver},
        "kernel": {"release": release, "modules": list(modules)},
        "secure_boot": secure_boot,
    }


def plan(found: dict[str, Any], system: str = "Debian 13", dpkg: str = "", offers: str | None = None, **wishes: Any) -> dict[str, Any]:
    return driver_plan(found, system, {**WISHES, **wishes}, DATA, dpkg, offers)


@pytest.mark.parametrize(("system", "source", "version", "generation", "expected"), [
    ("Debian 13", "nvidia", "590.48.01", "Blackwell",
     ["nvidia-driver-cuda", "nvidia-persistenced", "nvidia-kernel-open-dkms", "linux-headers-K"]),
    ("Debian 12", "nvidia", "580.105.08", "Volta",
     ["nvidia-driver-cuda", "nvidia-persistenced", "nvidia-kernel-dkms", "linux-headers-K"]),
    ("Ubuntu 24.04", "nvidia", "580.105.08", "Blackwell",
     ["libnvidia-compute-580", "nvidia-utils-580", "nvidia-compute-utils-580", "nvidia-dkms-580-open", "linux-headers-K"]),
    ("Ubuntu 22.04", "nvidia", "575.57.08", "Pascal",
     ["libnvidia-compute-575", "nvidia-utils-575", "nvidia-compute-utils-575", "nvidia-dkms-575", "linux-headers-K"]),
    ("Ubuntu 26.04", "nvidia", "595.71.05", "Hopper",
     ["libnvidia-compute", "nvidia-persistenced", "nvidia-modprobe", "nvidia-dkms-open", "linux-headers-K"]),
    ("Debian 13", "distribution", "550.163.01", "Ampere",
     ["nvidia-smi", "libcuda1", "nvidia-open-kernel-dkms", "nvidia-persistenced", "linux-headers-K"]),
    ("Ubuntu 24.04", "distribution", "580.159.03", "Blackwell",
     ["nvidia-utils-580-server", "nvidia-headless-no-dkms-580-server-open", "linux-modules-nvidia-580-server-open-K"]),
])
def test_packages(system: str, source: str, version: str, generation: str, expected: list[str]) -> None:
    made = plan(facts(generation, release="K"), system, source=source, version=version)
    assert made["refusals"] == []
    assert made["packages"] == expected
    assert made["missing"] == sorted(expected)


def test_words_for_apt_name_the_version_where_a_package_has_it() -> None:
    assert plan(facts("Blackwell"))["install"] == [
        "nvidia-driver-cuda=580.105.08-*", "nvidia-kernel-open-dkms=580.105.08-*", "nvidia-persistenced=580.105.08-*",
        "linux-headers-6.12.48+deb13-amd64"]


def test_fabric_manager_only_with_nvswitch() -> None:
    assert "nvidia-fabricmanager=580.105.08-*" in plan(facts("Hopper", nvswitch=True))["install"]
    assert "nvidia-fabricmanager-575=575.57.08-*" in plan(facts("Hopper", nvswitch=True), "Ubuntu 24.04", version="575.57.08")["install"]
    assert not any("fabric" in word for word in plan(facts("Hopper"))["install"])
    assert plan(facts("Hopper", nvswitch=True), source="distribution", version="550.163.01")["refusals"] == [
        "modelhost_driver.source: this machine has NVSwitches, which need NVIDIA's fabric manager, and Debian 13 has none: "
        "take the source nvidia"]


def test_headers_follow_the_kernel_of_the_host() -> None:
    """Else dkms has none for the next kernel, and the host boots it without a driver."""
    dpkg = "".join(f"linux-image-{name} 6.12.48-1 install installed\n" for name in (
        "cloud-amd64", "6.12.48+deb13-cloud-amd64-dbg", "unsigned-6.8.0-51-generic", "extra-virtual"))
    assert plan(facts("Ampere"), dpkg=dpkg)["packages"][-2:] == ["linux-headers-6.12.48+deb13-amd64", "linux-headers-cloud-amd64"]
    assert plan(facts("Ampere"), "Ubuntu 24.04", dpkg=dpkg, source="distribution")["packages"][-1].startswith("linux-modules-nvidia-")


@pytest.mark.parametrize(("found", "wishes", "modules"), [
    (["Blackwell"], {}, "open"), (["Turing"], {}, "open"), (["Volta"], {}, "closed"), ([], {}, "open"), (["Turing", "Volta"], {}, "open"),
    (["Hopper"], {"modules": "closed"}, "closed"), (["Rubin"], {}, "open"),
])
def test_open_or_closed(found: list[str], wishes: dict[str, str], modules: str) -> None:
    assert plan(facts(*found), **wishes)["modules"] == modules


@pytest.mark.case("H2")
@pytest.mark.parametrize(("found", "system", "wishes", "refusal"), [
    (["Blackwell"], "Debian 13", {"source": "distribution", "version": "550.163.01"},
     "modelhost_driver.version: 550.163.01 cannot drive the Blackwell GPU 0000:01:00.0: it needs a branch 570 or later, and its open kernel "
     "modules, for example nvidia-open-kernel-dkms"),
    (["Ampere", "Blackwell"], "Ubuntu 24.04", {"version": "565.57.01"},
     "modelhost_driver.version: 565.57.01 cannot drive the Blackwell GPU 0000:02:00.0: it needs a branch 570 or later, and its open kernel "
     "modules, for example nvidia-dkms-565-open"),
    (["Blackwell"], "Debian 12", {"modules": "closed"},
     "modelhost_driver.modules: the closed kernel modules cannot drive the Blackwell GPU 0000:01:00.0: it needs the open ones, for example "
     "nvidia-kernel-open-dkms"),
    (["Blackwell"], "Ubuntu 24.04", {"modules": "closed"},
     "modelhost_driver.modules: the closed kernel modules cannot drive the Blackwell GPU 0000:01:00.0: it needs the open ones, for example "
     "nvidia-dkms-580-open"),
    (["Volta", "Blackwell"], "Debian 12", {},
     "modelhost_driver.modules: the open kernel modules cannot drive the Volta GPU 0000:01:00.0: it needs the closed ones, for example "
     "nvidia-kernel-dkms"),
    (["Pascal"], "Debian 12", {"version": "590.48.01"},
     "modelhost_driver.version: 590.48.01 cannot drive the Pascal GPU 0000:01:00.0: it needs a branch 580 or earlier, and its closed kernel "
     "modules, for example nvidia-kernel-dkms"),
    (["Hopper"], "Debian 13", {"version": "615.71.09", "modules": "closed"},
     "modelhost_driver.modules: 615.71.09 has no closed kernel modules, branch 610 was the last: take the open ones"),
])
def test_a_driver_that_cannot_drive_the_gpu(found: list[str], system: str, wishes: dict[str, str], refusal: str) -> None:
    assert plan(facts(*found), system, **wishes)["refusals"] == [refusal]


@pytest.mark.parametrize("version", ["", "580", "latest", "580.105.08-1", "580.*"])
def test_a_version_that_is_not_exact(version: str) -> None:
    assert plan(facts("Blackwell"), version=version)["refusals"][0] == (
        f"modelhost_driver.version is {version!r}: it must be one exact version, such as 580.105.08")


def test_a_branch_without_known_packages() -> None:
    assert plan(facts("Ampere"), version="535.261.03")["refusals"] == [
        "modelhost_driver: no packages are known for branch 535 from the source nvidia on Debian 13: choose another branch or source, or "
        "install the driver by hand and take the source present"]


@pytest.mark.case("H3")
def test_secure_boot_is_said_before_anything_is_installed() -> None:
    on = facts("Blackwell", secure_boot="enabled")
    said = "modelhost_driver.secure_boot: Secure Boot is on, and the kernel loads no module that is built on this host: "
    refused, without, enrolled = plan(on), plan(on, secure_boot="enrol"), plan(on, secure_boot="enrol", password=True)
    assert refused["refusals"] == [
        said + "set it to enrol, which prepares a key of this host and needs a person at its console once; or take signed modules "
        "(Ubuntu, source distribution); or turn Secure Boot off in the firmware"]
    assert without["refusals"] == [said + "enrol needs modelhost_mok_password, which is typed at the console after the reboot"]
    assert (enrolled["refusals"], enrolled["enrol"]) == ([], True)
    assert "mokutil" in enrolled["install"]


@pytest.mark.case("H3")
def test_signed_modules_need_no_key() -> None:
    made = plan(facts("Blackwell", secure_boot="enabled"), "Ubuntu 24.04", source="distribution", version="580.159.03")
    assert (made["refusals"], made["enrol"]) == ([], False)
    assert "mokutil" not in made["install"]


def test_a_loaded_driver_has_a_key_that_is_trusted() -> None:
    made = plan(facts("Blackwell", secure_boot="enabled", loaded="570.211.01", on_disk="570.211.01"))
    assert (made["refusals"], made["enrol"]) == ([], False)


def test_nothing_is_missing_on_a_finished_host() -> None:
    made = plan(facts("Blackwell", on_disk="580.105.08"), dpkg=INSTALLED, offers="")
    assert (made["refusals"], made["missing"], made["superseded"], made["hold"]) == ([], [], [], [])


def test_another_version_takes_along_what_only_came_with_it() -> None:
    """Their dependencies leave the version open, so that apt alone would leave them where they are."""
    offers = "\n".join(
        f"{name} | {version}-1 | file:/srv debian13 Packages"
        for name in ("libcuda1", "libnvidia-ml1", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced")
        for version in ("590.48.01", "580.105.08"))
    made = plan(facts("Blackwell", on_disk="580.105.08"), dpkg=INSTALLED, offers=offers, version="590.48.01")
    assert made["install"] == [
        "libcuda1=590.48.01-*", "libnvidia-ml1=590.48.01-*", "nvidia-driver-cuda=590.48.01-*", "nvidia-kernel-open-dkms=590.48.01-*",
        "nvidia-persistenced=590.48.01-*", "linux-headers-6.12.48+deb13-amd64", "linux-headers-amd64"]
    assert made["missing"] == ["libcuda1", "libnvidia-ml1", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced"]


def test_packages_of_another_branch_are_superseded() -> None:
    dpkg = "".join(f"{name} 575.57.08-0ubuntu1 hold installed\n" for name in (
        "libnvidia-compute-575", "nvidia-dkms-575-open", "nvidia-modprobe", "linux-modules-nvidia-575-open-6.8.0-51-generic",
        "linux-modules-nvidia-580-open-5.15.0-164-generic", "linux-signatures-nvidia-5.15.0-164-generic"))
    assert plan(facts("Blackwell"), "Ubuntu 24.04", dpkg=dpkg)["superseded"] == [
        "libnvidia-compute-575", "linux-modules-nvidia-575-open-6.8.0-51-generic", "nvidia-dkms-575-open"]


def test_what_apt_does_not_offer() -> None:
    offers = "nvidia-driver-cuda | 590.48.01-1 | file:/srv debian13 Packages\nnvidia-driver-cuda | 590.44.01-1 | file:/srv debian13 Packages\n"
    offers += "linux-headers-6.12.48+deb13-amd64 | 6.12.48-1 | file:/srv debian13 Packages\n"
    assert plan(facts("Blackwell"), offers=offers)["refusals"] == [
        "modelhost_driver.version: apt offers no nvidia-driver-cuda of 580.105.08. It offers: 590.48.01-1, 590.44.01-1",
        "modelhost_driver.version: apt offers no nvidia-persistenced of 580.105.08. It offers: none",
        "modelhost_driver.version: apt offers no nvidia-kernel-open-dkms of 580.105.08. It offers: none"]


@pytest.mark.parametrize(("source", "version", "last"), [
    ("nvidia", "580.105.08", "No source of this host has NVIDIA's packages: modelhost_nvidia_url names the repository, modelhost_offline a "
                             "directory made by build_offline.yml"),
    ("distribution", "550.163.01", "Debian 13 has the driver in components that are not enabled here: contrib, non-free and "
                                   "non-free-firmware on Debian, restricted on Ubuntu"),
])
def test_sources_without_any_driver(source: str, version: str, last: str) -> None:
    refusals = plan(facts("Ampere"), offers="", source=source, version=version)["refusals"]
    assert refusals[-2:] == ["apt offers no linux-headers-6.12.48+deb13-amd64: upgrade the kernel and boot it, or make the package "
                             "available", last]


def test_lists_that_were_not_fetched_refuse_nothing() -> None:
    arguments = (facts("Blackwell"), "Debian 13", WISHES, DATA, "")
    other = "nvidia-persistenced | 550.163.01-1 | file:/srv trixie/contrib amd64 Packages\n"
    assert driver_plan(*arguments, other, False)["refusals"] == []
    assert len(driver_plan(*arguments, "nvidia-driver-cuda | 590.48.01-1 | file:/srv Packages\n" + other, False)["refusals"]) == 4


def test_a_driver_that_no_package_brought() -> None:
    assert plan(facts("Blackwell", on_disk="575.57.08"), dpkg="bash 5.2 install installed\n")["refusals"] == [
        "driver 575.57.08 is on the host and no package has brought it, so NVIDIA's .run installer has: remove it with nvidia-uninstall, or "
        "take modelhost_driver.source: present"]


# Real names, from NVIDIA's repositories debian13, ubuntu2404 and ubuntu2604, and from Debian's and Ubuntu's archives
FAMILY = """
nvidia-driver-cuda nvidia-kernel-open-dkms nvidia-kernel-dkms nvidia-kernel-support nvidia-modprobe nvidia-persistenced nvidia-open
nvidia-smi nvidia-opencl-icd nvidia-alternative nvidia-driver-580-open nvidia-dkms-580-open nvidia-dkms-580-server-open
nvidia-kernel-source-580-open nvidia-kernel-common-580 nvidia-kernel-common-580-server nvidia-utils-580 nvidia-utils-580-server
nvidia-compute-utils-580 nvidia-firmware-580 nvidia-firmware-580-580.105.08 nvidia-headless-no-dkms-580-server-open nvidia-fabricmanager
nvidia-fabricmanager-575 nvidia-imex nvidia-settings nvidia-driver-pinning-590 nvidia-open-kernel-dkms nvidia-kernel-common
libnvidia-compute libnvidia-compute-580 libnvidia-compute-580-server libnvidia-cfg1 libnvidia-cfg1-580 libnvidia-ml1 libnvidia-nscq
libnvidia-nscq-575 libnvidia-ptxjitcompiler1 libnvidia-gpucomp-580 libnvidia-extra-580 libnvidia-decode-580 libcuda1 libcudadebugger1
libnvcuvid1 libnvsdm libxnvctrl0 firmware-nvidia-gsp cuda-drivers cuda-drivers-580 cuda-drivers-fabricmanager-575 cuda-toolkit-13-0
cuda-nvcc-13-0 cuda-compat-13-0 cuda-keyring xserver-xorg-video-nvidia xserver-xorg-video-nvidia-580
linux-modules-nvidia-580-server-open-6.8.0-51-generic linux-modules-nvidia-580-open-generic-hwe-24.04
linux-objects-nvidia-580-6.14.0-36-generic linux-signatures-nvidia-6.14.0-36-generic
""".split()
STRANGERS = """
linux-image-6.12.48+deb13-amd64 linux-image-generic linux-headers-amd64 linux-modules-6.8.0-51-generic libc6 dkms libcublas-13-0 libcudnn9
xserver-xorg-video-nouveau libcuda1-villa openssl mokutil libnvme1 python3-nvidia-ml-py
""".split()


@pytest.mark.case("H1")
@pytest.mark.parametrize("name", FAMILY)
def test_every_package_of_the_driver_is_held_and_left_out_of_upgrades(name: str) -> None:
    assert plan(facts(), dpkg=f"{name} 580.105.08-1 install installed\n")["hold"] == [name]
    assert any(re.match(expression, name) for expression in BLACKLIST)


@pytest.mark.parametrize(("row", "hold"), [
    ("nvidia-container-toolkit 1.18.0-1 install", []),
    ("libnvidia-container1 1.18.0-1 install", []),
    ("cuda-keyring 1.1-1 install", []),
    ("cuda-toolkit-13-0 13.0.2-1 install", []),
    ("nvidia-driver-cuda 580.105.08-1 hold", []),
    ("nvidia-driver-cuda 590.48.01-1 install", ["nvidia-driver-cuda"]),
    ("nvidia-settings 590.48.01-1 install", []),
])
def test_only_the_packages_of_this_driver_are_held(row: str, hold: list[str]) -> None:
    assert plan(facts("Blackwell"), dpkg=f"{row} installed\n")["hold"] == hold


def test_packages_of_the_distribution_with_a_version_of_their_own_are_held() -> None:
    made = plan(facts("Ampere"), dpkg="nvidia-persistenced 550.54.14-1 install installed\n", source="distribution", version="550.163.01")
    assert made["hold"] == ["nvidia-persistenced"]


@pytest.mark.parametrize("name", STRANGERS)
def test_no_other_package_is(name: str) -> None:
    assert plan(facts(), dpkg=f"{name} 580.105.08-1 install installed\n")["hold"] == []
    assert not any(re.match(expression, name) for expression in BLACKLIST)


@pytest.mark.parametrize(("found", "reboot"), [
    (facts("Blackwell", loaded="580.105.08", on_disk="580.105.08"), []),
    (facts("Blackwell", loaded="570.211.01", on_disk="580.105.08"), ["driver 580.105.08 is installed, 570.211.01 is loaded"]),
    (facts("Blackwell", on_disk="580.105.08"), ["driver 580.105.08 is installed, none is loaded"]),
    (facts("Blackwell"), []),
    pytest.param(facts("Blackwell", on_disk="580.105.08", modules=("nouveau",)),
                 ["driver 580.105.08 is installed, none is loaded",
                  "nouveau is loaded, which cannot make room for NVIDIA's driver while the host runs"], marks=pytest.mark.case("H6")),
])
def test_reasons_for_a_reboot(found: dict[str, Any], reboot: list[str]) -> None:
    assert driver_state(found, WISHES, DATA)["reboot"] == reboot


def test_a_key_is_confirmed_at_the_console() -> None:
    found = facts("Blackwell", on_disk="580.105.08", secure_boot="enabled")
    assert driver_state(found, {**WISHES, "secure_boot": "enrol"}, DATA)["reboot"][-1] == (
        "its key is confirmed at the console while the host boots: Enroll MOK, Continue, Yes, the password")


ANSWERS = {"loaded": "580.105.08", "on_disk": "580.105.08", "userspace": "580.105.08", "open": True}


@pytest.mark.parametrize(("driver", "gpus", "wishes", "findings"), [
    ({}, 8, {}, []),
    ({}, 7, {}, ["7 of 8 GPUs answer (modelhost_gpus.count)"]),
    ({}, 3, {"gpus": 0}, []),
    ({"userspace": "570.211.01"}, 8, {}, ["driver 570.211.01 answers, modelhost_driver.version is 580.105.08"]),
    ({"userspace": "570.211.01"}, 8, {"version": "", "minimum": "580"},
     ["driver 570.211.01 answers; what this host is to run needs 580 or later (modelhost_driver)"]),
    ({}, 8, {"version": "", "minimum": "580"}, []),
    pytest.param({"open": False}, 8, {"version": ""}, ["the loaded kernel modules are the closed ones, which cannot drive Blackwell"],
                 marks=pytest.mark.case("H2")),
])
def test_an_answer_that_is_not_the_wished_one(driver: dict, gpus: int, wishes: dict, findings: list[str]) -> None:
    found = {**facts("Blackwell", **{**ANSWERS, **driver}), "gpus": [{}] * gpus}
    assert driver_state(found, {**WISHES, **wishes}, DATA)["findings"] == findings


NO_ANSWER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


@pytest.mark.parametrize(("found", "reason"), [
    (facts("Blackwell", error=MISMATCH, loaded="570.211.01", on_disk="580.105.08"), "570.211.01 is loaded and 580.105.08 is installed: reboot"),
    (facts("Blackwell", error=NO_ANSWER),
     "there is no module nvidia for the kernel 6.12.48+deb13-amd64: dkms status and /var/lib/dkms/nvidia/*/build/make.log say why"),
    (facts("Blackwell", error=NO_ANSWER, on_disk="580.105.08"),
     "580.105.08 is installed and not loaded: modprobe nvidia says why, or the host was not rebooted"),
    pytest.param(
        facts("Blackwell", error=NO_ANSWER, on_disk="580.105.08", secure_boot="enabled"),
        "Secure Boot is on and the module is not loaded: its key is not enrolled, see mokutil --list-new and --list-enrolled",
        marks=pytest.mark.case("H3")),
    pytest.param(
        facts("Blackwell", error=NO_ANSWER, on_disk="580.105.08", modules=("nouveau",)),
        "nouveau is loaded and holds the GPUs: reboot, now that it is blacklisted; in an old initramfs it is not", marks=pytest.mark.case("H6")),
])
def test_no_answer_comes_with_what_is_known_of_the_cause(found: dict[str, Any], reason: str) -> None:
    findings = driver_state(found, WISHES, DATA)["findings"]
    assert findings[0] == f"nvidia-smi does not answer: {found['driver']['error']}"
    assert reason in findings[1:]


def test_a_driver_that_lists_no_gpu() -> None:
    assert driver_state(facts("Blackwell", **ANSWERS), WISHES, DATA)["findings"] == ["nvidia-smi does not answer: it lists no GPU"]


def test_texts_of_dpkg_and_apt() -> None:
    assert parse_dpkg("a 1-1 install installed\nb 2-1 deinstall config-files\nc  unknown not-installed\n") == {
        "a": {"version": "1-1", "want": "install"}}
    assert parse_madison(
        " libcuda1 | 580.105.08-1 | file:/srv debian13 Packages\n libcuda1 | 550.163.01-2 | file:/srv Sources\n") == {"libcuda1": ["580.105.08-1"]}


@pytest.mark.parametrize(("package", "expected"), [
    ("580.105.08-1", True), ("580.105.08-0ubuntu0.24.04.1", True), ("3:580.105.08-1", True), ("580.105.081-1", False), ("580.126.09-1", False),
    ("", False),
])
def test_a_package_of_the_driver(package: str, expected: bool) -> None:
    assert has_version(package, "580.105.08") is expected
