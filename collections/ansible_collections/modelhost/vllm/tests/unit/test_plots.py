"""A plot is SVG that any parser reads, with its points where they belong and nothing in it that acts."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import plots

HISTORY = [
    {"x": 0, "y": 80.0, "low": 79.0, "high": 81.0, "label": "11-20"},
    {"x": 1, "y": 60.0, "low": 59.0, "high": 61.0, "label": "11-21", "mark": "fail"},
    {"x": 2, "y": 82.0, "low": 82.0, "high": 82.0, "label": "11-22", "mark": "open"}]


def drawn(svg: str, name: str) -> list[ElementTree.Element]:
    return [each for each in ElementTree.fromstring(svg).iter() if each.get("class") == name]


def texts(svg: str, name: str) -> list[str]:
    return [each.text for each in drawn(svg, name)]


def test_points_ticks_and_marks() -> None:
    svg = plots.plot(HISTORY, "small, single_stream", "day", "tok/s")
    # 290 units wide from 44, and 140 high from 158 for 0 to 18 for 100
    assert drawn(svg, "line")[0].get("points") == "44.0,46.0 189.0,74.0 334.0,43.2"
    assert texts(svg, "tick") == ["0", "20", "40", "60", "80", "100", "11-20", "11-21", "11-22"]
    assert texts(svg, "name") == ["day", "tok/s"]
    assert [len(drawn(svg, each)) for each in ("dot", "open", "fail", "spread")] == [1, 1, 1, 3]
    assert ElementTree.fromstring(svg).get("aria-label") == "small, single_stream"
    assert ElementTree.fromstring(svg).get("role") == "img"


def test_logarithmic_axes_have_powers_of_ten() -> None:
    svg = plots.plot([{"x": 1024, "y": 20.0, "label": "1 Ki"}, {"x": 1048576, "y": 2000.0, "label": "1 Mi"}], "t", "bytes", "us", "xy")
    assert texts(svg, "tick") == ["10", "100", "1k", "10k", "1 Ki", "1 Mi"]
    assert drawn(svg, "line")[0].get("points") == "44.0,144.0 334.0,50.6"


def test_one_point_is_in_the_middle_and_none_is_no_plot() -> None:
    assert drawn(plots.plot(HISTORY[:1], "t", "x", "y"), "line")[0].get("points") == "189.0,46.0"
    assert plots.plot([], "t", "x", "y") == ""


def test_labels_that_would_cover_each_other_are_left_out() -> None:
    points = [{"x": number, "y": 1.0, "label": f"day {number}"} for number in range(30)]
    shown = [each for each in texts(plots.plot(points, "t", "x", "y"), "tick") if each.startswith("day")]
    assert shown == ["day 0", "day 5", "day 10", "day 15", "day 20", "day 29"]


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [0.3], [1e9, 1.0], [99.9], [100.0], [100.1]])
def test_every_value_lies_within_the_plot(values: list[float]) -> None:
    svg = plots.plot([{"x": number, "y": value, "label": ""} for number, value in enumerate(values)], "t", "x", "y")
    heights = [float(pair.split(",")[1]) for pair in drawn(svg, "line")[0].get("points").split()]
    assert all(18 <= height <= 158 for height in heights)
    assert 2 <= len(texts(svg, "tick")) - len(values) <= 7


def test_text_is_inert() -> None:
    hostile = '"><script>alert(1)</script>'
    svg = plots.plot([{"x": 0, "y": 1, "label": hostile}], hostile, hostile, hostile)
    assert {each.tag for each in ElementTree.fromstring(svg).iter()} == {"svg", "text", "line", "polyline", "circle"}
    assert not re.search(r"<script", svg)
