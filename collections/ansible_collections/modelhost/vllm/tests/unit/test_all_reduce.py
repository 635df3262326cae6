"""All-reduce: what is asked for, how its ranks are ended, and what the answer is worth. Real torch: molecule/default/tests."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import all_reduce, all_reduce_probe
from ansible_collections.modelhost.vllm.plugins.modules import all_reduce_info

QUESTION = {"backend": "nccl", "world_size": 2, "sizes": [1024, 4096], "seconds": 60, "environment": {}}
GLOO = {**QUESTION, "backend": "gloo"}


def rank(ended: str = "well", stage: str = "end", result: Any = None, said: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"ended": ended, "stage": stage, "result": result, "said": list(said)}


def answer(*ranks: dict[str, Any], timed_out: bool = False) -> dict[str, Any]:
    return {"timed_out": timed_out, "ranks": list(ranks)}


@pytest.mark.parametrize(("shape", "serve", "sizes"), [
    ({"hidden_size": 7168}, {}, [14336, 28672, 57344, 114688, 229376, 458752, 917504, 117440512]),
    ({"hidden_size": 576}, {"max-num-batched-tokens": 2048}, [1152, 2304, 4608, 9216, 18432, 36864, 73728, 2359296]),
    ({}, {}, [1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]),
])
def test_the_messages_of_decode_and_prefill(shape: dict[str, Any], serve: dict[str, Any], sizes: list[int]) -> None:
    assert all_reduce.sizes(shape, serve) == sizes


def test_the_slowest_rank_and_the_bus_bandwidth_of_nccl_tests() -> None:
    found = all_reduce.judge(answer(rank(result={"latencies_us": [10.0, 40.0]}), rank(result={"latencies_us": [20.0, 30.0]})), QUESTION)
    assert found == {"verdict": "ok", "reason": "", "sizes": [
        {"bytes": 1024, "latency_us": 20.0, "bus_bandwidth_gb_s": 0.051},
        {"bytes": 4096, "latency_us": 40.0, "bus_bandwidth_gb_s": 0.102}]}
    # nccl-tests, 8 ranks: a bus bandwidth of 7/4 of size / time
    assert all_reduce.bus_bandwidth(2_000_000_000, 100_000, 8) == 35


def test_wrong_values_go_before_everything_else() -> None:
    wrong = {"bytes": 1024, "index": 7, "count": 3, "got": 0.0, "expected": 9.0}
    found = all_reduce.judge(answer(rank(result={"wrong": wrong}), rank("killed", "1024 bytes"), timed_out=True), QUESTION)
    assert found["verdict"] == "wrong values"
    assert found["reason"].startswith("3 values of a message of 1024 bytes are wrong, the first at 7: 0 in place of 9. Answers of a model")
    assert "P2P" in found["reason"]
    assert "P2P" not in all_reduce.judge(answer(rank(result={"wrong": wrong}), rank()), GLOO)["reason"]


def test_a_hang_names_peer_to_peer_and_where_the_ranks_stand() -> None:
    hung = answer(rank("killed", "connect"), rank("killed", "1024 bytes"), timed_out=True)
    found = all_reduce.judge(hung, QUESTION)
    assert found["verdict"] == "hung"
    assert found["reason"].startswith("60 s passed with 2 of 2 ranks unfinished, 1 at 'connect', 1 at '1024 bytes'. Peer-to-peer (P2P) over ")
    assert "try nccl: {NCCL_P2P_DISABLE: 1}" in found["reason"]
    assert "iommu=pt" in found["reason"]
    assert all_reduce.judge(hung, GLOO)["reason"].endswith("1 at '1024 bytes'.")
    without = {**QUESTION, "environment": {"NCCL_P2P_DISABLE": "1"}}
    assert "so it is not peer-to-peer (P2P)" in all_reduce.judge(hung, without)["reason"]


def test_a_slow_import_is_no_hang() -> None:
    found = all_reduce.judge(answer(rank("killed", "import torch"), rank("killed", "connect"), timed_out=True), QUESTION)
    assert found["verdict"] == "failed"
    assert "raise the limit" in found["reason"]


def test_the_decisive_lines_of_the_rank_that_failed() -> None:
    lines = ("loading", "h:1:2 [0] NCCL WARN Cuda failure 'out of memory'", "  File x, line 1", "RuntimeError: NCCL error in: x.cpp")
    found = all_reduce.judge(answer(rank("killed", "connect"), rank("badly", "1024 bytes", said=lines)), QUESTION)
    assert found == {"verdict": "failed", "sizes": [], "reason": (
        "rank 1 failed at '1024 bytes': h:1:2 [0] NCCL WARN Cuda failure 'out of memory' / RuntimeError: NCCL error in: x.cpp")}


def test_ranks_that_end_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def work(number: int, say: all_reduce_probe.Say) -> list[int]:
        say("end")
        return [number]

    assert all_reduce_probe.supervise(2, 60, work) == answer(rank(result=[0]), rank(result=[1]))


def test_a_rank_that_fails_ends_the_others_before_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_reduce_probe, "GRACE", 0.1)

    def work(number: int, say: all_reduce_probe.Say) -> None:
        say("connect")
        if number == 1:
            raise RuntimeError("no such device")
        time.sleep(600)

    found = all_reduce_probe.supervise(2, 500, work)
    assert (found["timed_out"], [each["ended"] for each in found["ranks"]]) == (False, ["killed", "badly"])
    assert found["ranks"][1]["said"][-1] == "RuntimeError: no such device"


def test_ranks_that_hang_are_ended_at_the_limit() -> None:
    def work(number: int, say: all_reduce_probe.Say) -> None:
        say("1024 bytes")
        time.sleep(600)

    assert all_reduce_probe.supervise(2, 3, work) == answer(rank("killed", "1024 bytes"), rank("killed", "1024 bytes"), timed_out=True)


def test_a_rank_with_wrong_values_does_not_wait_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_reduce_probe, "GRACE", 0.1)

    def work(number: int, say: all_reduce_probe.Say) -> dict[str, Any]:
        if number == 0:
            time.sleep(600)
        return {"wrong": {"bytes": 1024}}

    assert all_reduce_probe.supervise(2, 500, work)["ranks"][1]["result"] == {"wrong": {"bytes": 1024}}


@pytest.fixture
def engines(tmp_path: Path):
    """A folder of engines; each has the text given as its Python."""
    def make(python: str) -> str:
        path = tmp_path / "e/bin/python"
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n" + python)
        path.chmod(0o755)
        (tmp_path / "e/.complete").touch()
        return str(tmp_path)

    return make


def test_the_ranks_have_the_models_variables_and_its_gpus(engines, call) -> None:
    said = json.dumps(answer(rank("badly", "x", said=("Error: '\"$CUDA_VISIBLE_DEVICES $NCCL_ALGO\"'",)))).replace('\\"', '"')
    root = engines(f"echo 'modelhost-all-reduce: {said}'\n")
    result = call(
        all_reduce_info, engine="e", engines_root=root, user="root", gpus=[4, 5], sizes=[1024], environment={"NCCL_ALGO": "Ring"})
    assert result == {
        "changed": False, "backend": "nccl", "world_size": 2, "environment": {"NCCL_ALGO": "Ring"}, "verdict": "failed", "sizes": [],
        "reason": "rank 0 failed at 'x': Error: 4,5 Ring"}


def test_an_engine_that_says_nothing(engines, call) -> None:
    result = call(all_reduce_info, engine="e", engines_root=engines("echo broken >&2; exit 3\n"), user="root", sizes=[1024])
    assert (result["verdict"], result["reason"]) == ("failed", "the probe gave no answer: it ended with status 3: broken")


@pytest.mark.parametrize(("given", "said"), [
    ({"sizes": [3]}, "sizes: [3]: sizes of messages are even numbers of bytes, as a value has two"),
    ({"sizes": []}, "sizes: []: sizes of messages are even numbers of bytes, as a value has two"),
    ({"ranks": 17}, "all-reduce is between 2 to 16 ranks, and 17 were asked for"),
    ({"gpus": [0]}, "all-reduce is between 2 to 16 ranks, and 1 were asked for"),
    ({"engine": "none"}, "none is not installed; ansible-playbook playbooks/provision.yml installs it"),
])
def test_what_is_refused(engines, call, given: dict[str, Any], said: str) -> None:
    root = engines("exit 1\n")
    assert call(all_reduce_info, **{"engine": "e", "engines_root": root, "user": "root", "sizes": [2], **given})["msg"] == said


def test_the_table() -> None:
    document = {
        "host": "gpu1", "world_size": 8, "backend": "nccl", "engine": {"name": "vllm-0.33.0"}, "started": "20261130T094500Z", "verdict": "ok",
        "sizes": [{"bytes": 14336, "latency_us": 26.12, "bus_bandwidth_gb_s": 0.96}]}
    assert all_reduce.lines(document) == [
        "all-reduce on gpu1: 8 ranks over nccl, engine vllm-0.33.0, 20261130T094500Z: ok",
        "       bytes    latency us    busbw GB/s",
        "       14336          26.1         0.960"]
    assert all_reduce.lines({**document, "verdict": "hung", "reason": "60 s passed"})[1:] == ["60 s passed"]
