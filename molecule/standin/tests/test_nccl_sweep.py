"""The sweep over NCCL variables with the served model: its points are on trial, and what was applied serves again afterwards."""

import json
import re
import signal

import pytest

SWEEPS = "/var/lib/modelhost/nccl_sweeps"
# The stand-in takes NVLS as NCCL does without an NVSwitch.
ASKED = {
    "tune_served_model": True, "nccl_sweep_grid": {"NCCL_ALGO": ["allreduce:nvls", "allreduce:ring"]},
    "smoke_benchmark_concurrency": [1, 2], "smoke_benchmark_repetitions": 1,
    "smoke_benchmark_options": {
        "backend": "openai-chat", "endpoint": "/v1/chat/completions", "dataset-name": "random", "random-input-len": 8,
        "random-output-len": 4, "num-prompts": 2, "max-concurrency": 1, "ignore-eos": True, "temperature": 0}}
STATE = (
    "find /etc/modelhost/models /etc/systemd/system /run/modelhost/models /run/systemd/system.control /var/lib/modelhost/state/applied.json "
    "/var/lib/modelhost/generations /var/lib/modelhost/benchmarks -type f -exec sha256sum {} + 2>/dev/null | sort")


def nccl(unit):
    return {name: value for name, value in unit("plain").environment.items() if name.startswith("NCCL_")}


def test_points_on_trial_leave_nothing_behind_even_after_a_kill(controller, host, unit, endpoint):
    controller.plays("switch_model", "-e", "switch_force=true")
    host.check_output("rm -rf %s", SWEEPS)
    asked = ["-e", json.dumps({**ASKED, "nccl_sweep_artifacts": str(controller.artifacts)})]
    before, declared = host.check_output(STATE), host.check_output("sha256sum /etc/modelhost/declared/plain/*")

    # The last point has come up when the controller dies.
    assert controller.play("tune_nccl", *asked, kill_at="act | What serves now").returncode == -signal.SIGKILL
    assert nccl(unit) == {"NCCL_P2P_LEVEL": "SYS", "NCCL_DEBUG": "WARN", "NCCL_ALGO": "allreduce:ring"}
    assert host.check_output("grep -c NCCL_ALGO /run/modelhost/models/plain.nccl.env") == "1"
    assert host.run("grep -r NCCL_ALGO /etc/modelhost/models").rc != 0

    again = controller.plays("tune_nccl", *asked)
    assert "1 of 3 points are to be measured" in again.said
    assert "Each but what is declared, which runs, stops the model and loads it again" in again.said
    found = {document["name"]: document for document in (
        json.loads(host.file(path).content_string) for path in host.check_output(f"ls {SWEEPS}/plain/*/*.json").split())}
    assert {name: document["verdict"] for name, document in found.items()} == {
        "as declared": "ok", "NCCL_ALGO=allreduce:nvls": "failed", "NCCL_ALGO=allreduce:ring": "ok"}
    assert "NCCL error: invalid usage" in found["NCCL_ALGO=allreduce:nvls"]["reason"]
    assert [(point["name"], point["results"][0]["completed"]) for point in found["NCCL_ALGO=allreduce:ring"]["points"]] == [
        ("concurrency 1", 4), ("concurrency 2", 4)]
    assert re.search(r"one stream +many streams +tok/s.* failed +NCCL_ALGO=allreduce:nvls: plain: the unit ended", again.said)
    assert "for one stream (concurrency 1): " in again.said and "for many streams (concurrency 2): " in again.said

    assert (host.check_output(STATE), host.check_output("sha256sum /etc/modelhost/declared/plain/*")) == (before, declared)
    assert nccl(unit) == {"NCCL_P2P_LEVEL": "SYS", "NCCL_DEBUG": "WARN"}
    assert unit("plain").show("ActiveState", "UnitFileState") == {"ActiveState": "active", "UnitFileState": "enabled"}
    assert endpoint.capital_of_france("plain") == ("plain", "The capital of France is Paris.")
    assert not host.file("/var/lib/modelhost/state/switch.json").exists
