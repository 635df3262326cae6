"""The condition of a model's start: the driver answers for every GPU, or the journal says which do not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "roles/model_unit/files/check-gpus"
ANSWERING = "".join(f"00000000:{bus}:00.0\n" for bus in ("01", "21", "41", "61", "81", "A1", "C1", "E1"))


@pytest.fixture
def check(tmp_path: Path):
    """Run the script on a machine whose nvidia-smi and kernel log say what is given."""

    def act(count: int, smi: str, kernel: str = "", status: int = 0) -> tuple[int, str]:
        for name, text, code in (("nvidia-smi", smi, status), ("journalctl", kernel, 0)):
            (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
            (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run([SCRIPT, str(count)], env={"PATH": path}, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    return act


def test_all_answer(check) -> None:
    assert check(8, ANSWERING) == (0, "")
    assert check(4, ANSWERING) == (0, "")


@pytest.mark.case("H7")
def test_one_of_eight_is_missing(check) -> None:
    status, said = check(
        8, ANSWERING.replace("00000000:41:00.0\n", ""),
        "usb 1-1: new device\nNVRM: GPU at PCI:0000:41:00: GPU-0001\nNVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n")
    assert status == 1
    assert said == (
        "not started: 7 of 8 GPUs answer\nnot on the bus at all: 1\n"
        "kernel: NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n")


def test_the_driver_does_not_answer(check) -> None:
    status, said = check(2, "Failed to initialize NVML: Driver/library version mismatch", status=18)
    assert status == 1
    assert said == (
        "not started: 0 of 2 GPUs answer\nFailed to initialize NVML: Driver/library version mismatch\nnot on the bus at all: 2\n")


def test_there_is_no_driver(tmp_path: Path) -> None:
    done = subprocess.run(["/usr/bin/python3", SCRIPT, "1"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("not started: 0 of 1 GPUs answer\nnvidia-smi: No such file or directory\n")
