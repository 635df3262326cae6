"""NCCL variables that would have no effect: the role refuses them by itself, and by the library of an engine; no host is needed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run an entry of the role on this machine, with an engine whose NCCL knows two variables; its status, and what it said."""
    (tmp_path / "systemctl").write_text(
        '#!/bin/sh\nfor unit; do :; done\necho "Id=$unit"\nfor each in LoadState ActiveState InvocationID; do echo "$each="; '
        'done\necho MainPID=0\n')
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    library = tmp_path / "engines/e/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\0NCCL_P2P_LEVEL\0NCCL_NET\0NCCL version 2.30.7+cuda13.3\0")

    def run(entry: str, variables: dict[str, Any]) -> tuple[int, str]:
        (tmp_path / "play.json").write_text(json.dumps([{
            "hosts": "all", "gather_facts": False, "become": False,
            "vars": {
                "ansible_python_interpreter": "{{ ansible_playbook_python }}", "nccl_engines_root": f"{tmp_path}/engines",
                "nccl_models": [{"name": "small", "engine": "e", "nccl": variables}]},
            "tasks": [{"ansible.builtin.import_role": {"name": "nccl", "tasks_from": entry}}]}]))
        done = subprocess.run(
            ["ansible-playbook", "-i", "here,", "-c", "local", tmp_path / "play.json", "--check"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout)
        return done.returncode, " ".join(done.stdout.split()).replace("''", "'")

    return run


@pytest.mark.case("N4")
def test_the_role_refuses_before_it_touches_the_host(play) -> None:
    status, said = play("main", {"NCCL_PROTO": "LL,foo", "NCCL_P2P_DISABLE": True})
    assert status != 0
    for sentence in (
            "NCCL_PROTO: 'foo' is not one of LL, LL128, Simple, which ends NCCL's start: write one of these",
            "NCCL_P2P_DISABLE: True has no spelling of its own in an environment: write 1"):
        assert f"modelhost_models.small.nccl.{sentence}" in said
    assert "Declare the NCCL environment of each model" not in said


@pytest.mark.case("N5")
def test_a_name_that_the_engines_nccl_does_not_know(play) -> None:
    status, said = play("verify", {"NCCL_P2P_LEVEL": "SYS", "NCCL_BUFFSIZE": 4194304})
    assert status != 0
    sentence = (
        "modelhost_models.small.nccl.NCCL_BUFFSIZE: NCCL 2.30.7 of e has no such variable and would ignore it: remove the line, or take an "
        "engine whose NCCL has it")
    assert sentence in said
    assert "NCCL_P2P_LEVEL: NCCL" not in said
