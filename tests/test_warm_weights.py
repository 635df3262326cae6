"""Weights are read into the page cache as far as memory is available, and no further."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "roles/model_weights/files/scripts"
MIB = 2**20


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location("warm_weights", SCRIPTS / "warm_weights.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three files of 4 MiB on the disk, none in memory."""
    paths = [tmp_path / f"model-{number}.safetensors" for number in (1, 2, 3)]
    for path in paths:
        path.write_bytes(os.urandom(4 * MIB))
        with open(path, "rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return paths


def fincore(paths: list[Path]) -> list[int]:
    """What util-linux says of the files' bytes in the page cache."""
    asked = subprocess.run(["fincore", "--bytes", "--noheadings", "--output", "RES", *paths], capture_output=True, text=True, check=True)
    return [int(line) for line in asked.stdout.split()]


def test_all_of_it(shards: list[Path]) -> None:
    assert fincore(shards) == [0, 0, 0]
    job = {"name": "tiny", "files": [str(path) for path in shards]}
    done = subprocess.run([sys.executable, SCRIPTS / "warm_weights.py", json.dumps(job)], capture_output=True, text=True, check=True)
    assert done.stdout == "read 0.01 GB of 0.01 GB into memory in 0 s\n"
    assert fincore(shards) == [4 * MIB, 4 * MIB, 4 * MIB]


def test_as_far_as_memory_is_available_and_in_the_order_of_the_load(warm, shards: list[Path], monkeypatch, capsys) -> None:
    monkeypatch.setattr(warm, "available", lambda: 10_000_000)  # of which 90 %, or 9 000 000: two files and 611392 bytes
    monkeypatch.setattr(sys, "argv", ["warm_weights.py", json.dumps({"name": "tiny", "files": [str(path) for path in shards]})])
    warm.main()
    assert capsys.readouterr().out == (
        "read 0.01 GB of 0.01 GB into memory in 0 s, as much as 90 % of the available memory, 0.01 GB, hold\n")
    first, second, third = fincore(shards)
    assert (first, second) == (4 * MIB, 4 * MIB)
    assert 611_392 <= third < 4 * MIB  # the kernel reads ahead a little


@pytest.mark.parametrize(("budget", "expected"), [
    (0, []), (3, [("a", 3)]), (10, [("a", 10)]), (12, [("a", 10), ("c", 2)]), (99, [("a", 10), ("c", 5)]),
])
def test_what_fits(warm, tmp_path: Path, budget: int, expected: list) -> None:
    for name, size in (("a", 10), ("b", 0), ("c", 5)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert [(path.name, size) for path, size in warm.fitting([tmp_path / name for name in "abc"], budget)] == expected


def test_available_memory_is_what_the_kernel_says(warm) -> None:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    assert abs(warm.available() - int(line.split()[1]) * 1024) < 2 * 10**9


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    job = {"name": "tiny", "files": [f"{tmp_path}/gone"]}
    done = subprocess.run([sys.executable, SCRIPTS / "warm_weights.py", json.dumps(job)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"modelhost_models.tiny.weights: {tmp_path}/gone cannot be read: No such file or directory. Look at")
