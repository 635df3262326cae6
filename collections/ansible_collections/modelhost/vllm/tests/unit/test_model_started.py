"""One model in the place of others: in which order, and what is said where it does not go on."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import stopping
from ansible_collections.modelhost.vllm.plugins.modules import model_started


@pytest.fixture(autouse=True)
def pair(host, monkeypatch):
    """`old` runs, and `next`, which was applied with port 8000, shall get 8001."""
    monkeypatch.setattr(stopping, "PROC", str(host.root / "proc"))
    host.write("proc/self/cgroup", "")
    monkeypatch.setattr(stopping, "listens", lambda port: False)
    unit = f"Documentation=file:{host.root}/live/next.yaml\n"
    for folder, port in (("live", 8000), ("declared/next", 8001)):
        host.write(f"{folder}/next.yaml", f"port: {port}\n")
    host.write("units/vllm-next.service", unit)
    host.write("declared/next/vllm-next.service", unit)
    host.units = {"vllm-old.service": host.RUNNING, "vllm-next.service": host.STOPPED}
    return host


def test_stopped_proven_tried_started(pair, call):
    assert call(model_started, model="next", instead_of=["old"]) == {"changed": True, "processes": {"old": []}, "trial": True}
    assert pair.ran == [
        "systemctl stop vllm-old.service", "systemctl daemon-reload", "systemctl reset-failed --all --quiet vllm-*.service",
        "systemctl start vllm-next.service"]
    assert pair.files("trial") == {"next.yaml": "port: 8001\n"}
    assert pair.files("live") == {"next.yaml": "port: 8000\n"}


def test_several_are_stopped_at_once(pair, call):
    call(model_started, model="next", instead_of=["old", "older"])
    assert pair.ran[0] == "systemctl stop vllm-old.service vllm-older.service"


def test_a_model_that_loads_already_is_left_alone(pair, call):
    pair.units["vllm-next.service"] = pair.RUNNING
    pair.write("live/next.yaml", "port: 8001\n")
    assert call(model_started, model="next") == {"changed": False, "processes": {}, "trial": False}


def test_what_is_left_of_the_other_lets_nothing_start(pair, call):
    pair.stubborn = ["vllm-old.service"]
    result = call(model_started, model="next", instead_of=["old"])
    assert (result["failed"], result["msg"]) == (True, "old is not gone: its unit is active")
    assert (pair.ran, pair.files("trial")) == (["systemctl stop vllm-old.service"], {})


@pytest.mark.parametrize(("command", "said"), [
    ("systemctl stop vllm-old.service", "systemd does not stop old: Job failed."),
    ("systemctl start vllm-next.service", "systemd does not start next: Job failed."),
])
def test_systemd_refuses(pair, call, command, said):
    pair.refused = {command: "Job failed.\n"}
    result = call(model_started, model="next", instead_of=["old"])
    assert (result["failed"], result["msg"]) == (True, said)
    assert pair.ran[-1] == command


def test_check_mode_changes_nothing(pair, call):
    before = pair.files(".")
    assert call(model_started, check_mode=True, model="next", instead_of=["old"]) == {"changed": True, "processes": {}, "trial": True}
    assert (pair.files("."), pair.ran) == (before, [])
