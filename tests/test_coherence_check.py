"""The battery as data, and the role from its first question to its verdict, against a server that says what it is told."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
BATTERY = yaml.safe_load((ROOT / "roles/coherence_check/files/battery.yml").read_text())
CHOICES = yaml.safe_load((ROOT / "roles/model_unit/meta/argument_specs.yml").read_text())[
    "argument_specs"]["main"]["options"]["model_unit_models"]["options"]["coherence"]["options"]["binds"]["choices"]
KEYS = {"name", "ask", "expect", "needle", "tool", "logprobs", "sampled", "script"}


def test_a_model_can_bind_every_item_and_nothing_else() -> None:
    assert [each["name"] for each in BATTERY] == CHOICES


def test_each_item_has_only_keys_that_are_read() -> None:
    assert [set(each) - KEYS for each in BATTERY if set(each) - KEYS] == []


class Sage(http.server.BaseHTTPRequestHandler):
    """A server that knows all the answers, but for those that a test spoils."""

    KNOWN = {
        "France": "The capital of France is Paris.", "Italy": "Rome.", "17 + 25": "42", "youngest": "The youngest is Clara.",
        "called?": "Your dog is called Bruno.", "remember": "I will remember it.", "week": "Seven days.", "opposite": "Cold",
        "lighthouse": (
            "Every evening the keeper climbed the hundred steps and lit the lamp. One morning, after a storm, he found a green bottle between "
            "the rocks. A letter was in it, written by a girl on the other side of the sea. He answered her, and years later she came."),
        "Hauptstadt": "Die Hauptstadt von Italien ist Rom.", "日本": "日本の首都は東京です。", "access code": "The code is 7319.",
        "Spain": "The capital of Spain is Madrid."}
    spoiled: dict[str, object] = {}
    asked: list[dict] = []

    def do_GET(self) -> None:
        self.send({"data": [{"id": "sage", "max_model_len": 4096}]} if self.path == "/v1/models" else {})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(request)
        question = request["messages"][-1]["content"].rpartition("\n")[2]
        key = next(key for key in [*self.KNOWN, "Oslo"] if key in question)
        message = self.spoiled.get(key, {"content": self.KNOWN.get(key)})
        if isinstance(message, int):
            return self.send({"error": {"message": "no"}}, message)
        if key == "Oslo" and message == {"content": None}:
            message = {"content": None, "tool_calls": [{"function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}]}
        choice = {"message": message, "finish_reason": "length" if "reasoning" in message else "stop"}
        if request.get("logprobs"):
            choice["logprobs"] = {"content": [{"logprob": -0.5}, {"logprob": -0.25}]}
        return self.send({"choices": [choice]})

    def send(self, value: object, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def check(tmp_path: Path):
    """Run the role's questions against the server; its status, what it said, and the document that it kept."""
    Sage.spoiled, Sage.asked = {}, []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    applied = {"schema": 1, "models": {"sage": {"host": "127.0.0.1", "port": server.server_port, "engine": "vllm-1"}}}
    state = tmp_path / "var/lib/modelhost/state/applied.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps(applied))
    (tmp_path / "etc").mkdir()
    private = ["unshare", "--mount", "sh", "-c", f'mount --bind {tmp_path}/var/lib /var/lib && exec "$@"', "sh"]
    if os.geteuid() or subprocess.run([*private, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root and mounts of its own")

    def run(
        items: list[str] | None = None, coherence: dict[str, object] | None = None, serve: dict[str, object] | None = None,
    ) -> tuple[int, str, dict]:
        model = {
            "name": "sage", "engine": "vllm-1", "host": "127.0.0.1", "port": server.server_port, "serve": serve or {}, "coherence": coherence or {}}
        variables = {
            "ansible_python_interpreter": "{{ ansible_playbook_python }}", "coherence_check_artifacts": str(tmp_path / "artifacts"),
            "__coherence_check_plan": {
                "finding": "", "model": model, "engine": {"name": "vllm-1", "distribution": "vllm", "version": "1"}, "url": "x"}}
        if items:
            variables["__coherence_check_battery"] = [each for each in BATTERY if each["name"] in items]
        (tmp_path / "play.json").write_text(json.dumps([{
            "hosts": "all", "gather_facts": False, "become": False,
            "tasks": [{"ansible.builtin.import_role": {"name": "coherence_check", "tasks_from": "ask"}}]}]))
        (tmp_path / "variables.json").write_text(json.dumps(variables))
        done = subprocess.run(
            [*private, "ansible-playbook", "-i", "here,", "-c", "local", "-e", f"@{tmp_path}/variables.json", tmp_path / "play.json"], cwd=ROOT,
            stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout)
        kept = sorted((tmp_path / "var/lib/modelhost/coherence/sage").glob("*.json"))
        copies = sorted((tmp_path / "artifacts/here/coherence/sage").glob("*.json"))
        assert [path.read_text() for path in kept] == [path.read_text() for path in copies]
        return done.returncode, " ".join(done.stdout.split()), json.loads(kept[-1].read_text())

    yield run
    server.shutdown()


def test_a_model_that_knows_all(check) -> None:
    status, said, kept = check(serve={"tool-call-parser": "hermes", "enable-auto-tool-choice": True})
    assert (status, kept["verdict"], kept["reason"], kept["notes"]) == (0, "coherent", "15 of 15 answers", [])
    assert {key: kept[key] for key in ("schema", "host", "model", "engine")} == {
        "schema": 1, "host": "here", "model": "sage", "engine": {"name": "vllm-1", "distribution": "vllm", "version": "1"}}
    assert [each["name"] for each in kept["items"]] == CHOICES
    assert [request["temperature"] for request in Sage.asked].count(0.7) == 1
    needles = [request["messages"][0]["content"] for request in Sage.asked if "access code" in request["messages"][0]["content"]]
    assert [round(text.index("7319") / len(text), 1) for text in needles] == [0.0, 0.5, 1.0]
    memory = next(request["messages"] for request in Sage.asked if len(request["messages"]) == 5)
    assert [message["role"] for message in memory] == ["user", "assistant", "user", "assistant", "user"]


def test_without_a_parser_no_call_is_asked_for(check) -> None:
    assert [each["name"] for each in check(["fact", "tool call"])[2]["items"]] == ["fact"]


@pytest.mark.case("C4")
def test_a_wrong_answer_fails_after_it_was_kept(check) -> None:
    Sage.spoiled = {"17 + 25": {"content": "17 + 25 = 32"}}
    status, said, kept = check(["fact", "arithmetic"])
    assert (status, kept["verdict"], kept["reason"]) == (2, "incoherent", "arithmetic")
    assert "arithmetic incoherent" in said and "it does not name 42 or forty-two" in said and "17 + 25 = 32" in said


def test_what_a_small_model_may_miss_does_not_bind(check) -> None:
    Sage.spoiled = {"17 + 25": {"content": "17 + 25 = 32"}}
    status, said, kept = check(["fact", "arithmetic", "creative"], {"binds": ["fact", "creative"]})
    assert (status, kept["verdict"], kept["reason"]) == (0, "coherent", "2 of 3 answers")
    assert "arithmetic (incoherent)" in said


@pytest.mark.case("C2")
def test_reasoning_without_an_end_is_said_and_does_not_fail(check) -> None:
    Sage.spoiled = {"youngest": {"content": None, "reasoning": "Anna is older than"}}
    status, said, kept = check(["fact", "reasoning"], {"max_tokens": 300})
    assert (status, kept["verdict"], kept["reason"]) == (0, "budget", "reasoning")
    assert "all 300 tokens went into reasoning: set coherence.max_tokens to 600 or more" in said


@pytest.mark.case("C6")
def test_after_a_refusal_nothing_more_is_asked(check) -> None:
    Sage.spoiled = {"France": 401}
    status, said, kept = check(["fact", "fact again", "creative"], {"binds": ["creative"]})
    assert (status, kept["verdict"], [each["name"] for each in kept["items"]]) == (2, "rejected", ["fact"])
    assert "HTTP 401 {'error': {'message': 'no'}}" in said


@pytest.mark.case("C8")
def test_two_answers_to_one_question_are_a_note(check, monkeypatch) -> None:
    answers = iter(["The capital of France is Paris.", "It is Paris."])
    monkeypatch.setattr(Sage, "KNOWN", {**Sage.KNOWN, "France": None})
    monkeypatch.setattr(Sage, "spoiled", type("Turns", (dict,), {
        "get": lambda self, key, default: {"content": next(answers)} if key == "France" else default})())
    status, said, kept = check(["fact", "fact again"])
    assert (status, kept["verdict"]) == (0, "coherent")
    assert kept["notes"] == ["fact again: the same question got another answer at temperature 0, which is no fault by itself"]
