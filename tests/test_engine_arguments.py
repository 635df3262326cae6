"""A model's arguments, judged by the installed engine before a stop: the real tasks and module, with the stand-in as engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
STANDIN = ROOT / "molecule/shared/standin"
ENGINE = "vllm-standin-1.0.0"
CATALOGUE = [
    {"name": name, "engine": engine, "gpus": [], "host": "127.0.0.1", "port": 8000}
    for name, engine in (("fine", ENGINE), ("mistyped", ENGINE), ("absent", "vllm-9.9.9"))]


def files(model: str, text: str, environment: str = "", command: str = "python -m vllm_standin.serve") -> list[dict[str, str]]:
    unit = f"[Service]\nExecStart=/opt/modelhost/engines/{ENGINE}/bin/{command} --config /etc/modelhost/models/{model}.yaml\n"
    texts = {f"{model}.yaml": f"model: /srv/none\nserved-model-name: [{model}]\n{text}", f"{model}.env": environment}
    return [{"model": model, "name": name, "content": content} for name, content in {**texts, f"vllm-{model}.service": unit}.items()]


@pytest.fixture
def play(tmp_path: Path):
    """Run the tasks in check mode on this machine; exit status, and what was said with blanks folded."""
    folder = tmp_path / "engines" / ENGINE
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python3.*/site-packages")
    for package in ("vllm", "vllm_standin"):
        shutil.copytree(STANDIN / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".complete").write_text('{"digest": "0"}')

    def run(target: str, rendered: list[dict[str, str]], *options: str) -> tuple[int, str]:
        given = {"engines_root": f"{tmp_path}/engines", "kept": f"{tmp_path}/kept", "user": "root"}
        variables: dict[str, Any] = {
            "ansible_python_interpreter": "{{ ansible_playbook_python }}", "model_switch_models": CATALOGUE,
            "model_switch_wish": "fine", "__model_switch_target": target, "__model_switch_judged": [each["name"] for each in CATALOGUE],
            "__model_switch_rendered": rendered}
        (tmp_path / "play.json").write_text(json.dumps([{
            "hosts": "all", "gather_facts": False, "become": False, "vars": variables,
            "module_defaults": {"modelhost.vllm.engine_args_info": given},
            "tasks": [{"ansible.builtin.import_role": {"name": "model_switch", "tasks_from": "arguments"}}]}]))
        done = subprocess.run(
            ["ansible-playbook", "-i", "here,", "-c", "local", tmp_path / "play.json", *options],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, "ANSIBLE_NOCOLOR": "1"})
        print(done.stdout)
        return done.returncode, " ".join(done.stdout.split()).replace("''", "'")

    return run


MISTYPED = files("mistyped", "num-scheduler-steps: 8\ntensor-parallel-sise: 8\n", 'VLLM_ATTENTION_BACKEND="TRITON_MLA"\n')
SENTENCES = (
    f"modelhost_models.mistyped.environment.VLLM_ATTENTION_BACKEND: {ENGINE} does not know this variable, so that it would have no effect: "
    "remove it",
    f"modelhost_models.mistyped.serve.num-scheduler-steps: {ENGINE} has no such option: it set the multi-step scheduling of the V0 engine, "
    "and the V1 engine has none (absent since 0.13): remove it",
    f"modelhost_models.mistyped.serve.tensor-parallel-sise: {ENGINE} has no such option: did you mean tensor-parallel-size?")


@pytest.mark.case("A2")
@pytest.mark.case("A9")
def test_the_target_is_refused_with_all_findings_at_once(play) -> None:
    status, said = play("mistyped", files("fine", "max-model-len: 2048\n") + MISTYPED, "--check")
    assert status != 0
    for sentence in SENTENCES:
        assert sentence in said
    assert "modelhost_models.absent: vllm-9.9.9 was not asked about the options: " in said


def test_what_is_wrong_with_another_model_is_only_said(play) -> None:
    status, said = play("fine", files("fine", "max-model-len: 2048\n") + MISTYPED, "--check")
    assert status == 0
    for sentence in SENTENCES:
        assert sentence in said


@pytest.mark.case("A11")
def test_what_a_unit_that_starts_vllm_serve_would_lose_is_refused(play) -> None:
    """Its file is read by a parser that knows no option of `serve`."""
    rendered = files("fine", "enforce-eager: false\n", command="vllm serve")
    status, said = play("fine", rendered, "--check")
    assert status != 0
    assert (
        "modelhost_models.fine.serve.enforce-eager: vLLM's --config file drops this false, and the process gets None: write "
        f"no-enforce-eager: true ({ENGINE})") in said
    assert play("fine", files("fine", "enforce-eager: false\n"), "--check")[0] == 0


def test_check_mode_judges_what_is_declared_in_the_inventory_now_and_keeps_nothing(play, tmp_path: Path) -> None:
    play("fine", files("fine", "") + files("mistyped", ""), "--check")
    assert not (tmp_path / "kept").exists()
    # Without check mode the files are those of the host, which has none here
    status, said = play("fine", files("fine", "num-scheduler-steps: 8\n"))
    assert status == 0
    missing = "/etc/modelhost/declared/fine/fine.yaml is not there yet"
    assert f"modelhost_models.fine: {ENGINE} was not asked about the options: {missing}" in said
