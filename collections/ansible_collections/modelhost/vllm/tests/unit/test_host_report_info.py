"""What is kept on a host of earlier runs, and what its journal says of a unit that failed, without secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd
from ansible_collections.modelhost.vllm.plugins.modules import host_report_info

ENGINE = {"name": "vllm-1", "distribution": "vllm", "version": "1"}
RESULT = {
    "num_prompts": 1, "completed": 1, "failed": 0, "duration": 1.0, "output_throughput": 9.0, "mean_ttft_ms": 5.0, "mean_tpot_ms": 100.0,
    "mean_itl_ms": 100.0}


@pytest.fixture
def ask(host, call, tmp_path: Path):
    def run(**params: Any) -> dict[str, Any]:
        folders = {name: str(tmp_path / name) for name in ("benchmarks", "coherence", "all_reduce", "engines", "markers")}
        return call(host_report_info, **folders, **params)

    return run


def measured(started: str, profile: str = "single_stream") -> str:
    return json.dumps({
        "schema": 2, "started": started, "profile": profile, "engine": ENGINE, "options": {}, "environment": {"TOKEN": "s3cret"},
        "gate": {"verdict": "pass", "findings": []}, "points": [{"name": profile, "options": {}, "results": [RESULT]}]})


def test_an_empty_host_has_nothing(ask) -> None:
    assert ask() == {
        "changed": False, "benchmarks": {}, "coherence": {}, "all_reduce": {}, "audits": {}, "unreadable": [], "reboot": [], "failures": {}}


def test_documents_by_model_and_the_newest_of_each_kind(host, ask) -> None:
    for day in ("02", "01", "03"):
        host.write(f"benchmarks/small/202611{day}T000000Z.json", measured(f"202611{day}T000000Z"))
    host.write("benchmarks/small/20261104T000000Z.json", measured("20261104T000000Z", "long_context"))
    host.write("benchmarks/small/20261105T000000Z.json", "{")
    for started, verdict in (("20261101T000000Z", "incoherent"), ("20261102T000000Z", "coherent")):
        host.write(f"coherence/small/{started}.json", json.dumps(
            {"schema": 1, "started": started, "verdict": verdict, "reason": "r", "engine": ENGINE, "items": []}))
    host.write("all_reduce/20261101T000000Z.json", json.dumps({
        "schema": 1, "started": "20261101T000000Z", "backend": "gloo", "world_size": 2, "verdict": "hung", "reason": "r",
        "engine": ENGINE, "sizes": []}))
    host.write("engines/.vllm-1.audit.json", json.dumps(
        {"schema": 1, "started": "20261101T000000Z", "verdict": "dirty", "findings": ["a"]}))
    host.write("markers/nvidia_driver", "the new one is on the disk\n")
    found = ask(most=2)
    assert {profile: [run["started"] for run in runs] for profile, runs in found["benchmarks"]["small"].items()} == {
        "single_stream": ["20261102T000000Z", "20261103T000000Z"], "long_context": ["20261104T000000Z"]}
    assert found["unreadable"] == [f"{host.root}/benchmarks/small/20261105T000000Z.json"]
    assert found["coherence"] == {"small": {
        "started": "20261102T000000Z", "verdict": "coherent", "reason": "r", "engine": "vllm-1", "items": []}}
    assert (found["all_reduce"]["verdict"], found["audits"]) == (
        "hung", {"vllm-1": {"started": "20261101T000000Z", "verdict": "dirty", "findings": ["a"]}})
    assert found["reboot"] == ["nvidia_driver: the new one is on the disk"]
    assert "s3cret" not in json.dumps(found)


@pytest.mark.case("L4")
def test_the_journal_of_a_unit_that_failed_without_secrets(host, ask) -> None:
    host.units = {
        "vllm-small.service": {**host.STOPPED, "ActiveState": "failed", "InvocationID": "0a1b"}, "vllm-other.service": host.RUNNING}
    host.write("live/small.secret.env", 'VLLM_API_KEY="sk-1\\"2"\n')
    host.journal = 'loading\nValueError: key sk-1"2 and token hf_abcdefghijkl are no good\n'
    assert ask()["failures"] == {"small": ["ValueError: key *** and token *** are no good"]}


def test_a_host_without_systemd_is_no_failure(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(argv: list[str]) -> str:
        raise FileNotFoundError(2, "No such file or directory", "systemctl")

    monkeypatch.setattr(systemd, "run", none)
    assert ask()["failures"] == {}
