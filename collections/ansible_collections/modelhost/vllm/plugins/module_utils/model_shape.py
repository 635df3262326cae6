# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The shape of a model: what its config.json says of attention, experts, context and quantization, under one name for each thing.

A shape is whole or empty. Half of one would answer questions wrongly: a config.json whose kv_lora_rank cannot be read is not one without
latent attention.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Tuple

Shape = Dict[str, Any]

# What a shape has -> the names that configurations give it, the first that is there counts. The same names as vLLM 0.33 looks for
# (transformers_utils/model_arch_config_convertor.py).
NUMBERS = {
    "hidden_size": ("hidden_size",),
    "num_hidden_layers": ("num_hidden_layers",),
    "num_attention_heads": ("num_attention_heads",),
    "num_key_value_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "index_topk": ("index_topk",),
    "num_experts": ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k"),
    "moe_intermediate_size": ("moe_intermediate_size", "expert_intermediate_size"),
    "first_k_dense_replace": ("first_k_dense_replace",),
    "max_position_embeddings": ("max_position_embeddings",),
}
# What else a shape may have: the other keys of an entry of `shapes` in constraints.yml
OTHERS = ("weight_block_size", "expert_bits", "expert_format", "full_attention", "kv_cache_quantized", "torch_dtype", "weights_bytes")
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads")
# Where a configuration of more than text keeps that of its text
TEXT = ("text_config", "llm_config", "language_config")
# Layers that keep something else than the keys and values of every token: then the cache is smaller than layers x tokens
OTHER_LAYERS = ("linear_attn_config", "hybrid_override_pattern", "block_configs", "full_attention_interval", "compress_ratios")


class Unreadable(ValueError):
    """A configuration that says something of another kind than is expected there; the text says which."""


def shape_of(config: Any) -> Shape:
    """The shape in the content of a config.json. Unreadable where something in it is of another kind than it should be."""
    if not isinstance(config, dict):
        raise Unreadable("it is no dict")
    text = next((config[key] for key in TEXT if isinstance(config.get(key), dict)), config)
    shape = {name: number for name, number in ((name, _number(text, names)) for name, names in NUMBERS.items()) if number is not None}
    lacking = [name for name in NEEDED if not shape.get(name)]
    if lacking:
        raise Unreadable("it does not say %s" % " and ".join(lacking))
    if shape.get("num_experts") and "moe_intermediate_size" not in shape:
        # MiniMax-M2 and Mixtral: all feed-forward layers are experts, so that the plain name is theirs.
        size = _number(text, ("intermediate_size",))
        shape.update({} if size is None else {"moe_intermediate_size": size})
    shape["full_attention"] = _full_attention(text)
    dtype = text.get("torch_dtype") or text.get("dtype")
    shape.update({"torch_dtype": dtype} if isinstance(dtype, str) else {})
    shape.update(_quantization(text.get("quantization_config") or config.get("quantization_config") or {}))
    return shape


def read_shape(folder: str) -> Tuple[Shape, str]:
    """The shape of the model in a folder and an empty text; or an empty shape, and why there is none."""
    path = os.path.join(folder, "config.json")
    try:
        with open(path, encoding="utf-8") as stream:
            shape = shape_of(json.load(stream))
    except OSError as error:
        return {}, "%s: %s" % (path, error.strerror)
    except ValueError as error:  # no JSON, no UTF-8, or Unreadable
        return {}, "%s: %s" % (path, error)
    size = weights_bytes(folder)
    return ({**shape, "weights_bytes": size} if size else shape), ""


def weights_bytes(folder: str) -> int:
    """Bytes of the safetensors files in a folder, not below it; 0 where there are none."""
    files = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".safetensors")]
    return sum(os.stat(path).st_size for path in files if os.path.isfile(path))


def config_folder(path: str, serve: Dict[str, Any]) -> str:
    """Where the config.json of a model lies that the engine loads from `path`, or an empty text for the name of a repository.

    A folder of safetensors has its own. Beside a GGUF file there is none: serve.hf-config-path or serve.tokenizer name its folder.
    """
    named = serve.get("hf-config-path") or (serve.get("tokenizer") if path.endswith(".gguf") else None)
    folder = named if isinstance(named, str) else os.path.dirname(path) if path.endswith(".gguf") else path
    return folder if os.path.isabs(folder) else ""


def _number(config: Dict[str, Any], names: Tuple[str, ...]) -> int | None:
    """A number from 0 by the first of its names, or None where the configuration has none of them."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise Unreadable("%s is %r, a number is expected" % (name, value))
        return value
    return None


def _full_attention(config: Dict[str, Any]) -> bool:
    """Whether every layer keeps the keys and values of every token, as far as configurations say it."""
    window = config.get("sliding_window") and config.get("use_sliding_window", True)
    kinds = [kind for key in ("layer_types", "attn_type_list") for kind in _list(config, key)]
    plain = all(kind in ("full_attention", "indexed_attention", 1) for kind in kinds)
    return plain and not window and not any(config.get(key) for key in OTHER_LAYERS)


def _list(config: Dict[str, Any], key: str) -> List[Any]:
    value = config.get(key) or []
    if not isinstance(value, list):
        raise Unreadable("%s is %r, a list is expected" % (key, value))
    return value


def _quantization(config: Any) -> Shape:
    """The block of a block-wise FP8 quantization, and format and bits of one weight of an expert, the bits with its share of the scales.

    Bits of a quantization that is not known here are left out, and with them the split of the weights between GPUs. Sources: the formats of
    Hugging Face's FP8 and compressed-tensors configurations, and NVIDIA's ModelOpt (NVFP4: blocks of 16 with a scale of 8 bits).
    """
    if not isinstance(config, dict):
        raise Unreadable("quantization_config is %r, a dict is expected" % (config,))
    method = config.get("quant_method")
    found: Shape = {}
    block = _list(config, "weight_block_size")
    if block:
        if len(block) != 2 or any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in block):
            raise Unreadable("weight_block_size is %r, two numbers are expected" % (block,))
        found["weight_block_size"] = block
    if config.get("kv_cache_scheme") or config.get("kv_cache_quant_algo"):
        found["kv_cache_quantized"] = True  # what kv-cache-dtype auto then is, is the engine's affair
    groups = config.get("config_groups")
    group = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
    weights = group.get("weights") if isinstance(group, dict) else None
    weights = weights if isinstance(weights, dict) else {}
    if not config:
        found.update(expert_bits=16, expert_format="16 bits")
    elif method == "fp8":
        found.update(expert_bits=8, expert_format="FP8")
    elif config.get("quant_algo") == "NVFP4" or config.get("format") == "nvfp4-pack-quantized":
        found.update(expert_bits=4 + 8 / 16, expert_format="NVFP4")
    elif method == "compressed-tensors" and weights.get("num_bits") in (4, 8) and weights.get("group_size") in (32, 64, 128):
        found.update(expert_bits=weights["num_bits"] + 16 / weights["group_size"], expert_format="INT%d" % weights["num_bits"])
    return found
