"""The stop of a model's unit and the proof that it is gone, on a /proc of our own."""

from __future__ import annotations

import shutil
import signal
import socket

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import stopping
from ansible_collections.modelhost.vllm.plugins.modules import unit_stopped


@pytest.fixture
def proc(host, monkeypatch):
    """Processes by id: cgroup and environment."""
    monkeypatch.setattr(stopping, "PROC", str(host.root / "proc"))

    def processes(**by_id):
        host.write("proc/self/cgroup", "")
        for pid, (cgroup, environ) in by_id.items():
            host.write(f"proc/{pid[1:]}/cgroup", cgroup)
            host.write(f"proc/{pid[1:]}/environ", environ)

    return processes


@pytest.fixture
def listens(monkeypatch):
    """Which ports answer, and how often each was asked."""
    asked = []

    def answer(port):
        asked.append(port)
        return asked.count(port) <= answer.times

    answer.times, answer.asked = 0, asked
    monkeypatch.setattr(stopping, "listens", answer)
    return answer


@pytest.fixture
def ended(monkeypatch, host):
    """The processes that get SIGKILL, which end unless they are stubborn."""
    killed = []

    def kill(pid, number):
        assert number == signal.SIGKILL
        killed.append(pid)
        if pid not in kill.stubborn:
            shutil.rmtree(host.root / f"proc/{pid}")

    kill.stubborn, kill.killed = [], killed
    monkeypatch.setattr(stopping.os, "kill", kill)
    return kill


def test_processes_by_cgroup_and_by_mark(proc):
    proc(
        p10=("0::/system.slice/vllm-small.service\n", ""),
        p11=("12:pids:/system.slice/vllm-small.service\n0::/system.slice/vllm-small.service\n", "PATH=/bin\0"),
        p12=("0::/user.slice/session-1.scope\n", "PATH=/bin\0MODELHOST_MODEL=small\0"),
        p20=("0::/system.slice/vllm-small2.service\n", "MODELHOST_MODEL=small2\0"),
        p21=("0::/system.slice/not-vllm-small.service\n", "X_MODELHOST_MODEL=small\0"),
        p22=("0::/system.slice/ssh.service\n", "NOTE=MODELHOST_MODEL=small\0"),
    )
    assert sorted(stopping.left_over("small")) == [10, 11, 12]


def test_a_process_that_ends_while_it_is_looked_at(proc, host):
    proc(p10=("0::/system.slice/vllm-small.service\n", ""))
    (host.root / "proc/11").mkdir()
    assert stopping.left_over("small") == [10]
    assert stopping.parts(f"{host.root}/proc/11/environ", r"\0") == []


def test_stopped(proc, host, call, listens):
    proc()
    host.units = {"vllm-small.service": host.RUNNING}
    assert call(unit_stopped, model="small") == {"changed": True, "processes": []}
    assert (host.ran, listens.asked) == (["systemctl stop vllm-small.service"], [8000])


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_gone_already(proc, host, call, listens, state):
    proc()
    host.units = {"vllm-small.service": {**host.STOPPED, "ActiveState": state}}
    assert call(unit_stopped, model="small") == {"changed": False, "processes": []}


def test_the_port_is_that_of_what_the_unit_reads(proc, host, call, listens):
    proc()
    host.write("live/small.yaml", "host: 127.0.0.1\nport: 8001\n")
    host.units = {"vllm-small.service": host.STOPPED}
    call(unit_stopped, model="small")
    assert listens.asked == [8001]


def test_what_outlived_the_unit_is_ended(proc, host, call, listens, ended):
    proc(p10=("0::/system.slice/vllm-small.service\n", ""), p11=("0::/user.slice\n", "MODELHOST_MODEL=small\0"), p12=("0::/user.slice\n", ""))
    host.units = {"vllm-small.service": {**host.STOPPED, "ActiveState": "failed"}}
    listens.times = 2
    result = call(unit_stopped, model="small")
    assert sorted(result["processes"]) == sorted(ended.killed) == [10, 11]
    assert (result["changed"], listens.asked) == (True, [8000, 8000, 8000])
    assert result["warnings"][0].startswith("small: 2 of its processes outlived the unit and were ended: [1")


def test_a_process_that_the_kernel_does_not_end(proc, host, call, listens, ended):
    proc(p10=("0::/system.slice/vllm-small.service\n", ""))
    host.units = {"vllm-small.service": host.STOPPED}
    ended.stubborn = [10]
    result = call(unit_stopped, model="small", patience=0)
    assert result["failed"]
    assert result["msg"] == "small is not gone after 0 s: processes left: [10], port 8000 is free"


def test_the_unit_still_runs(proc, host, call, listens, ended):
    proc(p10=("0::/system.slice/vllm-small.service\n", ""))
    host.units = {"vllm-small.service": {**host.RUNNING, "ActiveState": "activating"}}
    host.stubborn = ["vllm-small.service"]
    assert call(unit_stopped, model="small")["msg"] == "small is not gone: its unit is activating"
    assert ended.killed == []


def test_systemd_refuses_to_stop_it(proc, host, call, listens, ended):
    proc(p10=("0::/system.slice/vllm-small.service\n", ""))
    host.units = {"vllm-small.service": host.RUNNING}
    host.refused = {"systemctl stop vllm-small.service": "Failed to stop vllm-small.service: Transaction is destructive.\n"}
    result = call(unit_stopped, model="small")
    assert (result["failed"], result["msg"]) == (True, "small is not gone: Failed to stop vllm-small.service: Transaction is destructive.")
    assert ended.killed == []


def test_the_port_still_answers(proc, host, call, listens):
    proc()
    host.units = {"vllm-small.service": {**host.STOPPED, "ActiveState": "failed"}}
    listens.times = 99
    assert call(unit_stopped, model="small", patience=0)["msg"] == (
        "small is not gone after 0 s: processes left: none, port 8000 still answers")


def test_a_port_that_answers_and_one_that_does_not():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert stopping.listens(port)
    assert not stopping.listens(port)


def test_check_mode_reports_and_ends_nothing(proc, host, call, listens, ended):
    proc(p10=("0::/system.slice/vllm-small.service\n", ""))
    host.units = {"vllm-small.service": host.RUNNING}
    assert call(unit_stopped, check_mode=True, model="small") == {"changed": True, "processes": [10]}
    assert (host.ran, ended.killed) == ([], [])
