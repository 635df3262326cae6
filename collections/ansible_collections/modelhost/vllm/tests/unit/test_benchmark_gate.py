"""The gate of the benchmark, on samples that are written down."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark_gate
from ansible_collections.modelhost.vllm.plugins.modules import benchmark_results_info

ENGINE = {"name": "vllm-0.33.0", "distribution": "vllm", "version": "0.33.0"}
OPTIONS = {"num-prompts": 4, "max-concurrency": 1}


def result(decode=80.0, ttft=200.0, throughput=70.0, **changed):
    """What vllm bench serve writes of four requests, as far as it is read."""
    return {
        "num_prompts": 4, "completed": 4, "failed": 0, "duration": 8.0, "output_throughput": throughput, "mean_ttft_ms": ttft,
        "mean_tpot_ms": 1000 / decode, "mean_itl_ms": 1000 / decode, **changed}


def document(*results, profile="single_stream", started="20261130T094500Z", **changed):
    return {
        "schema": 2, "model": "kimi", "profile": profile, "engine": ENGINE, "options": OPTIONS, "started": started,
        "points": [{"name": profile, "options": {}, "results": list(results)}], **changed}


def run(*decode, **changed):
    """A document of repetitions with these rates of decode."""
    return document(*(result(each) for each in decode), **changed)


def history(*medians):
    """Earlier runs, oldest first, each of three repetitions at one rate of decode."""
    return [benchmark_gate.summary(run(each, each, each, started=f"202611{day:02}T000000Z")) for day, each in enumerate(medians, 1)]


def verdict(now, past, **expect):
    return benchmark_gate.gate(run(*now), history(*past), expect)["verdict"]


# A host with a GPU is steady: 1 % between the repetitions, 1 % between the runs
STEADY = [80.2, 79.4, 80.9, 80.0, 79.7, 80.5, 80.1, 79.2, 80.6, 79.9]
# A host that runs at one of two speeds
BIMODAL = [80.0, 60.2, 79.8, 60.0, 80.1, 59.8, 80.2, 60.1, 79.9, 60.0]


@pytest.mark.parametrize(("now", "past", "said"), [
    # Normal: within the spread, and any better
    ((80.1, 79.5, 80.4), STEADY, "pass"),
    ((78.0, 77.5, 78.2), STEADY, "pass"),
    ((95.0, 96.0, 95.5), STEADY, "pass"),
    # Slow: 10 %, and half
    ((72.0, 71.8, 72.3), STEADY, "fail"),
    ((40.0, 40.2, 39.9), STEADY, "fail"),
    # One slow repetition of three is an accident, and so is one fast one
    ((80.0, 40.0, 79.8), STEADY, "pass"),
    ((72.0, 80.0, 71.8), STEADY, "inconclusive"),
    # Noisy: the repetitions say nothing in common
    ((50.0, 81.0, 65.0), STEADY, "inconclusive"),
    # No spread at all: the floor of 5 % is what counts
    ((76.5, 76.5, 76.5), [80.0] * 6, "pass"),
    ((75.5, 75.5, 75.5), [80.0] * 6, "fail"),
    # An earlier accident does not widen what is usual
    ((72.0, 71.8, 72.3), [80.0, 80.2, 40.0, 79.8, 80.1, 80.0], "fail"),
    # A host with two speeds: the slower one is usual, below it nothing is certain before it is half of the median
    ((60.1, 60.0, 60.2), BIMODAL, "pass"),
    ((55.0, 55.1, 54.9), BIMODAL, "inconclusive"),
    ((33.0, 33.2, 33.1), BIMODAL, "fail"),
    # The slower speed was seen twice in ten: it is how the host is
    ((60.3, 60.2, 60.4), [80.0, 80.2, 60.0, 79.8, 80.1, 80.0, 60.2, 80.1, 79.9, 80.0], "pass"),
    ((59.0, 58.9, 59.1), [80.0, 80.2, 60.0, 79.8, 80.1, 80.0, 60.2, 80.1, 79.9, 80.0], "inconclusive"),
    ((55.0, 55.1, 54.9), [80.0, 80.2, 60.0, 79.8, 80.1, 80.0, 60.2, 80.1, 79.9, 80.0], "fail"),
    # A host that others use: 12 % less is nothing there
    ((70.0, 71.0, 69.0), [80.0, 72.0, 88.0, 76.0, 84.0, 70.5, 90.0, 79.0], "inconclusive"),
    ((45.0, 46.0, 44.0), [80.0, 72.0, 88.0, 76.0, 84.0, 70.5, 90.0, 79.0], "fail"),
    # Too few earlier runs, or repetitions: nothing is said about a regression
    ((40.0, 40.2, 39.9), STEADY[:4], "inconclusive"),
    ((40.0, 40.2), STEADY, "inconclusive"),
])
def test_a_run_is_held_against_earlier_ones(now, past, said):
    assert verdict(now, past) == said


def test_too_few_earlier_runs_leave_only_that_question_open():
    assert benchmark_gate.gate(run(80.0, 80.1, 80.2), history(80.0), {"decode_tok_s": 75}) == {
        "verdict": "pass",
        "findings": [
            "decode_tok_s is 80.1, and modelhost_models.kimi.expect asks for 75 at least",
            "no regression can be told yet: 1 comparable earlier runs on this host, 5 are needed"]}
    assert benchmark_gate.gate(run(80.0), history(*STEADY), {}) == {
        "verdict": "inconclusive", "findings": ["no regression can be told from fewer than 3 repetitions"]}


def test_what_the_gate_says():
    assert benchmark_gate.gate(run(72.0, 71.8, 72.3), history(*STEADY), {}) == {
        "verdict": "fail",
        "findings": [
            "decode_tok_s is 72.0, slower than usual on this host: the median of earlier runs is 80.0, 76.2 would still be usual, and the "
            "best repetition reached 72.3. docs/benchmark.md says what to look at",
            "ttft_ms is 200.0, as usual on this host: the median of earlier runs is 200.0, and 210.0 would still be usual"]}


@pytest.mark.parametrize(("results", "expect", "said"), [
    ((result(74.0), result(76.0), result(75.5)), {"decode_tok_s": 75}, "pass"),
    ((result(74.0), result(76.0), result(74.5)), {"decode_tok_s": 75}, "fail"),
    ((result(ttft=900.0),) * 3, {"ttft_ms": 900}, "pass"),
    ((result(ttft=901.0),) * 3, {"ttft_ms": 900}, "fail"),
    ((result(74.0),) * 3, {"decode_tok_s": 60, "ttft_ms": 100}, "fail"),
    # It is for the ladder, and this is none
    ((result(74.0),) * 3, {"output_throughput_tok_s": 1000}, "inconclusive"),
])
def test_a_run_is_held_against_what_is_expected(results, expect, said):
    assert benchmark_gate.gate(document(*results), [], expect)["verdict"] == said


@pytest.mark.parametrize(("expected", "said"), [(290, "pass"), (310, "fail")])
def test_the_best_step_of_the_ladder_counts(expected, said):
    points = [
        {"name": f"concurrency {step}", "options": {"max-concurrency": step}, "results": [result(throughput=value)] * 3}
        for step, value in ((1, 70.0), (8, 300.0), (16, 250.0))]
    judged = benchmark_gate.gate(document(profile="concurrency", points=points), [], {"output_throughput_tok_s": expected})
    assert judged["verdict"] == said
    assert judged["findings"][0] == f"output_throughput_tok_s is 300.0, and modelhost_models.kimi.expect asks for {expected} at least"


def test_each_step_of_the_ladder_has_its_own_history():
    def ladder(**steps):
        return document(profile="concurrency", points=[
            {"name": name, "options": {"max-concurrency": int(name[1:])}, "results": [result(throughput=value)] * 3}
            for name, value in steps.items()])

    past = [benchmark_gate.summary(ladder(c1=70.0, c8=300.0))] * 5
    judged = benchmark_gate.gate(ladder(c1=70.0, c4=200.0, c8=200.0), past, {})
    assert (judged["verdict"], [finding.split(",")[0] for finding in judged["findings"]]) == ("fail", [
        "c1: output_throughput_tok_s is 70.0", "c8: output_throughput_tok_s is 200.0",
        "no regression can be told yet: 0 comparable earlier runs on this host"])


@pytest.mark.parametrize(("percent", "said"), [(5, "fail"), (30, "pass")])
def test_a_model_says_how_much_slower_is_a_regression(percent, said):
    assert verdict((65.0, 65.1, 64.9), STEADY, max_slowdown_percent=percent) == said


def accepted(past, rates):
    """Run after run: the first rate that is not let pass, and the number of those before it."""
    for number, rate in enumerate(rates):
        if verdict((rate, rate, rate), past) != "pass":
            return number, rate
        past = [*past, rate]
    return len(rates), None


def test_many_small_steps_down_are_noticed_as_one_large_one():
    """One percent slower each time: the oldest runs, which never move, stay what it is held against."""
    assert accepted([80.0] * 10, [80.0 * 0.99 ** step for step in range(1, 41)]) == (4, pytest.approx(76.08, abs=0.01))


def test_a_history_is_not_led_down_while_it_is_short():
    number, rate = accepted([80.0] * 5, [80.0 * 0.99 ** step for step in range(1, 41)])
    assert number < 10 and rate > 72.0


def test_what_has_become_faster_must_stay_so():
    assert verdict((80.0, 80.1, 79.9), [80.0] * 10 + [100.0] * 10) == "fail"
    # Six of the newest ten are needed for that
    assert verdict((80.0, 80.1, 79.9), [80.0] * 10 + [100.0] * 5) == "pass"


@pytest.mark.parametrize("changed", [
    {"profile": "long_context"}, {"engine": {**ENGINE, "version": "0.34.0"}}, {"options": {**OPTIONS, "num-prompts": 8}},
    {"options": {**OPTIONS, "num-warmups": 1}}, {"gate": {"verdict": "fail", "findings": []}},
])
def test_other_loads_and_refused_runs_are_no_history(changed):
    past = [benchmark_gate.summary(run(80.0, 80.0, 80.0, **changed))] * 5
    judged = benchmark_gate.gate(run(40.0, 40.0, 40.0), [each for each in past if each], {})
    assert judged["findings"] == ["no regression can be told yet: 0 comparable earlier runs on this host, 5 are needed"]


def test_the_seed_and_the_environment_make_no_other_history():
    past = [benchmark_gate.summary(run(80.0, 80.0, 80.0, options={**OPTIONS, "seed": 1}, nccl={"NCCL_PROTO": "LL"}))] * 5
    assert benchmark_gate.gate(run(40.0, 40.0, 40.0), past, {})["verdict"] == "fail"


def test_a_run_of_schema_1_is_history():
    old = {
        "schema": 1, "model": "kimi", "engine": ENGINE, "options": {**OPTIONS, "seed": 5}, "started": "20261030T094500Z",
        "result": result(80.0)}
    past = [benchmark_gate.summary(old)] * 5
    assert past[0]["points"] == [{
        "name": "single_stream", "options": OPTIONS, "values": [{"decode_tok_s": 80.0, "output_throughput_tok_s": 70.0, "ttft_ms": 200.0}]}]
    assert benchmark_gate.gate(run(40.0, 40.0, 40.0), past, {})["verdict"] == "fail"


@pytest.mark.case("C7")
def test_requests_that_failed_are_all_that_is_said():
    """What vllm bench serve writes, with exit status 0, when every request failed; the expectations would even like its TTFT."""
    nothing = result(completed=0, failed=4, output_throughput=0.0, mean_ttft_ms=0.0, mean_tpot_ms=0.0, mean_itl_ms=0.0)
    failed = document(result(), nothing, result(completed=3, failed=1))
    assert benchmark_gate.gate(failed, history(*STEADY), {"ttft_ms": 900, "decode_tok_s": 75}) == {
        "verdict": "fail",
        "findings": [
            "single_stream, repetition 2: 0 of 4 requests completed, 4 failed",
            "single_stream, repetition 3: 3 of 4 requests completed, 1 failed"]}
    assert benchmark_gate.summary({**failed, "gate": {"verdict": "pass", "findings": []}}) is None


def test_what_is_read_on_the_host(call, tmp_path):
    folder = tmp_path / "history"
    folder.mkdir()
    (folder / "20261102T000000Z.json").write_text(json.dumps(run(80.0)))
    (folder / "20261101T000000Z.json").write_text(json.dumps(run(81.0, started="20261101T000000Z")))
    (folder / "20261103T000000Z.json").write_text(json.dumps(run(82.0, gate={"verdict": "fail", "findings": []})))
    (folder / "20261104T000000Z.json").write_text('{"schema": 2, "points"')
    (folder / "other.json").write_text("[]")
    (folder / "old").mkdir()
    (folder / "old/20260101T000000Z.json").write_text("{}")
    (tmp_path / "raw.json").write_text('{"mean_tpot_ms": NaN}')
    found = call(benchmark_results_info, results=[str(tmp_path / "raw.json")], history=str(folder))
    assert found["results"] == [{"mean_tpot_ms": None}]
    assert [each["started"] for each in found["history"]] == ["20261101T000000Z", "20261130T094500Z"]
    assert found["unreadable"] == ["20261104T000000Z.json", "other.json"]
    assert call(benchmark_results_info, results=[], history=str(tmp_path / "none")) == {
        "changed": False, "results": [], "history": [], "unreadable": []}


# Recorded from vLLM 0.32 on two cores, SmolLM2-135M in float32, 64 tokens in and 32 out: the rates of decode and the mean TTFT of three
# repetitions. The machine to itself, by its medians; while a test of the whole project ran beside it, eight runs one after the other; and with
# the server stopped for 0.2 of every 0.3 seconds.
ALONE = [15.63, 15.21, 16.63, 15.01, 13.58, 12.16, 13.31]
BUSY = [
    ((0.88, 9.71, 12.75), (3771.8, 1522.9, 290.6)), ((8.35, 5.45, 6.46), (588.3, 333.8, 562.8)),
    ((3.25, 1.22, 1.57), (1128.9, 2643.5, 1584.1)), ((1.96, 1.21, 1.83), (2227.0, 4034.5, 2063.6)),
    ((1.34, 2.57, 5.63), (1986.9, 2250.6, 638.3)), ((3.27, 6.02, 3.85), (347.1, 302.7, 1255.4)),
    ((4.04, 4.53, 7.28), (364.8, 329.2, 373.7)), ((3.00, 2.88, 9.68), (343.5, 961.3, 384.3))]
SLOWED = (4.33, 4.74, 5.61)


def test_recorded_a_server_that_is_slowed_down_fails():
    assert verdict(SLOWED, ALONE) == "fail"
    # As the demo's inventory asks for
    assert verdict(SLOWED, ALONE, max_slowdown_percent=30) == "fail"


def test_recorded_runs_of_a_machine_of_its_own_pass():
    for number in range(5, len(ALONE)):
        assert verdict((ALONE[number],) * 3, ALONE[:number], max_slowdown_percent=30) == "pass"


def test_recorded_runs_of_a_busy_machine_are_no_regression():
    past, said = [], []
    for decode, ttft in BUSY:
        now = document(*(result(one, other) for one, other in zip(decode, ttft)))
        said.append(benchmark_gate.gate(now, past, {})["verdict"])
        past.append(benchmark_gate.summary(now))
    assert said == ["inconclusive"] * 5 + ["pass"] * 3
    assert benchmark_gate.gate(run(*SLOWED), past, {})["verdict"] == "pass"
