"""The wait for a real answer: its ends, good and bad, and what each call hands to the next."""

from __future__ import annotations

import time

import pytest
from ansible_collections.modelhost.vllm.plugins.modules import model_answer

PARIS = (200, {"choices": [{"message": {"content": " Paris. "}}]})
PARAMS = {"model": "small", "host": "127.0.0.1", "port": 8000, "stall": 900}


class Endpoint:
    """What the endpoint answers, set by each test."""

    names: list[str] = []
    reply = PARIS
    asked: list[tuple] = []

    def __init__(self, host, port, secret_file):
        self.secret_file = secret_file

    def served_names(self):
        return self.names

    def generate(self, *asked, timeout):
        self.asked.append(asked)
        if isinstance(self.reply, OSError):
            raise self.reply
        return self.reply


@pytest.fixture
def small(host, monkeypatch):
    monkeypatch.setattr(model_answer, "Endpoint", Endpoint)
    monkeypatch.setattr(model_answer, "SLICE", 0.0)
    monkeypatch.setattr(model_answer, "movement", lambda group: (2048, 3072))
    for name, value in (("names", []), ("reply", PARIS), ("asked", [])):
        monkeypatch.setattr(Endpoint, name, value)
    host.units = {"vllm-small.service": host.RUNNING}
    host.journal = "Initializing a V1 LLM engine\nStarting to load model /srv/small...\n"
    return host


def test_an_answer_ends_the_wait(small, call, monkeypatch):
    monkeypatch.setattr(Endpoint, "names", ["small", "default"])
    result = call(model_answer, **PARAMS, resume={"started": time.time() - 60, "restarts": 0})
    assert 60 <= result.pop("seconds") < 70
    assert result == {"changed": False, "finished": True, "answer": "Paris."}
    assert Endpoint.asked == [("small", "What is the capital of France?", 16)]


def test_a_load_is_waited_for(small, call):
    before = time.time()
    result = call(model_answer, **PARAMS)
    resume = result.pop("resume")
    assert result == {"changed": False, "finished": False, "progress": "loading weights  (2.0 GiB held, 3.0 GiB read)"}
    assert before <= resume.pop("started") <= time.time()
    assert before <= resume.pop("moved_at") <= time.time()
    assert resume == {"restarts": 0, "invocation": "0a1b", "moved": ["Starting to load model /srv/small...", 32, 48]}


@pytest.mark.parametrize(("moved", "still"), [
    (["Starting to load model /srv/small...", 32, 48], True),
    (["Starting to load model /srv/small...", 31, 48], False),
    (["Starting to load model /srv/small...", 32, 47], False),
    (["Initializing a V1 LLM engine", 32, 48], False),
])
def test_a_load_that_does_not_move(small, call, moved, still):
    resume = {"started": 0, "restarts": 0, "invocation": "0a1b", "moved": moved, "moved_at": time.time() - 901}
    result = call(model_answer, **PARAMS, resume=resume)
    if not still:
        assert result["resume"]["moved_at"] > time.time() - 60
        return
    assert result["failed"]
    assert result["msg"] == (
        "small: nothing has moved for 901 s while loading weights; the limit is 900 s. Its journal's decisive lines:\n"
        "Initializing a V1 LLM engine\nStarting to load model /srv/small...\nAll of it: journalctl -u vllm-small.service")


@pytest.mark.parametrize(("unit", "resume", "ended"), [
    ({"ActiveState": "failed", "SubState": "failed", "Result": "exit-code", "ExecMainStatus": "2"}, {},
     "(failed/failed, result exit-code, status 2)"),
    ({"ActiveState": "inactive", "SubState": "dead"}, {}, "(inactive/dead, result success, status 0)"),
    ({"ActiveState": "deactivating", "SubState": "stop-sigterm"}, {}, "(deactivating/stop-sigterm, result success, status 0)"),
    ({"ActiveState": "activating", "SubState": "auto-restart", "Result": "exit-code", "ExecMainStatus": "1"}, {},
     "(activating/auto-restart, result exit-code, status 1)"),
    ({"NRestarts": "1"}, {"restarts": 0, "invocation": "ffff"}, "(active/running, result success, status 0)"),
])
def test_a_unit_that_ended(small, call, unit, resume, ended):
    small.units = {"vllm-small.service": {**small.RUNNING, **unit}}
    small.journal = "INFO one\nValueError: too long\nINFO two\n"
    result = call(model_answer, **PARAMS, resume=resume or None)
    assert result["msg"] == (
        f"small: the unit ended {ended}. Its journal's decisive lines:\nValueError: too long\nAll of it: journalctl -u vllm-small.service")
    assert result["journal"] == ["ValueError: too long"]
    # The run that ended is asked for, not the one that replaced it
    match = "_SYSTEMD_INVOCATION_ID=ffff" if resume else "_SYSTEMD_UNIT=vllm-small.service"
    assert small.ran == [f"journalctl --quiet --no-pager --output=cat --lines=200 {match}"]


def test_restarts_before_the_wait_do_not_count(small, call):
    small.units = {"vllm-small.service": {**small.RUNNING, "NRestarts": "3"}}
    result = call(model_answer, **PARAMS)
    assert result["resume"]["restarts"] == 3
    assert not call(model_answer, **PARAMS, resume=result["resume"]).get("failed")


@pytest.mark.parametrize(("reply", "reason"), [
    ((400, {"error": "too long"}), "the server rejected the prompt, or said nothing: HTTP 400 {'error': 'too long'}"),
    ((401, {"error": "Unauthorized"}), "the server rejected the prompt, or said nothing: HTTP 401 {'error': 'Unauthorized'}"),
    ((200, {"choices": [{"message": {"content": " "}}]}),
     "the server rejected the prompt, or said nothing: HTTP 200 {'choices': [{'message': {'content': ' '}}]}"),
    (OSError("timed out"), "the server listens but did not answer within 0 s (timed out)"),
])
def test_an_endpoint_without_an_answer(small, call, monkeypatch, reply, reason):
    monkeypatch.setattr(Endpoint, "names", ["small"])
    monkeypatch.setattr(Endpoint, "reply", reply)
    result = call(model_answer, **PARAMS)
    assert result["failed"]
    assert result["msg"].startswith(f"small: {reason}. Its journal's decisive lines:\n")


def test_a_trial_is_asked_with_its_own_key(small, monkeypatch):
    small.write("live/small.secret.env", "")
    small.write("trial/small.secret.env", "")

    class Module:
        params = {**PARAMS, "resume": None}

    assert model_answer.Wait(Module()).endpoint.secret_file == f"{small.root}/trial/small.secret.env"


def test_check_mode_waits_for_nothing(small, call):
    small.units = {}
    assert call(model_answer, check_mode=True, **PARAMS) == {"changed": False, "finished": True}


def test_movement_of_a_unit_that_is_gone():
    assert model_answer.movement("/nowhere.slice/vllm-small.service") == (0, 0)
