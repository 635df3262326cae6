# GNU General Public License v3.0+ (see LICENSE)
"""Plots as inline SVG: one line of points, its axes and their numbers. Colours and fonts are those of the page around it."""

from __future__ import annotations

import html
import math
from typing import Any

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 26, 18, 42


def plot(points: list[dict[str, Any]], title: str, x: str, y: str, log: str = "") -> str:
    """An SVG of points, each a dict of x, y, label (below the axis) and, if it has them, low, high and mark.

    log: the axes with a logarithmic scale, "", "x", "y" or "xy"; their values are above zero. mark: `fail` is drawn as a cross, `open` as
    a ring, anything else as a dot. An empty text where there are no points.
    """
    if not points:
        return ""
    across = _scale([each["x"] for each in points], LEFT, WIDTH - RIGHT, "x" in log)
    heights = [each[key] for each in points for key in ("low", "y", "high") if key in each]
    ticks = _ticks(min(heights), max(heights), "y" in log)
    up = _scale([*ticks, *heights], HEIGHT - BOTTOM, TOP, "y" in log)
    parts = [f'<text class="name" x="{LEFT}" y="{HEIGHT - 4}">{html.escape(x)}</text>', f'<text class="name" x="2" y="8">{html.escape(y)}</text>']
    for tick in ticks:
        height = up(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="{LEFT - 5}" y="{_at(height + 3.5)}">{_short(tick)}</text>')
    placed = [(across(each["x"]), up(each["y"]), each) for each in points]
    for left, _top, each in _labelled(placed):
        parts.append(f'<text class="tick" text-anchor="middle" x="{left}" y="{HEIGHT - 22}">{html.escape(str(each["label"]))}</text>')
    parts.append('<polyline class="line" points="{0}"/>'.format(" ".join(f"{left},{top}" for left, top, _each in placed)))
    for left, top, each in placed:
        if "low" in each:
            parts.append(f'<line class="spread" x1="{left}" x2="{left}" y1="{up(each["low"])}" y2="{up(each["high"])}"/>')
        parts.append(_mark(left, top, each.get("mark", "")))
    told = html.escape(title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{told}">{"".join(parts)}</svg>'


def _mark(left: float, top: float, mark: str) -> str:
    if mark == "fail":
        return (
            f'<path class="fail" d="M{_at(left - 4)},{_at(top - 4)}L{_at(left + 4)},{_at(top + 4)}'
            f'M{_at(left - 4)},{_at(top + 4)}L{_at(left + 4)},{_at(top - 4)}"/>')
    return f'<circle class="{"open" if mark == "open" else "dot"}" cx="{left}" cy="{top}" r="3.5"/>'


def _scale(values: list[float], begin: float, end: float, log: bool) -> Any:
    """A function from a value to its place between begin and end; one value alone is in the middle."""
    measure = math.log10 if log else float
    low, high = measure(min(values)), measure(max(values))
    if low == high:
        return lambda value: _at((begin + end) / 2)
    return lambda value: _at(begin + (measure(value) - low) / (high - low) * (end - begin))


def _ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers around the values: powers of ten, or three to six steps of 1, 2 or 5. A scale that is not logarithmic begins at 0."""
    if log:
        return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    if high <= 0:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(high))
    step = next(size * factor for factor in (0.2, 0.5, 1.0, 2.0) if high / (size * factor) <= 5)
    return [step * number for number in range(math.ceil(high / step) + 1)]


def _labelled(placed: list[tuple[float, float, dict[str, Any]]], apart: float = 44) -> list[tuple[float, float, dict[str, Any]]]:
    """The points whose labels have room: the last one, and from the first on those that are far enough from each other and from it."""
    *others, last = placed
    chosen: list[tuple[float, float, dict[str, Any]]] = []
    for each in others:
        if last[0] - each[0] >= apart and (not chosen or each[0] - chosen[-1][0] >= apart):
            chosen.append(each)
    return [*chosen, last]


def _short(value: float) -> str:
    """A number of a tick: 0.5, 80, 1.5k."""
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def _at(value: float) -> float:
    return round(value, 1)
