"""What a switch says after it has gone back, and where even that fails."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ON_HOST = ("modelhost.vllm.", "ansible.builtin.systemd_service")


def without_a_host(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same tasks; those that would touch a host say their name instead."""
    kept = []
    for task in tasks:
        blocks = {section: without_a_host(task[section]) for section in ("block", "rescue") if section in task}
        others = {key: value for key, value in task.items() if not key.startswith(ON_HOST)}
        kept.append({**others, **blocks, **({} if len(others) == len(task) else {"ansible.builtin.debug": {"msg": task["name"]}})})
    return kept


@pytest.fixture
def act(tmp_path: Path):
    """Run the switch on this machine. By task file, `start` and `stop_models`: what it fails with."""
    def run(previous: list[str], **failing: str) -> str:
        for name in ("act", "go_back"):
            tasks = without_a_host(yaml.safe_load((ROOT / f"roles/model_switch/tasks/{name}.yml").read_text()))
            (tmp_path / f"{name}.yml").write_text(json.dumps(tasks))
        for name in ("start", "stop_models"):
            fails = {"ansible.builtin.fail": {"msg": failing.get(name, "")}, "when": name in failing}
            (tmp_path / f"{name}.yml").write_text(json.dumps([fails]))
        variables = {
            "ansible_python_interpreter": "{{ ansible_playbook_python }}", "__model_switch_serving": [], "model_switch_apply": True,
            "model_switch_plan": {"target": "next", "stop": [], "previous": previous}}
        (tmp_path / "play.json").write_text(json.dumps([{
            "hosts": "all", "gather_facts": False, "become": False, "vars": variables,
            "tasks": [{"ansible.builtin.include_tasks": str(tmp_path / "act.yml")}]}]))
        done = subprocess.run(
            ["ansible-playbook", "-i", "here,", "-c", "local", tmp_path / "play.json"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
            check=False)
        print(done.stdout)
        assert done.returncode == 2
        return " ".join(done.stdout.split())

    return run


@pytest.mark.parametrize(("previous", "state"), [
    (["before"], "State: before serves again, as before."), ([], "State: empty. Nothing is served on the GPUs of next.")])
def test_why_it_failed_and_what_serves(act, previous, state) -> None:
    assert f"msg: |- next gives no answer {state}" in act(previous, start="next gives no answer")


def test_a_failure_on_the_way_back_does_not_hide_the_first(act) -> None:
    said = act(["before"], start="next gives no answer", stop_models="next is not gone")
    assert "msg: |- next gives no answer And going back failed: next is not gone State: empty." in said
