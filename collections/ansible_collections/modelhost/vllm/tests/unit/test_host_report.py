"""The document of a host from what its modules say, what to do next, and the summary of one screen."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.filter import host_report as host_report_filter
from ansible_collections.modelhost.vllm.plugins.module_utils import host_report, report_words

UNIT = {"ExecMainStartTimestamp": "Mon 2026-11-30 09:37:40 UTC", "UnitFileState": "enabled", "NRestarts": "2"}
APPLIED = {"host": "127.0.0.1", "port": 8000, "engine": "vllm-1", "wish": "small"}
CHAIN = {
    "driver": {"source": "present", "version": ""}, "cuda": {"source": "nvidia", "versions": [], "selected": ""},
    "uv": {"version": "0.13.9", "sha256": ["a" * 64]}, "gpus": {"count": 0}, "engines": {}, "models": {}, "pins": {}, "compatibility": {}}
DECLARED = {
    "models": [{"name": "small", "engine": "vllm-1"}, {"name": "other", "engine": "vllm-1"}],
    "engines": [{"name": "vllm-1", "distribution": "vllm", "version": "1"}], "wish": "small", "gpus": {"count": 0}, "versions": CHAIN}


def model(state: str, **others: Any) -> dict[str, Any]:
    return {"state": state, "progress": "", "unit": UNIT, "applied": {}, "pending": [], "trial": "", "foreign": False, **others}


def weighed(name: str, state: str = "complete") -> dict[str, Any]:
    return {
        "name": name, "state": state, "source": "directory", "directory": f"/srv/{name}", "entry": f"/srv/{name}", "bytes": 270000000,
        "missing": [], "truncated": [], "damaged": [], "unverified": [], "unpromised": []}


NUMBERS = {"median": 80.0, "low": 79.0, "high": 81.0}
RUN = {
    "started": "20261130T094500Z", "profile": "single_stream", "engine": {"name": "vllm-1", "version": "1"}, "verdict": "pass",
    "findings": [],
    "points": [{"name": "single_stream", "load": {}, "repetitions": 3, "numbers": {"decode_tok_s": NUMBERS}}]}
CHECK = {"started": "20261130T100000Z", "verdict": "coherent", "reason": "3 of 3 answers", "engine": "vllm-1", "items": []}
AUDIT = {"started": "20261130T090000Z", "verdict": "pristine", "findings": []}
LOOKED = {
    "reached": True, "reason": "", "unknown": {},
    "answers": {
        "gpu": {"gpus": [], "pci": [], "driver": {}, "kernel": {"release": "6.1.0"}, "secure_boot": "", "xids": [], "unknown": []},
        "host": {"findings": [], "facts": {"os_release": {"PRETTY_NAME": "Debian 12"}, "architecture": "x86_64", "memory": 25000000000}},
        "engines": {"engines": {"vllm-1": {"state": "complete", "used_by": ["vllm-small.service"]}}, "undeclared": {}},
        "state": {"models": {"other": model("stopped"), "small": model("serving", applied=APPLIED)}, "busy": ["small"], "switch": {}},
        "weights": {"models": [weighed("small"), weighed("other", "absent")]},
        "nccl": {
            "models": {"small": {"running": True, "effective": []}, "other": {"running": False, "effective": []}}, "findings": [], "notes": []},
        "kept": {
            "benchmarks": {"small": {"single_stream": [RUN]}}, "coherence": {"small": CHECK}, "all_reduce": {}, "audits": {"vllm-1": AUDIT},
            "unreadable": [], "reboot": [], "failures": {}}}}


def changed(*path: Any, to: Any, looked: dict[str, Any] = LOOKED) -> dict[str, Any]:
    copy = deepcopy(looked)
    *way, last = path
    place = copy["answers"]
    for each in way:
        place = place[each]
    place[last] = to
    return copy


def made(looked: dict[str, Any], **declared: Any) -> dict[str, Any]:
    return host_report_filter.report(looked, "h", "20261130T110000Z", {**DECLARED, **declared})


def test_a_host_on_which_all_is_well() -> None:
    found = made(LOOKED)
    assert (found["state"], found["summary"], found["next_steps"], found["unknown"]) == ("serving", "small is serving", [], [])
    assert [(each["name"], each["state"], each["url"], each["since"], each["boot"], each["restarts"]) for each in found["models"]] == [
        ("small", "serving", "http://127.0.0.1:8000/v1", "Mon 2026-11-30 09:37:40 UTC", True, 2), ("other", "stopped", "", "", True, 2)]
    assert [each["weights"] for each in found["models"]] == [
        {"state": "complete", "bytes": 270000000, "verified": True, "says": "270.0 MB in /srv/small, verified by size and sha256"},
        {"state": "absent", "bytes": 270000000, "verified": False, "says": (
            "modelhost_models.other.weights: /srv/other is absent: there is no such directory. Complete the directory (it is used in place "
            "and never written to), or declare another source")}]
    assert found["engines"] == [
        {"name": "vllm-1", "version": "vllm 1", "state": "complete", "used_by": ["vllm-small.service"], "audit": AUDIT}]
    assert found["benchmarks"][0]["runs"][0]["main"] == NUMBERS


@pytest.mark.parametrize(("looked", "step"), [
    (changed("state", "models", to={"small": model("stopped")}), "serve the wish, small: playbooks/site.yml"),
    (changed("state", "models", "small", "state", to="loading"), "wait for small, which is loading"),
    (changed("state", "models", "small", "state", to="failed"),
     "small has failed: journalctl -u vllm-small on the host, then playbooks/switch_model.yml"),
    (changed("state", "models", "small", "pending", to=[{"file": "small.yaml", "diff": "+key: s3cret"}, {"file": "small.env", "diff": ""}]),
     "small has 2 changes pending: playbooks/switch_model.yml"),
    (changed("state", "models", "small", "foreign", to=True),
     "take over the unit of small, which modelhost did not write: playbooks/site.yml -e adopt=true"),
    (changed("kept", "benchmarks", to={}), "small was never measured here: playbooks/benchmark.yml"),
    (changed("kept", "benchmarks", "small", "single_stream", to=[{**RUN, "verdict": "fail"}]),
     "the last single_stream of small failed its gate: docs/benchmark.md says what to look at"),
    (changed("kept", "coherence", to={}), "small was never asked whether it makes sense: playbooks/check_coherence.yml"),
    (changed("kept", "coherence", "small", to={**CHECK, "verdict": "incoherent", "reason": "fact"}),
     "small was incoherent when it was asked last (fact): docs/coherence.md"),
    (changed("kept", "audits", to={}), "vllm-1 was never audited here: playbooks/audit_engine.yml"),
    (changed("kept", "audits", "vllm-1", "verdict", to="dirty"),
     "vllm-1 is not what its wheels say: playbooks/audit_engine.yml, then with -e repair=true"),
    (changed("kept", "reboot", to=["nvidia_driver: the new one is on the disk"]),
     "a reboot waits, nvidia_driver: the new one is on the disk: playbooks/site.yml -e reboot_allowed=true, while no model serves"),
    (changed("engines", "engines", "vllm-1", "state", to="absent"), "install vllm-1, which is absent: playbooks/provision.yml"),
    (changed("engines", "engines", "vllm-1", "state", to="changed"),
     "vllm-1 was built from another lock or other patches: declare the new ones under a new name"),
    (changed("weights", "models", to=[weighed("small", "incomplete")]), "the weights of small are incomplete: playbooks/fetch_weights.yml"),
    (changed("host", "findings", to=[{"check": "shm", "severity": "error"}]),
     "repair what host_check finds (shm): the fix stands beside each"),
])
def test_what_is_to_be_done_next(looked: dict[str, Any], step: str) -> None:
    assert made(looked)["next_steps"] == [step]


def test_a_wish_that_was_edited_and_a_choice_that_was_made() -> None:
    other = changed("state", "models", to={"small": model("stopped"), "other": model("serving", applied={**APPLIED, "wish": "other"})})
    assert made(other)["next_steps"][0] == "the inventory now wishes small, and other serves: playbooks/switch_model.yml"
    chosen = changed("state", "models", to={"small": model("stopped"), "other": model("serving", applied=APPLIED)})
    assert not any("wishes" in step for step in made(chosen)["next_steps"])


OWNER = {"user": "alice", "controller": "bastion", "pid": 4711, "run": "bastion b:pid:[1] 4711 99"}
SWITCH = {
    "owner": OWNER, "model": "other", "step": "wait", "since": "2026-11-30T09:37:40+00:00", "progress": "", "age": 3, "silence": 1020,
    "interrupted": False}
WHO = "switch to other by alice@bastion since 2026-11-30T09:37:40+00:00"
INTERRUPTED = {"interrupted": True, "says": (
    f"{WHO}: interrupted at step 'wait'. What serves now is below; switch_model.yml finishes it or serves the wish, and a reboot boots "
    "what was applied")}


@pytest.mark.parametrize(("change", "ended", "found"), [
    ({}, False, {"interrupted": False, "says": f"{WHO}: at step 'wait', last sign of life 3 s ago"}),
    ({"step": "go back", "progress": "loading weights"}, False,
     {"interrupted": False, "says": f"{WHO}: at step 'go back' (loading weights), last sign of life 3 s ago"}),
    ({"interrupted": True}, False, INTERRUPTED),
    ({"progress": "loading weights"}, True, INTERRUPTED),  # by a run of this controller whose process is gone
])
def test_a_switch_that_is_under_way_or_was_interrupted(monkeypatch: pytest.MonkeyPatch, change, ended, found) -> None:
    monkeypatch.setattr(host_report_filter, "has_ended", lambda owner: ended)
    looked = changed("state", "switch", to={**SWITCH, **change})
    assert made(looked)["switch"] == found
    assert f"models      {WHO}" in "\n".join(report_words.screen(made(looked)))


def test_an_interrupted_switch_comes_first_and_many_gpus_ask_for_all_reduce() -> None:
    found = made(changed("state", "switch", to={**SWITCH, "interrupted": True}, looked=changed("gpu", to=None)), gpus={"count": 8})
    assert found["next_steps"] == [
        "finish the interrupted switch: playbooks/switch_model.yml",
        "all-reduce was never measured here: playbooks/advise.yml, while nobody has the GPUs"]


BRIEF = {
    "name": "a", "state": "stopped", "progress": "", "since": "", "url": "", "engine": "vllm-1", "applied": False, "wish_then": "",
    "boot": False, "pending": [], "foreign": False}
SERVING = {**BRIEF, "state": "serving", "since": "Mon 09:00", "boot": True}
KIMI = {"url": "http://127.0.0.1:8000/v1", "applied": True}


@pytest.mark.parametrize(("found", "line"), [
    (BRIEF, "a: stopped"),
    ({**BRIEF, "state": "failed"}, "a: failed"),
    ({**SERVING, **KIMI, "name": "b", "wish_then": "b"},
     "b: serving, since Mon 09:00, http://127.0.0.1:8000/v1, engine vllm-1, starts at boot"),
    ({**BRIEF, "state": "loading", "since": "Mon 09:00", "progress": "loading weights; about 12 min left of the usual 31 min"},
     "a: loading, since Mon 09:00, loading weights; about 12 min left of the usual 31 min"),
    ({**SERVING, "foreign": True},
     "a: serving, since Mon 09:00, a unit that modelhost did not write: take it over with -e adopt=true, starts at boot"),
    ({**SERVING, **KIMI, "wish_then": "b", "pending": ["a.env", "a.yaml"]},
     "a: serving, since Mon 09:00, http://127.0.0.1:8000/v1, engine vllm-1, starts at boot, chosen with -e model=, 2 changes pending, "
     "apply with switch_model.yml"),
    ({**BRIEF, **KIMI, "wish_then": "a", "pending": ["a.env"]},
     "a: stopped, http://127.0.0.1:8000/v1, engine vllm-1, the inventory now wishes b: apply with switch_model.yml, 1 change pending, "
     "apply with switch_model.yml"),
])
def test_what_is_said_of_a_model(found: dict[str, Any], line: str) -> None:
    assert report_words.model(found, "b") == line


def test_versions_of_the_host_and_of_each_engine_with_what_differs() -> None:
    found = made(LOOKED, versions={**CHAIN, "pins": {"vllm-1": {"torch": "2.13.0+cpu"}}})["versions"]
    assert found == {"contradictions": [], "parts": [
        {"part": "torch", "engine": "vllm-1", "declared": "2.13.0+cpu", "found": ""},
        {"part": "CUDA", "engine": "vllm-1", "declared": "cpu", "found": ""}]}
    driver = {"part": "driver", "engine": "", "declared": "580.105.08", "found": "575.57.08"}
    assert report_words.versions({"contradictions": ["torch is too new"], "parts": [driver, *found["parts"]]}) == [
        "torch is too new", "driver 580.105.08 (found: 575.57.08)", "vllm-1: torch 2.13.0+cpu, CUDA cpu"]


def test_no_text_of_a_declared_file_is_in_it() -> None:
    looked = changed("state", "models", "small", "pending", to=[{"file": "small.env", "diff": "+TOKEN=s3cret"}])
    assert "s3cret" not in repr(made(looked))


def test_what_cannot_be_learned_is_said_in_its_place() -> None:
    nothing = {"reached": True, "reason": "", "answers": {}, "unknown": dict.fromkeys(host_report.SECTIONS, "no systemctl")}
    found = made(nothing)
    sections = ("hardware", "engines", "models", "nccl", "benchmarks", "coherence", "all_reduce", "findings")
    assert [found[name] for name in sections] == [None] * 8
    assert found["unknown"][3] == {"what": "models", "why": "no systemctl"}
    assert (found["state"], found["next_steps"]) == ("unknown", [])
    lines = report_words.screen(found)
    assert "engines     unknown, see below" in lines and "unknown     GPUs and driver, system and memory, engines, models, weights, NCCL, what is kept of" in lines


def test_a_host_that_is_away() -> None:
    away = {"reached": False, "reason": "no route to host", "answers": {}, "unknown": {}}
    found = made(away)
    assert (found["state"], found["summary"]) == ("unreachable", "could not be reached: no route to host")
    assert report_words.screen(found) == [
        "h           could not be reached: no route to host",
        "next        reach the host: power, network, the address and the key in hosts.yml"]


def test_the_summary_of_one_screen() -> None:
    assert report_words.screen(made(LOOKED)) == [
        "h           small is serving",
        "hardware    Debian 12, Linux 6.1.0, x86_64, 25.0 GB of memory",
        "            no NVIDIA GPU",
        "versions    the declared chain has no contradiction",
        "            nothing is pinned",
        "engines     vllm-1: built from its lock; pristine when audited on 2026-11-30 09:00 UTC",
        "models      small: serving, since Mon 2026-11-30 09:37:40 UTC, http://127.0.0.1:8000/v1, engine",
        "              vllm-1, starts at boot",
        "            other: stopped, starts at boot",
        "weights     verified: small; absent: other",
        "NCCL        no variable is set in a running process",
        "measured    small single_stream: 80.0 tok/s decode (79.0 to 81.0), pass; nothing to compare with",
        "              yet; 2026-11-30 09:45 UTC",
        "coherence   small: coherent (3 of 3 answers), 2026-11-30 10:00 UTC",
        "all-reduce  never measured",
        "findings    none",
        "next        nothing to do",
    ]


def test_a_host_with_much_to_say_keeps_to_the_screen() -> None:
    much = changed("state", "models", to={
        f"model-{number}": model("failed", pending=[{"file": "a" * 60, "diff": ""}]) for number in range(30)})
    much = changed("host", "findings", to=[{
        "check": "disk", "severity": "error", "variable": "v", "seen": "word " * 60, "needed": "more", "fix": "buy"}] * 9, looked=much)
    much = changed("kept", "benchmarks", to={f"model-{number}": {"single_stream": [RUN]} for number in range(9)}, looked=much)
    lines = report_words.screen(made(much))
    assert len(lines) <= 36
    assert max(map(len, lines)) <= 100
    assert any(line.endswith("more lines in report.md") for line in lines)


def test_stopped_models_share_a_line_behind_those_that_do_something() -> None:
    idle = {"ExecMainStartTimestamp": "", "UnitFileState": "disabled", "NRestarts": "0"}
    looked = changed("state", "models", to={
        **{f"a{number}": model("stopped", unit=idle) for number in range(3)}, "z": model("loading", progress="loading weights: 42%")})
    lines = report_words.screen(made(looked))
    assert "models      z: loading, since Mon 2026-11-30 09:37:40 UTC, loading weights: 42%, starts at boot" in lines
    assert "            stopped: a0, a1, a2" in lines


def test_what_a_terminal_acts_on_is_not_shown() -> None:
    assert report_words.block("engines", ["a\x1b[2Jb\n\u202ec"], 1) == ["engines     a?[2Jb ?c"]


def test_a_time_that_is_none_stays_as_it_is() -> None:
    assert report_words.moment("20261130T094500Z") == "2026-11-30 09:45 UTC"
    assert report_words.moment("yesterday") == "yesterday"
