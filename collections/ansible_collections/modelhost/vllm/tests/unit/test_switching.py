"""What a switch does, as a table over the state of the host."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils.switching import overlap, switch_plan

ALL = {"a": "all", "b": "all"}
SITE = {"replace": False, "force": False}
SWITCH = {"replace": True, "force": False}
FORCED = {"replace": True, "force": True}


def host(
    applied: dict[str, str] | None = None, pending: dict[str, int] | None = None, trial: dict[str, str] | None = None, **states: str,
) -> dict[str, Any]:
    """Models in these states. By model: the wish when it was applied, the number of pending files, and what is on trial."""
    models = {
        name: {
            "state": state,
            "applied": {"wish": applied[name]} if applied and name in applied else {},
            "pending": [{"file": str(number), "diff": ""} for number in range((pending or {}).get(name, 0))],
            "trial": (trial or {}).get(name, ""),
            "progress": "loading weights" if state == "loading" else "",
            "unit": {"ExecMainStartTimestamp": "Mon 09:00"},
        } for name, state in states.items()
    }
    return {"models": models, "busy": [name for name, state in states.items() if state in ("serving", "loading", "stopping")]}


@pytest.mark.parametrize(("state", "requested", "wish", "how", "expected"), [
    # site.yml: start where nothing is served, and never stop
    (host(a="stopped", b="stopped"), "", "a", SITE, ("start", "a", [], [], "nothing is served: start a")),
    (host(a="failed", b="stopped"), "", "a", SITE, ("start", "a", [], [], "nothing is served: start a")),
    (host(a="serving", b="stopped"), "", "a", SITE, ("keep", "a", [], ["a"], "a is serving")),
    (host(a="serving", b="stopped", pending={"a": 2}), "", "a", SITE, ("keep", "a", [], ["a"], "a is serving")),
    (host(a="loading", b="stopped"), "", "a", SITE, ("keep", "a", [], [], "a is loading")),
    (host(a="stopping", b="stopped"), "", "a", SITE, ("keep", "a", [], [], "a is stopping")),
    (host(a="stopped", b="serving"), "", "a", SITE,
     ("keep", "a", [], ["b"], "b is serving and stays, though a is wished: switch with playbooks/switch_model.yml")),
    # site.yml: an earlier -e model= holds until the wish is edited
    (host(a="stopped", b="serving", applied={"b": "a"}), "", "a", SITE, ("keep", "b", [], ["b"], "b is serving")),
    (host(a="stopped", b="stopped", applied={"b": "a"}), "", "a", SITE, ("start", "b", [], [], "nothing is served: start b")),
    # What was applied last is what a start that fails goes back to
    (host(a="stopped", b="stopped", applied={"b": "b"}), "", "a", SITE, ("start", "a", [], ["b"], "nothing is served: start a")),
    (host(a="stopped", b="stopped", applied={"b": "a"}), "a", "a", SITE, ("start", "a", [], ["b"], "nothing is served: start a")),
    (host(a="stopped", gone="stopped", applied={"gone": "a"}), "", "a", SITE, ("start", "a", [], ["gone"], "nothing is served: start a")),
    (host(a="stopped", gone="serving", applied={"gone": "a"}), "", "a", SITE,
     ("keep", "a", [], ["gone"], "gone is serving and stays, though a is wished: switch with playbooks/switch_model.yml")),
    # switch_model.yml
    (host(a="stopped", b="stopped"), "", "a", SWITCH, ("start", "a", [], [], "nothing is served: start a")),
    (host(a="stopped", b="stopped"), "b", "a", SWITCH, ("start", "b", [], [], "nothing is served: start b")),
    (host(a="serving", b="stopped", applied={"a": "a"}), "b", "a", SWITCH, ("replace", "b", ["a"], ["a"], "replace a by b")),
    (host(a="stopped", b="serving", applied={"b": "a"}), "", "a", SWITCH, ("replace", "a", ["b"], ["b"], "replace b by a")),
    (host(a="stopped", gone="serving"), "", "a", SWITCH, ("replace", "a", ["gone"], ["gone"], "replace gone by a")),
    (host(a="failed", b="stopping"), "", "a", SWITCH, ("replace", "a", ["b"], [], "replace b by a")),
    (host(a="serving", b="stopped", applied={"a": "a"}), "", "a", SWITCH, ("keep", "a", [], ["a"], "a serves and nothing is pending")),
    (host(a="serving", b="stopped", applied={"a": "a"}, pending={"a": 2}), "", "a", SWITCH,
     ("reapply", "a", ["a"], ["a"], "apply the declared files of a, of which 2 have changed")),
    # The wish was edited to the model that an earlier -e model= chose, or somebody started the unit by hand: only the record is missing
    (host(a="serving", b="stopped", applied={"a": "a"}, pending={"a": 1}, trial={"a": "declared"}), "", "a", SWITCH,
     ("commit", "a", [], ["a"], "a serves what an interrupted switch began: make it permanent")),
    (host(a="serving", b="stopped", applied={"a": "a"}, trial={"a": "other"}), "", "a", SWITCH,
     ("reapply", "a", ["a"], ["a"], "apply the declared files of a, of which 0 have changed")),
    (host(a="serving", b="stopped", applied={"a": "b"}), "", "a", SWITCH, ("commit", "a", [], ["a"], "a serves and nothing is pending")),
    (host(a="serving", b="stopped"), "", "a", SWITCH, ("commit", "a", [], ["a"], "a serves and nothing is pending")),
    # Two units of one GPU set, one of them started by hand: the target is not interrupted
    (host(a="serving", b="serving", applied={"a": "a"}), "", "a", SWITCH, ("replace", "a", ["b"], ["a"], "stop b, which runs beside a")),
    # A load is not thrown away, the target's neither
    (host(a="loading", b="stopped"), "b", "a", SWITCH,
     ("refuse", "b", [], [], "a is loading since Mon 09:00 (loading weights). Stopping it would throw that away: wait for it (journalctl -fu vllm-a), or "
                             "stop it with -e switch_force=true")),
    # The target loads, with what is declared: an interrupted switch, or a boot. With anything else it would have to start anew.
    (host(a="loading", b="stopped"), "", "a", SWITCH, ("resume", "a", [], [], "a is loading already: wait for it (loading weights)")),
    (host(a="loading", b="stopped", trial={"a": "declared"}, pending={"a": 1}, applied={"b": "b"}), "", "a", SWITCH,
     ("resume", "a", [], ["b"], "a is loading already: wait for it (loading weights)")),
    (host(a="loading", b="stopped", trial={"a": "declared"}, pending={"a": 1}, applied={"a": "a"}), "", "a", SWITCH,
     ("resume", "a", [], ["a"], "a is loading already: wait for it (loading weights)")),
    (host(a="loading", b="stopped", trial={"a": "other"}), "", "a", SWITCH,
     ("refuse", "a", [], [], "a is loading since Mon 09:00 (loading weights). Stopping it would throw that away: wait for it (journalctl -fu "
                             "vllm-a), or stop it with -e switch_force=true")),
    (host(a="loading", b="stopped", pending={"a": 1}), "", "a", SWITCH,
     ("refuse", "a", [], [], "a is loading since Mon 09:00 (loading weights). Stopping it would throw that away: wait for it (journalctl -fu "
                             "vllm-a), or stop it with -e switch_force=true")),
    (host(a="loading", b="stopped", applied={"b": "a"}), "b", "a", FORCED, ("replace", "b", ["a"], [], "replace a by b")),
    (host(a="loading", b="stopped", applied={"b": "a"}, pending={"b": 1}), "b", "a", FORCED, ("replace", "b", ["a"], ["b"], "replace a by b")),
    (host(a="serving", b="loading"), "", "a", SWITCH,
     ("refuse", "a", [], ["a"], "b is loading since Mon 09:00 (loading weights). Stopping it would throw that away: wait for it (journalctl -fu vllm-b), or "
                              "stop it with -e switch_force=true")),
    (host(a="loading", b="stopped"), "b", "a", FORCED, ("replace", "b", ["a"], [], "replace a by b")),
    (host(a="loading", b="stopped"), "", "a", FORCED, ("replace", "a", ["a"], [], "replace a by a")),
    (host(a="serving", b="stopped", applied={"a": "a"}), "", "a", FORCED, ("keep", "a", [], ["a"], "a serves and nothing is pending")),
])
def test_plan(state: dict, requested: str, wish: str, how: dict[str, bool], expected: tuple) -> None:
    plan = switch_plan(state, ALL, requested, wish, **how)
    assert (plan["action"], plan["target"], plan["stop"], plan["previous"], plan["reason"]) == expected


def test_a_switch_from_two_models_goes_back_to_both() -> None:
    gpus = {"a": [0, 1], "b": [2, 3], "all": "all"}
    plan = switch_plan(host(a="serving", b="serving", all="stopped"), gpus, "all", "all", **SWITCH)
    assert (plan["stop"], plan["previous"]) == (["a", "b"], ["a", "b"])


def test_a_model_on_other_gpus_is_left_alone() -> None:
    gpus = {"a": [0, 1], "b": [2, 3], "c": [1, 2]}
    state = host(a="stopped", b="serving", c="stopped")
    assert switch_plan(state, gpus, "", "a", **SITE)["action"] == "start"
    assert switch_plan(state, gpus, "", "a", **SWITCH) == {
        "target": "a", "stop": [], "previous": [], "replaces": ["c"], "action": "start", "reason": "nothing is served: start a"}
    assert switch_plan(state, gpus, "c", "a", **SWITCH)["stop"] == ["b"]
    assert switch_plan(host(a="serving", b="loading", c="stopped"), gpus, "c", "a", **FORCED)["stop"] == ["a", "b"]


@pytest.mark.parametrize(("one", "other", "expected"), [
    ("all", "all", True), ("all", [7], True), ([0], "all", True), ([0, 1], [1, 2], True), ([0, 1], [2, 3], False),
    ([], [], True), ([], [0], True), ("all", [], True),
])
def test_overlap(one: Any, other: Any, expected: bool) -> None:
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected
