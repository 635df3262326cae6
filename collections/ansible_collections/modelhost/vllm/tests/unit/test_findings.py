"""An entry of the inventory against an argument specification. Rules between entries: tests/test_inventories.py."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import findings

OPTIONS = {
    "port": {"type": "int", "required": True, "description": "Port of C(vllm serve)."},
    "engine": {"type": "str", "description": ["Name of the engine.", "More about it."]},
    "ratio": {"type": "float"},
    "path": {"type": "path"},
    "eager": {"type": "bool"},
    "gpus": {"type": "raw"},
    "words": {"type": "list", "elements": "str", "description": "Words."},
    "serve": {"type": "dict"},
    "plain": {"description": "A text."},
    "weights": {"type": "dict", "options": {
        "source": {"type": "str", "choices": ["wheel", "archive"], "required": True, "description": "Kind."}}},
    "disks": {"type": "list", "elements": "dict", "options": {"free": {"type": "str", "required": True, "description": "Space."}}},
}


@pytest.mark.parametrize(("entry", "expected"), [
    ({"port": 8000}, []),
    ({"port": 8000, "ratio": 1, "path": "/x", "eager": False, "gpus": [], "words": ["a"], "serve": {"x": None}, "plain": ""}, []),
    ({"port": 8000, "ratio": 0.5, "gpus": True, "weights": {"source": "wheel"}, "disks": [{"free": "1GB"}]}, []),
    ({}, ["m.port is missing: Port of vllm serve."]),
    ("text", ["m: 'text' is not a dict: write its keys below it"]),
    (None, ["m is missing or empty: write its keys below it, as inventory/example does"]),
    ({"prot": 1, "port": 1},
     ["m.prot: 'prot' is not one of disks, eager, engine, gpus, path, plain, port, ratio, serve, weights, words. Did you mean 'port'?"]),
    ({"port": 1, "zzzzzz": 1}, ["m.zzzzzz: 'zzzzzz' is not one of disks, eager, engine, gpus, path, plain, port, ratio, serve, weights, "
                                "words."]),
    ({"port": "8000"}, ["m.port: '8000' is str, int is needed, without quotes: Port of vllm serve."]),
    ({"port": True}, ["m.port: True is bool, int is needed: Port of vllm serve."]),
    ({"port": 80.5}, ["m.port: 80.5 is float, int is needed: Port of vllm serve."]),
    ({"port": None}, ["m.port is empty: Port of vllm serve."]),
    ({"port": 1, "engine": 3}, ["m.engine: 3 is int, str is needed, in quotes: Name of the engine."]),
    ({"port": 1, "plain": 3}, ["m.plain: 3 is int, str is needed, in quotes: A text."]),
    ({"port": 1, "words": {"a": 1}}, ["m.words: {'a': 1} is dict, list is needed: Words."]),
    ({"port": 1, "words": ["a", 2, None]}, ["m.words[1]: 2 is int, str is needed, in quotes: Words.",
      "m.words[2] is empty: give it a value, or "
                                                                                           "remove the line"]),
    ({"port": 1, "weights": {"source": "weel"}}, ["m.weights.source: 'weel' is not one of archive, wheel. Did you mean 'wheel'?"]),
    ({"port": 1, "weights": {"src": "wheel"}},
     ["m.weights.src: 'src' is not one of source. Did you mean 'source'?", "m.weights.source is missing: Kind."]),
    ({"port": 1, "disks": [{"free": "1GB"}, {"free": 1}]}, ["m.disks[1].free: 1 is int, str is needed, in quotes: Space."]),
    ({"port": "8000", "eager": "yes"}, ["m.port: '8000' is str, int is needed, without quotes: Port of vllm "
                                        "serve.", "m.eager: 'yes' is str, bool is needed, without quotes: "]),
])
def test_spec_findings(entry, expected):
    assert findings.spec_findings("m", entry, OPTIONS) == expected


@pytest.mark.parametrize(("name", "known", "expected"), [
    ("kimi-k25-int", ["glm-5-gguf", "kimi-k25-int4", "kimi-k25-nvfp4"], "kimi-k25-int4"),
    ("llama", ["kimi-k25-int4"], ""),
    ("x", [], ""),
])
def test_nearest(name, known, expected):
    assert findings.nearest(name, known) == expected


def test_a_name_among_none():
    assert findings.unknown("model", "x", []) == "model: 'x' is not one of (none)."


def model(**changes):
    weights = {"source": "directory", "path": "/srv/small"}
    return {"engine": "vllm", "weights": weights, "gpus": [], "port": 8000, **changes}


def rules(**models):
    options = {name: {"type": "raw"} for name in (*model(), "environment", "nccl")}
    return findings.catalogue_findings(models, {"vllm": {}}, next(iter(models)), "", {}, options, {})


@pytest.mark.case("A5")
@pytest.mark.parametrize("name", ["CUDA_HOME", "CUDA_PATH"])
@pytest.mark.parametrize("value", [":/usr/local/cuda-12.8", "/usr/local/cuda-12.8:", "/a:/b", "cuda-12.8", "", "/usr/local/cuda 12"])
def test_the_home_of_cuda_is_one_absolute_path(name, value):
    assert rules(small=model(environment={name: value})) == [
        f"modelhost_models.small.environment.{name}: {value!r} is not one absolute path, and programs put /bin/nvcc behind it: write the "
        "folder of one toolkit, or leave it out for that of modelhost_cuda"]


@pytest.mark.case("A5")
def test_a_home_of_cuda_that_is_one():
    assert rules(small=model(environment={"CUDA_HOME": "/usr/local/cuda-12.8", "CUDA_PATH": "/opt/modelhost/cuda/13.0"})) == []


def test_what_only_sounds_like_it_is_left_alone():
    assert rules(small=model(environment={"CUDA_HOMES": "a:b", "PATH": "/a:/b"})) == []


@pytest.mark.parametrize(("changes", "variable"), [
    ({"serve": {"hf-token": "hf_secret"}}, "serve.hf-token"), ({"environment": {"HF_TOKEN": "hf_secret"}}, "environment.HF_TOKEN"),
    ({"environment": {"HUGGING_FACE_HUB_TOKEN": "hf_secret"}}, "environment.HUGGING_FACE_HUB_TOKEN")])
def test_a_token_of_the_hub_is_no_part_of_a_model(changes, variable):
    options = {name: {"type": "raw"} for name in (*model(), "environment", "serve")}
    assert findings.catalogue_findings({"small": model(**changes)}, {"vllm": {}}, "small", "", {}, options, {}) == [
        f"modelhost_models.small.{variable}: everyone on the host can read it there, and the unit fetches nothing: write the token as "
        "modelhost_hub_token, in the Vault file, for the fetch alone"]
