"""Entries of the catalogue with any YAML in any place, through every rule and, where no rule refuses them, through the templates.

MODELHOST_EXAMPLES=10000 tries that many; without it, what takes some seconds.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.modelhost.vllm.plugins.filter import (
    nccl_files, nccl_findings, systemd_environment, systemd_exec, systemd_value, weights_path)
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd
from ansible_collections.modelhost.vllm.plugins.module_utils.constraints import constraint_findings
from ansible_collections.modelhost.vllm.plugins.module_utils.findings import catalogue_findings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[1]
ROLE = ROOT / "roles/model_unit"
NAME = "generated"


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


MODELS = {
    **load("inventory/example/group_vars/gpu_hosts/models.yml")["modelhost_models"],
    **load("inventory/demo/group_vars/gpu_hosts/models.yml")["modelhost_models"]}
ENGINES = {
    **load("inventory/example/group_vars/gpu_hosts/engines.yml")["modelhost_engines"],
    **load("inventory/demo/group_vars/gpu_hosts/engines.yml")["modelhost_engines"]}
GPUS = load("inventory/example/group_vars/gpu_hosts/machine.yml")["modelhost_gpus"]
CONSTRAINTS = load("roles/model_switch/files/constraints.yml")
MODEL_OPTIONS = load("roles/model_unit/meta/argument_specs.yml")["argument_specs"]["main"]["options"]["model_unit_models"]["options"]
ENGINE_OPTIONS = load("roles/vllm/meta/argument_specs.yml")["argument_specs"]["main"]["options"]["vllm_engines"]["options"]
DEFAULTS = load("playbooks/group_vars/all/catalogue.yml")["modelhost_model_defaults"]

# What YAML can say; of a text, what it can say in one line, and Jinja's and systemd's own marks
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["all", "8", "8GB", "{{ x }}", "{% if %}", "%n", "$HOME", "a\nb", "'", '"', "\\", "\x85", "no", "~", "1e3"]))
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2, 10**6), st.integers(), st.floats(), TEXTS, st.dates())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.integers(0, 9), inner, max_size=3), max_leaves=6)
# Options and variables that rules ask for, and any other
NAMES = st.one_of(TEXTS, st.sampled_from([
    "tensor-parallel-size", "data-parallel-size", "decode-context-parallel-size", "enable-expert-parallel", "gpu-memory-utilization",
    "max-model-len", "kv-cache-dtype", "moe-backend", "attention-config", "compilation-config", "compilation-config.cudagraph_mode",
    "NCCL_P2P_DISABLE", "CUDA_HOME", "size", "revision", "gguf", "include"]))
PATHS = st.one_of(
    st.tuples(st.sampled_from([*MODEL_OPTIONS, "prot"])),
    st.tuples(st.sampled_from(["serve", "environment", "nccl", "weights", "benchmark", "expect"]), NAMES))


@st.composite
def entries(draw: st.DrawFn) -> Any:
    """An entry of the shipped inventories with some places changed; now and then no entry at all."""
    if draw(st.integers(0, 19)) == 0:
        return draw(VALUES)
    entry = copy.deepcopy(MODELS[draw(st.sampled_from(sorted(MODELS)))])
    for path, value in draw(st.lists(st.tuples(PATHS, VALUES), max_size=3)):
        below = entry.setdefault(path[0], {}) if len(path) > 1 else entry
        if isinstance(below, dict):
            below[path[-1]] = value
    return entry


@pytest.fixture(scope="module")
def rendered():
    """What the roles model_unit and nccl make of an entry: each template, as Ansible renders it."""
    trusted = {
        key: trust(value) for path in ("defaults/main.yml", "vars/main.yml")
        for key, value in yaml.safe_load((ROLE / path).read_text()).items()}
    templates = {path.name: trust_as_template(path.read_text()) for path in ROLE.glob("templates/model.*.j2")}
    assert len(templates) == 3
    engines = [{"name": name, **engine} for name, engine in ENGINES.items()]

    def render(entry: dict[str, Any]) -> dict[str, str]:
        item = {**copy.deepcopy(DEFAULTS), **entry, "name": NAME}
        variables = {**trusted, "model_unit_engines": engines, "model_unit_gpu_count": 8, "ansible_managed": "Ansible managed", "item": item}
        templar = Templar(DataLoader(), variables).copy_with_new_env(available_variables=variables, searchpath=[str(ROLE / "templates")])
        # A process of pytest has imported the collection already, so that Ansible's own loader does not find it.
        for plugin in (systemd_environment, systemd_exec, systemd_value, weights_path):
            for name, function in plugin.FilterModule().filters().items():
                templar._engine.environment.filters[f"modelhost.vllm.{name}"] = function
        [nccl] = nccl_files.nccl_files([item], "")
        return {**{name: templar.template(text) for name, text in templates.items()}, "nccl.env": nccl["content"]}

    return render


def trust(value: Any) -> Any:
    """Texts of a role are templates; those of an entry are data."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: trust(each) for key, each in value.items()}
    return [trust(each) for each in value] if isinstance(value, list) else value


def declared(models: Any) -> dict[str, Any]:
    return {"models": models, "engines": ENGINES, "gpus": GPUS, "keyed": [], "constraints": CONSTRAINTS}


@settings(
    max_examples=int(os.environ.get("MODELHOST_EXAMPLES", "100")), deadline=None, suppress_health_check=list(HealthCheck),
    derandomize="MODELHOST_EXAMPLES" not in os.environ, database=None)
@given(entry=entries())
def test_any_entry_is_refused_in_sentences_or_rendered(rendered: Any, entry: Any) -> None:
    before = copy.deepcopy(entry)
    models = {NAME: entry}
    found = catalogue_findings(models, ENGINES, NAME, "", {}, MODEL_OPTIONS, ENGINE_OPTIONS)
    judged = constraint_findings(declared(models), {NAME: {}})
    nccl = nccl_findings.nccl_findings(models, str(ROOT / "roles/nccl/files/parameters.yml"), {})
    found += nccl["errors"]
    for sentence in [*found, *judged["errors"], *judged["warnings"], *nccl["warnings"]]:
        assert sentence.startswith(f"modelhost_models.{NAME}") and len(sentence) > len(f"modelhost_models.{NAME}.") + 10
    assert repr(entry) == repr(before)  # judging rewrites nothing
    if not found:
        texts = rendered(entry)
        assert f"Description=vLLM serving {NAME}\n" in texts["model.service.j2"]
        config = yaml.safe_load(texts["model.yaml.j2"])
        assert config["port"] == entry["port"] and config["served-model-name"][0] == NAME
        assert repr({key: config[key] for key in entry.get("serve", {})}) == repr(entry.get("serve", {}))
        assert f'MODELHOST_MODEL="{NAME}"' in texts["model.env.j2"]
        assert len(systemd.parse_environment(texts["nccl.env"])) == len(entry.get("nccl", {}))
