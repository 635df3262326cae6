"""The sweep over NCCL variables with the served model: its real control flow, with a switch and a benchmark that do what they are told."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DECLARED = {"NCCL_DEBUG": "WARN"}
GRID = {"NCCL_ALGO": ["allreduce:ring", "allreduce:nvls", "allreduce:tree", "allreduce:collnetchain"]}
# Tokens per second of one stream and of many, by algorithm
RATES = {"": [50, 200], "allreduce:ring": [51, 260], "allreduce:tree": [60, 190]}
RESULT = {
    "num_prompts": 4, "completed": 4, "failed": 0, "duration": 1, "mean_ttft_ms": 1, "mean_itl_ms": 1,
    "mean_tpot_ms": "{{ 1000 / rates[algo][0] }}", "output_throughput": "{{ rates[algo][1] }}"}


def note(line: str) -> dict[str, Any]:
    return {"ansible.builtin.shell": f"echo '{line}' >> {{{{ log }}}}"}


# By role and task file. The nvls does not come up, and the collnetchain does not answer every request.
STAND_IN: dict[str, list[dict[str, Any]]] = {
    "model_switch/lock": [note("lock")],
    "model_switch/unlock": [note("unlock")],
    "model_switch/plan": [{"ansible.builtin.set_fact": {
        "model_switch_failure": "", "model_switch_plan": {"action": "{{ 'keep' if algo == serving | default('') else 'reapply' }}"}}}],
    "model_switch/check": [{"ansible.builtin.fail": {"msg": "held by another"}, "when": "algo == forbidden"}],
    "model_switch/main": [
        {**note("serve {{ algo }}"), "when": "model_switch_plan.action == 'reapply'"},
        {"ansible.builtin.set_fact": {
            "serving": "{{ '' if 'nvls' in algo else algo }}", "model_switch_failure": "{{ 'not up' if 'nvls' in algo else '' }}"}}],
    "nccl/main": [{"ansible.builtin.set_fact": {"algo": "{{ nccl_models[0].nccl.NCCL_ALGO | default('') }}"}}],
    "nccl/verify": [note("look for {{ nccl_models[0].nccl | join(' ') }}")],
    "smoke_benchmark/points": [
        {"ansible.builtin.fail": {"msg": "3 of 4 requests completed"}, "when": "'collnetchain' in algo"},
        {"ansible.builtin.set_fact": {
            "__tune_began": "{{ 0 if for_ever else __tune_began }}",
            "smoke_benchmark_measured": [
                {"name": "concurrency 1", "options": {}, "results": [RESULT]},
                {"name": "concurrency 8", "options": {}, "results": [RESULT]}]}}],
    "vllm/verify": [], "vllm/audit": [], "model_weights/verify": [], "model_unit/main": []}


@pytest.fixture
def tune(tmp_path: Path):
    """Run it on this machine; its status, what it said with blanks folded, and what the stand-ins did."""
    for path, tasks in STAND_IN.items():
        file = tmp_path / f"roles/{path.replace('/', '/tasks/')}.yml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(tasks))
    for file in (ROOT / "roles/nccl_sweep").glob("*/*.yml"):
        copy = tmp_path / "roles/nccl_sweep" / file.parent.name / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        # The host is not asked what it serves: the state is a variable.
        copy.write_text(json.dumps([
            task for task in yaml.safe_load(file.read_text()) if "modelhost.vllm.model_state_info" not in task
        ]) if file.name == "plan.yml" else file.read_text())

    def run(state: dict[str, Any], **given: Any) -> tuple[int, str, list[str]]:
        log = tmp_path / "log"
        log.write_text("")
        entry = {"name": "small", "engine": "e", "host": "127.0.0.1", "port": 8000, "nccl": DECLARED, "serve": {}, "gpus": []}
        (tmp_path / "play.json").write_text(json.dumps([{
            "hosts": "all", "gather_facts": False,
            "vars": {
                "ansible_python_interpreter": "{{ ansible_playbook_python }}", "log": str(log), "rates": RATES, "forbidden": "none",
                "for_ever": False, "modelhost_catalogue": [entry], "modelhost_models": {"small": entry}, "modelhost_engine_list": [],
                "nccl_sweep_models": [entry], "nccl_sweep_engines": [{"name": "e", "distribution": "vllm", "version": "0.33.0"}],
                "nccl_sweep_model": "small", "nccl_sweep_grid": GRID, "nccl_sweep_served": True,
                "nccl_sweep_parameters": f"{ROOT}/roles/nccl/files/parameters.yml", "nccl_sweep_root": f"{tmp_path}/sweeps",
                "nccl_sweep_artifacts": f"{tmp_path}/artifacts", "__nccl_sweep_state": {"models": {"small": state}, "busy": []}, **given},
            "tasks": [{"ansible.builtin.include_tasks": f"{ROOT}/playbooks/tasks/tune_served_model.yml"}]}]))
        done = subprocess.run(
            ["ansible-playbook", "-i", "here,", "-c", "local", tmp_path / "play.json"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "ANSIBLE_ROLES_PATH": str(tmp_path / "roles")}, check=False)
        print(done.stdout)
        return done.returncode, " ".join(done.stdout.split()).replace("''", "'"), log.read_text().splitlines()

    return run


SERVING = {"state": "serving", "pending": [], "load_seconds": 100, "applied": {"generation": "0a1b"}}


def test_a_sweep_is_bounded_goes_on_restores_what_was_applied_and_chooses_for_each_load(tune) -> None:
    # The first point takes for ever, by the clock.
    status, said, did = tune(SERVING, for_ever=True)
    assert status == 0
    assert "5 of 5 points are to be measured" in said and "(100 s the last time)" in said
    assert "4 points are left: run it again, and it goes on" in said
    assert did == ["lock", "look for NCCL_DEBUG NCCL_ALGO", "lock", "unlock"]

    # What speaks against a switch ends the sweep.
    status, said, did = tune(SERVING, forbidden="allreduce:nvls")
    assert status != 0
    assert "4 of 5 points are to be measured" in said and "held by another" in said
    assert did == ["lock", "look for NCCL_DEBUG NCCL_ALGO", "serve allreduce:ring", "lock", "serve ", "unlock"]

    # A point that does not come up does not. It leaves what was applied serving, as the switch does.
    status, said, did = tune(SERVING)
    assert status == 0
    assert "3 of 5 points are to be measured" in said
    assert [each for each in did if each != "lock"][1:] == [
        "serve allreduce:nvls", "serve allreduce:tree", "serve allreduce:collnetchain", "serve ", "unlock"]
    for row in (
            "50.0 200.0 as declared", "51.0 260.0 NCCL_ALGO=allreduce:ring", "60.0 190.0 NCCL_ALGO=allreduce:tree",
            "failed NCCL_ALGO=allreduce:nvls: not up", "failed NCCL_ALGO=allreduce:collnetchain: 3 of 4 requests completed",
            "for one stream (concurrency 1): 60.0 tok/s with NCCL_ALGO=allreduce:tree",
            "for many streams (concurrency 8): 260.0 tok/s with NCCL_ALGO=allreduce:ring",
            'NCCL_DEBUG: "WARN"', 'NCCL_ALGO: "allreduce:tree"'):
        assert row in said


def test_what_speaks_against_it_is_said_at_once_and_before_anything_is_stopped(tune) -> None:
    state = {**SERVING, "state": "stopped", "pending": [{"file": "small.env", "diff": ""}]}
    status, said, did = tune(state, nccl_sweep_seconds=200)
    assert status != 0
    for sentence in (
            "model: small is stopped, and nothing is served. Serve it first with playbooks/switch_model.yml -e model=small",
            "small has changes pending, which would be tried along with every point: apply them with playbooks/switch_model.yml first",
            "nccl_sweep_seconds: 200 is too short for a point, which is a load, 100 s the last time, and the load back: write 300 or more"):
        assert sentence in said
    assert did == ["lock", "unlock"]
