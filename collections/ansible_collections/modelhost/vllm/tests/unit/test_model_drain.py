"""The wait for a moment without a request in flight."""

from __future__ import annotations

import time

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import switch_record
from ansible_collections.modelhost.vllm.plugins.modules import model_drain


@pytest.fixture
def small(host, monkeypatch):
    """What the server counts, one number a look; the last one stays."""
    class Endpoint:
        counts: list = [0]
        asked: list = []

        def __init__(self, address, port, secret_file):
            self.asked.append((address, port, secret_file))

        def in_flight(self):
            count = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
            if isinstance(count, OSError):
                raise count
            return count

    monkeypatch.setattr(model_drain, "Endpoint", Endpoint)
    monkeypatch.setattr(model_drain, "SLICE", 0.0)
    host.write("live/small.yaml", "host: 0.0.0.0\nport: 8001\n")
    host.endpoint = Endpoint
    return host


def test_nothing_is_in_flight(small, call):
    assert call(model_drain, model="small", timeout=60) == {"changed": False, "finished": True, "in_flight": 0}
    assert small.endpoint.asked == [("0.0.0.0", 8001, f"{small.root}/live/small.secret.env")]


def test_a_slice_of_the_wait(small, call):
    small.endpoint.counts = [3]
    before = time.time()
    result = call(model_drain, model="small", timeout=60)
    assert before <= result["resume"].pop("began") <= time.time()
    assert result.pop("progress") in {f"3 requests in flight at small; it is stopped in {left} s at the latest" for left in (59, 60)}
    assert result == {"changed": False, "finished": False, "resume": {}}


def test_the_wait_goes_on_until_there_is_none(small, call, monkeypatch):
    monkeypatch.setattr(model_drain, "SLICE", 60.0)
    small.endpoint.counts = [3, 1, 0]
    assert call(model_drain, model="small", timeout=60) == {"changed": False, "finished": True, "in_flight": 0}


@pytest.mark.parametrize(("timeout", "ago", "finished"), [(60, 61, True), (60, 30, False), (0, 0, True)])
def test_the_limit_counts_from_the_first_look(small, call, timeout, ago, finished):
    small.endpoint.counts = [2]
    result = call(model_drain, model="small", timeout=timeout, resume={"began": time.time() - ago})
    assert result["finished"] is finished
    assert result.get("in_flight") == (2 if finished else None)
    assert result.get("warnings", []) == [f"small: 2 requests are still in flight after {timeout} s and are cut."] * finished


def test_a_server_that_does_not_count(small, call):
    small.endpoint.counts = [OSError("http://127.0.0.1:8001/metrics does not count requests: HTTP 404")]
    assert call(model_drain, model="small", timeout=60) == {"changed": False, "finished": True, "warnings": [
        "small: whether requests are in flight is not known: http://127.0.0.1:8001/metrics does not count requests: HTTP 404"]}


def test_the_wait_is_a_sign_of_life(small, call):
    owner = {"user": "alice", "controller": "bastion", "pid": 1, "run": "x"}
    switch_record.write({
        "owner": owner, "boot": switch_record.boot_id(), "since": "", "model": "other", "step": "check", "silence": 120, "progress": ""})
    small.endpoint.counts = [3]
    call(model_drain, model="small", timeout=60)
    record = switch_record.read()
    assert record["step"] == "drain"
    assert record["progress"].startswith("3 requests in flight at small; it is stopped in ")


def test_check_mode_counts_and_does_not_wait(small, call):
    small.endpoint.counts = [3]
    assert call(model_drain, check_mode=True, model="small", timeout=60) == {"changed": False, "finished": True, "in_flight": 3}
