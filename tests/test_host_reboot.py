"""A reboot that would end the run itself: Ansible on the host, by a local connection or another. The real role with its real wiring; no host is needed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLAY = [{
    "hosts": "all", "gather_facts": False, "become": False,
    "vars_files": [str(ROOT / "playbooks/group_vars/all/host_reboot.yml")],
    "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
    "tasks": [{"ansible.builtin.import_role": {"name": "host_reboot"}}],
}]


def play(tmp_path: Path, marker: str, *arguments: str) -> tuple[int, str]:
    """Run the role on this machine, below which a marker lies or none; its status, and what it said with blanks folded."""
    markers = tmp_path / "markers"
    markers.mkdir()
    if marker:
        (markers / marker).write_text("driver 590.48.01 is installed, 580.105.08 is loaded\n")
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"here": {"ansible_connection": "local"}}}}))
    (tmp_path / "play.json").write_text(json.dumps(PLAY))
    done = subprocess.run(
        ["ansible-playbook", "-i", tmp_path / "hosts.json", tmp_path / "play.json", "-e", f"host_reboot_markers={markers}", *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, " ".join(done.stdout.split())


def test_the_machine_that_ansible_runs_on_is_not_rebooted(tmp_path: Path) -> None:
    status, said = play(tmp_path, "nvidia_driver", "-e", "reboot_allowed=true")
    assert status != 0
    assert "here has to be rebooted: nvidia_driver: driver 590.48.01 is installed, 580.105.08 is loaded" in said
    assert "Reboot it yourself: sudo systemctl reboot" in said


@pytest.mark.parametrize(("machine", "sentence"), [
    ("0123456789abcdef0123456789abcdef\n", "Reboot it yourself: sudo systemctl reboot"),  # say over SSH to localhost
    ("", "would reboot the control node"),  # Ansible's own refusal: this machine is reached by a local connection after all
    (None, "would reboot the control node"),
])
def test_the_machine_is_known_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str | None, sentence: str) -> None:
    if machine is not None:
        (tmp_path / "machine-id").write_text(machine)
    (tmp_path / "systemctl").write_text("#!/bin/sh\n")  # no model runs
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    status, said = play(
        tmp_path, "host_tuning", "-e", "reboot_allowed=true",
        "-e", json.dumps({"host_reboot_local": False, "__host_reboot_machine_id": f"{tmp_path}/machine-id"}))
    assert status != 0
    assert sentence in said


@pytest.mark.parametrize(("marker", "arguments", "status", "sentence"), [
    ("nvidia_driver", [], 2, "The run cannot go on before. Run it again with -e reboot_allowed=true"),
    ("nvidia_driver", ["--check"], 0, "Run this again with -e reboot_allowed=true, or reboot it yourself."),
    ("host_tuning", [], 0, "Run this again with -e reboot_allowed=true, or reboot it yourself."),
    ("", ["-e", "reboot_allowed=true"], 0, "changed=0"),
])
def test_without_permission(tmp_path: Path, marker: str, arguments: list[str], status: int, sentence: str) -> None:
    done = play(tmp_path, marker, *arguments)
    assert done[0] == status
    assert sentence in done[1]
