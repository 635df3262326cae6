"""A reboot that would end the run itself: Ansible on the host, by a local connection. The real role with its real wiring; no host is needed."""

from __future__ import annotations

import json
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
