"""Whether a run of a playbook is still there, asked of real processes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest
from ansible_collections.modelhost.vllm.plugins.plugin_utils import controller

# A run: it starts a worker, which says who its run is, and stays.
WORKER = (
    "from ansible_collections.modelhost.vllm.plugins.plugin_utils.controller import this_run; import json; print(json.dumps(this_run()))")
RUN = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER!r}]); sys.stdout.flush(); sys.stdin.read()"


@pytest.fixture
def run():
    """A process that runs, and what its worker says of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    yield process, json.loads(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_whose_run_it_is(run):
    process, owner = run
    assert set(owner) == {"user", "controller", "pid", "run"}
    assert (owner["pid"], owner["controller"]) == (process.pid, platform.node())
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        boot = stream.read().strip()
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as stream:
        started = stream.read().rpartition(")")[2].split()[19]
    assert owner["run"] == f"{platform.node()} {boot}:{os.readlink('/proc/self/ns/pid')} {process.pid} {started}"


def test_a_run_that_is_there(run):
    assert controller.has_ended(run[1]) is False


def test_a_run_that_was_killed(run):
    process, owner = run
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it waits to be reaped: its number is still taken
    assert os.path.exists(f"/proc/{process.pid}")
    assert controller.has_ended(owner) is True
    process.wait()
    assert not os.path.exists(f"/proc/{process.pid}")
    assert controller.has_ended(owner) is True


def test_another_process_has_its_number_now(run):
    owner = run[1]
    assert controller.has_ended({**owner, "run": owner["run"].rpartition(" ")[0] + " 1"}) is True


@pytest.mark.parametrize("place", ["machine", "boot", "namespace"])
def test_a_run_of_another_place_is_not_judged(run, place):
    process, owner = run
    process.kill()
    process.wait()
    machine, numbering, pid, started = owner["run"].split(" ")
    boot, _colon, namespace = numbering.partition(":")
    elsewhere = {
        "machine": f"laptop {boot}:{namespace}", "boot": f"{machine} 0{boot[1:]}x:{namespace}",
        "namespace": f"{machine} {boot}:pid:[1]"}[place]
    assert controller.has_ended({**owner, "run": f"{elsewhere} {pid} {started}"}) is False


def test_a_controller_without_proc(run, monkeypatch, tmp_path):
    process, owner = run
    monkeypatch.setattr(controller, "PROC", tmp_path)
    monkeypatch.setattr(controller.platform, "node", lambda: "macbook")
    process.kill()
    process.wait()
    mine = controller.this_run()
    assert mine["run"].split(" ")[:3] == ["macbook", "-", str(os.getppid())]
    assert controller.has_ended(mine) is False
    assert controller.has_ended(owner) is False
    assert controller.has_ended({**owner, "run": f"macbook - {process.pid} 1"}) is False


def test_a_colleague_whose_processes_are_hidden(run, monkeypatch):
    """proc(5), hidepid=2: nothing of another user's process is shown, though it is there."""
    process, owner = run
    real = controller.Path.read_text

    def hidden(path, *arguments, **options):
        if path.name == "stat":
            raise FileNotFoundError(2, "No such file or directory")
        return real(path, *arguments, **options)

    def forbidden(pid, number):
        assert (pid, number) == (process.pid, 0)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(controller.Path, "read_text", hidden)
    assert controller.has_ended(owner) is False
    monkeypatch.setattr(controller.os, "kill", forbidden)
    assert controller.has_ended(owner) is False


def test_a_machine_with_spaces_in_its_name(monkeypatch):
    monkeypatch.setattr(controller.platform, "node", lambda: "my own laptop")
    assert controller.has_ended(controller.this_run()) is False
