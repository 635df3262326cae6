"""Profiles, history and gate of the benchmark, with the host's own systemd."""

import json

import pytest

FOLDER = "/var/lib/modelhost/benchmarks/plain"
QUICK = {"smoke_benchmark_options": {
    "backend": "openai-chat", "endpoint": "/v1/chat/completions", "dataset-name": "random", "random-input-len": 8, "random-output-len": 4,
    "num-prompts": 2, "max-concurrency": 1, "ignore-eos": True, "temperature": 0}}


@pytest.fixture(scope="module", autouse=True)
def plain_serves(controller):
    controller.plays("switch_model")


@pytest.fixture
def documents(host):
    host.check_output("rm -rf %s", FOLDER)
    return lambda: [json.loads(host.file(path).content_string) for path in sorted(host.check_output("ls %s/*.json", FOLDER).split())]


def test_an_unknown_profile_is_refused(controller):
    failed = controller.play("benchmark", "-e", "profile=concurency", "--check")
    assert failed.returncode != 0
    assert (
        "profile: 'concurency' is not one of concurrency, long_context, single_stream. Did you mean 'concurrency'?"
        in failed.said.replace("''", "'"))


def test_the_ladder(controller, documents):
    variables = {**QUICK, "profile": "concurrency", "smoke_benchmark_concurrency": [1, 2], "smoke_benchmark_repetitions": 1}
    controller.plays("benchmark", "-e", json.dumps(variables))
    [document] = documents()
    assert (document["schema"], document["profile"]) == (2, "concurrency")
    assert document["nccl"] == {"NCCL_P2P_LEVEL": "SYS", "NCCL_DEBUG": "WARN"}
    assert [(point["name"], point["options"]["num-prompts"], [result["completed"] for result in point["results"]])
            for point in document["points"]] == [("concurrency 1", 4, [4]), ("concurrency 2", 4, [4])]
    assert set(document["inventory"]) == {"revision", "modified"}


def test_a_slower_host_fails_after_it_was_measured(controller, documents, host):
    controller.plays("benchmark", "-e", json.dumps(QUICK))
    [like] = documents()
    # Five earlier runs of a host that is a thousand times as fast
    fast = {key: value / 1000 for key, value in like["points"][0]["results"][0].items() if key.startswith("mean_")}
    for day in range(1, 6):
        like["started"] = f"2026010{day}T000000Z"
        like["points"][0]["results"] = [{**like["points"][0]["results"][0], **fast}] * 3
        host.check_output("echo %s > %s", json.dumps(like), f"{FOLDER}/{like['started']}.json")
    failed = controller.play("benchmark", "-e", json.dumps(QUICK))
    assert failed.returncode != 0
    assert "plain failed its benchmark: decode_tok_s is" in failed.said and "slower than usual on this host" in failed.said
    assert documents()[-1]["gate"]["verdict"] == "fail"


def test_a_run_that_takes_too_long_is_ended(controller, documents, host):
    variables = {**QUICK, "smoke_benchmark_limit": 1}
    variables["smoke_benchmark_options"] = {**QUICK["smoke_benchmark_options"], "random-output-len": 100000}
    failed = controller.play("benchmark", "-e", json.dumps(variables))
    assert failed.returncode != 0
    assert "benchmark-plain was ended after 1 s, its time limit. It was 'warm-up' of the profile single_stream" in failed.said
    assert host.run("systemctl is-active modelhost-job-benchmark-plain.service").rc != 0


@pytest.mark.case("C7")
def test_requests_that_all_fail(controller, documents):
    """A path that the server does not have: `vllm bench serve` ends well."""
    variables = {"smoke_benchmark_options": {**QUICK["smoke_benchmark_options"], "endpoint": "/v2/chat/completions"}}
    failed = controller.play("benchmark", "-e", json.dumps(variables))
    assert failed.returncode != 0
    assert "plain failed its benchmark: single_stream, repetition 1: 0 of 2 requests completed, 2 failed" in failed.said
    assert documents()[-1]["gate"]["verdict"] == "fail"
