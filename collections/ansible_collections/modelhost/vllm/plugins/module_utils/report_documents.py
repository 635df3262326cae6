# GNU General Public License v3.0+ (see LICENSE)
"""What a report keeps of the documents on a host: benchmarks, coherence checks, measurements of all-reduce.

Each function raises KeyError, TypeError, ValueError, AttributeError or IndexError for what is no such document.
"""

from __future__ import annotations

import statistics
from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark

# The number that tells how a profile has gone: its name in `points`, and the better of two
MAIN = {"single_stream": ("decode_tok_s", max), "concurrency": ("output_throughput_tok_s", max), "long_context": ("ttft_ms", min)}
LOAD = ("random-input-len", "random-output-len", "max-concurrency", "num-prompts")


def benchmark_run(document: dict[str, Any]) -> dict[str, Any]:
    """A benchmark: each number of a point as the median, the lowest and the highest of its repetitions; none where requests failed."""
    gate, profile = document.get("gate", {}), document.get("profile", "single_stream")
    if profile not in MAIN:
        raise ValueError(f"{profile!r} is no profile")
    return {
        "started": document["started"],
        "profile": profile,
        "engine": {key: document["engine"][key] for key in ("name", "version")},
        "verdict": gate.get("verdict", ""),
        "findings": list(gate.get("findings", [])),
        "points": [_point(document, point) for point in benchmark.points_of(document)],
    }


def _point(document: dict[str, Any], point: dict[str, Any]) -> dict[str, Any]:
    options = {**document["options"], **point["options"]}
    results = point["results"]
    counts = not any(benchmark.findings(each) for each in results)
    values = [{**benchmark.values(each), "tpot_ms": each["mean_tpot_ms"]} for each in results] if counts else []
    return {
        "name": point["name"],
        "load": {name: options[name] for name in LOAD if name in options},
        "repetitions": len(results),
        "numbers": {name: _spread([each[name] for each in values]) for name in (values[0] if values else {})},
    }


def _spread(numbers: list[float]) -> dict[str, float]:
    return {name: round(of(numbers), 3) for name, of in (("median", statistics.median), ("low", min), ("high", max))}


def main_number(run: dict[str, Any]) -> dict[str, float]:
    """The number of a run that stands for it, or {} where nothing was measured."""
    name, better = MAIN[run["profile"]]
    found = [point["numbers"][name] for point in run["points"] if point["numbers"]]
    return better(found, key=lambda each: each["median"]) if found else {}


def trend(runs: list[dict[str, Any]], most: int = 10) -> dict[str, Any]:
    """The newest of a profile's runs, oldest first, against the median of those before with the same engine and load.

    `change_percent` is above zero where the newest is better. {} where there is nothing to compare.
    """
    *before, newest = runs
    name, better = MAIN[newest["profile"]]
    now = main_number(newest)
    earlier = [main_number(run)["median"] for run in before if _load(run) == _load(newest) and main_number(run)][-most:]
    if not now or not earlier:
        return {}
    usual = statistics.median(earlier)
    change = (now["median"] / usual - 1) * 100
    return {
        "number": name, "now": now["median"], "usual": round(usual, 3), "runs": len(earlier),
        "change_percent": round(change if better is max else -change, 1)}


def _load(run: dict[str, Any]) -> tuple[Any, ...]:
    return run["engine"], [(point["name"], point["load"]) for point in run["points"]]


def coherence(document: dict[str, Any]) -> dict[str, Any]:
    """A coherence check: what was asked and how it was judged, without the answers."""
    return {
        **{key: document[key] for key in ("started", "verdict", "reason")},
        "engine": document["engine"]["name"],
        "items": [{key: each[key] for key in ("name", "verdict", "reason", "binding")} for each in document["items"]],
    }


def all_reduce(document: dict[str, Any]) -> dict[str, Any]:
    keys = ("started", "backend", "world_size", "verdict", "reason")
    sizes = [{key: each[key] for key in ("bytes", "latency_us", "bus_bandwidth_gb_s")} for each in document["sizes"]]
    return {**{key: document[key] for key in keys}, "engine": document["engine"]["name"], "sizes": sizes}


def audit(document: dict[str, Any]) -> dict[str, Any]:
    return {key: document[key] for key in ("started", "verdict", "findings")}
