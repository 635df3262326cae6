# GNU General Public License v3.0+ (see LICENSE)
"""Whether a benchmark's numbers are good: against what was asked for, what is expected, and what the host did before.

docs/benchmark.md has the reasons. Everything is compared as a time (a rate as 1 / rate), so that less is better.
"""

from __future__ import annotations

import statistics
from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark

# Which numbers of a profile are compared with the history
COMPARED = {
    "single_stream": ("decode_tok_s", "ttft_ms"),
    "concurrency": ("output_throughput_tok_s",),
    "long_context": ("ttft_ms", "decode_tok_s"),
}
# Which profile an expectation is held against
EXPECTED = {"decode_tok_s": "single_stream", "ttft_ms": "single_stream", "output_throughput_tok_s": "concurrency"}
RUNS = 5  # with fewer earlier ones nothing is said about a regression
REPETITIONS = 3  # likewise
GROUP = 10  # runs of the history that a run is compared with
SLOWDOWN = 5.0  # percent of time that are no regression
# Between the median and a quartile of a normal distribution lie so many of its standard deviations.
QUARTILE = 0.6745


def summary(document: dict[str, Any]) -> dict[str, Any] | None:
    """What the gate needs of a stored document; None for one that says nothing about how fast the host is.

    Raises KeyError, TypeError or ValueError for what is no document.
    """
    points = benchmark.points_of(document)
    refused = document.get("gate", {}).get("verdict") == "fail"
    if refused or any(benchmark.findings(result) for point in points for result in point["results"]):
        return None
    return {
        "started": document["started"],
        "profile": document.get("profile", "single_stream"),
        "engine": document["engine"],
        "points": [{
            "name": point["name"], "options": _load(document, point), "values": [benchmark.values(result) for result in point["results"]],
        } for point in points],
    }


def gate(document: dict[str, Any], history: list[dict[str, Any]], expect: dict[str, Any]) -> dict[str, Any]:
    """The verdict on a document, pass, fail or inconclusive, with its findings.

    history: the summaries of earlier runs, oldest first. expect: the model's own.
    """
    failed = [
        f"{point['name']}, repetition {number}: {finding}" for point in document["points"]
        for number, result in enumerate(point["results"], 1) for finding in benchmark.findings(result)]
    if failed:
        return {"verdict": "fail", "findings": failed}
    judged = _expectations(document, expect) + _regressions(document, history, expect.get("max_slowdown_percent", SLOWDOWN))
    said = [verdict for verdict, _finding in judged]
    verdict = next((each for each in ("fail", "inconclusive", "pass") if each in said), "inconclusive")
    return {"verdict": verdict, "findings": [finding for _verdict, finding in judged]}


def _load(document: dict[str, Any], point: dict[str, Any]) -> dict[str, Any]:
    """The options that make a load comparable: all but the seed."""
    return {key: value for key, value in {**document["options"], **point["options"]}.items() if key != "seed"}


def _expectations(document: dict[str, Any], expect: dict[str, Any]) -> list[tuple[str, str]]:
    judged = []
    for name, profile in EXPECTED.items():
        if profile != document["profile"] or name not in expect:
            continue
        measured = [statistics.median(benchmark.values(result)[name] for result in point["results"]) for point in document["points"]]
        most = name == "ttft_ms"
        value = min(measured) if most else max(measured)
        good = value <= expect[name] if most else value >= expect[name]
        asked = f"{expect[name]} at {'most' if most else 'least'}"
        judged.append((
            "pass" if good else "fail", f"{name} is {value:.1f}, and modelhost_models.{document['model']}.expect asks for {asked}"))
    return judged


def _regressions(document: dict[str, Any], history: list[dict[str, Any]], slowdown: float) -> list[tuple[str, str]]:
    judged, lacking = [], []
    for point in document["points"]:
        earlier = _comparable(document, point, history)
        if len(earlier) < RUNS:
            lacking.append(len(earlier))
            continue
        if len(point["results"]) < REPETITIONS:
            continue
        for name in COMPARED[document["profile"]]:
            run = [_time(name, benchmark.values(result)[name]) for result in point["results"]]
            past = [statistics.median(_time(name, each[name]) for each in values) for values in earlier]
            verdict, numbers = judge(run, past, slowdown)
            where = f"{point['name']}: {name}" if len(document["points"]) > 1 else name
            judged.append((verdict, f"{where} is {_SAYS[verdict].format(**{key: _shown(name, each) for key, each in numbers.items()})}"))
    if lacking:
        judged.append(("", f"no regression can be told yet: {min(lacking)} comparable earlier runs on this host, {RUNS} are needed"))
    if any(len(point["results"]) < REPETITIONS for point in document["points"]):
        judged.append(("", f"no regression can be told from fewer than {REPETITIONS} repetitions"))
    return judged


_SAYS = {
    "pass": "{now}, as usual on this host: the median of earlier runs is {usual}, and {bound} would still be usual",
    "fail": (
        "{now}, slower than usual on this host: the median of earlier runs is {usual}, {bound} would still be usual, and the best "
        "repetition reached {best}. docs/benchmark.md says what to look at"),
    "inconclusive": (
        "{now}, slower than usual on this host: the median of earlier runs is {usual}, and {bound} would still be usual. But the "
        "repetitions, of which the best reached {best}, or the earlier runs differ too much to call it a regression: measure again"),
}


def judge(run: list[float], past: list[float], slowdown: float) -> tuple[str, dict[str, float]]:
    """The verdict on the times of a run's repetitions, by the median times of earlier runs, oldest first; and what it was judged by."""
    group = _baseline(past)
    usual, now, best = statistics.median(group), statistics.median(run), min(run)
    # Usual is also what was seen more than once: one slow run is an accident, two are how the host is.
    seen, floor = sorted(group)[-2], 1 + slowdown / 100
    bound = max(usual * floor, seen)
    spread = (statistics.quantiles(group, n=4, method="inclusive")[2] - usual) / QUARTILE
    slow = max(bound, seen * floor, min(usual + 3 * spread, 2 * usual))
    numbers = {"now": now, "usual": usual, "bound": bound, "best": best}
    if now <= bound:
        return "pass", numbers
    return ("fail" if now > slow and best > bound else "inconclusive"), numbers


def _baseline(past: list[float]) -> list[float]:
    """The runs to compare with: the oldest ones, or the newest where these are faster.

    The oldest ones do not move, so that many small steps down are one large one.
    """
    return min(past[:GROUP], past[-GROUP:], key=statistics.median)


def _comparable(document: dict[str, Any], point: dict[str, Any], history: list[dict[str, Any]]) -> list[list[dict[str, float]]]:
    """The values of the same load, by the same engine and version, in earlier runs."""
    return [
        each["values"] for earlier in history
        if (earlier["profile"], earlier["engine"]) == (document["profile"], document["engine"])
        for each in earlier["points"] if (each["name"], each["options"]) == (point["name"], _load(document, point))]


def _time(name: str, value: float) -> float:
    return value if name == "ttft_ms" else 1 / value


def _shown(name: str, time: float) -> str:
    return f"{time:.1f}" if name == "ttft_ms" else f"{1 / time:.1f}"
