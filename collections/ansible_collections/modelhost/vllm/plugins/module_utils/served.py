# GNU General Public License v3.0+ (see LICENSE)
"""The model that serves on a host, as it was applied."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.endpoint import Endpoint


def choose(state: dict[str, Any], requested: str, models: list[dict[str, Any]], engines: list[dict[str, Any]]) -> dict[str, Any]:
    """Choose what is asked or measured: the model that serves.

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
