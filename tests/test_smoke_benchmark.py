"""The role from the first run of a benchmark to its verdict, on this machine, with an engine that says what it is told."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
# systemd-run and setpriv: the command without what would start it
RUN = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
SETPRIV = '#!/bin/sh\nshift 6\nexec "$@"\n'
SYSTEMCTL = """#!/bin/sh
for unit; do :; done
printf 'Id=%s\\nActiveState=%s\\nResult=%s\\nExecMainStatus=0\\n' "$unit" STATE RESULT
"""
# The benchmark: the next number of a file is the rate of decode; 0 is what comes of requests that all failed.
BENCH = """#!/usr/bin/env python3
import json, os, pathlib, sys
options = dict(zip(sys.argv, sys.argv[1:]))
here = pathlib.Path(__file__).parent
rate, *rest = (here / "rates").read_text().split()
(here / "rates").write_text(" ".join(rest))
done = float(rate) > 0
asked = int(options["--num-prompts"])
time = 1000 / float(rate) if done else 0.0
result = {"num_prompts": asked, "completed": asked * done, "failed": asked * (not done), "duration": 2.0, "output_throughput": float(rate),
          "mean_ttft_ms": 200.0 * done, "mean_tpot_ms": time, "mean_itl_ms": time, "asked": sys.argv[1:]}
pathlib.Path(options["--result-dir"], options["--result-filename"]).write_text(json.dumps(result))
"""
ENGINE = {"name": "e", "distribution": "vllm", "version": "0.33.0"}


class Host:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs(STATE="inactive", RESULT="success")
        for path in ("scratch", "inventory", "engines/e/bin"):
            (folder / path).mkdir(parents=True)
        bench = folder / "engines/e/bin/bench"
        bench.write_text(BENCH)
        bench.chmod(0o755)

    def programs(self, **said: str) -> None:
        for name, text in (("systemd-run", RUN), ("setpriv", SETPRIV), ("systemctl", SYSTEMCTL)):
            for word, value in said.items():
                text = text.replace(word, value)
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def measure(
        self, rates: str, expect: dict[str, Any] | None = None, entries: tuple[str, ...] = ("measure", "keep"), **variables: Any,
    ) -> tuple[int, str]:
        """Status and words of a play that measures, where the runs have these rates; the first is the warm-up's."""
        (self.folder / "engines/e/bin/rates").write_text(rates)
        model = {
            "name": "small", "engine": "e", "host": "127.0.0.1", "port": 8000, "serve": {"max-num-seqs": 2},
            "weights": {"source": "directory", "path": "/srv/small"}, "benchmark": {"num-prompts": 2}, "expect": expect or {}}
        variables = {
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "smoke_benchmark_models": [model], "smoke_benchmark_engines": [{**ENGINE, "bench_command": ["bench"]}],
            "smoke_benchmark_engines_root": f"{self.folder}/engines", "smoke_benchmark_scratch": f"{self.folder}/scratch",
            "smoke_benchmark_root": f"{self.folder}/kept", "smoke_benchmark_artifacts": f"{self.folder}/artifacts",
            "smoke_benchmark_inventory": f"{self.folder}/inventory",
            "__smoke_benchmark_state": {"models": {"small": {"state": "serving", "applied": {}}}, "busy": ["small"]}, **variables}
        (self.folder / "play.json").write_text(json.dumps([{
            "hosts": "all", "gather_facts": False, "become": False, "vars": variables,
            "tasks": [{"ansible.builtin.include_role": {"name": "smoke_benchmark", "tasks_from": entry}} for entry in entries]}]))
        done = subprocess.run(
            ["ansible-playbook", "-i", "here,", "-c", "local", self.folder / "play.json"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
            check=False)
        print(done.stdout)
        return done.returncode, " ".join(done.stdout.split()).replace("''", "'")

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self.folder / "kept/small").glob("*.json"))]

    def remember(self, *rates: float) -> None:
        """Keep documents of earlier runs, each of three repetitions at one rate, like the one that is there."""
        [like] = self.documents()
        for day, rate in enumerate(rates, 10):
            result = {**like["points"][0]["results"][0], "mean_tpot_ms": 1000 / rate, "mean_itl_ms": 1000 / rate}
            points = [{**like["points"][0], "results": [result] * 3}]
            started = f"202601{day}T000000Z"
            (self.folder / f"kept/small/{started}.json").write_text(json.dumps({**like, "started": started, "points": points}))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Host(tmp_path)


def test_a_first_run_is_kept_and_leaves_the_question_of_a_regression_open(host: Host) -> None:
    (host.folder / "inventory/hosts.yml").write_text("a: 1\n")
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm a"):
        subprocess.run(["git", *words.split()], cwd=host.folder / "inventory", check=True)
    status, said = host.measure("1 80 79 81")
    assert status == 0
    assert "decode 80.0 tok/s (79.0 to 81.0)" in said
    [document] = host.documents()
    revision = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=host.folder / "inventory", check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    assert {key: document[key] for key in ("schema", "host", "model", "profile", "engine", "inventory", "environment", "nccl", "gate")} == {
        "schema": 2, "host": "here", "model": "small", "profile": "single_stream", "engine": ENGINE,
        "inventory": {"revision": revision, "modified": False}, "environment": {}, "nccl": {},
        "gate": {
            "verdict": "inconclusive",
            "findings": ["no regression can be told yet: 0 comparable earlier runs on this host, 5 are needed"]}}
    assert (document["options"]["num-prompts"], document["options"]["tokenizer"]) == (2, "/srv/small")
    [point] = document["points"]
    assert (point["name"], [result["output_throughput"] for result in point["results"]]) == ("single_stream", [80.0, 79.0, 81.0])
    seeds = [result["asked"][result["asked"].index("--seed") + 1] for result in point["results"]]
    assert len(set(seeds)) == 3
    [copy] = (host.folder / "artifacts/here/benchmarks/small").iterdir()
    assert json.loads(copy.read_text()) == document
    assert list((host.folder / "scratch").iterdir()) == []


def test_a_slower_run_ends_the_play_after_it_was_kept(host: Host) -> None:
    assert host.measure("1 80 79 81")[0] == 0
    host.remember(80.0, 79.5, 80.5, 80.2, 79.8)
    (host.folder / "kept/small/broken.json").write_text("{")
    status, said = host.measure("1 60 61 59.5", {"decode_tok_s": 75})
    assert status == 2
    for sentence in (
            "small failed its benchmark: decode_tok_s is 60.0, and modelhost_models.small.expect asks for 75 at least; decode_tok_s is "
            "60.0, slower than usual on this host: the median of earlier runs is 80.0, 76.2 would still be usual, and the best repetition "
            "reached 61.0.",
            f"No document of a benchmark, and left out of the comparison, in {host.folder}/kept/small: broken.json"):
        assert sentence in said
    (host.folder / "kept/small/broken.json").unlink()
    newest = host.documents()[-1]
    assert (newest["gate"]["verdict"], newest["inventory"]) == ("fail", {"revision": "", "modified": False})


@pytest.mark.case("C7")
def test_requests_that_all_failed_are_a_failure_that_is_kept(host: Host) -> None:
    status, said = host.measure("1 80 0 81", smoke_benchmark_profile="concurrency", smoke_benchmark_concurrency=[2, 4])
    assert status == 2
    assert "small failed its benchmark: concurrency 2, repetition 2: 0 of 4 requests completed, 4 failed. The numbers are in" in said
    [document] = host.documents()
    assert document["gate"] == {"verdict": "fail", "findings": ["concurrency 2, repetition 2: 0 of 4 requests completed, 4 failed"]}
    # max-num-seqs of the model is 2
    assert [(point["name"], len(point["results"])) for point in document["points"]] == [("concurrency 2", 3)]


def test_a_run_that_takes_too_long_is_ended_with_one_sentence(host: Host) -> None:
    host.programs(STATE="failed", RESULT="timeout")
    status, said = host.measure("1 80 79 81", smoke_benchmark_limit=5)
    assert status == 2
    assert (
        "benchmark-small was ended after 5 s, its time limit. It was 'warm-up' of the profile single_stream: see whether the model answers "
        "(playbooks/status.yml); where it only is slow, ask for less in modelhost_models.small.benchmark, or raise "
        "smoke_benchmark_limit") in said
    assert host.documents() == []


@pytest.mark.parametrize("variables", [
    {"smoke_benchmark_repetitions": 0}, {"smoke_benchmark_concurrency": []}, {"smoke_benchmark_concurrency": [1, 0]}])
def test_nothing_to_run_is_refused_before_the_host_is_asked(host: Host, variables: dict[str, Any]) -> None:
    status, said = host.measure("", entries=("choose",), **variables)
    assert status == 2
    assert "a point is run once or more often, and the ladder has at least one step of one request or more" in said
    assert "Ask what the host serves" not in said
