"""Engines that are not declared any more: they stay until a variable says so, and while anything refers to them.

The real role with its real wiring, on folders of this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLAY = [{
    "hosts": "all", "gather_facts": False, "become": False,
    "vars_files": [str(ROOT / "playbooks/group_vars/all/vllm.yml")],
    "vars": {
        "ansible_python_interpreter": "{{ ansible_playbook_python }}", "modelhost_engine_list": [], "modelhost_uv": {"version": "1"},
        "modelhost_wheel_folders": [], "modelhost_download_environment": {}, "modelhost_catalogue": [], "cuda_toolkit_home": "",
        "__modelhost_weights_root": "/nowhere"},
    "tasks": [{"ansible.builtin.import_role": {"name": "vllm"}}],
}]
SERVED = "vllm-0.31.0 is not declared and stays, since it is in use: vllm-small.service"


class Machine:
    def __init__(self, folder: Path) -> None:
        self.folder, self.engines, self.caches = folder, folder / "engines", folder / "caches"
        for name in ("vllm-0.31.0", "vllm-0.30.0"):
            for path in (
                    self.engines / name / ".complete", self.engines / name / "bin/python", self.engines / f".{name}.cache/torch",
                    self.engines / f".{name}.patches/a.patch", self.engines / f"{name}.lock", self.caches / name / "vllm/graph"):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("")
        (self.engines / "install-engine").write_text("")
        (self.engines / "lost+found").mkdir()
        command = f"path={self.engines}/vllm-0.31.0/bin/vllm ; argv[]={self.engines}/vllm-0.31.0/bin/vllm serve"
        (folder / "systemctl").write_text(f"#!/bin/sh\nprintf 'Id=vllm-small.service\\nActiveState=active\\nExecStart={{ {command} ; }}\\n'\n")
        (folder / "systemctl").chmod(0o755)
        (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"here": {"ansible_connection": "local"}}}}))
        (folder / "play.json").write_text(json.dumps(PLAY))

    def play(self, *arguments: str) -> str:
        """What the run said, with blanks folded."""
        places = json.dumps({"vllm_root": str(self.engines), "vllm_cache_root": str(self.caches)})
        done = subprocess.run(
            ["ansible-playbook", "-i", self.folder / "hosts.json", self.folder / "play.json", "-e", places, *arguments], cwd=ROOT,
            env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, done.stdout
        return " ".join(done.stdout.split())

    def left(self) -> list[str]:
        return sorted(path.name for folder in (self.engines, self.caches) for path in folder.iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_the_variable_all_stay(machine: Machine) -> None:
    before = machine.left()
    assert "changed=0" in machine.play()
    assert machine.left() == before


def test_check_mode_says_what_would_go(machine: Machine) -> None:
    before = machine.left()
    said = machine.play("-e", "remove_unused_engines=true", "--check", "--diff")
    assert SERVED in said
    for path in (machine.engines / "vllm-0.30.0", machine.caches / "vllm-0.30.0"):
        assert f"changed: [here] => (item={path})" in said
        assert f"{path}/" not in said.replace(f"{path}/.complete", "")
    assert machine.left() == before


def test_what_nothing_refers_to_goes_with_its_caches_and_the_served_one_stays(machine: Machine) -> None:
    said = machine.play("-e", "remove_unused_engines=true")
    assert SERVED in said and "vllm-0.30.0 is not declared" not in said
    assert machine.left() == [
        ".vllm-0.31.0.cache", ".vllm-0.31.0.patches", "install-engine", "lost+found", "vllm-0.31.0", "vllm-0.31.0", "vllm-0.31.0.lock"]
    assert (machine.engines / "vllm-0.31.0/.complete").exists()
    assert "changed=0" in machine.play("-e", "remove_unused_engines=true")
