# GNU General Public License v3.0+ (see LICENSE)
"""What all-reduce is asked for, and what the answer of its probe is worth."""

from __future__ import annotations

import re
from typing import Any, Dict, List

# 1 KiB to 64 MiB, for a model whose shape is not known
LADDER = [2**power for power in range(10, 27, 2)]
BATCHES = (1, 2, 4, 8, 16, 32, 64)
BATCHED_TOKENS = 8192  # where the model does not say max-num-batched-tokens; vLLM's own default depends on the GPU
# The sums that the probe knows are whole numbers up to 256, which bfloat16 has exactly: n(n+1)/2 + 3n <= 256
LARGEST_WORLD = 16
_DECISIVE = re.compile(r"NCCL WARN|\w*(Error|Exception)\b")


def sizes(shape: Dict[str, Any], serve: Dict[str, Any]) -> List[int]:
    """Bytes of the messages of decode, a token of each of up to 64 streams, and of prefill; a hidden state has 16 bits a value."""
    hidden, batched = shape.get("hidden_size"), serve.get("max-num-batched-tokens")
    largest = batched if isinstance(batched, int) and batched > 0 else BATCHED_TOKENS
    return sorted({2 * hidden * tokens for tokens in (*BATCHES, largest)}) if hidden else list(LADDER)


def lines(document: Dict[str, Any]) -> List[str]:
    """A short table of a stored result."""
    head = "all-reduce on {host}: {world_size} ranks over {backend}, engine {engine[name]}, {started}: {verdict}".format(**document)
    if document["verdict"] != "ok":
        return [head, document["reason"]]
    table = ["{bytes:>12}{latency_us:>14.1f}{bus_bandwidth_gb_s:>14.3f}".format(**each) for each in document["sizes"]]
    return [head, "{:>12}{:>14}{:>14}".format("bytes", "latency us", "busbw GB/s"), *table]


def bus_bandwidth(size: int, latency_us: float, world_size: int) -> float:
    """GB/s by which links can be compared: size / time x 2(n-1)/n (nccl-tests, doc/PERFORMANCE.md, "Bus bandwidth")."""
    return size / latency_us / 1000 * 2 * (world_size - 1) / world_size


def judge(answer: Dict[str, Any], question: Dict[str, Any]) -> Dict[str, Any]:
    """verdict, reason and sizes of a measurement, from what the probe said of its ranks."""
    ranks, world_size = answer["ranks"], question["world_size"]
    wrong = [rank["result"]["wrong"] for rank in ranks if rank["result"] and "wrong" in rank["result"]]
    if wrong:
        return _verdict("wrong values", _wrong(wrong[0], question))
    if any(rank["ended"] == "badly" for rank in ranks):
        return _verdict("failed", _failed(ranks))
    if answer["timed_out"]:
        return _timed_out(ranks, question)
    columns = zip(*(rank["result"]["latencies_us"] for rank in ranks))
    measured = zip(question["sizes"], (max(each) for each in columns))  # the slowest rank is the one that the others wait for
    return _verdict("ok", "", [
        {"bytes": size, "latency_us": round(latency, 2), "bus_bandwidth_gb_s": round(bus_bandwidth(size, latency, world_size), 3)}
        for size, latency in measured])


def silent(why: str) -> Dict[str, Any]:
    """The judgement where the probe gave no answer at all."""
    return _verdict("failed", f"the probe gave no answer: {why}")


def _verdict(verdict: str, reason: str, found: Any = ()) -> Dict[str, Any]:
    return {"verdict": verdict, "reason": reason, "sizes": list(found)}


def _wrong(wrong: Dict[str, Any], question: Dict[str, Any]) -> str:
    said = (
        f"{wrong['count']} values of a message of {wrong['bytes']} bytes are wrong, the first at {wrong['index']}: {wrong['got']:g} in "
        f"place of {wrong['expected']:g}. Answers of a model over these ranks are worth nothing.")
    return said + (" " + _peers(question) if question["backend"] == "nccl" else "")


def _failed(ranks: List[Dict[str, Any]]) -> str:
    number, rank = next((number, rank) for number, rank in enumerate(ranks) if rank["ended"] == "badly")
    lines = [line.strip() for line in rank["said"] if _DECISIVE.search(line)] or [line.strip() for line in rank["said"]]
    return f"rank {number} failed at '{rank['stage'] or 'start'}': {' / '.join(lines[-3:]) or 'without a word'}"


def _timed_out(ranks: List[Dict[str, Any]], question: Dict[str, Any]) -> Dict[str, Any]:
    stages = [rank["stage"] or "start" for rank in ranks if rank["ended"] == "killed"]
    where = ", ".join(f"{stages.count(stage)} at '{stage}'" for stage in dict.fromkeys(stages))
    limit = f"{question['seconds']} s passed with {len(stages)} of {len(ranks)} ranks unfinished, {where}"
    if set(stages) & {"start", "import torch"}:
        return _verdict("failed", f"{limit}: importing takes long on a cold disk, so run it again, or raise the limit")
    return _verdict("hung", f"{limit}." + (" " + _peers(question) if question["backend"] == "nccl" else ""))


def _peers(question: Dict[str, Any]) -> str:
    """What to try where GPUs do not get each other's data (NCCL's troubleshooting on ACS; NCCL issues 1999, 2079; vllm 33041, 42063)."""
    if question["environment"].get("NCCL_P2P_DISABLE") == "1":
        return (
            "NCCL_P2P_DISABLE=1 is set, so it is not peer-to-peer (P2P): look for NCCL WARN with NCCL_DEBUG=INFO, and at the kernel's log.")
    return (
        "Peer-to-peer (P2P) over PCIe is the usual cause, where ACS or a translating IOMMU redirects it: try nccl: {NCCL_P2P_DISABLE: 1}. "
        "If that helps, switch ACS off or set iommu=pt (docs/host-tuning.md), and take the variable out again.")
