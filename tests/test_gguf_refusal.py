"""GGUF weights that the engine does not load: the real role with its real wiring, before a fetch and before a switch; no host is needed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENGINE = "vllm-9.9.9"
MODELS = {
    "glm": {"engine": ENGINE, "weights": {
        "source": "huggingface", "repo": "tiny/glm", "revision": "0" * 40, "gguf": {"model_type": "glm_moe_dsa"}}},
    "absent": {"engine": "vllm-9.9.8", "serve": {"max-model-len": 2048}, "weights": {
        "source": "huggingface", "repo": "tiny/glm", "revision": "0" * 40, "gguf": {"model_type": "glm_moe_dsa"}}},
    "plain": {"engine": ENGINE, "weights": {"source": "huggingface", "repo": "tiny/plain", "revision": "0" * 40}},
}


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run an entry of the role on this machine, with an engine that lacks the plug-in; its status, and what it said with blanks folded."""
    (tmp_path / "systemctl").write_text("#!/bin/sh\n")  # no model runs
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    info = tmp_path / "engines" / ENGINE / "lib/python3.12/site-packages/vllm-9.9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: vllm\nVersion: 9.9.9\n")
    (tmp_path / "engines" / ENGINE / ".complete").write_text("")
    variables = {
        "ansible_python_interpreter": "{{ ansible_playbook_python }}", "modelhost_models": MODELS, "modelhost_served_model": "glm",
        "modelhost_engine_list": [{"name": ENGINE}], "modelhost_uv": {"version": "1"}, "modelhost_download_environment": {},
        "modelhost_wheel_folders": [], "modelhost_offline_directory": "", "modelhost_pytorch_url": "",
        "modelhost_hub_url": "http://127.0.0.1:9",
        "model_weights_engines_root": f"{tmp_path}/engines", "modelhost_weights_roots": [f"{tmp_path}/weights"], "model_weights_hidden": []}

    def run(entry: str, model: str) -> tuple[int, str]:
        (tmp_path / "play.json").write_text(json.dumps([{
            "hosts": "all", "gather_facts": False, "become": False, "vars": variables,
            "vars_files": [str(ROOT / "playbooks/group_vars/all/model_weights.yml")],
            "tasks": [{"ansible.builtin.import_role": {"name": "model_weights", "tasks_from": entry}}]}]))
        done = subprocess.run(
            ["ansible-playbook", "-i", "here,", "-c", "local", tmp_path / "play.json", "-e", f"model={model}", "--check"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout)
        return done.returncode, " ".join(done.stdout.split()).replace("''", "'")

    return run


@pytest.mark.case("A7")
@pytest.mark.parametrize("entry", ["main", "verify"])
def test_refused_before_the_fetch_and_before_the_switch(play, entry: str) -> None:
    status, said = play(entry, "glm")
    assert status != 0
    assert f"modelhost_models.glm.engine: {ENGINE} does not load GGUF weights. It has vllm 9.9.9. It lacks a plug-in for GGUF" in said
    assert "from huggingface to" not in said
    assert "nothing is fetched yet" not in said


def test_an_engine_that_is_not_there_yet_is_only_said(play) -> None:
    """And the fetch begins; its job would need systemd."""
    _status, said = play("main", "absent")
    assert "modelhost_models.absent.engine: vllm-9.9.8 could not be asked whether it loads these GGUF weights: it is not installed" in said
    assert "absent: from huggingface to" in said


def test_other_weights_are_not_asked_about(play) -> None:
    _status, said = play("main", "plain")
    assert "plain: from huggingface to" in said
    assert "gguf |" not in said
