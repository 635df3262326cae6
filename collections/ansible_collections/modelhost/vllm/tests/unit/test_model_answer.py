"""The wait for a real answer: its ends, good and bad, and what each call hands to the next."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import models, switch_record
from ansible_collections.modelhost.vllm.plugins.modules import model_answer

PARIS = (200, {"choices": [{"message": {"content": " Paris. "}, "finish_reason": "stop"}]})
PARAMS = {"model": "small", "engine": "vllm-0.33.0", "stall": 900}


class Endpoint:
    """What the endpoint answers, set by each test."""

    names: list[str] = []
    reply = PARIS
    asked: list[tuple] = []

    def __init__(self, host, port, secret_file):
        self.place = (host, port, secret_file)

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
    monkeypatch.setattr(model_answer.models, "running_for", lambda unit: 61.26)
    host.units = {"vllm-small.service": host.RUNNING}
    host.write("live/small.yaml", "host: 0.0.0.0\nport: 8001\n")
    host.journal = "Initializing a V1 LLM engine\nStarting to load model /srv/small...\n"
    return host


def test_an_answer_ends_the_wait(small, call, monkeypatch):
    monkeypatch.setattr(Endpoint, "names", ["small", "default"])
    result = call(model_answer, **PARAMS, resume={"restarts": 0})
    assert result == {"changed": False, "finished": True, "answer": "Paris.", "verdict": "coherent", "seconds": 61.3}
    assert Endpoint.asked == [("small", "What is the capital of France?", 256)]


def test_it_is_asked_where_its_unit_listens(small):
    class Module:
        params = {**PARAMS, "resume": None}

    assert model_answer.Wait(Module()).endpoint.place == ("0.0.0.0", 8001, f"{small.root}/live/small.secret.env")


def test_a_load_that_was_watched_is_remembered(small, call, monkeypatch):
    resume = call(model_answer, **PARAMS)["resume"]
    monkeypatch.setattr(Endpoint, "names", ["small"])
    call(model_answer, **PARAMS, resume=resume)
    (load,) = json.loads((small.root / "state/loads.json").read_text())["models"]["small"]
    assert load.pop("at").endswith("+00:00")
    assert load == {"engine": "vllm-0.33.0", "seconds": 61.3}


def test_a_model_that_served_already_has_not_loaded(small, call, monkeypatch):
    monkeypatch.setattr(Endpoint, "names", ["small"])
    call(model_answer, **PARAMS)
    assert not (small.root / "state").exists()


def test_all_tokens_went_into_reasoning(small, call, monkeypatch):
    """No fault of the model, and no reason to go back."""
    monkeypatch.setattr(Endpoint, "names", ["small"])
    monkeypatch.setattr(Endpoint, "reply", (200, {
        "choices": [{"message": {"content": None, "reasoning": "The user asks"}, "finish_reason": "length"}]}))
    assert call(model_answer, **PARAMS) == {
        "changed": False, "finished": True, "answer": "The user asks", "verdict": "budget", "seconds": 61.3,
        "warnings": ["small: 256 tokens were not enough for its reasoning, so its answer is not judged."]}


@pytest.mark.case("L15")
@pytest.mark.parametrize(("unit", "names", "asked"), [
    ("[Service]\n", ["zai-org/GLM-5", "glm"], "zai-org/GLM-5"),
    ("[Service]\n", ["zai-org/GLM-5", "small"], "small"),
    ("[Unit]\nDocumentation=file:{root}/live/small.yaml\n", ["other", "small"], "small"),
])
def test_a_foreign_unit_is_asked_by_the_name_that_it_serves(small, call, monkeypatch, unit, names, asked):
    """It is what a switch that fails goes back to."""
    small.write("units/vllm-small.service", unit.replace("{root}", str(small.root)))
    monkeypatch.setattr(Endpoint, "names", names)
    assert call(model_answer, **PARAMS)["verdict"] == "coherent"
    assert Endpoint.asked == [(asked, "What is the capital of France?", 256)]


def test_the_wait_is_a_sign_of_life(small, call):
    owner = {"user": "alice", "controller": "bastion", "pid": 1, "run": "x"}
    switch_record.write({
        "owner": owner, "boot": switch_record.boot_id(), "since": "", "model": "small", "step": "start", "silence": 120, "progress": ""})
    call(model_answer, **PARAMS)
    assert [switch_record.read()[key] for key in ("step", "silence", "progress")] == ["wait", 1020, "loading weights"]


def test_a_load_is_waited_for(small, call):
    before = time.time()
    result = call(model_answer, **PARAMS)
    resume = result.pop("resume")
    assert result == {"changed": False, "finished": False, "progress": "loading weights  (2.0 GiB held, 3.0 GiB read)"}
    assert before <= resume.pop("moved_at") <= time.time()
    assert resume == {
        "restarts": 0, "invocation": "0a1b", "moved": ["Starting to load model /srv/small...", 32, 48], "loading": True,
        "progress": "loading weights"}


def test_what_earlier_loads_say_is_shown(small, call):
    small.write("state/loads.json", '{"models": {"small": [{"seconds": 1860.0}]}}')
    assert call(model_answer, **PARAMS)["progress"] == (
        "loading weights; about 30 min left of the usual 31 min  (2.0 GiB held, 3.0 GiB read)")


@pytest.mark.parametrize(("moved", "still"), [
    (["Starting to load model /srv/small...", 32, 48], True),
    (["Starting to load model /srv/small...", 31, 48], False),
    (["Starting to load model /srv/small...", 32, 47], False),
    (["Initializing a V1 LLM engine", 32, 48], False),
])
def test_a_load_that_does_not_move(small, call, moved, still):
    resume = {"restarts": 0, "invocation": "0a1b", "moved": moved, "moved_at": time.time() - 901}
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


ASKED = "asked 'What is the capital of France?', it says"


@pytest.mark.parametrize(("reply", "reason"), [
    pytest.param((400, {"error": "too long"}), f"rejected: {ASKED} '': HTTP 400 {{'error': 'too long'}}", marks=pytest.mark.case("C6")),
    pytest.param((401, {"error": "Unauthorized"}), f"rejected: {ASKED} '': HTTP 401 {{'error': 'Unauthorized'}}",
                 marks=pytest.mark.case("C6")),
    ((200, {"choices": [{"message": {"content": " "}, "finish_reason": "stop"}]}),
     f"incoherent: {ASKED} '': an empty answer (finish_reason stop)"),
    pytest.param((200, {"choices": [{"message": {"content": "!!!!!!!!!!"}}]}),
                 f"incoherent: {ASKED} '!!!!!!!!!!': one token again and again: '!'", marks=pytest.mark.case("C1")),
    pytest.param((200, {"choices": [{"message": {"content": "Lyon."}}]}),
                 f"incoherent: {ASKED} 'Lyon.': it does not name Paris", marks=pytest.mark.case("C4")),
    pytest.param(OSError("timed out"), "the server listens but did not answer within 0 s (timed out)", marks=pytest.mark.case("C5")),
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

    assert model_answer.Wait(Module()).endpoint.place[2] == f"{small.root}/trial/small.secret.env"


def test_check_mode_waits_for_nothing(small, call):
    small.units = {}
    assert call(model_answer, check_mode=True, **PARAMS) == {"changed": False, "finished": True}


def test_movement_of_a_unit_that_is_gone():
    assert model_answer.movement("/nowhere.slice/vllm-small.service") == (0, 0)


def test_a_full_disk_takes_nothing_away_from_the_answer(small, call, monkeypatch, fill_the_disk):
    """Where the answer counted as a failure, so would that of the model before, and nothing would serve."""
    monkeypatch.setattr(Endpoint, "names", ["small"])
    fill_the_disk()
    result = call(model_answer, **PARAMS, resume={"loading": True})
    assert (result["finished"], result["verdict"]) == (True, "coherent")
    assert result["warnings"] == ["small: how long its load took is not kept: [Errno 28] No space left on device"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"models": []}', '{"models": {"small": "x"}}', '{"models": {"small": [1, {}]}}'])
def test_a_damaged_record_of_loads_is_none(small, call, text):
    small.write("state/loads.json", text)
    assert call(model_answer, **PARAMS)["progress"].startswith("loading weights  (")
    models.add_load("small", {"engine": "vllm-1", "seconds": 3.0, "at": "now"})
    assert models.read_loads("small") == [{"engine": "vllm-1", "seconds": 3.0, "at": "now"}]
