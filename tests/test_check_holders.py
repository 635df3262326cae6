"""The guard before a model's start: what holds its GPUs, by what systemd and the driver say."""

from __future__ import annotations

import os
import subprocess
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "roles/model_unit/files/before-start/check-holders"
BUSES = "".join(f"{number}, 00000000:{bus}:00.0\n" for number, bus in enumerate(("01", "21", "41", "61")))
TO_EXCHANGE = "To exchange one model for another: ansible-playbook playbooks/switch_model.yml -e model=small\n"
# Lines of `systemctl show` as src/systemctl/systemctl-show.c, print_property() of systemd 252 to 257 writes them, one for each command. The
# prefix + is not in argv[]: in the property with Ex it is a flag. The command that runs at the moment has a start_time and a pid.
COMMAND = "{{ path={0} ; argv[]={1} ; {2} ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }}"
MODPROBE = ("/usr/bin/nvidia-modprobe", "/usr/bin/nvidia-modprobe -u -c=0")
GUARD = "/opt/modelhost/tools/check-holders"


def unit(model: str, active: str, sub: str, gpus: str | None = "all") -> str:
    """One unit as systemd shows it; without GPUs, one that has no guard of ours."""
    commands = [MODPROBE] if gpus is None else [(GUARD, f"{GUARD} {model} {gpus}"), MODPROBE]
    lines = [f"ExecStartPre={COMMAND.format(*each, 'ignore_errors=no')}" for each in commands]
    lines += [f"ExecStartPreEx={COMMAND.format(*each, 'flags=privileged')}" for each in commands]
    return "\n".join([*lines, f"Id=vllm-{model}.service", f"ActiveState={active}", f"SubState={sub}"]) + "\n"


SELF = unit("small", "activating", "start-pre")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The script, which writes no bytecode beside itself, on a machine without processes and without a record."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    spec = spec_from_loader("check_holders", SourceFileLoader("check_holders", str(SCRIPT)))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PROC", tmp_path / "proc")
    monkeypatch.setattr(module, "APPLIED", tmp_path / "applied.json")
    return module


@pytest.fixture
def check(script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Start the model `small` on a machine with these units, and, where it has a driver, these lines of nvidia-smi and processes."""

    def command(name: str, text: str) -> None:
        (tmp_path / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    def act(
        *units: str, gpus: str = "all", computing: str | None = None, processes: dict[str, tuple[str, str]] | None = None,
        applied: str | None = None, smi: str | None = None, leaving: tuple[str, ...] = (),
    ) -> tuple[int, str]:
        (tmp_path / "units").write_text("\n".join(units))
        command("systemctl", f"[ \"$1 $2\" = 'show vllm-*.service' ] && cat {tmp_path}/units")
        if computing is not None:
            (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
            (tmp_path / "buses").write_text(BUSES)
            (tmp_path / "computing").write_text(computing)
            command("nvidia-smi", smi or (
                f"case $1 in\n--query-gpu=index,pci.bus_id) cat {tmp_path}/buses;;\n"
                f"--query-compute-apps=gpu_bus_id,pid,used_memory) cat {tmp_path}/computing;;\nesac"))
        for pid, (cgroup, comm) in (processes or {}).items():
            (tmp_path / "proc" / pid).mkdir(parents=True)
            (tmp_path / "proc" / pid / "cgroup").write_text(f"0::{cgroup}\n")
            (tmp_path / "proc" / pid / "comm").write_bytes(comm.encode("latin-1") + b"\n")
        if applied is not None:
            (tmp_path / "applied.json").write_text(applied)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr("sys.argv", ["check-holders", "small", gpus, *leaving])
        try:
            script.main()
        except SystemExit as ended:
            said = capsys.readouterr().err
            return (1, f"{ended.code}\n") if isinstance(ended.code, str) else (ended.code, said)
        return 0, capsys.readouterr().err

    return act


@pytest.mark.parametrize("units", [
    (SELF,),
    (SELF, unit("large", "inactive", "dead"), unit("other", "failed", "failed")),
    # Ended between two looks: systemd says so of a unit that it has unloaded
    (SELF, "Id=vllm-gone.service\nActiveState=inactive\nSubState=dead\n"),
    (),
])
def test_nothing_holds_them(check, units) -> None:
    assert check(*units) == (0, "")


@pytest.mark.parametrize(("active", "sub"), [
    ("active", "running"), ("activating", "start"), ("deactivating", "stop-sigterm"), ("deactivating", "final-sigkill"),
    ("reloading", "reload"),
])
@pytest.mark.case("L6")
def test_another_model_has_them(check, active, sub) -> None:
    assert check(SELF, unit("large", active, sub)) == (
        1, f"not started: vllm-large.service is {active} ({sub}) on GPUs all\n{TO_EXCHANGE}")


@pytest.mark.parametrize(("gpus", "others", "free"), [
    ("0,1", "2,3", True), ("0", "1", True), ("1", "10,11", True), ("0,1", "1,2", False), ("0,1", "all", False), ("all", "3", False),
    # A model without GPUs takes the processors: it is served alone
    ("none", "0", False), ("0", "none", False), ("none", "none", False),
])
def test_sets_of_gpus(check, gpus, others, free) -> None:
    status, said = check(SELF, unit("large", "active", "running", others), gpus=gpus)
    assert (status, said) == ((0, "") if free else (
        1, f"not started: vllm-large.service is active (running) on GPUs {others}\n{TO_EXCHANGE}"))


def test_a_unit_without_this_guard_has_all(check) -> None:
    assert check(SELF, unit("by-hand", "active", "running", None), gpus="7") == (
        1, f"not started: vllm-by-hand.service is active (running) on GPUs all\n{TO_EXCHANGE}")


def test_the_first_word_of_a_guard_names_the_model(check) -> None:
    """While a command runs, systemd has its times and its number: the rest of the line stays as it is."""
    running = unit("large", "activating", "start", "0,1").replace(
        "start_time=[n/a] ; stop_time=[n/a] ; pid=0", "start_time=[Mon 2026-11-30 09:37:40 UTC] ; stop_time=[n/a] ; pid=4711")
    assert check(SELF, running, gpus="2")[0] == 0
    assert check(SELF, running, gpus="1") == (
        1, f"not started: vllm-large.service is activating (start) on GPUs 0,1\n{TO_EXCHANGE}")


SMALL, LARGE, BOTH = ('{"models": {%s}}' % names for names in ('"small": {}', '"large": {}', '"small": {}, "large": {}'))


@pytest.mark.parametrize("sub", ["condition", "start-pre", "auto-restart", "auto-restart-queued"])
@pytest.mark.parametrize(("other", "applied", "starts"), [
    ("large", SMALL, True), ("large", LARGE, False),
    # Both, or neither, were applied: the first by name
    ("large", BOTH, False), ("large", None, False), ("tiny", None, True), ("tiny", '{"models": {}}', True),
])
def test_two_that_start_at_once(check, sub, other, applied, starts) -> None:
    """At boot after a crash between the enabling of one unit and the disabling of the other; exactly one of the two goes first."""
    status, said = check(SELF, unit(other, "activating", sub), applied=applied)
    assert (status, said) == ((0, "") if starts else (
        1, f"not started: vllm-{other}.service is activating ({sub}) on GPUs all\n{TO_EXCHANGE}"))


def test_one_of_two_goes_first_whoever_looks(script, tmp_path: Path) -> None:
    for text in (SMALL, LARGE, BOTH, '{"models": {}}'):
        (tmp_path / "applied.json").write_text(text)
        assert script.goes_first("small", "large") is not script.goes_first("large", "small")


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"models": 1}'])
@pytest.mark.parametrize(("other", "starts"), [("large", False), ("tiny", True)])
def test_a_record_that_is_damaged(check, text, other, starts) -> None:
    """Both would refuse otherwise, and nothing would serve after a boot."""
    assert check(SELF, unit(other, "activating", "start-pre"), applied=text)[0] == (0 if starts else 1)


def test_a_switch_asks_what_it_is_not_going_to_stop(check) -> None:
    """Found after the stop, both would hold the GPUs against the model that is gone back to, too."""
    serving, by_hand = unit("large", "active", "running"), unit("by-hand", "active", "running", None)
    computing = "00000000:41:00.0, 812, 90112 MiB\n00000000:61:00.0, 99, 12 MiB\n"
    processes = {
        "812": ("/system.slice/vllm-large.service", "VLLM::EngineCore"),
        "99": ("/user.slice/user-1000.slice/session-3.scope", "python3")}
    assert check(serving, by_hand, computing=computing, processes=processes, leaving=("large",)) == (
        1, "not started: vllm-by-hand.service is active (running) on GPUs all\n"
           f"not started: process 99 (python3) holds 12 MiB of GPU 3\n{TO_EXCHANGE}")


def test_what_a_switch_is_going_to_stop_is_no_holder(check) -> None:
    """The target itself too, where it is applied anew."""
    processes = {"812": ("/system.slice/vllm-small.service", "VLLM::EngineCore")}
    computing = "00000000:41:00.0, 812, 90112 MiB\n"
    running = unit("small", "active", "running")
    # One in another namespace, whose processes are not seen here
    computing += "00000000:41:00.0, 4711, 90112 MiB\n"
    assert check(
        running, unit("large", "active", "running"), computing=computing, processes=processes, leaving=("small", "large")) == (0, "")


def test_a_foreign_process(check) -> None:
    computing = "00000000:41:00.0, 812, 90112 MiB\n00000000:41:00.0, 813, [N/A]\n00000000:61:00.0, 99, 12 MiB\n"
    processes = {"812": ("/user.slice/user-1000.slice/session-3.scope", "python3"), "99": ("/system.slice/cron.service", "tr\xe4iner")}
    assert check(SELF, gpus="2", computing=computing, processes=processes) == (
        1, "not started: process 812 (python3) holds 90112 MiB of GPU 2\n"
           f"not started: process 813 (not of this host's processes) holds [N/A] of GPU 2\n{TO_EXCHANGE}")


@pytest.mark.parametrize(("gpus", "free"), [("0,1", True), ("3", False), ("all", False), ("none", True)])
def test_a_process_whose_name_is_no_utf_8(check, gpus, free) -> None:
    status, said = check(
        SELF, gpus=gpus, computing="00000000:61:00.0, 99, 12 MiB\n", processes={"99": ("/system.slice/cron.service", "tr\xe4iner")})
    assert (status, said) == ((0, "") if free else (
        1, f"not started: process 99 (tr\ufffdiner) holds 12 MiB of GPU 3\n{TO_EXCHANGE}"))


def test_the_processes_of_a_unit_are_not_named_twice(check) -> None:
    assert check(
        SELF, unit("large", "active", "running"), computing="00000000:01:00.0, 50, 1 MiB\n",
        processes={"50": ("/system.slice/vllm-large.service", "VLLM::Worker_TP0")}) == (
        1, f"not started: vllm-large.service is active (running) on GPUs all\n{TO_EXCHANGE}")


@pytest.mark.case("L3")
@pytest.mark.parametrize(("units", "owner"), [
    ((SELF, unit("large", "failed", "failed")), "large"),  # the kernel has not ended it
    ((SELF, unit("large", "active", "running", "2,3")), "large"),  # more GPUs than it was given
    ((SELF,), "small"),  # the run before
])
def test_a_process_that_outlived_its_unit(check, units, owner) -> None:
    assert check(
        *units, gpus="0,1", computing="00000000:01:00.0, 50, 88000 MiB\n00000000:41:00.0, 51, 88000 MiB\n",
        processes={str(pid): (f"/system.slice/vllm-{owner}.service", "VLLM::EngineCor") for pid in (50, 51)}) == (
        1, f"not started: process 50 (VLLM::EngineCor, of vllm-{owner}.service) holds 88000 MiB of GPU 0\n{TO_EXCHANGE}")


def test_all_are_free(check) -> None:
    assert check(SELF, computing="") == (0, "")


def test_a_driver_that_fails(check) -> None:
    said = "Failed to initialize NVML: Driver/library version mismatch"
    assert check(SELF, computing="", smi=f"echo '{said}'\nexit 18") == (
        1, f"not started: whether the GPUs are free cannot be known: OSError: nvidia-smi ended with 18: {said}\n")


def test_a_driver_without_its_program(check, script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "BUSES", ["/nowhere/nvidia-smi"])
    assert check(SELF, computing="") == (
        1, "not started: whether the GPUs are free cannot be known: FileNotFoundError: [Errno 2] No such file or directory: "
           "'/nowhere/nvidia-smi'\n")


def test_a_driver_whose_words_are_others(check) -> None:
    status, said = check(SELF, computing="No devices were found\n")
    assert status == 1
    assert said.startswith("not started: whether the GPUs are free cannot be known: ValueError: ")


def test_a_driver_that_hangs_is_not_waited_for(check, script, monkeypatch: pytest.MonkeyPatch) -> None:
    spared = []
    kill = subprocess.Popen.kill
    monkeypatch.setattr(script.subprocess.Popen, "kill", lambda self: spared.append(self))  # as in uninterruptible sleep
    monkeypatch.setattr(script, "SECONDS", 1)
    begun = time.monotonic()
    result = check(SELF, computing="", smi="#!/bin/sh\nexec sleep 60\n")
    (process,) = spared
    kill(process)
    process.wait()
    assert time.monotonic() - begun < 30
    assert result == (1, "not started: whether the GPUs are free cannot be known: OSError: nvidia-smi gave no answer within 1 s\n")


def test_systemd_does_not_answer(check, tmp_path: Path, script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "run", lambda command: (_ for _ in ()).throw(OSError(f"{command[0]} ended with 1: ")))
    assert check(SELF) == (1, "not started: whether the GPUs are free cannot be known: OSError: systemctl ended with 1: \n")


def test_it_is_a_program_of_the_hosts_own_python() -> None:
    assert os.access(SCRIPT, os.X_OK)
    assert SCRIPT.read_text().startswith("#!/usr/bin/python3\n")
