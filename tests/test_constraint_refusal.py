"""The rules of constraints.yml where they are asked: by validate.yml, without a host, and by the switch, with the weights' config.json."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Callable

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
CONFIG = {
    "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8,
    "head_dim": 128, "num_local_experts": 256, "max_position_embeddings": 196608,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}


def folded(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    """The status, and what was said with blanks folded."""
    print(done.stdout)
    return done.returncode, " ".join(done.stdout.split()).replace("''", "'")


@pytest.fixture
def switch(tmp_path: Path):
    """Run the switch's task file on this machine, for a model whose weights are a folder with nothing but its configuration."""
    def run(config: dict | None, serve: dict) -> tuple[int, str]:
        (tmp_path / "weights").mkdir()
        if config is not None:
            (tmp_path / "weights/config.json").write_text(json.dumps(config))
        models = {"m": {"engine": "vllm-0.33.0", "gpus": "all", "port": 8000, "serve": serve, "weights": {
            "source": "directory", "path": f"{tmp_path}/weights", "size": "230GB"}}}
        variables = {
            "ansible_python_interpreter": "{{ ansible_playbook_python }}", "__modelhost_roles": f"{ROOT}/roles", "modelhost_models": models,
            "modelhost_engines": {"vllm-0.33.0": {"distribution": "vllm", "version": "0.33.0"}},
            "modelhost_gpus": {"count": 8, "compute_capability": "12.0", "memory": "95GiB"},
            "modelhost_api_keys": {"m": "not-said-anywhere"},
            "model_switch_constraints": "{{ modelhost_constraints }}", "model_switch_weights_root": "/nowhere"}
        (tmp_path / "play.json").write_text(json.dumps([{
            "hosts": "all", "gather_facts": False, "become": False, "vars": variables,
            "vars_files": [str(ROOT / "playbooks/group_vars/all/constraints.yml")],
            "tasks": [{"ansible.builtin.include_tasks": str(ROOT / "roles/model_switch/tasks/constraints.yml"),
                       "vars": {"__model_switch_constrained": "m"}}]}]))
        return folded(subprocess.run(
            ["ansible-playbook", "-vvv", "-i", "here,", "-c", "local", tmp_path / "play.json", "--check"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False))

    return run


@pytest.mark.case("A4")
def test_the_switch_reads_what_no_inventory_says(switch) -> None:
    status, said = switch(CONFIG, {"tensor-parallel-size": 8})
    assert status != 0
    assert "modelhost_models.m.serve.tensor-parallel-size: 8; an expert's 1536 rows on 8 GPUs are 192 each" in said
    assert "not-said-anywhere" not in said


def test_the_switch_goes_on_where_nothing_forbids_it(switch) -> None:
    status, said = switch(CONFIG, {"tensor-parallel-size": 8, "enable-expert-parallel": True})
    assert status == 0
    assert "failed=0" in said and "changed=0" in said and "of constraints.yml)" not in said


def test_a_configuration_that_cannot_be_read_is_said_and_stops_nothing(switch) -> None:
    status, said = switch(None, {"tensor-parallel-size": 8})
    assert status == 0
    assert "modelhost_models.m.weights: " in said and "/weights/config.json: No such file or directory" in said


def validate(inventory: Path) -> tuple[int, str]:
    return folded(subprocess.run(
        ["ansible-playbook", "-i", inventory, "playbooks/validate.yml"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False))


def edited(tmp_path: Path, change: Callable[[dict], None]) -> Path:
    """A copy of the example whose catalogue was changed, without YAML's anchors: a change is of one model."""
    inventory = shutil.copytree(ROOT / "inventory/example", tmp_path / "example")
    path = inventory / "group_vars/gpu_hosts/models.yml"
    data = json.loads(json.dumps(yaml.safe_load(path.read_text())))
    change(data["modelhost_models"])
    path.write_text(yaml.safe_dump(data))
    return inventory


@pytest.mark.case("A4")
@pytest.mark.case("A10")
def test_validate_refuses_before_anything_is_fetched(tmp_path: Path) -> None:
    def change(models: dict) -> None:
        models["minimax-m25"]["serve"]["enable-expert-parallel"] = False
        models["kimi-k25-nvfp4"]["serve"]["kv-cache-dtype"] = "fp8_e5m2"
        models["kimi-k25-int4"]["serve"]["max-model-len"] = 524288
        models["kimi-k25-int4-ep"]["serve"]["data-parallel-size"] = 8
        models["kimi-k25-int4-dcp8"]["serve"].update({"tensor-parallel-size": 4, "decode-context-parallel-size": 4})

    status, said = validate(edited(tmp_path, change))
    assert status != 0
    for sentence in (
            "minimax-m25.serve.tensor-parallel-size: 8; an expert's 1536 rows on 8 GPUs are 192 each, no multiple of the FP8 block of 128",
            "kimi-k25-nvfp4.serve.kv-cache-dtype: fp8_e5m2; the only backend for latent attention (MLA) on compute capability 12.x",
            "kimi-k25-int4.serve.max-model-len: 524288; one request of 524288 tokens takes 36.8 GB of each GPU beside 74.4 GB of weights",
            "kimi-k25-int4-ep.serve.tensor-parallel-size: 8; the parallel sizes ask for 64 GPUs",
            "kimi-k25-int4-dcp8.weights.size: 595GB; each GPU would hold 148.8 GB of weights, and vLLM may use 94.9 GB of it"):
        assert f"modelhost_models.{sentence}" in said


@pytest.mark.case("N7")
def test_validate_warns_and_goes_on(tmp_path: Path) -> None:
    def change(models: dict) -> None:
        models.clear()
        models["kimi-k25-int4"] = {
            "engine": "vllm-0.33.0", "gpus": [0, 1], "port": 8000, "weights": {"source": "directory", "path": "/srv/small"},
            "serve": {"tensor-parallel-size": 2}, "nccl": {"NCCL_P2P_DISABLE": 1}}

    status, said = validate(edited(tmp_path, change))
    assert status == 0
    assert "modelhost_models.kimi-k25-int4.nccl.NCCL_P2P_DISABLE: 1; vLLM's own all-reduce does not read it" in said
    assert "add disable-custom-all-reduce: true to serve" in said


def test_the_demo_says_that_everybody_may_ask_it() -> None:
    status, said = validate(ROOT / "inventory/demo")
    assert status == 0
    assert "modelhost_models.smollm2-chat.host: 0.0.0.0; whoever reaches the port can use the model, since it has no API key" in said
