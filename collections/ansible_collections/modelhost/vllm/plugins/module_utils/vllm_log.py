# GNU General Public License v3.0+ (see LICENSE)
"""How far a vLLM start is, read from what it logs.

The lines move between releases: this is for people, and never evidence that a model serves.
"""

from __future__ import annotations

import re
import statistics

# In the order of a start. Texts seen in vLLM 0.32 and 0.33; a line of an unknown release only makes the stage stay the one before.
_STAGES = [
    (r"non-default args:", "reading the configuration"),
    (r"Resolved architecture: (?P<detail>\S+)", "configuring {detail}"),
    (r"Initializing a V1 LLM engine", "starting the engine"),
    (r"rank \d+ in world size (?P<detail>\d+)", "connecting {detail} rank(s)"),
    (r"Starting to load model", "loading weights"),
    (r"checkpoint shards:\s+(?P<detail>\d+% Completed \| \d+/\d+)", "loading weights: {detail} shards"),
    (r"Loading weights took (?P<detail>[\d.]+ s)", "weights loaded in {detail}"),
    (r"torch.compile took (?P<detail>[\d.]+ s)", "compiled in {detail}"),
    (r"KV cache size: (?P<detail>[\d,]+ tokens)", "KV cache of {detail}"),
    (r"Capturing CUDA graphs[^%]*?(?P<detail>\d+%)", "capturing CUDA graphs: {detail}"),
    (r"init engine .* took (?P<detail>[\d.]+ s)", "engine initialised in {detail}"),
    (r"Starting vLLM server", "starting the server"),
    (r"Application startup complete", "server started"),
]
# A warning may speak of an error that could come: vLLM's about the limit of open files names OSError in each start.
_DECISIVE = re.compile(r"(?!.* WARNING ).*(Error|error:|ERROR|CRITICAL|Traceback|Killed|out of memory)")
# An exception with its message, but not that of a process which only says that another one failed
_CAUSE = re.compile(r"(?!.*(initialization failed|See root cause|See stack trace)).*?\b\w*(Error|Exception): \S")


def stage(lines: list[str]) -> str:
    """The last stage that the lines name."""
    reached = "starting"
    for line in lines:
        for pattern, text in _STAGES:
            match = re.search(pattern, line)
            if match:
                reached = text.format(**match.groupdict())
    return reached


def decisive(lines: list[str], most: int = 8) -> list[str]:
    """The lines that say why a start failed: the last ones that speak of an error, or else simply the last ones.

    The process that failed speaks first, and those that waited for it follow with tracebacks of their own (vLLM 0.32): its exception is
    among the lines however much comes behind it.
    """
    found = [line for line in lines if _DECISIVE.match(line)] or lines
    causes = [number for number, line in enumerate(found) if _CAUSE.match(line)][:most // 4]
    last = range(len(found))[-(most - len(causes)):]
    return [found[number] for number in sorted({*causes, *last})]


def progress(lines: list[str], loads: list[dict[str, object]], elapsed: float) -> str:
    """The stage, and what earlier loads of the model, each with its `seconds`, say about the time left."""
    if not loads:
        return stage(lines)
    usual = statistics.median(float(load["seconds"]) for load in loads)
    if elapsed > usual:
        return f"{stage(lines)}; longer than the usual {duration(usual)}"
    return f"{stage(lines)}; about {duration(usual - elapsed)} left of the usual {duration(usual)}"


def duration(seconds: float) -> str:
    """Seconds for people: 45 s, 31 min, 1 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
