# GNU General Public License v3.0+ (see LICENSE)
"""Reports as pages, from static templates. What a report says is escaped: all of it in HTML, and in Markdown what Markdown acts on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
from ansible_collections.modelhost.vllm.plugins.module_utils import plots, report_words
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import in_words
from markupsafe import Markup

_STATES = {"fail": "fail", "inconclusive": "open"}


def html(documents: list[dict[str, Any]], template: str) -> str:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    figures = {"history": history, "ladder": ladder, "curve": curve}
    return _render(environment, template, documents=documents, **figures)


def markdown(document: dict[str, Any], template: str) -> str:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_plain)
    return _render(environment, template, document=document)


def _render(environment: jinja2.Environment, template: str, **values: Any) -> str:
    text = Path(template).read_text(encoding="utf-8")
    return environment.from_string(text).render(words=report_words, in_words=in_words, **values) + "\n"


def _plain(value: Any) -> Any:
    """A value as text of one line of Markdown."""
    if not isinstance(value, str):
        return value
    text = report_words.plain(value).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*\[\]|#])", r"\\\1", text)


def history(benchmark: dict[str, Any]) -> Markup:
    """How the main number of a profile has gone, from run to run."""
    points = [
        {"x": number, "y": run["main"]["median"], "low": run["main"]["low"], "high": run["main"]["high"],
         "label": report_words.moment(run["started"])[5:10], "mark": _STATES.get(run["verdict"], "")}
        for number, run in enumerate(benchmark["runs"]) if run["main"]]
    unit = report_words.UNITS[report_words.MAIN[benchmark["profile"]][0]]
    title = "{model}, {profile}: {count} runs, {unit}".format(count=len(points), unit=unit, **benchmark)
    return Markup(plots.plot(points, title, "day of the run", unit))


def ladder(benchmark: dict[str, Any]) -> Markup:
    """Output throughput of the newest run by the number of requests at a time."""
    points = [
        {"x": point["load"]["max-concurrency"], "y": each["median"], "low": each["low"], "high": each["high"],
         "label": point["load"]["max-concurrency"]}
        for point in benchmark["runs"][-1]["points"] for each in [point["numbers"].get("output_throughput_tok_s")]
        if each and point["load"].get("max-concurrency")]
    title = "{model}: output throughput by requests at a time".format(**benchmark)
    return Markup(plots.plot(points, title, "requests at a time", "tok/s output throughput", "x"))


def curve(measured: dict[str, Any]) -> Markup:
    """Latency by the size of the message."""
    points = [{"x": each["bytes"], "y": each["latency_us"], "label": _bytes(each["bytes"])} for each in measured["sizes"]]
    title = "all-reduce, {world_size} ranks over {backend}: latency by size".format(**measured)
    return Markup(plots.plot(points, title, "bytes of the message", "microseconds", "xy"))


def _bytes(size: int) -> str:
    for unit, factor in (("Mi", 2**20), ("Ki", 2**10)):
        if size >= factor:
            return f"{size / factor:.0f} {unit}"
    return str(size)
