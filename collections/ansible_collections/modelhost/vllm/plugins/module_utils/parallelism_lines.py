# GNU General Public License v3.0+ (see LICENSE)
"""The advice on parallelism in words: a table, what it rests on, an answer, and what to try next."""

from __future__ import annotations

from typing import Any, Dict, List

from ansible_collections.modelhost.vllm.plugins.module_utils.parallelism import TERMS, Layout
from ansible_collections.modelhost.vllm.plugins.module_utils.versions import numbers

CLOSE = 0.05  # of two predictions that are nearer than this, none is called better
WORDS = {"weights": "reading weights", "communication": "communication", "arithmetic": "arithmetic", "overhead": "the fixed cost of layers"}
PCIE_IPC = "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"
PCIE_IPC_SINCE, PCIE_IPC_RANKS = (0, 30), (2, 4, 8)  # vllm/distributed/device_communicators/flashinfer_pcie_ipc_all_reduce.py


def lines(advice: Dict[str, Any], engine: Dict[str, Any], gpus: Dict[str, Any]) -> List[str]:
    """All of it. engine: the entry of the inventory. gpus: modelhost_gpus."""
    if advice["missing"]:
        return [f"No advice on parallelism: {advice['missing']}"]
    return [*_table(advice), *_basis(advice), answer(advice), *steps(advice, engine, gpus)]


def _table(advice: Dict[str, Any]) -> List[str]:
    rows = [f"{advice['model']}, decode as predicted; now {advice['now']}. One stream in ms a token, {advice['streams']} in tok/s of all"]
    rows.append("{:<12}{:>7}{:>7}{:>9}{:>7}{:>7}{:>9}  {:<14}{:>8}".format(
        "", "tok/s", "ms", "weights", "comm", "arith", "overhead", "floor", f"{advice['streams']}"))
    for each in advice["options"]:
        one = each["one"]
        rows.append("{:<12}{:>7.1f}{:>7.1f}{:>9.2f}{:>7.2f}{:>7.2f}{:>9.2f}  {:<14}{:>8.0f}".format(
            each["name"], one["decode"], one["ms"], *(one["terms"][term] for term in TERMS), one["floor"], each["many"]["throughput"]))
        rows += [f"{'':<12} not possible: {each['refused']}"] if each["refused"] else []
    return rows


def _basis(advice: Dict[str, Any]) -> List[str]:
    gpu, (size, latency) = advice["gpu"], advice["curve"][0]
    return [
        f"memory bandwidth {gpu['memory_bandwidth_gb_s']} GB/s, bfloat16 {gpu['bf16_tflops']} TFLOPS: {gpu['source']}",
        f"all-reduce {latency} us at {size} bytes: {advice['all_reduce']}",
        f"fixed cost {advice['layer']:.0f} us a layer: what is left of the one speed that costs.yml knows",
        *(f"not known: {each}" for each in advice["unknown"])]


def answer(advice: Dict[str, Any]) -> str:
    """Would EP, PP or DP beat plain tensor parallelism? In one paragraph."""
    first = advice["options"][0]
    one = first["one"]
    shares = ", ".join(f"{one['terms'][term]:.1f} ms {WORDS[term]}" for term in TERMS if one["terms"][term] >= 0.05)
    said = [
        f"Would EP, PP or DP beat {first['name']}? With {first['name']} a token of one stream takes {one['ms']:.1f} ms: {shares}.",
        f"The floor is {WORDS[one['floor']]}."]
    if first["refused"]:
        said.append(f"{first['name']} itself is not possible: {first['refused']}.")
    for each in advice["options"]:
        kind = _kind(each["layout"])
        said += [_compared(kind, each, one)] if kind else []
    said.append(f"DP as separate copies would need {advice['weights_bytes'] / 1e9:.0f} GB on each GPU, which has {advice['gpu']['memory']}.")
    for streams, load in ((1, "one"), (advice["streams"], "many")):
        said.append(_best(advice, streams, load))
    return " ".join(said)


def _kind(layout: Layout) -> str:
    """EP, PP or DP where a layout is one of them over all GPUs, else an empty text."""
    if layout.tp == 1:
        return "DP" if layout.dp > 1 else "PP" if layout.pp > 1 else ""
    return "EP" if layout.ep and layout.dp == 1 else ""


def _compared(kind: str, option: Dict[str, Any], one: Dict[str, Any]) -> str:
    """How a layout does for one stream, and the term that makes most of the difference."""
    if option["refused"]:
        return f"{kind} ({option['name']}) is not possible: {option['refused']}."
    terms, slower = option["one"]["terms"], option["one"]["ms"] > one["ms"]
    term = max(TERMS, key=lambda name: (terms[name] - one["terms"][name]) * (1 if slower else -1))
    return (
        f"{kind} ({option['name']}) takes {option['one']['ms']:.1f} ms, since {WORDS[term]} takes {terms[term]:.1f} ms in place of "
        f"{one['terms'][term]:.1f}.")


def _rate(option: Dict[str, Any], load: str) -> float:
    return option["one"]["decode"] if load == "one" else option["many"]["throughput"]


def _fastest(advice: Dict[str, Any], load: str) -> Dict[str, Any] | None:
    possible = [each for each in advice["options"] if not each["refused"]]
    return max(possible, key=lambda each: _rate(each, load)) if possible else None


def _best(advice: Dict[str, Any], streams: int, load: str) -> str:
    first, best = advice["options"][0], _fastest(advice, load)
    words = "one stream" if streams == 1 else f"{streams} streams"
    if best is None:
        return f"For {words} none is possible."
    rate, found = _rate(first, load), _rate(best, load)
    if first["refused"]:
        return f"For {words} {best['name']} is predicted best, {found:.0f} tok/s."
    if best is first or found < rate * (1 + CLOSE):
        near = "" if best is first else f"; {best['name']} has {found:.0f}, no more than the prediction may be wrong"
        return f"For {words} no: {first['name']} has {rate:.0f} tok/s{near}."
    return f"For {words} yes: {best['name']} is predicted best, {found:.0f} tok/s in place of {rate:.0f}."


def steps(advice: Dict[str, Any], engine: Dict[str, Any], gpus: Dict[str, Any]) -> List[str]:
    """What to try next, each as what to write or to run."""
    found, where = [], f"modelhost_models.{advice['model']}"
    now = next((each for each in advice["options"] if each["name"] == advice["now"]), advice["options"][0])
    one, ranks = now["one"], now["layout"].tp
    spared = one["ms"] - one["terms"]["communication"]
    if ranks in PCIE_IPC_RANKS and numbers(engine.get("version", "")) >= PCIE_IPC_SINCE and not gpus.get("nvlink"):
        found.append(
            f"next: {where}.environment.{PCIE_IPC}: \"1\". It can spare {one['terms']['communication']:.1f} of {one['ms']:.1f} ms at most "
            f"({1000 / spared:.0f} tok/s). It is in use only where journalctl -u vllm-{advice['model']} says \"Initialized FlashInfer PCIe "
            f"IPC all-reduce for TP{ranks}\": without peer-to-peer or CUDA graphs vLLM goes on without it")
    if ranks > 1:
        found.append(f"next: playbooks/tune_nccl.yml -e model={advice['model']}, for the same {one['terms']['communication']:.1f} ms")
    for load, words in (("one", "one stream"), ("many", f"{advice['streams']} streams")):
        best = _fastest(advice, load)
        if best and _rate(best, load) > _rate(now, load) * (1 + CLOSE):
            found.append(f"next, for {words}: {where}.serve: {best['serve']}, in place of {now['serve']}")
    if advice["all_reduce"].startswith("assumed"):
        found.append("next: measure all-reduce, with playbooks/advise.yml while no model has the GPUs")
    return found
