"""Weights that are there are hashed once: the script and the module that reads what it kept, on real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import inspect

SCRIPT = Path(__file__).resolve().parents[1] / "roles/model_weights/files/scripts/hash_weights.py"
HUB = {"source": "huggingface", "repo": "tiny/llama", "revision": "0" * 40}
FILES = {  # sha256sum of each
    "config.json": (b"{}", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
    "model.gguf": (b"GGUF" * 1024, "8f140ae54f1247ceb06e9e4fee5a6f77fd9e97a1d72db4da7f8d76eff3cd4425"),
}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / "tiny--llama--000000000000"
    top.mkdir()
    for name, (data, _digest) in FILES.items():
        (top / name).write_bytes(data)
    (top / ".modelhost.json").write_text(json.dumps(
        {"files": {name: {"size": len(data), "sha256": digest} for name, (data, digest) in FILES.items()}}))
    return top


def state(top: Path) -> tuple[str, list[str], list[str]]:
    found = inspect(HUB, [str(top.parent)])
    return found["state"], found["unverified"], found["damaged"]


def hash_weights(top: Path, names: list[str]) -> subprocess.CompletedProcess:
    record = inspect(HUB, [str(top.parent)])["record"]
    job = {"name": "tiny", "directory": str(top), "record": record, "files": names}
    return subprocess.run([sys.executable, SCRIPT, json.dumps(job)], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.case("W2")
def test_hashed_once_and_again_only_what_changed(top: Path) -> None:
    assert state(top) == ("complete", ["config.json", "model.gguf"], [])
    result = hash_weights(top, ["config.json", "model.gguf"])
    assert result.returncode == 0, result.stderr
    assert "hashed 2 files, 0.00 GB" in result.stdout
    assert state(top) == ("complete", [], [])

    (top / "model.gguf").write_bytes(b"FUGG" * 1024)  # a changed file of the same size
    assert state(top) == ("complete", ["model.gguf"], [])
    assert "hashed 1 files" in hash_weights(top, ["model.gguf"]).stdout
    assert state(top) == ("incomplete", [], ["model.gguf"])
    (top / "model.gguf").write_bytes(b"GGUF" * 1024)
    hash_weights(top, ["model.gguf"])
    assert state(top) == ("complete", [], [])  # and what the record said of config.json still holds


@pytest.mark.parametrize("text", ["{", "[]", '{"files": []}', '{"files": {"config.json": {}, "model.gguf": 1}}'])
def test_a_damaged_record_counts_as_none(top: Path, text: str) -> None:
    record = Path(inspect(HUB, [str(top.parent)])["record"])
    record.parent.mkdir()
    record.write_text(text)
    assert state(top) == ("complete", ["config.json", "model.gguf"], [])
    assert hash_weights(top, ["config.json", "model.gguf"]).returncode == 0
    assert state(top) == ("complete", [], [])


@pytest.mark.parametrize("text", ["{", "[]", '{"files": []}', '{"files": {"config.json": 2}}'])
def test_a_damaged_manifest_is_missing(top: Path, text: str) -> None:
    (top / ".modelhost.json").write_text(text)
    assert inspect(HUB, [str(top.parent)])["missing"] == [".modelhost.json"]


def test_a_file_that_cannot_be_read(top: Path) -> None:
    os.remove(top / "model.gguf")
    result = hash_weights(top, ["config.json", "model.gguf"])
    assert result.returncode == 1
    assert result.stderr.startswith(f"modelhost_models.tiny.weights: {top}/model.gguf cannot be read: No such file or directory. Look at")
