"""What a report keeps of the documents on a host, of both schemas of a benchmark, and how a profile has gone."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import report_documents

ENGINE = {"name": "vllm-0.33.0", "distribution": "vllm", "version": "0.33.0"}


def result(decode: float, asked: int = 4, failed: int = 0) -> dict[str, Any]:
    return {
        "num_prompts": asked, "completed": asked - failed, "failed": failed, "duration": 2.0, "output_throughput": decode * 0.9,
        "mean_ttft_ms": 200.0, "mean_tpot_ms": 1000 / decode, "mean_itl_ms": 1000 / decode}


def document(*decode: float, started: str = "20261130T094500Z", profile: str = "single_stream", **others: Any) -> dict[str, Any]:
    point = {"name": profile, "options": {"max-concurrency": 1}, "results": [result(each) for each in decode]}
    return {
        "schema": 2, "host": "h", "model": "small", "profile": profile, "engine": ENGINE,
        "options": {"num-prompts": 4, "seed": 3, "backend": "x"}, "environment": {"SECRET": "s3cret"}, "started": started,
        "points": [point], "gate": {"verdict": "pass", "findings": ["fast"]}, **others}


def test_a_benchmark_is_median_lowest_and_highest_of_its_repetitions() -> None:
    run = report_documents.benchmark_run(document(80.0, 100.0, 50.0))
    [point] = run.pop("points")
    assert run == {
        "started": "20261130T094500Z", "profile": "single_stream", "engine": {"name": "vllm-0.33.0", "version": "0.33.0"},
        "verdict": "pass", "findings": ["fast"]}
    assert point == {
        "name": "single_stream", "load": {"max-concurrency": 1, "num-prompts": 4}, "repetitions": 3, "numbers": {
            "decode_tok_s": {"median": 80.0, "low": 50.0, "high": 100.0},
            "output_throughput_tok_s": {"median": 72.0, "low": 45.0, "high": 90.0},
            "ttft_ms": {"median": 200.0, "low": 200.0, "high": 200.0}, "tpot_ms": {"median": 12.5, "low": 10.0, "high": 20.0}}}


def test_a_document_of_the_first_schema() -> None:
    old = {
        "schema": 1, "model": "small", "engine": ENGINE, "options": {"num-prompts": 4}, "started": "20260101T000000Z", "result": result(50.0)}
    run = report_documents.benchmark_run(old)
    assert (run["profile"], run["verdict"], run["findings"]) == ("single_stream", "", [])
    assert report_documents.main_number(run) == {"median": 50.0, "low": 50.0, "high": 50.0}


def test_failed_requests_have_no_numbers() -> None:
    point = {"name": "single_stream", "options": {}, "results": [result(80.0), result(80.0, failed=4)]}
    run = report_documents.benchmark_run(document(80.0, points=[point]))
    assert run["points"][0]["numbers"] == {}
    assert report_documents.main_number(run) == {}


@pytest.mark.parametrize("broken", [{}, {"profile": "other"}, {"points": 3}, {"engine": None}])
def test_what_is_no_document_is_said(broken: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError, IndexError)):
        report_documents.benchmark_run({**document(80.0), **broken} if broken else {})


def runs(*decode: float, **others: Any) -> list[dict[str, Any]]:
    return [report_documents.benchmark_run(document(each, **others)) for each in decode]


def test_the_trend_of_a_rate_and_of_a_time() -> None:
    assert report_documents.trend(runs(100.0, 90.0, 110.0, 88.0)) == {
        "number": "decode_tok_s", "now": 88.0, "usual": 100.0, "runs": 3, "change_percent": -12.0}
    slow = runs(100.0, 100.0, profile="long_context")
    slow[1]["points"][0]["numbers"]["ttft_ms"]["median"] = 150.0
    # A shorter time is better.
    assert report_documents.trend(slow) == {"number": "ttft_ms", "now": 150.0, "usual": 200.0, "runs": 1, "change_percent": 25.0}


def test_only_the_same_load_by_the_same_engine_is_compared() -> None:
    other = {**ENGINE, "version": "0.32.0"}
    assert report_documents.trend(runs(100.0)) == {}
    assert report_documents.trend(runs(200.0, engine=other) + runs(100.0)) == {}
    assert report_documents.trend(runs(200.0, options={"num-prompts": 8}) + runs(100.0)) == {}


def test_a_ladder_stands_for_its_best_step() -> None:
    points = [
        {"name": f"concurrency {step}", "options": {"max-concurrency": step}, "results": [result(rate)]}
        for step, rate in ((1, 100.0), (2, 300.0), (4, 200.0))]
    run = report_documents.benchmark_run(document(profile="concurrency", points=points))
    assert report_documents.main_number(run)["median"] == 270.0


def test_coherence_and_all_reduce_without_answers_and_environment() -> None:
    checked = report_documents.coherence({
        "schema": 1, "started": "20261130T094500Z", "verdict": "coherent", "reason": "1 of 1 answers", "engine": ENGINE, "notes": [],
        "items": [{
            "name": "fact", "kind": "question", "verdict": "coherent", "reason": "it names Paris", "answer": "Paris", "seconds": 1.0,
            "binding": True}]})
    assert checked == {
        "started": "20261130T094500Z", "verdict": "coherent", "reason": "1 of 1 answers", "engine": "vllm-0.33.0",
        "items": [{"name": "fact", "verdict": "coherent", "reason": "it names Paris", "binding": True}]}
    reduced = report_documents.all_reduce({
        "schema": 1, "started": "20261130T094500Z", "engine": ENGINE, "backend": "gloo", "world_size": 2, "verdict": "ok", "reason": "",
        "environment": {"A": "b"}, "sizes": [{"bytes": 1024, "latency_us": 20.5, "bus_bandwidth_gb_s": 0.05}]})
    assert reduced == {
        "started": "20261130T094500Z", "engine": "vllm-0.33.0", "backend": "gloo", "world_size": 2, "verdict": "ok", "reason": "",
        "sizes": [{"bytes": 1024, "latency_us": 20.5, "bus_bandwidth_gb_s": 0.05}]}
