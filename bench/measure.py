"""The benchmark itself: its numbers against those of a direct run, and its verdict on a server that is slowed down."""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
from typing import Any

import yaml
from host import BIN, HOST, INVENTORY, ROOT, on_host, playbook

MODEL = "smollm2-chat"
UNIT = f"vllm-{MODEL}.service"
DOCUMENTS = ROOT / "artifacts/demo/benchmarks" / MODEL
SCRATCH = "/var/cache/modelhost/benchmarks"
NUMBERS = ("mean_tpot_ms", "mean_ttft_ms", "output_throughput")
REPETITIONS = 3
NORMAL = 10
# Where the kernel keeps processor time by cgroup, a quota is what slows a unit down; elsewhere its processes are stopped most of the time.
SLOWER = f"""
if [ -e /sys/fs/cgroup/system.slice/{UNIT}/cpu.max ]; then
    systemctl set-property --runtime {UNIT} CPUQuota=40%
else
    systemd-run --quiet --unit=bench-slower sh -c \\
        'while :; do systemctl kill -s STOP {UNIT}; sleep 0.2; systemctl kill -s CONT {UNIT}; sleep 0.1; done'
fi
"""
AS_BEFORE = f"""
systemctl stop bench-slower 2>/dev/null || true
systemctl kill -s CONT {UNIT}
rm -rf /run/systemd/system.control/{UNIT}.d
systemctl daemon-reload
"""


def ours() -> dict[str, Any]:
    """Run benchmark.yml and return its document, whatever its verdict."""
    before = set(DOCUMENTS.glob("*.json"))
    done = subprocess.run(
        [BIN / "ansible-playbook", "-i", INVENTORY, "playbooks/benchmark.yml", "-e", f"model={MODEL}"], cwd=ROOT, check=False, text=True,
        stdout=subprocess.PIPE)
    written = set(DOCUMENTS.glob("*.json")) - before
    if not written:
        raise SystemExit(f"bench: benchmark.yml kept nothing:\n{done.stdout}")
    return json.loads(written.pop().read_text())


def direct(document: dict[str, Any], seed: int) -> dict[str, float]:
    """One run of `vllm bench serve` over SSH, with the options of a document and prompts of its own."""
    engine = document["engine"]["name"]
    engines = yaml.safe_load((ROOT / INVENTORY / "group_vars/gpu_hosts/engines.yml").read_text())["modelhost_engines"]
    options = {
        **document["options"], "seed": seed, "model": MODEL, "base-url": "http://127.0.0.1:8000", "save-result": True,
        "result-dir": SCRATCH, "result-filename": "direct.json"}
    words = [word for name, value in options.items() for word in ([f"--{name}"] if value is True else [f"--{name}", str(value)])]
    program, *rest = engines[engine]["bench_command"]
    command = shlex.join([f"/opt/modelhost/engines/{engine}/bin/{program}", *rest, *words])
    on_host(f"setpriv --reuid modelhost --regid modelhost --init-groups {command}", **document["environment"])
    kept = f"{SCRATCH}/direct.json"
    said = subprocess.run(
        ["ssh", "-F", ROOT / f".cache/testhost/{HOST}.ssh_config", HOST, f"sudo sh -c 'cat {kept} && rm {kept}'"],
        check=True, stdout=subprocess.PIPE)
    return {name: json.loads(said.stdout)[name] for name in NUMBERS}


def bench_agreement(rounds: int) -> dict[str, tuple[list[float], list[float], str, float | None]]:
    """For each number ours and those of direct runs, a median over the repetitions for each round, and how far apart they may be."""
    playbook("playbooks/switch_model.yml")
    pairs: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in NUMBERS}
    for number in range(1, rounds + 1):
        document = ours()
        results = document["points"][0]["results"]
        others = [direct(document, 1000 * number + repetition) for repetition in range(len(results))]
        for name, (our, other) in pairs.items():
            our.append(statistics.median(each[name] for each in results))
            other.append(statistics.median(each[name] for each in others))
    return {
        f"benchmark_agreement_{name}": (*pairs[name], "vllm bench serve, run directly", target)
        for name, target in zip(NUMBERS, (1.03, None, 1.03))}


def bench_gate() -> dict[str, object]:
    """How many of ten normal runs the gate refuses, and what it says of one on a server that has 40 % of a core."""
    playbook("playbooks/switch_model.yml")
    document = ours()
    while any("no regression can be told yet" in finding for finding in document["gate"]["findings"]):
        document = ours()
    normal = [ours()["gate"]["verdict"] for _ in range(NORMAL)]
    on_host(SLOWER)
    try:
        slowed = ours()["gate"]
    finally:
        on_host(AS_BEFORE)
    return {
        "normal": normal, "slowed": slowed, "target": "no normal run and the slowed one fail",
        "met": "fail" not in normal and slowed["verdict"] == "fail"}
