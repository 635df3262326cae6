"""The proof that a model's unit is gone, on a /proc of our own."""

from __future__ import annotations

import socket

import pytest
from ansible_collections.modelhost.vllm.plugins.modules import unit_stopped_info


@pytest.fixture
def proc(host, monkeypatch):
    """Processes by id: cgroup and environment."""
    monkeypatch.setattr(unit_stopped_info, "PROC", str(host.root / "proc"))

    def processes(**by_id):
        host.write("proc/self/cgroup", "")
        for pid, (cgroup, environ) in by_id.items():
            host.write(f"proc/{pid[1:]}/cgroup", cgroup)
            host.write(f"proc/{pid[1:]}/environ", environ)

    return processes


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_processes_by_cgroup_and_by_mark(proc):
    proc(
        p10=("0::/system.slice/vllm-small.service\n", ""),
        p11=("12:pids:/system.slice/vllm-small.service\n0::/system.slice/vllm-small.service\n", "PATH=/bin\0"),
        p12=("0::/user.slice/session-1.scope\n", "PATH=/bin\0MODELHOST_MODEL=small\0"),
        p20=("0::/system.slice/vllm-small2.service\n", "MODELHOST_MODEL=small2\0"),
        p21=("0::/system.slice/not-vllm-small.service\n", "X_MODELHOST_MODEL=small\0"),
        p22=("0::/system.slice/ssh.service\n", "NOTE=MODELHOST_MODEL=small\0"),
    )
    assert sorted(unit_stopped_info.left_over("small")) == [10, 11, 12]


def test_a_process_that_ends_while_it_is_looked_at(proc, host):
    proc(p10=("0::/system.slice/vllm-small.service\n", ""))
    (host.root / "proc/11").mkdir()
    assert unit_stopped_info.left_over("small") == [10]
    assert unit_stopped_info.parts(f"{host.root}/proc/11/environ", r"\0") == []


def test_gone(proc, host, call, port):
    proc()
    host.units = {"vllm-small.service": host.STOPPED}
    assert call(unit_stopped_info, model="small", port=port) == {"changed": False, "processes": [], "listening": False}


def test_a_process_is_left(proc, host, call, port):
    proc(p10=("0::/system.slice/vllm-small.service\n", ""))
    host.units = {"vllm-small.service": host.STOPPED}
    result = call(unit_stopped_info, model="small", port=port)
    assert result["failed"]
    assert result["msg"] == f"small is not gone: its unit is inactive, processes left: [10], port {port} is free"


def test_the_unit_still_runs(proc, host, call, port):
    proc()
    host.units = {"vllm-small.service": host.RUNNING}
    assert call(unit_stopped_info, model="small", port=port)["msg"] == (
        f"small is not gone: its unit is active, processes left: none, port {port} is free")


def test_the_port_still_answers(proc, host, call):
    proc()
    host.units = {"vllm-small.service": {**host.STOPPED, "ActiveState": "failed"}}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert call(unit_stopped_info, model="small", port=port)["msg"] == (
            f"small is not gone: its unit is failed, processes left: none, port {port} still answers")


def test_check_mode_reports_and_never_fails(proc, host, call, port):
    proc(p10=("0::/system.slice/vllm-small.service\n", ""))
    host.units = {"vllm-small.service": host.RUNNING}
    assert call(unit_stopped_info, check_mode=True, model="small", port=port) == {"changed": False, "processes": [10], "listening": False}
