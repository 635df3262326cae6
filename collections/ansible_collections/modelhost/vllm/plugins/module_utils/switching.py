# GNU General Public License v3.0+ (see LICENSE)
"""What a switch has to do, decided before anything is touched."""

from __future__ import annotations

from typing import Any


def switch_plan(
    state: dict[str, Any], models: dict[str, Any], requested: str, wish: str, replace: bool, force: bool,
) -> dict[str, Any]:
    """Decide from the state of the host and what is asked for.

    state: what model_state_info returned. models: GPUs by model of the catalogue. requested: `-e model=`, or an empty text. wish: the
    inventory's modelhost_served_model. replace: whether a served model may be stopped at all. force: whether even a loading one may.

    Returns action (keep, start, replace, reapply, resume, commit or refuse), target, stop (the models to stop), previous (those to go back
    to: what serves now, or else what was applied last), replaces (the models that cannot be served beside the target) and reason (one
    sentence).
    """
    known = state["models"]
    target = requested or ("" if replace else _kept_choice(known, wish, models)) or wish
    replaces = [model for model in known if model != target and overlap(models.get(model, "all"), models[target])]
    busy = [model for model in state["busy"] if model == target or model in replaces]
    serving = [model for model in busy if known[model]["state"] == "serving"]
    changed = bool(known[target]["pending"] or known[target]["trial"])
    applied = [model for model in replaces + [target] * changed if known[model]["applied"]]
    plan = {"target": target, "stop": [], "previous": _side_by_side(serving or applied, models), "replaces": replaces}

    if not replace:
        others = [model for model in busy if model != target]
        if not busy:
            return {**plan, "action": "start", "reason": f"nothing is served: start {target}"}
        kept = f"{', '.join(busy)} is {known[busy[0]]['state']}"
        if others:
            kept += f" and stays, though {target} is wished: switch with playbooks/switch_model.yml"
        return {**plan, "action": "keep", "reason": kept}

    stuck = [model for model in busy if known[model]["state"] == "loading"]
    reads_declared = known[target]["trial"] == "declared" or not changed
    if busy == stuck == [target] and reads_declared and not force:
        return {**plan, "action": "resume", "reason": f"{target} is loading already: wait for it ({known[target]['progress']})"}
    if stuck and not force:
        since, progress = known[stuck[0]]["unit"]["ExecMainStartTimestamp"], known[stuck[0]]["progress"]
        return {**plan, "action": "refuse", "reason": (
            f"{stuck[0]} is loading since {since} ({progress}). Stopping it would throw that away: wait for it (journalctl -fu "
            f"vllm-{stuck[0]}), or stop it with -e switch_force=true")}
    if busy == serving == [target] and known[target]["trial"] == "declared":
        return {**plan, "action": "commit", "reason": f"{target} serves what an interrupted switch began: make it permanent"}
    if target in serving and not known[target]["pending"] and not known[target]["trial"]:
        others = [model for model in busy if model != target]
        if others:
            return {**plan, "action": "replace", "stop": others, "reason": f"stop {', '.join(others)}, which runs beside {target}"}
        settled = known[target]["applied"].get("wish") == wish
        return {**plan, "action": "keep" if settled else "commit", "reason": f"{target} serves and nothing is pending"}
    if target in serving:
        return {**plan, "action": "reapply", "stop": busy, "reason": (
            f"apply the declared files of {target}, of which {len(known[target]['pending'])} have changed")}
    if busy:
        return {**plan, "action": "replace", "stop": busy, "reason": f"replace {', '.join(busy)} by {target}"}
    return {**plan, "action": "start", "reason": f"nothing is served: start {target}"}


def _kept_choice(known: dict[str, Any], wish: str, models: dict[str, Any]) -> str:
    """The model that an earlier `-e model=` chose. It holds until the inventory's wish is edited, or the model leaves the catalogue."""
    chosen = [model for model, each in known.items() if model in models and each["applied"].get("wish") == wish]
    return (chosen or [""])[0]


def _side_by_side(names: list[str], models: dict[str, Any]) -> list[str]:
    """Those that can be served at once, the first ones first."""
    chosen: list[str] = []
    for name in names:
        if not any(overlap(models.get(name, "all"), models.get(other, "all")) for other in chosen):
            chosen.append(name)
    return chosen


def overlap(one: Any, other: Any) -> bool:
    """Whether two models cannot be served at once: `all` is every GPU, and a model without GPUs is served alone on its host."""
    if "all" in (one, other) or not one or not other:
        return True
    return bool(set(one) & set(other))
