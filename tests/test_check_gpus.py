"""The condition of a model's start: the driver answers for every GPU, or the journal says which do not."""

from __future__ import annotations

import os
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "roles/model_unit/files/before-start/check-gpus"
BUSES = ("01", "21", "41", "61", "81", "a1", "c1", "e1")
ANSWERING = "".join(f"00000000:{bus.upper()}:00.0\n" for bus in BUSES)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The script, which writes no bytecode beside itself, on a machine with an empty bus."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    spec = spec_from_loader("check_gpus", SourceFileLoader("check_gpus", str(SCRIPT)))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PCI", tmp_path / "devices")
    return module


@pytest.fixture
def check(script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the script on a machine with these GPUs on its bus, whose nvidia-smi and kernel log say what is given."""

    def act(count: int, smi: str, kernel: str = "", status: int = 0, bus: tuple[str, ...] = ()) -> tuple[int, str]:
        for name, text, code in (("nvidia-smi", smi, status), ("journalctl", kernel, 0)):
            (tmp_path / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
            (tmp_path / name).chmod(0o755)
        for number in bus:
            for function, kind in (("0", "0x030200"), ("1", "0x040300")):  # each with its audio function
                folder = tmp_path / f"devices/0000:{number}:00.{function}"
                folder.mkdir(parents=True)
                (folder / "vendor").write_text("0x10de\n")
                (folder / "class").write_text(f"{kind}\n")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr("sys.argv", ["check-gpus", str(count)])
        try:
            script.main()
        except SystemExit as ended:
            return ended.code, capsys.readouterr().err
        return 0, capsys.readouterr().err

    return act


@pytest.mark.parametrize("count", [8, 4])
def test_all_answer(check, count: int) -> None:
    assert check(count, ANSWERING, bus=BUSES) == (0, "")


@pytest.mark.case("H7")
def test_one_of_eight_is_missing(check) -> None:
    status, said = check(
        8, ANSWERING.replace("00000000:41:00.0\n", ""),
        "usb 1-1: new device\nNVRM: GPU at PCI:0000:41:00: GPU-0001\nNVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n")
    assert status == 1
    assert said == (
        "not started: 7 of 8 GPUs answer\nnot on the bus at all: 1\n"
        "kernel: NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n")


@pytest.mark.case("H7")
def test_one_is_on_the_bus_and_does_not_answer(check) -> None:
    assert check(8, ANSWERING.replace("00000000:A1:00.0\n", ""), bus=BUSES) == (
        1, "not started: 7 of 8 GPUs answer\non the bus, but without an answer: 0000:a1:00.0\n")


def test_the_driver_does_not_answer(check) -> None:
    status, said = check(2, "Failed to initialize NVML: Driver/library version mismatch", status=18)
    assert status == 1
    assert said == (
        "not started: 0 of 2 GPUs answer\nFailed to initialize NVML: Driver/library version mismatch\nnot on the bus at all: 2\n")


@pytest.mark.case("H7")
def test_a_driver_that_hangs_is_not_waited_for(check, script, monkeypatch: pytest.MonkeyPatch) -> None:
    spared = []
    kill = script.subprocess.Popen.kill
    monkeypatch.setattr(script.subprocess.Popen, "kill", lambda self: spared.append(self))  # as in uninterruptible sleep
    monkeypatch.setattr(script, "SECONDS", 1)
    begun = time.monotonic()
    status, said = check(1, "#!/bin/sh\nexec sleep 60\n", bus=("01",))
    (process,) = spared
    kill(process)
    process.wait()
    assert time.monotonic() - begun < 5
    assert (status, said) == (
        1, "not started: 0 of 1 GPUs answer\nnvidia-smi gave no answer within 1 s\non the bus, but without an answer: 0000:01:00.0\n")


def test_there_is_no_driver(check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", missing)
    status, said = check(1, "")
    assert (status, said) == (1, "not started: 0 of 1 GPUs answer\nnvidia-smi: No such file or directory\nnot on the bus at all: 1\n")


def missing(*_, **__):
    raise FileNotFoundError(2, "No such file or directory")
