"""What would hold the GPUs after a stop is asked before it, of the guard that the unit itself asks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def ask(tmp_path: Path):
    """Run the switch's task file on this machine, with a guard that keeps what it is asked and ends with this text and status."""
    def run(plan: dict[str, Any], busy: list[str], gpus: Any, said: str = "", status: int = 0) -> tuple[int, str, str]:
        guard = tmp_path / "check-holders"
        guard.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\nprintf '{said}' >&2\nexit {status}\n")
        guard.chmod(0o755)
        variables = {
            "ansible_python_interpreter": "{{ ansible_playbook_python }}", "model_switch_tools": str(tmp_path), "model_switch_plan": plan,
            "__model_switch_state": {"busy": busy}, "__model_switch_gpus": {"next": gpus}}
        (tmp_path / "play.json").write_text(json.dumps([{
            "hosts": "all", "gather_facts": False, "become": False, "vars": variables,
            "tasks": [{"ansible.builtin.include_tasks": str(ROOT / "roles/model_switch/tasks/holders.yml")}]}]))
        done = subprocess.run(
            ["ansible-playbook", "-i", "here,", "-c", "local", tmp_path / "play.json"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
            check=False)
        print(done.stdout)
        return done.returncode, " ".join(done.stdout.split()), (tmp_path / "asked").read_text().strip()

    return run


@pytest.mark.parametrize(("stop", "busy", "gpus", "asked"), [
    (["before"], ["before"], "all", "next all before"),
    ([], [], [], "next none"),
    (["before"], ["before", "next"], [0, 1], "next 0,1 before next"),  # both serve
    (["next"], ["next", "elsewhere"], [2], "next 2 next"),  # applied anew
])
def test_what_the_guard_is_asked(ask, stop, busy, gpus, asked) -> None:
    status, said, question = ask({"target": "next", "stop": stop}, busy, gpus)
    assert (status, question) == (0, asked)
    assert "changed=0" in said


def test_what_no_switch_ends_is_said_before_the_stop(ask) -> None:
    held = "not started: process 99 (python3) holds 12 MiB of GPU 3\\nTo exchange one model for another: ...\\n"
    status, said, _question = ask({"target": "next", "stop": ["before"]}, ["before"], "all", held, 1)
    assert status == 2
    assert (
        "modelhost_models.next.gpus: process 99 (python3) holds 12 MiB of GPU 3. No switch ends that, and next would not start beside it: "
        "stop it, then run this again. Nothing was stopped.") in said


def test_a_guard_that_breaks_ends_the_run(ask) -> None:
    assert ask({"target": "next", "stop": []}, [], "all", "Traceback", 2)[0] == 2
