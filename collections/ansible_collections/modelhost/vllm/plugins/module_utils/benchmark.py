# GNU General Public License v3.0+ (see LICENSE)
"""What a benchmark measures, how it is asked for, and what its numbers are worth."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.endpoint import Endpoint

# Each is greater than zero in every run that measured something.
POSITIVE = ("duration", "output_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms")


def plan(state: dict[str, Any], requested: str, models: list[dict[str, Any]], engines: list[dict[str, Any]]) -> dict[str, Any]:
    """Choose the model to measure: the one that serves, as it was applied.

    state: what model_state_info returned. requested: `-e model=`, or an empty text. models and engines: the catalogue's entries.

    Returns finding (one sentence, or an empty text), and without a finding model, engine (their entries) and url.
    """
    known = state["models"]
    serving = [name for name, each in known.items() if each["state"] == "serving"]
    if requested and requested not in serving:
        return {"finding": _serves_not(requested, known[requested]["state"], serving)}
    if not serving:
        return {"finding": _nothing_serves(state)}
    if not requested and len(serving) > 1:
        return {"finding": f"{', '.join(serving)} serve on this host: choose one with -e model="}
    name = requested or serving[0]
    entries = [each for each in models if each["name"] == name]
    if not entries:
        return {"finding": f"{name} serves, and modelhost_models does not have it: add its entry, or switch to a model of the catalogue"}
    applied = known[name]["applied"]
    model = {**entries[0], **{key: applied[key] for key in ("engine", "host", "port") if key in applied}}
    built = [each for each in engines if each["name"] == model["engine"]]
    if not built:
        return {"finding": (
            f"{name} serves from the engine {model['engine']}, and modelhost_engines does not have it: add its entry, which says how "
            "its benchmark is started")}
    return {"finding": "", "model": model, "engine": built[0], "url": Endpoint(model["host"], model["port"], "").url}


def _serves_not(requested: str, state: str, serving: list[str]) -> str:
    now = f"{', '.join(serving)} serves" if serving else "nothing is served"
    fix = f"Serve it first with playbooks/switch_model.yml -e model={requested}" + (", or leave -e model= out" if serving else "")
    return f"model: {requested} is {state}, and {now}. {fix}"


def _nothing_serves(state: dict[str, Any]) -> str:
    busy = [f"{model} is {state['models'][model]['state']}" for model in state["busy"]]
    if busy:
        return f"Nothing is served yet: {', '.join(busy)}. Measure once playbooks/status.yml says that it serves"
    return (
        "Nothing is served on this host: start the wished model with playbooks/site.yml, or another with "
        "playbooks/switch_model.yml -e model=NAME")


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


def decode_rate(result: dict[str, Any]) -> float:
    """Tokens per second of one stream after its first token; `output_throughput` is all tokens of all streams over the whole run."""
    return 1000 / result["mean_tpot_ms"]


def lines(document: dict[str, Any]) -> list[str]:
    """A short table of a stored result."""
    result = document["result"]
    table = [
        "{model} on {host}, engine {engine[name]}, {started}".format(**document),
        "completed {completed}, failed {failed}; {total_input_tokens} tokens in, {total_output_tokens} out, {duration:.1f} s".format(
            **result),
        "{:<18}{:>10}{:>10}{:>10}".format("ms", "mean", "median", "p99"),
    ]
    for name in ("ttft", "tpot", "itl"):
        values = [result.get(f"{statistic}_{name}_ms") for statistic in ("mean", "median", "p99")]
        table.append("{:<18}".format(name.upper()) + "".join("{:>10}".format("-" if value is None else f"{value:.1f}") for value in values))
    return [
        *table,
        "{:<18}{:>10.1f}  tok/s: 1000 / mean TPOT, one stream after its first token".format("decode", decode_rate(result)),
        "{:<18}{:>10.1f}  tok/s: all tokens out / duration, the time to the first token included".format(
            "output_throughput", result["output_throughput"]),
    ]
