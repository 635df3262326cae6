"""Weights from an offline directory: copied and verified, refused where they are damaged, missing or never put there."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "roles/model_weights/files/scripts/fetch_seed.py"
FILES = {"config.json": b"{}", "deep/model.safetensors": bytes(range(256)) * 400}


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    """An offline directory with the weights `tiny`."""
    top = tmp_path / "offline"
    entries = {}
    for name, data in FILES.items():
        path = top / "weights/tiny" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        entries[f"weights/tiny/{name}"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    entries["weights/tinytoo/config.json"] = {"size": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    (top / "manifest.json").write_text(json.dumps({"files": entries}))
    return top


def fetch(seed: Path, directory: str = "tiny", damaged: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    job = {"name": "small", "directory": str(seed.parent / "store" / directory), "weights": {"source": "huggingface"}, "uv": "uv",
           "seed": str(seed), "record": str(seed.parent / "record.json"), "damaged": list(damaged)}
    return subprocess.run([sys.executable, SCRIPT, json.dumps(job)], capture_output=True, text=True, timeout=60, check=False)


def content(top: Path) -> dict[str, bytes]:
    found = {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if name != ".modelhost.json"}


def test_weights_are_copied_and_get_their_manifest(seed: Path) -> None:
    result = fetch(seed)
    assert result.returncode == 0, result.stderr
    store = seed.parent / "store"
    assert content(store / "tiny") == FILES
    assert not (store / "tiny.partial").exists()
    assert json.loads((store / "tiny/.modelhost.json").read_text())["files"] == {
        "config.json": {"size": 2, "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
        "deep/model.safetensors": {"size": 102400, "sha256": "27783e87963a4efb6829b531c9ba57b44f45797f6770bd637fbf0d807cbdbae0"}}


def test_a_copy_that_was_cut_goes_on(seed: Path) -> None:
    partial = seed.parent / "store/tiny.partial"
    partial.mkdir(parents=True)
    (partial / "config.json").write_bytes(FILES["config.json"])
    (partial / "left over").write_bytes(b"x")
    assert fetch(seed).returncode == 0
    assert content(seed.parent / "store/tiny") == FILES


@pytest.mark.parametrize(("damage", "said"), [
    (lambda path: path.write_bytes(bytes(102400)), "not fetched: none; of another size or digest than the source promised, and removed: "
                                                   "deep/model.safetensors."),
    (lambda path: path.unlink(), "not fetched: deep/model.safetensors; of another size or digest than the source promised, and removed: "
                                 "none."),
])
def test_a_damaged_directory_is_refused(seed: Path, damage, said: str) -> None:
    damage(seed / "weights/tiny/deep/model.safetensors")
    result = fetch(seed)
    assert result.returncode == 1
    assert result.stderr == (
        f"modelhost_models.small.weights: {said} The offline directory {seed} is damaged: copy it again from where it was built\n")
    assert not (seed.parent / "store/tiny").exists()


def test_weights_that_were_never_put_there_are_refused(seed: Path) -> None:
    result = fetch(seed, "huge")
    assert result.returncode == 1
    assert result.stderr == (
        f"modelhost_models.small.weights: the offline directory {seed} has no weights huge. On the connected machine: ansible-playbook "
        "playbooks/build_offline.yml -e model=small, then copy it again\n")


def test_a_directory_without_a_manifest_is_refused(seed: Path) -> None:
    (seed / "manifest.json").unlink()
    result = fetch(seed)
    assert result.returncode == 1
    assert f"modelhost_offline is {seed}, whose manifest.json cannot be read" in result.stderr


def test_a_file_of_another_content_is_copied_again(seed: Path) -> None:
    assert fetch(seed).returncode == 0
    store = seed.parent / "store/tiny"
    (store / "config.json").write_bytes(b"[]")
    assert fetch(seed, damaged=("config.json",)).returncode == 0
    assert content(store) == FILES
