# GNU General Public License v3.0+ (see LICENSE)
"""What a token of decode costs under each way to share a model out over the GPUs of a host. The model of costs: docs/parallelism.md.

Times are in microseconds. A step is what makes one token of each stream; a stage is a step's part on one of the pipeline's groups.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ansible_collections.modelhost.vllm.plugins.module_utils.constraints import constraint_findings
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import size_in_bytes

TERMS = ("weights", "communication", "arithmetic", "overhead")
VALUE = 2  # bytes of a value of the hidden state: bfloat16
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "expert_bits", "weights_bytes")
NEEDED_OF_EXPERTS = ("num_experts_per_tok", "moe_intermediate_size")
# The options that say how a model is shared out
SIZES = {
    "tensor-parallel-size": "tp", "pipeline-parallel-size": "pp", "data-parallel-size": "dp", "decode-context-parallel-size": "dcp",
    "enable-expert-parallel": "ep"}


class Layout(NamedTuple):
    """How a model is shared out: the sizes of tensor, pipeline, data and decode context parallelism, and whether experts stay whole."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: bool = False
    dcp: int = 1

    @property
    def name(self) -> str:
        sizes = [(kind.upper(), getattr(self, kind)) for kind in ("tp", "pp", "dp", "dcp")]
        return " ".join([f"{kind}{size}" for kind, size in sizes if size > 1] + (["EP"] if self.ep else [])) or "TP1"

    @property
    def serve(self) -> Dict[str, Any]:
        """As options of vLLM, without those that have their default."""
        values = {option: getattr(self, kind) for option, kind in SIZES.items()}
        return {option: value for option, value in values.items() if value is not False and (value is True or value > 1)}


class Costs(NamedTuple):
    """What the machine costs: bytes and operations per microsecond of a GPU, all-reduce as measured, and what each layer costs beside."""

    bandwidth: float
    arithmetic: float
    ranks: int
    curve: Sequence[Tuple[int, float]]
    layer: float


def layouts(gpus: int, shape: Dict[str, Any]) -> List[Layout]:
    """The ways to use all GPUs that are compared, plain tensor parallelism first."""
    found = [Layout(tp=tp, pp=gpus // tp) for tp in range(gpus, 0, -1) if gpus % tp == 0]
    if shape.get("num_experts"):
        found += [Layout(tp=gpus // dp, dp=dp, ep=True) for dp in sorted({1, 2, gpus}) if gpus % dp == 0]
    else:
        found.append(Layout(dp=gpus))
    if shape.get("kv_lora_rank"):
        found.append(Layout(tp=gpus, dcp=gpus))
    return found


def all_reduce(costs: Costs, ranks: int, size: float) -> float:
    """Of the measured ranks it is read off; of another number, the start grows as a tree does and the rest as the bytes over each link."""
    if ranks < 2:
        return 0.0
    start = costs.curve[0][1]
    return start * math.log2(ranks) / math.log2(costs.ranks) + (_read_off(costs.curve, size) - start) * (
        (ranks - 1) / ranks) / ((costs.ranks - 1) / costs.ranks)


def _read_off(curve: Sequence[Tuple[int, float]], size: float) -> float:
    """Between two measured sizes on a line, below the first as the first, beyond the last by the last line."""
    if size <= curve[0][0] or len(curve) == 1:
        return curve[0][1]
    pair = next((each for each in zip(curve, curve[1:]) if size <= each[1][0]), (curve[-2], curve[-1]))
    (left, low), (right, high) = pair
    return low + (high - low) * (size - left) / (right - left)


def stage(shape: Dict[str, Any], layout: Layout, costs: Costs, streams: int) -> Dict[str, float]:
    """What one stage costs, by term."""
    layers, hidden = shape["num_hidden_layers"], shape["hidden_size"]
    ranks = layout.tp * layout.dp
    tokens = math.ceil(streams / (layout.pp * layout.dp))  # of one group, at a time
    together = min(streams, tokens * layout.dp)  # those that the experts of all groups see
    experts, one, chosen = _experts(shape)
    rest = shape["weights_bytes"] - experts * one
    read = experts * (1 - (1 - chosen / experts) ** together) / ranks if experts else 0.0
    if layout.ep:
        read = max(read, largest_share(chosen, ranks))
    active = rest / VALUE * tokens / layout.tp + chosen * one * 8 / shape["expert_bits"] * together / ranks
    message = tokens * hidden * VALUE
    layer = all_reduce(costs, layout.tp, message)
    layer += all_reduce(costs, ranks, together * hidden * VALUE) if layout.ep else layer
    layer += _context(shape, layout, costs, tokens)
    hop = all_reduce(costs, 2, message) if layout.pp > 1 else 0.0
    return {
        "weights": (rest / layout.tp + read * one) / layout.pp / costs.bandwidth,
        "communication": layer * layers / layout.pp + hop,
        "arithmetic": 2 * active / layout.pp / costs.arithmetic,
        "overhead": costs.layer * layers / layout.pp,
    }


def _experts(shape: Dict[str, Any]) -> Tuple[int, float, int]:
    """How many experts a layer has, the bytes of one over all layers, and how many a token takes."""
    count = shape.get("num_experts") or 0
    if not count:
        return 0, 0.0, 0
    layers = shape["num_hidden_layers"] - shape.get("first_k_dense_replace", 0)
    one = 3 * shape["hidden_size"] * shape["moe_intermediate_size"] * layers * shape["expert_bits"] / 8  # gate, up and down
    return count, min(one, shape["weights_bytes"] / count), shape["num_experts_per_tok"]


def _context(shape: Dict[str, Any], layout: Layout, costs: Costs, tokens: int) -> float:
    """Decode context parallelism: queries and the sums of the softmax are gathered, results scattered; each is half an all-reduce."""
    if layout.dcp == 1:
        return 0.0
    heads, latent = shape["num_attention_heads"], shape["kv_lora_rank"]
    sizes = (heads * (latent + shape.get("qk_rope_head_dim", 0)) * VALUE, heads * layout.dcp * 4, heads * latent * VALUE)
    return sum(all_reduce(costs, layout.dcp, tokens * size) / 2 for size in sizes)


def largest_share(experts: int, ranks: int) -> float:
    """How many of the experts of one token the fullest rank has, on average, where each may be on any rank."""
    def ways(limit: int) -> int:
        """In how many ways they can be on the ranks with no more than `limit` on any."""
        counts = [1] + [0] * experts
        for _rank in range(ranks):
            counts = [
                sum(math.comb(total, own) * counts[total - own] for own in range(min(limit, total) + 1)) for total in range(experts + 1)]
        return counts[experts]

    return sum(1 - ways(limit) / ranks**experts for limit in range(experts))


def predict(shape: Dict[str, Any], layout: Layout, costs: Costs, streams: int) -> Dict[str, Any]:
    """Milliseconds of a step by term, the largest of them, tokens per second of one stream and of all."""
    terms = {name: value * layout.pp / 1000 for name, value in stage(shape, layout, costs, streams).items()}
    total = sum(terms.values())
    return {
        "ms": total, "terms": terms, "floor": max(TERMS, key=lambda name: terms[name]), "decode": 1000 / total,
        "throughput": 1000 * streams / total}


def calibrated(table: Dict[str, Any], shapes: Dict[str, Any]) -> float:
    """What a layer costs beside weights, communication and arithmetic: what is left of the one speed that is known."""
    known = table["calibration"]
    shape = {**shapes[known["repo"]], "weights_bytes": known["weights_bytes"]}
    costs = costs_of(_sheet(table, known["gpu"]), table["all_reduce"], 0.0)
    spent = predict(shape, Layout(tp=known["gpus"]), costs, 1)["ms"]
    return (1000 / known["tokens_per_second"] - spent) * 1000 / shape["num_hidden_layers"]


def costs_of(sheet: Dict[str, Any], measured: Dict[str, Any], layer: float) -> Costs:
    """sheet: an entry of costs.yml's gpus. measured: a result of all-reduce, or what costs.yml assumes of it."""
    curve = [(each["bytes"], each["latency_us"]) for each in measured["sizes"]]
    return Costs(sheet["memory_bandwidth_gb_s"] * 1e3, sheet["bf16_tflops"] * 1e6, measured["world_size"], curve, layer)


def _sheet(table: Dict[str, Any], name: str) -> Dict[str, Any]:
    return next((each for each in table["gpus"] if each["name"] in name), {})


def advise(
    name: str, declared: Dict[str, Any], shapes: Dict[str, Dict[str, Any]], table: Dict[str, Any], measured: Dict[str, Any], streams: int,
) -> Dict[str, Any]:  # fmt: skip
    """What is known of the ways to share a model out.

    declared: models, engines, gpus, keyed and constraints, as for constraint_findings. shapes: what config.json says on the host, by model.
    table: costs.yml. measured: a stored result of all-reduce, or {}. streams: how many are many.

    Returns missing, why nothing can be said, or an empty text; and without it options, the name of the layout that the model has `now`,
    what is unknown, and what the times rest on: gpu (its data sheet), curve and all_reduce (its source), layer (microseconds).
    """
    model, gpus = declared["models"][name], declared["gpus"]
    shape = _shape(model, declared["constraints"]["shapes"], shapes.get(name) or {})
    count = gpus.get("count", 0) if model["gpus"] == "all" else len(model["gpus"]) if gpus.get("count") else 0
    sheet = _sheet(table, str(gpus.get("name", "")))
    missing = _missing(name, count, sheet, gpus, shape)
    if missing:
        return {"missing": missing}
    usable = measured.get("verdict") == "ok" and measured.get("backend") == "nccl" and measured["sizes"]
    layer = calibrated(table, declared["constraints"]["shapes"])
    costs = costs_of(sheet, measured if usable else table["all_reduce"], layer)
    options = []
    for layout in layouts(count, shape):
        options.append({
            "name": layout.name, "layout": layout, "serve": layout.serve, "refused": _refused(name, model, declared, shape, layout),
            "one": predict(shape, layout, costs, 1), "many": predict(shape, layout, costs, streams)})
    serve = model.get("serve") or {}
    now = Layout(**{kind: serve[option] for option, kind in SIZES.items() if option in serve})
    return {
        "missing": "", "model": name, "options": options, "now": now.name, "streams": streams, "weights_bytes": shape["weights_bytes"],
        "unknown": _unknown(model, gpus, shape, declared, table), "layer": layer, "gpu": {**sheet, "memory": gpus.get("memory")}, "curve": costs.curve,
        "all_reduce": f"measured on {measured['host']} at {measured['started']}" if usable else "assumed, not measured on this host"}


def _shape(model: Dict[str, Any], known: Dict[str, Any], there: Dict[str, Any]) -> Dict[str, Any]:
    shape = {**known.get(model["weights"].get("repo"), {}), **there}
    if "weights_bytes" not in shape and "size" in model["weights"]:
        shape["weights_bytes"] = size_in_bytes(model["weights"]["size"])
    return shape


def _missing(name: str, count: int, sheet: Dict[str, Any], gpus: Dict[str, Any], shape: Dict[str, Any]) -> str:
    if count < 2:
        return f"{name} has {count} GPUs, and parallelism is about two or more"
    if not sheet:
        return (
            f"modelhost_gpus.name: {gpus.get('name')} is not in roles/parallelism_advice/files/costs.yml: add its memory bandwidth and its "
            "arithmetic from the data sheet")
    lacking = [key for key in NEEDED + (NEEDED_OF_EXPERTS if shape.get("num_experts") else ()) if not shape.get(key)]
    if lacking:
        return (
            f"of {name} it is not known: {', '.join(lacking)}. Fetch its weights, or give weights.size and add the shape to "
            "roles/model_switch/files/constraints.yml")
    return ""


def _refused(name: str, model: Dict[str, Any], declared: Dict[str, Any], shape: Dict[str, Any], layout: Layout) -> str:
    """Why vLLM or the memory does not allow it, by the rules of constraints.yml; an empty text where they do."""
    serve = {option: value for option, value in (model.get("serve") or {}).items() if option not in SIZES}
    candidate = {**model, "serve": {**serve, **layout.serve}}
    errors = constraint_findings({**declared, "models": {name: candidate}}, {name: shape})["errors"]
    return errors[0].partition("; ")[2].partition("; fix: ")[0] if errors else ""


def _unknown(
    model: Dict[str, Any], gpus: Dict[str, Any], shape: Dict[str, Any], declared: Dict[str, Any], table: Dict[str, Any],
) -> List[str]:  # fmt: skip
    """The terms that the one speed says nothing of, for this model on this machine."""
    known = table["calibration"]
    like = declared["constraints"]["shapes"][known["repo"]]
    found = []
    if shape.get("expert_format", known["expert_format"]) != known["expert_format"]:
        found.append(
            f"overhead: it is known with the kernels for {known['expert_format']} experts; how fast those for {shape['expert_format']} are on compute capability {gpus.get('compute_capability')} is not known, "
            "and the speed may be far below what is predicted")
    if str((model.get("serve") or {}).get("kv-cache-dtype", "auto")).startswith("fp8") or shape.get("kv_cache_quantized"):
        found.append("overhead: keys and values in FP8 are converted at each read, which is not part of it")
    if bool(shape.get("kv_lora_rank")) != bool(like["kv_lora_rank"]) or bool(shape.get("num_experts")) != bool(like["num_experts"]):
        found.append("overhead: it is known of layers with latent attention (MLA) and experts, and this model has others")
    if known["gpu"] not in str(gpus.get("name")):
        found.append(f"overhead: it is known on {known['gpu']}, and this machine has others")
    return found
