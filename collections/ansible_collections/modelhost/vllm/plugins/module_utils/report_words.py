# GNU General Public License v3.0+ (see LICENSE)
"""A report in words: what its sections say, and the summary of one screen. The pages say the same in the same words."""

from __future__ import annotations

import datetime
import re
import textwrap
from typing import Any, Iterable

from ansible_collections.modelhost.vllm.plugins.module_utils.report_documents import MAIN
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import in_words

WIDTH = 100
LABEL = 12
UNITS = {"decode_tok_s": "tok/s decode", "output_throughput_tok_s": "tok/s output throughput", "ttft_ms": "ms TTFT"}
UNKNOWN = "unknown, see below"


def moment(started: str) -> str:
    """20261130T094500Z for people; a text of another form stays as it is."""
    try:
        return datetime.datetime.strptime(started, "%Y%m%dT%H%M%SZ").strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return started


def plain(text: str) -> str:
    """A text as one line, without what a terminal acts on."""
    return "".join(char if char.isprintable() else "?" for char in re.sub(r"\s+", " ", text))


def hardware(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return [UNKNOWN]
    memory = f"{in_words(found['memory_bytes'])} of memory" if found["memory_bytes"] else ""
    machine = ", ".join(each for each in (found["system"], f"Linux {found['kernel']}", found["architecture"], memory) if each)
    return [machine, *gpus(found)]


def gpus(found: dict[str, Any]) -> list[str]:
    if not found["gpus"]:
        on_bus = found["gpus_on_bus"]
        if not on_bus:
            return ["no NVIDIA GPU"]
        count = f"{on_bus} GPU{'s' if on_bus > 1 else ''} on the PCI bus"
        return [f"{count}, and nvidia-smi says nothing of them: {found['driver']['error'] or 'no driver'}"]
    kinds: dict[tuple[Any, ...], int] = {}
    for each in found["gpus"]:
        kind = (each["name"], each["memory_total_mib"], each["compute_capability"], each["link"])
        kinds[kind] = kinds.get(kind, 0) + 1
    lines = [
        ", ".join(part for part in (f"{count}x {name}", f"{memory} MiB", f"compute capability {capability}", f"PCIe {link}") if part)
        for (name, memory, capability, link), count in kinds.items()]
    return [*lines, f"driver {found['driver']['loaded']}, which runs CUDA {found['driver']['cuda']}"]


def versions(found: dict[str, Any]) -> list[str]:
    """The contradictions, and a line for the host and for each engine."""
    lines: dict[str, list[str]] = {}
    for each in found["parts"]:
        if each["declared"] or each["found"]:
            differs = each["declared"] and each["found"] not in ("", each["declared"])
            said = f"{each['part']} {each['declared'] or each['found']}" + (f" (found: {each['found']})" if differs else "")
            lines.setdefault(each["engine"], []).append(said)
    pinned = [", ".join(said) if not name else f"{name}: {', '.join(said)}" for name, said in lines.items()]
    return [*(found["contradictions"] or ["the declared chain has no contradiction"]), *(pinned or ["nothing is pinned"])]


def engine(found: dict[str, Any]) -> str:
    audit = found["audit"]
    told = {
        "complete": "built from its lock", "not declared": "not declared" + ("" if found["used_by"] else ", and nothing refers to it")}
    line = f"{found['name']}: {told.get(found['state'], found['state'])}"
    if found["state"] not in ("complete", "changed"):
        return line
    if audit is None:
        return f"{line}; its audit is unknown"
    if not audit:
        return f"{line}; never audited"
    count = len(audit["findings"])
    findings = f" ({count} finding{'s' if count > 1 else ''})" if count else ""
    return f"{line}; {audit['verdict']}{findings} when audited on {moment(audit['started'])}"


def model(found: dict[str, Any], wish: str) -> str:
    notes = [f"since {found['since']}"] if found["since"] else []
    if found["progress"]:
        notes.append(found["progress"])
    if found["foreign"]:
        notes.append("a unit that modelhost did not write: take it over with -e adopt=true")
    if found["applied"]:
        notes.append(f"{found['url']}, engine {found['engine']}")
    if found["boot"]:
        notes.append("starts at boot")
    if found["applied"] and found["name"] != wish:
        chosen = found["wish_then"] == wish
        notes.append("chosen with -e model=" if chosen else f"the inventory now wishes {wish}: apply with switch_model.yml")
    if found["pending"]:
        notes.append(f"{changes(found['pending'])} pending, apply with switch_model.yml")
    return f"{found['name']}: {', '.join([found['state'], *notes])}"


def changes(files: list[str]) -> str:
    return "1 change" if len(files) == 1 else f"{len(files)} changes"


def models(found: list[dict[str, Any]] | None, wish: str) -> list[str]:
    """A line for each model, and one for all of which there is no more to say than that they are stopped."""
    if found is None:
        return [UNKNOWN]
    lines = [(each["name"], model(each, wish)) for each in found]
    stopped = [name for name, line in lines if line == f"{name}: stopped"]
    return [line for name, line in lines if name not in stopped] + ([f"stopped: {', '.join(stopped)}"] if stopped else [])


def nccl(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return [UNKNOWN]
    return [_variable(each) for each in found["variables"]] + found["notes"] or ["no variable is set in a running process"]


def _variable(found: dict[str, str]) -> str:
    if found["origin"] == "default":
        return "{model}: {name} is declared, and the running processes have not got it: apply with switch_model.yml".format(**found)
    taken = {"yes": "; NCCL took it as {said}", "no": "; NCCL did not take it", "unknown": ""}[found["taken"]]
    return ("{model}: {name}={value} ({origin}" + taken + ")").format(**found)


def number(name: str, spread: dict[str, float]) -> str:
    text = "{median:.1f} {unit}".format(unit=UNITS[name], **spread)
    return text if spread["low"] == spread["high"] else "{0} ({low:.1f} to {high:.1f})".format(text, **spread)


def benchmark(found: dict[str, Any]) -> str:
    newest = found["runs"][-1]
    measured = number(MAIN[newest["profile"]][0], newest["main"]) if newest["main"] else "requests failed"
    verdict = f", {newest['verdict']}" if newest["verdict"] else ""
    return f"{found['model']} {found['profile']}: {measured}{verdict}; {trend(found['trend'])}; {moment(newest['started'])}"


def trend(found: dict[str, Any]) -> str:
    if not found:
        return "nothing to compare with yet"
    change, before = found["change_percent"], f"the median of {found['runs']} before"
    return f"{abs(change):.1f} % {'better' if change > 0 else 'worse'} than {before}" if change else f"as {before}"


def coherence(found: dict[str, Any]) -> str:
    return f"{found['model']}: {found['verdict']} ({found['reason']}), {moment(found['started'])}"


def all_reduce(found: dict[str, Any]) -> str:
    head = f"{found['world_size']} ranks over {found['backend']}"
    if found["verdict"] != "ok" or not found["sizes"]:
        return f"{head}: {found['verdict']}, {found['reason'] or 'nothing was measured'}, {moment(found['started'])}"
    small, large = found["sizes"][0], found["sizes"][-1]
    return (
        f"{head}: {small['latency_us']:.1f} us for {small['bytes']} bytes, {large['bus_bandwidth_gb_s']:.1f} GB/s for {large['bytes']}, "
        f"{moment(found['started'])}")


def finding(found: dict[str, str]) -> str:
    return f"{found['severity']}, {found['check']}: {found['seen']}; needed: {found['needed']}; fix: {found['fix']}"


def listed(found: list[Any] | None, say: Any, none: str) -> list[str]:
    """The sentences of a section that is a list."""
    return [UNKNOWN] if found is None else [say(each) for each in found] or [none]


def screen(document: dict[str, Any]) -> list[str]:
    """The summary of a host: at most about 40 lines of WIDTH characters."""
    head = block(document["host"], [document["summary"]], 2)
    if not document["reached"]:
        return [*head, *block("next", document["next_steps"], 2)]
    reduced, switch = document["all_reduce"], document["switch"]
    steps = [f"{index}. {step}" for index, step in enumerate(document["next_steps"], 1)]
    return [
        *head,
        *block("hardware", hardware(document["hardware"]), 4),
        *block("versions", versions(document["versions"]), 4),
        *block("engines", listed(document["engines"], engine, "none declared"), 2),
        *block("models", ([switch["says"]] if switch else []) + models(document["models"], document["wish"]), 6),
        *block("weights", _weights(document["models"]), 2),
        *block("NCCL", nccl(document["nccl"]), 3),
        *block("measured", listed(document["benchmarks"], benchmark, "never"), 4),
        *block("coherence", listed(document["coherence"], coherence, "never asked"), 2),
        *block("all-reduce", [UNKNOWN] if reduced is None else [all_reduce(reduced) if reduced else "never measured"], 2),
        *block("findings", listed(document["findings"], finding, "none"), 3),
        *block("unknown", _unknown(document["unknown"]), 2),
        *block("next", steps or ["nothing to do"], 5),
    ]


def _weights(models: list[dict[str, Any]] | None) -> list[str]:
    if models is None:
        return [UNKNOWN]
    by_state: dict[str, list[str]] = {}
    for each in models:
        state = each["weights"]["state"]
        by_state.setdefault("verified" if each["weights"]["verified"] else state, []).append(each["name"])
    return ["; ".join(f"{state}: {', '.join(names)}" for state, names in by_state.items()) or "no model"]


def _unknown(found: list[dict[str, str]]) -> list[str]:
    if len(found) > 1:
        return [f"{', '.join(each['what'] for each in found)}: report.md says why"]
    return [f"{each['what']}: {each['why']}" for each in found]


def block(label: str, sentences: Iterable[str], most: int) -> list[str]:
    """Sentences behind a label, in at most so many lines; what is left out is said."""
    lines: list[str] = []
    for each in sentences:
        lines += textwrap.wrap(
            plain(each), WIDTH - LABEL, subsequent_indent="  ", break_long_words=True, break_on_hyphens=False) or [""]
    if len(lines) > most:
        lines = [*lines[:most - 1], f"... {len(lines) - most + 1} more lines in report.md"]
    indent = " " * LABEL
    if len(label) >= LABEL:  # the name of a host
        return [label, *(indent + line for line in lines)]
    return [(indent if number else f"{label:<{LABEL}}") + line for number, line in enumerate(lines)]
