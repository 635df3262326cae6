# GNU General Public License v3.0+ (see LICENSE)
"""The state of a host as one document, from what its modules say and what the inventory declares. docs/status.md describes it.

A section of which nothing is known is None, and `unknown` says why.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import gpu_findings, report_documents, report_words, versions, weights

Document = dict[str, Any]

# What a section is made from, and how it is called where that has no answer
SECTIONS = {
    "gpu": "GPUs and driver", "host": "system and memory", "engines": "engines", "state": "models", "weights": "weights", "nccl": "NCCL",
    "kept": "what is kept of earlier runs"}
BUSY = ("serving", "loading", "stopping")


def report(host: str, started: str, looked: Document, declared: Document, switch: Document) -> Document:
    """The document of a host.

    looked: what host_report_info returned, with the questions of SECTIONS. declared: models, engines, wish, gpus and versions, the chain of
    versions. switch: of one that is under way or was interrupted what it says, and which of the two; or an empty dict.
    """
    answers = looked["answers"]
    gpu, facts, kept = answers.get("gpu"), answers.get("host", {}).get("facts"), answers.get("kept")
    found = {
        "schema": 1, "host": host, "started": started, "wish": declared["wish"],
        "reached": looked["reached"], "reason": looked["reason"],
        "hardware": _hardware(gpu, facts),
        "versions": _versions(gpu, declared["versions"]),
        "engines": _engines(answers.get("engines"), declared["engines"], kept),
        "models": _models(answers.get("state"), answers.get("weights"), declared["models"], kept),
        "switch": switch,
        "nccl": nccl(answers.get("nccl")),
        "benchmarks": _benchmarks(kept),
        "coherence": None if kept is None else [{"model": model, **each} for model, each in sorted(kept["coherence"].items())],
        "all_reduce": None if kept is None else kept["all_reduce"],
        "findings": _findings(answers, declared),
        "reboot": None if kept is None else kept["reboot"],
        "unknown": [{"what": SECTIONS[name], "why": why} for name, why in looked["unknown"].items()]
        + [{"what": path, "why": "it is no document that can be read"} for path in (kept or {}).get("unreadable", [])],
    }
    state = _state(found)
    return {**found, "state": state, "summary": _summary(found, state), "next_steps": _next_steps(found, declared)}


def _hardware(gpu: Document | None, facts: Document | None) -> Document | None:
    if gpu is None and facts is None:
        return None
    gpu, facts = gpu or {}, facts or {}
    driver = gpu.get("driver", {})
    return {
        "system": facts.get("os_release", {}).get("PRETTY_NAME", ""),
        "kernel": gpu.get("kernel", {}).get("release", ""),
        "architecture": facts.get("architecture", ""),
        "memory_bytes": facts.get("memory", 0),
        "secure_boot": gpu.get("secure_boot", ""),
        "driver": {key: driver.get(key, "") for key in ("loaded", "on_disk", "cuda", "error")},
        "gpus_on_bus": len(gpu.get("pci", [])),
        "gpus": [{
            **{key: each.get(key) for key in ("index", "name", "compute_capability", "memory_total_mib", "memory_used_mib")},
            "link": _link(each.get("link") or {}),
            "power_limit_w": (each.get("power") or {}).get("limit_w"),
        } for each in gpu.get("gpus", [])],
        "xids": len(gpu.get("xids", [])),
        "unknown": [f"{each['what']}: {each['why']}" for each in gpu.get("unknown", [])],
    }


def _link(link: Document) -> str:
    if not link.get("generation_max"):
        return ""
    return "gen {generation_max} x{width} of x{width_max}".format(**link)


def _versions(gpu: Document | None, chain: Document) -> Document:
    """Declared and found, and the contradictions within what is declared."""
    said = versions.version_findings(chain)
    parts = []
    if not versions.shape_findings(chain) and chain["gpus"]["count"]:
        driver, cuda = (gpu or {}).get("driver", {}), chain["cuda"]
        parts = [
            _part("driver", chain["driver"]["version"], driver.get("loaded") or driver.get("on_disk", "")),
            _part("CUDA that the driver runs", "", driver.get("cuda", "")), _part("CUDA toolkit", cuda["selected"])]
    for name, pins in sorted((chain.get("pins") or {}).items()):
        locked = {"torch": pins.get("torch", ""), "CUDA": versions.cuda_of(pins), "NCCL": versions.nccl_of(pins)}
        parts += [_part(part, version, engine=name) for part, version in locked.items() if version]
    return {"parts": parts, "contradictions": said["errors"] + said["warnings"]}


def _part(part: str, declared: str, found: str = "", engine: str = "") -> Document:
    return {"part": part, "engine": engine, "declared": declared, "found": found}


def _engines(answer: Document | None, engines: list[Document], kept: Document | None) -> list[Document] | None:
    if answer is None:
        return None
    named = {each["name"]: f"{each['distribution']} {each['version']}" for each in engines}
    declared = [
        {"name": name, "version": named.get(name, ""), "state": each["state"], "used_by": each["used_by"]}
        for name, each in answer["engines"].items()]
    others = [
        {"name": name, "version": "", "state": "not declared", "used_by": used} for name, used in answer["undeclared"].items()]
    return [{**each, "audit": None if kept is None else kept["audits"].get(each["name"], {})} for each in declared + others]


def _models(state: Document | None, answer: Document | None, catalogue: list[Document], kept: Document | None) -> list[Document] | None:
    if state is None:
        return None
    weighed = {} if answer is None else {each["name"]: _weights(each) for each in answer["models"]}
    logs = (kept or {}).get("failures", {})
    unknown = {"state": "unknown", "bytes": 0, "verified": False, "says": ""}
    found = []
    for name, each in state["models"].items():
        applied, unit = each["applied"], each["unit"]
        found.append({
            "name": name, "state": each["state"], "progress": each["progress"],
            "since": unit["ExecMainStartTimestamp"] if each["state"] in BUSY else "",
            "url": f"http://{applied['host']}:{applied['port']}/v1" if applied else "",
            "engine": applied.get("engine") or next((model["engine"] for model in catalogue if model["name"] == name), ""),
            "applied": bool(applied), "wish_then": applied.get("wish", ""),
            "boot": unit["UnitFileState"] == "enabled",
            "restarts": int(unit["NRestarts"] or 0),
            "pending": [file["file"] for file in each["pending"]],
            "foreign": each["foreign"],
            "weights": weighed.get(name, unknown),
            "log": logs.get(name, []),
        })
    order = ("serving", "loading", "stopping", "failed", "stopped")
    return sorted(found, key=lambda each: (order.index(each["state"]), each["name"]))


def _weights(each: Document) -> Document:
    complete = each["state"] == "complete"
    says = weights.verified_line(each["name"], each).partition(": ")[2] if complete else weights.state_finding(each["name"], each)
    return {
        "state": each["state"], "bytes": each["bytes"], "verified": complete and not each["unverified"] and not each["unpromised"],
        "says": says}


def nccl(answer: Document | None) -> Document | None:
    """What the running processes have, and what is to be said of it."""
    if answer is None:
        return None
    keys = ("name", "value", "origin", "taken", "said")
    return {
        "variables": [
            {"model": model, **{key: each[key] for key in keys}} for model, found in answer["models"].items() if found["running"]
            for each in found["effective"]],
        "notes": answer["findings"] + answer["notes"],
    }


def _benchmarks(kept: Document | None) -> list[Document] | None:
    if kept is None:
        return None
    return [
        {"model": model, "profile": profile, "trend": report_documents.trend(runs), "runs": [
            {**run, "main": report_documents.main_number(run)} for run in runs]}
        for model, profiles in sorted(kept["benchmarks"].items()) for profile, runs in sorted(
            profiles.items(), key=lambda pair: list(report_documents.MAIN).index(pair[0]))]


def _findings(answers: Document, declared: Document) -> list[Document] | None:
    """What host_check would say now; None where nothing was learned that it could judge."""
    gpu, host = answers.get("gpu"), answers.get("host")
    if gpu is None and host is None:
        return None
    found = list(host["findings"]) if host else []
    if gpu and declared["gpus"]["count"] > 0:
        found += gpu_findings.judge(gpu, declared["gpus"])
        found += versions.host_version_findings(declared["versions"], gpu, host["facts"]["os_release"] if host else {})
    return found


def _state(found: Document) -> str:
    if not found["reached"]:
        return "unreachable"
    if found["models"] is None:
        return "unknown"
    states = [each["state"] for each in found["models"]]
    # The wish that fails is what the operator has to know, unless something else serves.
    return next((state for state in ("serving", "loading", "stopping", "failed") if state in states), "stopped")


def _summary(found: Document, state: str) -> str:
    if state == "unreachable":
        return f"could not be reached: {found['reason']}"
    if state == "unknown":
        return "what it serves could not be learned"
    named = [f"{each['name']} is {each['state']}" for each in found["models"] if each["state"] not in ("stopped", "failed")]
    named += [f"{each['name']} has failed" for each in found["models"] if each["state"] == "failed"]
    loading = [each["progress"] for each in found["models"] if each["state"] == "loading" and each["progress"]]
    return "; ".join([*named, *loading]) or "nothing is served"


def _next_steps(found: Document, declared: Document) -> list[str]:
    """What an operator would do now, the first thing first."""
    if not found["reached"]:
        return ["reach the host: power, network, the address and the key in hosts.yml"]
    errors = [each["check"] for each in found["findings"] or [] if each["severity"] == "error"]
    steps = [f"repair what host_check finds ({', '.join(dict.fromkeys(errors))}): the fix stands beside each"] if errors else []
    steps += [
        f"a reboot waits, {reason}: playbooks/site.yml -e reboot_allowed=true, while no model serves" for reason in found["reboot"] or []]
    if found["switch"].get("interrupted"):
        steps.append("finish the interrupted switch: playbooks/switch_model.yml")
    return steps + _engine_steps(found, declared) + _model_steps(found) + _measure_steps(found, declared)


def _engine_steps(found: Document, declared: Document) -> list[str]:
    steps = []
    for each in found["engines"] or []:
        name, audit = each["name"], each["audit"]
        if each["state"] in ("absent", "partial"):
            steps.append(f"install {name}, which is {each['state']}: playbooks/provision.yml")
        elif each["state"] == "changed":
            steps.append(f"{name} was built from another lock or other patches: declare the new ones under a new name")
        elif each["state"] == "complete" and (audit or {}).get("verdict") == "dirty":
            steps.append(f"{name} is not what its wheels say: playbooks/audit_engine.yml, then with -e repair=true")
        elif each["state"] == "complete" and audit == {}:
            steps.append(f"{name} was never audited here: playbooks/audit_engine.yml")
    return steps


def _model_steps(found: Document) -> list[str]:
    models, wish, steps = found["models"] or [], found["wish"], []
    wished = next((each for each in models if each["name"] == wish), None)
    if wished and wished["weights"]["state"] in ("absent", "incomplete"):
        steps.append(f"the weights of {wish} are {wished['weights']['state']}: playbooks/fetch_weights.yml")
    for each in models:
        if each["state"] == "failed":
            steps.append(f"{each['name']} has failed: journalctl -u vllm-{each['name']} on the host, then playbooks/switch_model.yml")
        if each["state"] == "loading":
            steps.append(f"wait for {each['name']}, which is loading")
        if each["foreign"]:
            steps.append(f"take over the unit of {each['name']}, which modelhost did not write: playbooks/site.yml -e adopt=true")
        if each["pending"] and each["state"] != "loading":
            steps.append(f"{each['name']} has {report_words.changes(each['pending'])} pending: playbooks/switch_model.yml")
    if models and not any(each["state"] in (*BUSY, "failed") for each in models):
        steps.append(f"serve the wish, {wish}: playbooks/site.yml")
    for each in models:
        if each["state"] == "serving" and each["name"] != wish and each["wish_then"] not in ("", wish):
            steps.append(f"the inventory now wishes {wish}, and {each['name']} serves: playbooks/switch_model.yml")
    return steps


def _measure_steps(found: Document, declared: Document) -> list[str]:
    if found["benchmarks"] is None:
        return []
    steps = []
    for model in (each["name"] for each in found["models"] or [] if each["state"] == "serving"):
        measured = [each for each in found["benchmarks"] if each["model"] == model]
        if not measured:
            steps.append(f"{model} was never measured here: playbooks/benchmark.yml")
        steps += [
            f"the last {each['profile']} of {model} failed its gate: docs/benchmark.md says what to look at"
            for each in measured if each["runs"][-1]["verdict"] == "fail"]
        checked = [each for each in found["coherence"] if each["model"] == model]
        if not checked:
            steps.append(f"{model} was never asked whether it makes sense: playbooks/check_coherence.yml")
        steps += [
            f"{model} was {each['verdict']} when it was asked last ({each['reason']}): docs/coherence.md" for each in checked
            if each["verdict"] != "coherent"]
    if declared["gpus"]["count"] > 1 and not found["all_reduce"]:
        steps.append("all-reduce was never measured here: playbooks/advise.yml, while nobody has the GPUs")
    return steps
