# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One chain of versions: what the GPUs, the driver, the CUDA toolkit, torch, vLLM, NCCL and FlashInfer ask of each other.

A chain is a dict: driver, cuda, uv, gpus, engines and models as the inventory has them; pins, what each engine's lock pins; compatibility, the
data of roles/host_check/files/compatibility.yml. A contradiction is an error; what the data does not know is a warning, never an error.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Tuple

from ansible_collections.modelhost.vllm.plugins.module_utils.findings import spec_findings
from ansible_collections.modelhost.vllm.plugins.module_utils.host_findings import SizeError, finding, parse_size

Chain = Dict[str, Any]
Finding = Dict[str, str]

DRIVER_OPTIONS = {
    "source": {"type": "str", "required": True, "choices": ["nvidia", "distribution", "present"], "description": "Where it comes from."},
    "version": {"type": "str", "required": True, "description": "One exact version, in quotes, such as '580.105.08'."},
    "modules": {"type": "str", "choices": ["auto", "open", "closed"], "description": "Which kernel modules."},
    "secure_boot": {"type": "str", "choices": ["refuse", "enrol"], "description": "What to do where Secure Boot is on."},
}
CUDA_OPTIONS = {
    "source": {"type": "str", "required": True, "choices": ["nvidia", "pypi", "present"], "description": "Where it comes from."},
    "versions": {
        "type": "list", "elements": "str", "required": True,
        "description": "The toolkits, each as major.minor in quotes, such as ['13.0']; [] for none.",
    },
    "selected": {"type": "str", "required": True, "description": "The one that the units use, in quotes, such as '13.0'; '' for none."},
    "path": {"type": "path", "description": "Folder of a toolkit that is present, such as /usr/local/cuda."},
}
GPU_OPTIONS = {
    "count": {"type": "int", "required": True, "description": "How many; 0 for a host without GPUs."},
    "name": {"type": "str", "description": "What nvidia-smi calls them, or a part of it."},
    "compute_capability": {"type": "str", "description": "NVIDIA's compute capability, in quotes, such as '12.0'."},
    "memory": {"type": "str", "description": "Memory of each, such as 96GB."},
    "link_generation": {"type": "int", "description": "Generation of the PCIe link."},
    "link_width": {"type": "int", "description": "Width of the PCIe link."},
    "nvlink": {"type": "bool", "description": "Whether NVLink connects them."},
}  # fmt: skip
UV_OPTIONS = {
    "version": {"type": "str", "required": True, "description": "One exact version, such as '0.13.9'."},
    "sha256": {"type": "list", "elements": "str", "required": True, "description": "Sha256 of uv's wheel for each architecture of the hosts."},
}

_DRIVER_VERSION = re.compile(r"\d{3,}(\.\d+){1,2}\Z")
_MAJOR_MINOR = re.compile(r"\d+\.\d+\Z")
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
_NCCLS = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
_NEWER = "a version that compatibility.yml knows"
_ADD = "check it by hand, then add it to roles/host_check/files/compatibility.yml"


def parse_pins(lock: str) -> Dict[str, str]:
    """The version of each package that a lock pins, by the package's normal name (PEP 503)."""
    return {re.sub(r"[-_.]+", "-", match.group(1)).lower(): match.group(2) for match in map(_PIN.match, lock.splitlines()) if match}


def numbers(version: str) -> Tuple[int, ...]:
    """A version to compare: (580, 105, 8) of "580.105.08"."""
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*|", version).group().split(".") if part)


def cuda_of(pins: Dict[str, str]) -> str:
    """The CUDA of an engine's torch: "13.0", "cpu" where torch has none, "" where the lock does not say."""
    local = pins.get("torch", "").partition("+")[2]
    named = re.match(r"cu(\d+)(\d)\Z", local)
    if local == "cpu":
        return local
    return ".".join(named.groups()) if named else _runtime(pins)


def nccl_of(pins: Dict[str, str]) -> str:
    """The NCCL of an engine; "" where its lock has none."""
    return next((pins[each] for each in _NCCLS if each in pins), "")


def version_findings(chain: Chain) -> Dict[str, List[str]]:
    """What is wrong with the versions that the inventory declares, and what is not known of them, as sentences."""
    broken = shape_findings(chain)
    found = [] if broken else judge(chain)
    said = {severity: [sentence(each) for each in found if each["severity"] == severity] for severity in ("error", "warning")}
    return {"errors": broken + said["error"] + uv_findings(chain["uv"]), "warnings": said["warning"]}


def host_version_findings(chain: Chain, gpu_info: Dict[str, Any], os_release: Dict[str, str]) -> List[Finding]:
    """What a host adds: findings of the same chain with the driver and the GPUs that are there, without those that are declared already."""
    if not chain or shape_findings(chain) or not chain["gpus"]["count"]:
        return []
    there, declared = gpu_info.get("driver") or {}, chain["driver"]
    driver = {
        **declared,
        "version": there.get("loaded") or there.get("on_disk") or declared["version"],
        "modules": {True: "open", False: "closed"}.get(there.get("open"), declared.get("modules", "auto")),
    }
    driver["on_host"] = [key for key in ("version", "modules") if driver[key] != declared.get(key)]
    seen = {gpu.get("compute_capability") for gpu in gpu_info.get("gpus") or []} - {None, ""}
    gpus = {**chain["gpus"], "compute_capabilities": sorted(seen, key=numbers) or _capabilities(chain)}
    said = judge(chain)
    found = [each for each in judge({**chain, "driver": driver, "gpus": gpus}) if each not in said]
    return [_repaired(each, declared) for each in found] + list(_system(chain, os_release))


def driver_minimum(chain: Chain) -> str:
    """The oldest driver that GPUs, toolkit and engines can work with, as "580"; "" where nothing asks for one."""
    if shape_findings(chain) or not chain["gpus"]["count"]:
        return ""
    return max((floor for floor, _reason, _fix in _floors(chain)), key=numbers, default="")


def sentence(each: Finding) -> str:
    return "%(variable)s: %(seen)s; needed: %(needed)s; fix: %(fix)s" % each


def shape_findings(chain: Chain) -> List[str]:
    """What keeps the declared versions from being compared at all."""
    driver, cuda, gpus = chain["driver"], chain["cuda"], chain["gpus"]
    found = [
        *spec_findings("modelhost_driver", driver, DRIVER_OPTIONS),
        *spec_findings("modelhost_cuda", cuda, CUDA_OPTIONS),
        *spec_findings("modelhost_gpus", gpus, GPU_OPTIONS),
    ]
    return found or [*_driver_shape(driver), *_cuda_shape(cuda), *_gpu_shape(gpus)]


def uv_findings(uv: Any) -> List[str]:
    """uv is no link of the chain: all that its pin has to be is exact."""
    found = spec_findings("modelhost_uv", uv, UV_OPTIONS)
    if found:
        return found
    if not re.match(r"\d+\.\d+\.\d+\Z", uv["version"]):
        found.append(f"modelhost_uv.version: {uv['version']!r} is no exact version: write one such as '0.13.9'")
    if not uv["sha256"]:
        found.append("modelhost_uv.sha256 is empty: write the sha256 of uv's wheel for each architecture of the hosts")
    return found + [
        f"modelhost_uv.sha256[{index}]: {digest!r} is no sha256: write 64 hexadecimal digits"
        for index, digest in enumerate(uv["sha256"]) if not re.match(r"[0-9a-f]{64}\Z", digest)]


def _driver_shape(driver: Dict[str, str]) -> Iterator[str]:
    version = driver["version"]
    if not _DRIVER_VERSION.match(version) and (version or driver["source"] != "present"):
        yield (
            f"modelhost_driver.version: {version!r} is no exact version: write one such as '580.105.08', since a branch moves"
            + ("" if version else "; only the source present goes without")
        )


def _cuda_shape(cuda: Dict[str, Any]) -> Iterator[str]:
    for index, version in enumerate(cuda["versions"]):
        if not _MAJOR_MINOR.match(version):
            yield f"modelhost_cuda.versions[{index}]: {version!r} is no toolkit: write major.minor, such as '13.0'"
    if cuda["selected"] not in (cuda["versions"] or [""]):
        known = ", ".join(cuda["versions"]) or "none"
        yield f"modelhost_cuda.selected: {cuda['selected']!r} is not one of modelhost_cuda.versions ({known}): select one of them"
    path = cuda.get("path", "")
    if not (path.startswith("/") if cuda["source"] == "present" else path == ""):
        yield "modelhost_cuda.path: with the source present write the folder of the toolkit, such as /usr/local/cuda; else leave it out"


def _gpu_shape(gpus: Dict[str, Any]) -> Iterator[str]:
    if gpus["count"] < 0:
        yield f"modelhost_gpus.count: {gpus['count']} is no number of GPUs: write 0 or more"
    capability = gpus.get("compute_capability", "")
    if gpus["count"] > 0 and not _MAJOR_MINOR.match(capability):
        yield f"modelhost_gpus.compute_capability: {capability!r} is none: write it as NVIDIA does, such as '12.0'"
    try:
        sound = "memory" not in gpus or parse_size(gpus["memory"]) > 0
    except SizeError:
        sound = False
    if not sound:
        yield f"modelhost_gpus.memory: {gpus['memory']!r} is no size: write one such as 96GB or 96GiB, or remove the line"
    if gpus.get("link_width", 16) not in (1, 2, 4, 8, 16):
        yield f"modelhost_gpus.link_width: {gpus['link_width']} is no width of a PCIe link: write 1, 2, 4, 8 or 16, or remove the line"
    if not 1 <= gpus.get("link_generation", 1) <= 7:
        yield f"modelhost_gpus.link_generation: {gpus['link_generation']} is no generation of PCIe: write 1 to 7, or remove the line"


def judge(chain: Chain) -> List[Finding]:
    """Every contradiction and everything unknown, in the order of the chain."""
    engines = list(_engines(chain))
    found = [*_models(chain)]
    if chain["gpus"]["count"]:
        found += [*_unknown_gpus(chain), *_driver(chain), *_modules(chain), *_toolkit(chain)]
        found += [each for name, _entry, pins in engines for each in _engine_on_gpus(chain, name, pins)]
    return found + [each for name, engine, pins in engines for each in _lock(chain, name, engine, pins)]


def _engines(chain: Chain) -> Iterator[Tuple[str, Dict[str, Any], Dict[str, str]]]:
    """The engines whose entries are sound; the catalogue's rules speak of the others."""
    for name, engine in chain["engines"].items() if isinstance(chain["engines"], dict) else ():
        keys = ("distribution", "version", "python", "lock")
        if isinstance(engine, dict) and all(isinstance(engine.get(key), str) for key in keys):
            yield name, engine, chain["pins"].get(name) or {}


def _sound_models(chain: Chain) -> Iterator[Tuple[str, str, Any]]:
    for name, model in chain["models"].items() if isinstance(chain["models"], dict) else ():
        engine, gpus = (model.get("engine"), model.get("gpus")) if isinstance(model, dict) else (None, None)
        indexes = isinstance(gpus, list) and all(isinstance(each, int) for each in gpus)
        if isinstance(engine, str) and (gpus == "all" or indexes):
            yield name, engine, gpus


def _capabilities(chain: Chain) -> List[str]:
    return chain["gpus"].get("compute_capabilities") or [chain["gpus"]["compute_capability"]]


def _generations(chain: Chain) -> Iterator[Tuple[str, Dict[str, Any], Dict[str, Any]]]:
    """Each compute capability that is known, its CUDA and its generation."""
    data = chain["compatibility"]
    for capability in _capabilities(chain):
        if capability in data["gpus"]:
            known = data["gpus"][capability]
            yield capability, known, {"name": known["generation"], **data["generations"][known["generation"]]}


def _unknown_gpus(chain: Chain) -> Iterator[Finding]:
    for capability in _capabilities(chain):
        if capability not in chain["compatibility"]["gpus"]:
            yield finding("versions", "modelhost_gpus.compute_capability", capability, _NEWER, _ADD, "warning")


def _floors(chain: Chain) -> Iterator[Tuple[str, str, str]]:
    """Oldest driver, what asks for it, and what to change where the driver cannot be newer."""
    data = chain["compatibility"]["cuda"]
    for capability, _cuda, generation in _generations(chain):
        yield str(generation["first"]), f"compute capability {capability} ({generation['name']})", "pin that branch or a later one"
    selected = chain["cuda"]["selected"]
    if _major(selected) in data:
        yield data[_major(selected)]["driver"], f"the CUDA toolkit {selected}", "raise the driver, or select an older toolkit"
    for name, _entry, pins in _engines(chain):
        if _major(cuda_of(pins)) in data:
            yield (
                data[_major(cuda_of(pins))]["driver"],
                f"CUDA {cuda_of(pins)} of modelhost_engines.{name}",
                "raise the driver, or take an engine for an older CUDA",
            )


def _seen(driver: Dict[str, Any], key: str) -> str:
    return driver[key] + (" on the host" if key in driver.get("on_host", []) else "")


def _driver(chain: Chain) -> Iterator[Finding]:
    version, variable = chain["driver"]["version"], "modelhost_driver.version"
    if not version:  # the source present, and no host is asked
        return
    seen = _seen(chain["driver"], "version")
    for floor, reason, fix in _floors(chain):
        if numbers(version) < numbers(floor):
            yield finding("versions", variable, seen, f"{floor} or later, for {reason}", fix)
    for capability, _cuda, generation in _generations(chain):
        if numbers(version)[0] > generation["last"]:
            needed = f"{generation['last']} or earlier, for compute capability {capability} ({generation['name']})"
            yield finding("versions", variable, seen, needed, "pin a driver of that branch")
    if numbers(version)[0] > chain["compatibility"]["driver"]["newest"]:
        yield finding("versions", variable, seen, _NEWER, _ADD, "warning")


def _modules(chain: Chain) -> Iterator[Finding]:
    modules, variable = chain["driver"].get("modules", "auto"), "modelhost_driver.modules"
    if modules == "auto":
        return
    seen = _seen(chain["driver"], "modules")
    for capability, _cuda, generation in _generations(chain):
        if modules not in generation["modules"]:
            needed = f"{generation['modules'][0]} kernel modules, for compute capability {capability} ({generation['name']})"
            yield finding("versions", variable, seen, needed, "write auto, or leave it out")
    last, version = chain["compatibility"]["driver"]["closed_last"], chain["driver"]["version"]
    if modules == "closed" and version and numbers(version)[0] > last:
        needed = f"open: {last} was the last branch with closed kernel modules"
        yield finding("versions", variable, seen, needed, "write auto, or leave it out")


def _toolkit(chain: Chain) -> Iterator[Finding]:
    known, first, variable = chain["compatibility"]["toolkits"], chain["compatibility"]["wheels"], "modelhost_cuda.versions"
    for version in chain["cuda"]["versions"]:
        if chain["cuda"]["source"] == "pypi" and numbers(version) < numbers(first):
            yield finding("versions", variable, version, f"{first} or later: older wheels have no nvcc", "take such a version, or the source nvidia")
        if numbers(version) > numbers(known[-1]):
            yield finding("versions", variable, version, _NEWER, _ADD, "warning")
        elif version not in known:
            yield finding("versions", variable, version, "a toolkit that there is: " + ", ".join(known), "choose one of them")
    selected, variable = chain["cuda"]["selected"], "modelhost_cuda.selected"
    if not selected:
        return
    yield from _compiles(chain, variable, selected, selected, "which compiles for", "select a toolkit that does")
    for name, _entry, pins in _engines(chain):
        cuda = cuda_of(pins)
        if cuda not in ("", "cpu") and _major(cuda) != _major(selected):
            needed = f"{_major(cuda)}.x, the CUDA of modelhost_engines.{name}, whose kernels are built with it"
            yield finding("versions", variable, selected, needed, "select such a toolkit, or take another engine")


def _compiles(chain: Chain, variable: str, seen: str, version: str, what: str, fix: str) -> Iterator[Finding]:
    """Whether a CUDA has code for the GPUs, as toolkit or as what an engine was built with."""
    for capability, cuda, generation in _generations(chain):
        for_it = f"{what} compute capability {capability} ({generation['name']})"
        if numbers(version) < numbers(cuda["first"]):
            yield finding("versions", variable, seen, f"CUDA {cuda['first']} or later, {for_it}", fix)
        if "last" in cuda and numbers(version) > numbers(cuda["last"]):
            yield finding("versions", variable, seen, f"CUDA {cuda['last']} or earlier, {for_it}", fix)


def _engine_on_gpus(chain: Chain, name: str, pins: Dict[str, str]) -> Iterator[Finding]:
    cuda, lock = cuda_of(pins), f"modelhost_engines.{name}.lock"
    if cuda in ("", "cpu"):
        return
    yield from _compiles(chain, lock, f"CUDA {cuda}", cuda, "which has code for", "take an engine that is built for such a CUDA")
    # FlashInfer asks CUDA_HOME, PATH and /usr/local/cuda for nvcc (jit/cpp_ext.py, get_cuda_path), and not the lock's nvidia-cuda-nvcc.
    if "flashinfer-python" in pins and "flashinfer-cubin" not in pins and not (chain["cuda"]["selected"] or chain["cuda"].get("path")):
        needed = f"a toolkit: FlashInfer {pins['flashinfer-python']} of modelhost_engines.{name} builds its kernels on the host"
        fix = f"select a toolkit of CUDA {_major(cuda)}"
        yield finding("versions", "modelhost_cuda.selected", "none", needed, fix)


def _lock(chain: Chain, name: str, engine: Dict[str, Any], pins: Dict[str, str]) -> Iterator[Finding]:
    where, lock = f"modelhost_engines.{name}", f"modelhost_engines.{name}.lock"
    if not pins:
        fix = f"make lock ENGINE={name} PYTHON={engine['python']}"
        yield finding("versions", lock, engine["lock"], "a lock that is there and pins packages", fix)
        return
    distribution, version = engine["distribution"], engine["version"]
    if pins.get(distribution) != version:
        seen = f"{engine['lock']} pins {distribution} {pins.get(distribution, 'nowhere')}"
        yield finding("versions", lock, seen, f"{version}, as {where}.version says", "correct the version, or make the lock anew")
    yield from _flashinfer(where, pins)
    yield from _torch(chain["compatibility"], where, pins)
    known = chain["compatibility"]["engines"].get(distribution, {}).get(version.partition("+")[0])
    if not known:
        yield finding("versions", f"{where}.version", f"{distribution} {version}", _NEWER, _ADD, "warning")
        return
    for package, wanted in (("torch", known["torch"]), ("flashinfer-python", known.get("flashinfer"))):
        if wanted and pins.get(package, "").partition("+")[0] != wanted:
            needed = f"{wanted}, which {distribution} {version} is built for"
            yield finding("versions", lock, f"{package} {pins.get(package, 'not pinned')}", needed, "make the lock anew, without overrides")
    if not allows(known["python"], engine["python"]):
        needed = f"{known['python']}, for {distribution} {version}"
        yield finding("versions", f"{where}.python", engine["python"], needed, "write such a Python, and make the lock for it")


def _torch(data: Dict[str, Any], where: str, pins: Dict[str, str]) -> Iterator[Finding]:
    """torch, the CUDA that it brings, and its NCCL. A build with a local version, such as +cu129, is not the one of the data."""
    version, _plus, local = pins.get("torch", "").partition("+")
    known, lock, runtime = data["torch"].get(version), f"{where}.lock", _runtime(pins)
    if version and not known:
        yield finding("versions", lock, f"torch {version}", _NEWER, _ADD, "warning")
    if not known or local == "cpu":
        return
    built = cuda_of(pins)
    if _major(built) != _major(known["cuda"]) and "+" not in pins.get("vllm", "+"):
        needed = f"a torch for CUDA {_major(known['cuda'])}, as vLLM {pins['vllm']} is built for it"
        seen = f"torch {pins['torch']}, CUDA {built or 'unknown'}"
        yield finding("versions", lock, seen, needed, "make the lock anew, without another index")
    if runtime and runtime != (built if local else known["cuda"]):
        needed = f"{built if local else known['cuda']}, which torch {pins['torch']} is built for"
        yield finding("versions", lock, f"CUDA runtime {runtime}", needed, "make the lock anew, without overrides")
    nccl = nccl_of(pins)
    if nccl and not local and nccl != known["nccl"]:
        needed = f"{known['nccl']}, which torch {version} is built with"
        yield finding("versions", lock, f"NCCL {nccl}", needed, "make the lock anew, without overrides")


def _flashinfer(where: str, pins: Dict[str, str]) -> Iterator[Finding]:
    """FlashInfer refuses to start with kernels of another version (jit/env.py)."""
    python, cubin = pins.get("flashinfer-python"), pins.get("flashinfer-cubin")
    if python and cubin and python != cubin:
        needed = f"{python}, as flashinfer-python"
        yield finding("versions", f"{where}.lock", f"flashinfer-cubin {cubin}", needed, "make the lock anew, or leave flashinfer-cubin out")


def _models(chain: Chain) -> Iterator[Finding]:
    """A model's GPUs against those of the machine, and against what its engine can compute on."""
    count = chain["gpus"]["count"]
    builds = {name: cuda_of(pins) for name, _entry, pins in _engines(chain)}
    for name, engine, gpus in _sound_models(chain):
        where, build = f"modelhost_models.{name}", builds.get(engine, "")
        if (gpus == "all" and not count) or (gpus != "all" and any(each >= count for each in gpus)):
            needed = f"GPUs that the machine has: modelhost_gpus.count is {count}"
            yield finding("versions", f"{where}.gpus", str(gpus), needed, "correct either")
        if gpus and build == "cpu":
            needed = "an engine for GPUs: this one computes on the processors"
            yield finding("versions", f"{where}.engine", engine, needed, "take one, or gpus: []")
        if not gpus and build not in ("", "cpu"):
            needed = f"an engine for the processors: this one is built for CUDA {build}"
            yield finding("versions", f"{where}.engine", engine, needed, "take one, or give the model GPUs")


def _system(chain: Chain, os_release: Dict[str, str]) -> Iterator[Finding]:
    """What the packages of a system cannot give."""
    system = "%s %s" % (os_release.get("ID", ""), os_release.get("VERSION_ID", ""))
    known, driver, cuda = chain["compatibility"]["systems"].get(system, {}), chain["driver"], chain["cuda"]
    if "driver" in known and driver["source"] == "distribution" and driver["version"].split(".")[0] != known["driver"]:
        needed = f"branch {known['driver']}, the one of {system}, unless its backports are enabled"
        fix = "take the source nvidia; apt has the last word"
        yield finding("versions", "modelhost_driver.version", driver["version"], needed, fix, "warning")
    for version in cuda["versions"] if "toolkit" in known and cuda["source"] == "nvidia" else ():
        if numbers(version) < numbers(known["toolkit"]):
            needed = f"{known['toolkit']} or later, the oldest in NVIDIA's repository for {system}"
            yield finding("versions", "modelhost_cuda.versions", version, needed, "take such a version, or the source pypi")


def _repaired(each: Finding, declared: Dict[str, str]) -> Finding:
    """A driver that provisioning will replace is no error."""
    if declared["source"] == "present" or each["variable"] not in ("modelhost_driver.version", "modelhost_driver.modules"):
        return each
    return {**each, "severity": "warning", "fix": f"playbooks/provision.yml installs {declared['version']}"}


def _runtime(pins: Dict[str, str]) -> str:
    return next((".".join(pins[each].split(".")[:2]) for each in _RUNTIMES if each in pins), "")


def _major(version: str) -> str:
    return version.partition(".")[0]


def allows(rule: str, version: str) -> bool:
    """Whether a rule such as ">=3.10,<3.15" allows a Python such as "3.12"."""
    tests = {">=": lambda one, other: one >= other, "<": lambda one, other: one < other}
    parts = re.findall(r"(>=|<)([\d.]+)", rule)
    return all(tests[sign](numbers(version), numbers(limit)) for sign, limit in parts)
