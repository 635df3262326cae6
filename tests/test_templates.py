"""Every template, rendered by Ansible's own engine with the inventory's real data, against the files in golden/.

A changed rendering is a changed service: read the difference, then write the files anew with

    MODELHOST_GOLDEN=write .venv/bin/pytest tests/test_templates.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils.models import MARK

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
    item: "{{ modelhost_catalogue | selectattr('name', 'equalto', golden_model) | first | combine(golden_changes) }}"
"""


def render(inventory: str, work: Path, out: Path, **changes: Any) -> None:
    """Let the real roles render the inventory's model, after changes, into a folder; only their tasks are others."""
    (work / "playbooks").mkdir()
    (work / "playbooks/group_vars").symlink_to(ROOT / "playbooks/group_vars")
    (work / "playbooks/render.yml").write_text(PLAY.replace("ROLES", ", ".join(ROLES)))
    (work / "roles").mkdir()
    for role in {path.name for path in ROOT.glob("roles/*")} - set(ROLES):  # the wiring reads files of roles without templates, too
        (work / "roles" / role).symlink_to(ROOT / "roles" / role)
    for role in ROLES:
        shutil.copytree(ROOT / "roles" / role, work / "roles" / role)
        (out / role).mkdir()
        names = ", ".join(path.name for path in TEMPLATES if path.parts[-3] == role)
        (work / "roles" / role / "tasks/main.yml").write_text(TASKS.replace("ROLE", role).replace("TEMPLATES", names))
    environment = {**os.environ, "ANSIBLE_ROLES_PATH": str(work / "roles")}
    result = subprocess.run(
        ["ansible-playbook", "-i", f"inventory/{inventory}", work / "playbooks/render.yml",
         "-e", json.dumps({"golden_model": MODELS[inventory], "golden_out": str(out), "golden_changes": changes})],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module", params=sorted(MODELS))
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """An inventory, and the folder of what is rendered from it."""
    out = tmp_path_factory.mktemp("out")
    render(request.param, tmp_path_factory.mktemp(request.param), out)
    return request.param, out


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


def test_a_model_on_some_gpus_sees_only_them(rendered: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> None:
    inventory, before = rendered
    out = tmp_path_factory.mktemp("out")
    render(inventory, tmp_path_factory.mktemp("gpus"), out, gpus=[0, 1])
    name = "model_unit/model.env.golden"
    lines, plain = (out / name).read_text().splitlines(), (before / name).read_text().splitlines()
    assert [line for line in lines if line not in plain] == ['CUDA_DEVICE_ORDER="PCI_BUS_ID"', 'CUDA_VISIBLE_DEVICES="0,1"']
    assert [line for line in lines if not line.startswith(("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"))] == plain


def test_a_unit_says_whose_it_is(rendered: tuple[str, Path]) -> None:
    assert f"\n{MARK}" in (rendered[1] / "model_unit/model.service.golden").read_text()


def test_the_files_of_a_model_are_rendered_in_one_go(rendered: tuple[str, Path]) -> None:
    folder, model = rendered[1] / "model_unit", MODELS[rendered[0]]
    assert json.loads((folder / "files.json.golden").read_text()) == [
        {"model": model, "name": f"vllm-{model}.service", "content": (folder / "model.service.golden").read_text()},
        {"model": model, "name": f"{model}.yaml", "content": (folder / "model.yaml.golden").read_text()},
        {"model": model, "name": f"{model}.env", "content": (folder / "model.env.golden").read_text()}]


# One that includes others writes no file of its own.
FILES = [path for path in TEMPLATES if "{% include" not in path.read_text()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_a_template_says_who_manages_the_file(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("{% from")]
    assert lines[0] == "{{ ansible_managed | comment }}"
    assert "now(" not in path.read_text() and "ansible_date_time" not in path.read_text()
