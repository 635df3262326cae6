"""Every template, rendered by Ansible's own engine with the inventory's real data, against the files in golden/.

A changed rendering is a changed service: read the difference, then write the files anew with

    MODELHOST_GOLDEN=write .venv/bin/pytest tests/test_templates.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).parent / "golden"
MODELS = {"demo": "smollm2-chat", "example": "kimi-k25-int4"}
# A file of macros is rendered by the templates that import it.
TEMPLATES = sorted(path for path in ROOT.glob("roles/*/templates/*.j2") if "{% macro" not in path.read_text())
ROLES = sorted({path.parts[-3] for path in TEMPLATES})

PLAY = """\
- hosts: gpu_hosts
  connection: local
  gather_facts: false
  become: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  roles: [ROLES]
"""
# Instead of a role's own tasks: what it renders for one model of the catalogue
TASKS = """\
- ansible.builtin.copy:
    content: "{{ lookup('ansible.builtin.template', template) }}"
    dest: "{{ golden_out }}/ROLE/{{ template | regex_replace('j2$', 'golden') }}"
    mode: "0644"
  loop: [TEMPLATES]
  loop_control:
    loop_var: template
  vars:
    item: "{{ modelhost_catalogue | selectattr('name', 'equalto', golden_model) | first }}"
"""


@pytest.fixture(scope="module", params=sorted(MODELS))
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """An inventory, and the folder of what the real roles render from it; only their tasks are others."""
    inventory = request.param
    work, out = tmp_path_factory.mktemp(inventory), tmp_path_factory.mktemp("out")
    (work / "playbooks").mkdir()
    (work / "playbooks/group_vars").symlink_to(ROOT / "playbooks/group_vars")
    (work / "playbooks/render.yml").write_text(PLAY.replace("ROLES", ", ".join(ROLES)))
    for role in ROLES:
        shutil.copytree(ROOT / "roles" / role, work / "roles" / role)
        (out / role).mkdir()
        names = ", ".join(path.name for path in TEMPLATES if path.parts[-3] == role)
        (work / "roles" / role / "tasks/main.yml").write_text(TASKS.replace("ROLE", role).replace("TEMPLATES", names))
    environment = {**os.environ, "ANSIBLE_ROLES_PATH": str(work / "roles")}
    result = subprocess.run(
        ["ansible-playbook", "-i", f"inventory/{inventory}", work / "playbooks/render.yml",
         "-e", f"golden_model={MODELS[inventory]}", "-e", f"golden_out={out}"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return inventory, out


def texts(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_every_template_against_its_golden_file(rendered: tuple[str, Path]) -> None:
    inventory, out = rendered
    if os.environ.get("MODELHOST_GOLDEN") == "write":
        shutil.rmtree(GOLDEN / inventory, ignore_errors=True)
        shutil.copytree(out, GOLDEN / inventory)
    golden = texts(GOLDEN / inventory)
    assert texts(out) == golden
    assert len(golden) == len(TEMPLATES)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_a_template_says_who_manages_the_file(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("{% from")]
    assert lines[0] == "{{ ansible_managed | comment }}"
    assert "now(" not in path.read_text() and "ansible_date_time" not in path.read_text()
