"""Measure modelhost on the host of `make demo`, each figure against a floor measured in the same run.

cold_site  `site.yml` on an empty host, against a script that does only what nobody can leave out (cold_site.sh)
noop       a `site.yml` that changes nothing, against a playbook of as many bare tasks (`ansible.builtin.file` on a folder that is there)
           over the same connection; once for all its tasks, once for those that ask the host
switch     the time without an answer during `switch_model.yml`, against `systemctl stop A; systemctl start B` over one SSH command
           and all checks before its stop, where everything was checked once before, against 10 seconds and an audit of the engine alone
install    an engine of 9 GB from its lock, against `uv pip sync` of the same lock, both with a cold cache; once with byte code on both sides
audit      its audit, against `find | xargs -P$(nproc) sha256sum` of the same folder
agreement  the numbers of benchmark.yml, against those of direct runs of `vllm bench serve`: 3 % apart at most
gate       ten normal runs of benchmark.yml, of which none may be called `fail`, and one on a slowed server, which must be

Each figure is the median over the rounds; ratios are taken round by round, the two sides in turn. Results go to bench/results/ as JSON.
`--only` names figures that are measured alone, say `--only install`, which `make bench ONLY=install` does too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import cold
import engine
import measure
from host import ROOT, on_host, playbook

URL = "http://10.88.77.10:8000/v1/completions"
MODELS = ["smollm2-chat", "smollm2-long"]


def bare(tasks: int, folder: Path) -> Path:
    """A playbook of so many tasks, each of which asks the host and changes nothing."""
    path = folder / f"bare-{tasks}.yml"
    task = {"name": "Bare", "ansible.builtin.file": {"path": "/etc", "state": "directory"}}
    path.write_text(json.dumps([{"name": "Bare", "hosts": "gpu_hosts", "gather_facts": False, "tasks": [task] * tasks}]))
    return path


class Watch(threading.Thread):
    """Ask for one token again and again; `gap` is the longest time between two answers."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.gap, self.last, self.ended = 0.0, None, threading.Event()
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def answered(self) -> bool:
        body = json.dumps({"model": "default", "prompt": "Hello", "max_tokens": 1}).encode()
        try:
            with self.opener.open(urllib.request.Request(URL, body, {"Content-Type": "application/json"}), timeout=30) as answer:
                return answer.status == 200
        except OSError:
            return False

    def run(self) -> None:
        while not self.ended.is_set():
            if self.answered():
                now = time.monotonic()
                self.gap = max(self.gap, now - (self.last or now))
                self.last = now
            time.sleep(0.05)

    def watch(self, act) -> float:
        self.start()
        while self.last is None:
            time.sleep(0.05)
        act()
        while not self.answered():
            time.sleep(0.05)
        time.sleep(1)
        self.ended.set()
        self.join()
        return self.gap


def bench_noop(rounds: int, folder: Path) -> dict[str, dict[str, object]]:
    counted = folder / "tasks.json"
    playbook("playbooks/site.yml", ANSIBLE_CALLBACK_PLUGINS=str(ROOT / "bench/callbacks"), ANSIBLE_CALLBACKS_ENABLED="task_count",
             MODELHOST_TASK_COUNT=str(counted))
    count = json.loads(counted.read_text())
    site, floors = [], {"tasks": [], "on_host": []}
    for _ in range(rounds):
        site.append(playbook("playbooks/site.yml"))
        for what, times in floors.items():
            times.append(playbook(bare(count[what], folder)))
    return {
        "noop": figure(site, floors["tasks"], f"{count['tasks']} bare tasks", 1.3),
        "noop_on_host": figure(site, floors["on_host"], f"{count['on_host']} bare tasks, as many as ask the host", None)}


def bench_switch(rounds: int) -> dict[str, dict[str, object]]:
    playbook("playbooks/switch_model.yml")
    ours, floor = [], []
    for _ in range(rounds):
        ours.append(Watch().watch(lambda: playbook("playbooks/switch_model.yml", "-e", f"model={MODELS[1]}")))
        # Back to the first, and forth again, bare: both sides end with the same model loaded.
        playbook("playbooks/switch_model.yml")
        floor.append(Watch().watch(lambda: on_host(f"systemctl stop vllm-{MODELS[0]}; systemctl start vllm-{MODELS[1]}")))
        on_host(f"systemctl stop vllm-{MODELS[1]}; systemctl start vllm-{MODELS[0]}")
        wait_for_answer()
    checks, audit = [], []
    for _ in range(rounds):
        checks.append(playbook("playbooks/switch_model.yml", "-e", f"model={MODELS[1]}", "--check"))
        audit.append(10 + playbook("playbooks/audit_engine.yml"))
    return {
        "switch": figure(ours, floor, "systemctl stop A; systemctl start B", 1.05),
        "switch_checks": figure(checks, audit, "10 s and playbooks/audit_engine.yml", 1.0)}


def wait_for_answer() -> None:
    watch = Watch()
    while not watch.answered():
        time.sleep(0.2)


def figure(seconds: list[float], floor: list[float], floor_is: str, target: float | None) -> dict[str, object]:
    return {
        "seconds": [round(each, 2) for each in seconds], "floor_seconds": [round(each, 2) for each in floor], "floor": floor_is,
        "median": round(statistics.median(seconds), 2), "floor_median": round(statistics.median(floor), 2),
        "ratio": round(statistics.median(one / other for one, other in zip(seconds, floor)), 3), "target": target}


def agreement(ours: list[float], direct: list[float], floor_is: str, target: float | None) -> dict[str, object]:
    """As a figure, of two sides of which neither shall be above the other."""
    ratio = statistics.median(one / other for one, other in zip(ours, direct))
    return {
        "values": [round(each, 2) for each in ours], "floor_values": [round(each, 2) for each in direct], "floor": floor_is,
        "median": round(statistics.median(ours), 2), "floor_median": round(statistics.median(direct), 2),
        "ratio": round(max(ratio, 1 / ratio), 3), "target": target}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["cold_site", "noop", "switch", "install", "agreement", "gate"], help="measure this alone")
    chosen = parser.parse_args()
    rounds = chosen.rounds
    results = ROOT / "bench/results"
    results.mkdir(exist_ok=True)
    measures = {
        "cold_site": lambda: {name: figure(*each) for name, each in cold.bench(rounds).items()},
        "noop": lambda: bench_noop(rounds, results), "switch": lambda: bench_switch(rounds),
        "install": lambda: {name: figure(*each) for name, each in engine.bench(rounds).items()},
        "agreement": lambda: {name: agreement(*each) for name, each in measure.bench_agreement(rounds).items()},
        "gate": lambda: {"gate": measure.bench_gate()}}
    figures = {}
    for name, act in measures.items():
        if chosen.only in (None, name):
            print(f"bench: {name}", flush=True)
            figures.update(act())
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    path = results / f"{when}.json"
    path.write_text(json.dumps({"schema": 1, "revision": revision, "processors": os.cpu_count(), "figures": figures}, indent=2) + "\n")
    gate = figures.pop("gate", None)
    print(f"{'figure':38}{'median':>10}{'floor':>10}{'ratio':>8}{'target':>8}  floor (seconds; of the benchmark ms, and tok/s)")
    for name, each in figures.items():
        numbers = f"{each['median']:>10.1f}{each['floor_median']:>10.1f}{each['ratio']:>8.2f}{each['target'] or '-':>8}"
        print(f"{name:38}{numbers}  {each['floor']}")
    if gate:
        print(f"gate: normal runs {', '.join(gate['normal'])}; slowed {gate['slowed']['verdict']}; target: {gate['target']}")
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
