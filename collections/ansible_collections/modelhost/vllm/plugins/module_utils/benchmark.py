# GNU General Public License v3.0+ (see LICENSE)
"""What a benchmark measures, how it is asked for, and what its numbers are worth."""

from __future__ import annotations

import json
import statistics
from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import served
from ansible_collections.modelhost.vllm.plugins.module_utils.findings import unknown

PROFILES = ("single_stream", "concurrency", "long_context")

# Each is greater than zero in every run that measured something.
POSITIVE = ("duration", "output_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms")


def plan(
    state: dict[str, Any], requested: str, models: list[dict[str, Any]], engines: list[dict[str, Any]], load: dict[str, Any],
) -> dict[str, Any]:
    """Choose the model to measure: the one that serves, as it was applied; and the load.

    state: what model_state_info returned. requested: `-e model=`, or an empty text. models and engines: the catalogue's entries.
    load: profile, its name; options, those of every model; concurrency, the steps of the ladder; long_context, the most input tokens.

    Returns finding (one sentence, or an empty text), and without a finding model, engine (their entries), url and points: for each its name
    and the options that it adds.
    """
    if load["profile"] not in PROFILES:
        return {"finding": unknown("profile", str(load["profile"]), PROFILES)}
    chosen = served.choose(state, requested, models, engines)
    if chosen["finding"]:
        return chosen
    finding, points = _points(chosen["model"], load)
    if finding:
        return {"finding": finding}
    return {**chosen, "points": points}


def _points(model: dict[str, Any], load: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """A finding, or an empty text; and the points of a profile."""
    serve = model["serve"]
    if load["profile"] == "concurrency":
        most = serve.get("max-num-seqs")
        steps = [each for each in load["concurrency"] if not isinstance(most, int) or each <= most] or [most]
        # Twice as many requests as run at a time: while the last ones end, the server is not full.
        return "", [
            {"name": f"concurrency {each}", "options": {"max-concurrency": each, "num-prompts": max(4, 2 * each)}} for each in steps]
    if load["profile"] == "single_stream":
        return "", [{"name": "single_stream", "options": {}}]
    context = serve.get("max-model-len")
    where = f"profile long_context: modelhost_models.{model['name']}.serve.max-model-len"
    if not isinstance(context, int):
        return f"{where} is {'missing' if context is None else repr(context)}: declare it, as the number of tokens to come near", []
    # A sixteenth is for the chat template, and for prompts of random tokens, which grow a little as they become text.
    room = context * 15 // 16 - {**load["options"], **model["benchmark"]}.get("random-output-len", 128)
    if room < 1:
        return f"{where} is {context}, which leaves no room for a prompt: lower random-output-len in its benchmark", []
    return "", [{"name": "long_context", "options": {"random-input-len": min(room, load["long_context"])}}]


def runs(points: list[dict[str, Any]], asked: dict[str, Any], repetitions: int, started: str) -> list[dict[str, Any]]:
    """The runs of the benchmark, in order: a warm-up of the last point, then the repetitions of each.

    Each has a name for people, a key for its file, its point (an empty text for the warm-up) and its options. The seeds come from the
    start and differ, since a run that sent the prompts of an earlier one would find them in the prefix cache. For the same reason the
    warm-up is a run of its own: `num-warmups` sends the first prompt that counts.
    """
    seed = int("".join(each for each in started if each.isdigit())) % 1000000000
    last = {**asked, **points[-1]["options"]}
    warm = {"name": "warm-up", "point": "", "options": {**last, "num-prompts": last.get("max-concurrency") or 1}}
    counting = [
        {"name": f"{point['name']}, {number} of {repetitions}", "point": point["name"], "options": {**asked, **point["options"]}}
        for point in points for number in range(1, repetitions + 1)]
    return [
        {**run, "key": f"{started}-{number}", "options": {"seed": seed + number, **run["options"]}}
        for number, run in enumerate([warm, *counting])]


def option_words(options: dict[str, Any]) -> list[str]:
    """Options by name as words of a command line: `true` is the bare option, `false` and null leave it out, a dict becomes JSON."""
    words: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        if isinstance(value, dict):
            words.append(json.dumps(value))
        elif isinstance(value, list):
            words.extend(str(each) for each in value)
        elif value is not True:
            words.append(str(value))
    return words


def findings(result: dict[str, Any]) -> list[str]:
    """Why the numbers of vLLM's result are worth nothing; empty where they count.

    `vllm bench serve` exits with 0 when every request failed, and reports a time to first token of 0.0. So the counts are looked at
    first, and with wrong counts nothing else is.
    """
    asked, completed, failed = (result.get(key) for key in ("num_prompts", "completed", "failed"))
    if not asked or completed != asked or failed != 0:
        return [f"{completed} of {asked} requests completed, {failed} failed"]
    empty = [key for key in POSITIVE if not (result.get(key) or 0) > 0]
    return [f"{key} is {result.get(key)}, and a run that measured something has more than 0" for key in empty]


def measured(points: list[dict[str, Any]], ran: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points with their results, which come in the order of the runs."""
    return [
        {**point, "results": [result for run, result in zip(ran, results) if run["point"] == point["name"]]} for point in points]


def values(result: dict[str, Any]) -> dict[str, float]:
    """The three numbers of a result that are judged.

    decode_tok_s is the speed of one stream after its first token; output_throughput_tok_s is all tokens of all streams over the whole run.
    """
    return {
        "decode_tok_s": 1000 / result["mean_tpot_ms"],
        "output_throughput_tok_s": result["output_throughput"],
        "ttft_ms": result["mean_ttft_ms"],
    }


def points_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The points of a document; one of schema 1 has a single result."""
    return document["points"] if document["schema"] > 1 else [{"name": "single_stream", "options": {}, "results": [document["result"]]}]


def lines(document: dict[str, Any]) -> list[str]:
    """A short table of a document with its verdict. Each number is the median over the repetitions."""
    table = ["{model} on {host}, engine {engine[name]}, {profile}, {started}".format(**document)]
    for point in document["points"]:
        table += _table(point)
    return [
        *table,
        "decode: 1000 / mean TPOT, one stream after its first token",
        "output_throughput: all tokens out / duration, the time to the first token included",
        f"verdict: {document['gate']['verdict']}",
        *(f"  {finding}" for finding in document["gate"]["findings"]),
    ]


def _table(point: dict[str, Any]) -> list[str]:
    results = point["results"]
    counts = ", ".join("{0} {1}".format(key, "+".join(str(each.get(key)) for each in results)) for key in ("completed", "failed"))
    table = [f"{point['name']}: {counts}"]
    if any(findings(each) for each in results):
        return table
    table.append("  {:<18}{:>10}{:>10}{:>10}".format("ms", "mean", "median", "p99"))
    for name in ("ttft", "tpot", "itl"):
        shown = []
        for statistic in ("mean", "median", "p99"):
            each = [result.get(f"{statistic}_{name}_ms") for result in results]
            shown.append("-" if None in each else f"{statistics.median(each):.1f}")
        table.append("  {:<18}{:>10}{:>10}{:>10}".format(name.upper(), *shown))
    for name, key in (("decode", "decode_tok_s"), ("output_throughput", "output_throughput_tok_s")):
        each = [values(result)[key] for result in results]
        table.append(f"  {name:<18}{statistics.median(each):>10.1f}  tok/s ({min(each):.1f} to {max(each):.1f})")
    return table
