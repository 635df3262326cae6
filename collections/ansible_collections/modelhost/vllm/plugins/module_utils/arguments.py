# GNU General Public License v3.0+ (see LICENSE)
"""What an engine has said about the arguments of models (arguments_probe.py), as findings, and what it is asked."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shlex
from typing import Any, Iterable

from ansible_collections.modelhost.vllm.plugins.module_utils import systemd
from ansible_collections.modelhost.vllm.plugins.module_utils.engine_tree import digest_of
from ansible_collections.modelhost.vllm.plugins.module_utils.findings import nearest

# Options that releases have dropped, and why. "absent since" is the first of the releases looked at that lacks it: 0.13.0, 0.15.1, 0.17.0,
# 0.18.0, 0.20.0, 0.24.0, 0.28.0 and 0.30.0 to 0.33.0.
GONE = {
    "num-scheduler-steps": "it set the multi-step scheduling of the V0 engine, and the V1 engine has none (absent since 0.13): remove it",
    "use-v2-block-manager": "it chose between block managers of the V0 engine (absent since 0.13): remove it",
    "guided-decoding-backend": "it is a field of another option now (absent since 0.13): write structured-outputs-config: {backend: ...}",
    "enable-reasoning": "reasoning-parser says it alone (absent since 0.13): remove it",
    "swap-space": "the V1 engine computes anew instead of swapping (absent since 0.18): remove it",
    # vLLM's own hint, utils/argparse_utils.py of 0.32
    "task": "write runner: pooling, and convert: embed, classify or reward where a generative model is adapted",
}
# Variables that releases have dropped, and the option that took over; "" for none. Known in one of the releases above, unknown in a later.
TOOK_OVER = {
    "VLLM_ATTENTION_BACKEND": "attention-backend",
    "VLLM_USE_FLASHINFER_MOE_FP4": "moe-backend",
    "VLLM_FLASHINFER_MOE_BACKEND": "moe-backend",
    "VLLM_NVFP4_GEMM_BACKEND": "linear-backend",
    "VLLM_ALL2ALL_BACKEND": "all2all-backend",
    "VLLM_USE_V1": "",
}
# Options that the model's entry says elsewhere (roles/model_unit/vars/main.yml)
ELSEWHERE = {"model": "weights", "served-model-name": "alias", "host": "host", "port": "port"}
OPPOSITE = {"enable-": "disable-", "disable-": "enable-"}


def question(model: str, texts: dict[str, str | None]) -> dict[str, Any]:
    """What an engine is asked about a model, from its declared files.

    `console` is whether the unit starts `vllm serve`, which reads the file in another way than the server's module does.
    """
    start = re.search(r"^ExecStart=(.*)$", texts.get(f"vllm-{model}.service") or "", re.MULTILINE)
    words = shlex.split(start.group(1)) if start else []
    return {
        "yaml": texts[f"{model}.yaml"], "variables": systemd.parse_environment(texts.get(f"{model}.env") or ""),
        "console": "serve" in words[1:2]}


def files_of(yaml: str) -> list[str]:
    """The files that the answer depends on: those that the text names, and those in a folder that it names. vLLM reads heads of weights."""
    named = set(re.findall(r"/[^\s'\",\]}]+", yaml))
    folders = {path for path in named if os.path.isdir(path)} | {os.path.dirname(path) for path in named if path.endswith(".gguf")}
    found = {path for path in named if os.path.isfile(path)}
    for folder in folders:
        found.update(path for path in glob.glob(os.path.join(glob.escape(folder), "*")) if os.path.isfile(path))
    return sorted(found)


def key(asked: dict[str, Any], mark: str, sources: Iterable[str]) -> str:
    """What an answer is kept under: the question, the engine's mark, the files that it depends on, and the text of what asks and judges."""
    parts = [asked, mark, list(sources), [(path, fingerprint(path)) for path in files_of(asked["yaml"])]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def fingerprint(path: str) -> list[Any]:
    """Who may read a file, and its digest; of one that is not text, such as weights, size and time instead."""
    status = os.stat(path)
    text = path.endswith((".json", ".py", ".jinja"))
    return [status.st_mode, status.st_uid, status.st_gid, *([digest_of(path)] if text else [status.st_size, status.st_mtime_ns])]


def judge(model: str, engine: str, lists: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The findings and what stays unchecked, from an engine's answer about a model and its lists of options and variables."""
    findings = []
    for each in answer["refused"]:
        sentence, near = _sentence(model, engine, lists, each)
        findings.append({
            "option": each["option"], "value": each["value"], "allowed": each["allowed"], "nearest": near, "sentence": sentence})
    unchecked = [f"modelhost_models.{model}: {engine} has not checked {each['what']}: {each['said']}" for each in answer["unasked"]]
    if lists["cuda"]:
        unchecked.append(
            f"{engine} is a build for CUDA and was asked as if there were no GPU: whether the GPUs' kernels take these options, and "
            "whether memory suffices, shows at the start")
    return {"engine": engine, "findings": findings, "unchecked": unchecked, "arguments": answer["arguments"]}


def silent(model: str, engine: str, why: str) -> dict[str, Any]:
    """The judgement where an engine that is installed gives no answer about a model."""
    sentence = (
        f"modelhost_models.{model}.engine: {engine} gave no answer about the options: {why}. An engine that cannot read them cannot serve "
        "either: ansible-playbook playbooks/audit_engine.yml says whether it is what its wheels say")
    finding = {"option": "", "value": None, "allowed": [], "nearest": "", "sentence": sentence}
    return {"engine": engine, "findings": [finding], "unchecked": [], "arguments": {}}


def unasked(model: str, engine: str, why: str) -> dict[str, Any]:
    """The judgement where an engine cannot be asked yet."""
    return {
        "engine": engine, "findings": [], "unchecked": [f"modelhost_models.{model}: {engine} was not asked about the options: {why}"],
        "arguments": {}}


def _sentence(model: str, engine: str, lists: dict[str, Any], each: dict[str, Any]) -> tuple[str, str]:
    option, value, why, allowed, said = each["option"], each["value"], each["why"], each["allowed"], each["said"]
    place = f"serve.{option}" if option else "serve"
    if why.startswith("variable"):
        place = f"environment.{option}"
    elif option in ELSEWHERE:
        place = ELSEWHERE[option]
    where = f"modelhost_models.{model}.{place}"
    if why == "variable":
        return _variable(where, engine, lists, option)
    if why == "unknown":
        return _unknown(where, engine, lists["options"], option, value)
    if why == "abbreviation":
        names = ", ".join(allowed[:5]) + (", ..." if len(allowed) > 5 else "")
        later = "and a later release may have one more that begins so: write it in full"
        return f"{where}: abbreviates {names} of {engine}, {later}", allowed[0]
    if why == "twice":
        return f"{where} and serve.{allowed[0]} are one option of {engine}, which would take the last: keep one of them", allowed[0]
    if allowed and why != "lost":
        near = nearest(str(value), allowed)
        hint = f"; did you mean {near!r}?" if near else ""
        return f"{where}: {value!r} is not one of those that {engine} takes: {', '.join(allowed)}{hint}", near
    if why == "lost":
        return f"{where}: {_lost(option, value, said, allowed)} ({engine})", "".join(allowed)
    shown = "" if option == "" else f"{json.dumps(value)}: "
    return f"{where}: {shown}{engine} refuses this: {said or 'without a word'}{_fix(option, value, why)}", ""


def _variable(where: str, engine: str, lists: dict[str, Any], name: str) -> tuple[str, str]:
    over = TOOK_OVER.get(name)
    near = nearest(name, lists["variables"])
    fix = "remove it" if over is not None or not near else f"did you mean {near}?"
    if over and over in lists["options"]:
        fix, near = f"serve.{over} took over", over
    return f"{where}: {engine} does not know this variable, so that it would have no effect: {fix}", near


def _unknown(where: str, engine: str, options: list[str], option: str, value: Any) -> tuple[str, str]:
    if option in GONE:
        return f"{where}: {engine} has no such option: {GONE[option]}", ""
    for prefix, other in OPPOSITE.items():
        opposite = other + option[len(prefix):]
        if option.startswith(prefix) and opposite in options and isinstance(value, bool):
            said = json.dumps(not value)
            return f"{where}: {engine} has no such option, but its opposite: write {opposite}: {said}, or remove the line", opposite
    near = nearest(option.partition(".")[0], options)
    fix = f"did you mean {near}?" if near else "remove the line, or name an engine that has it"
    return f"{where}: {engine} has no such option: {fix}", near


def _lost(option: str, value: Any, said: str, negated: list[str]) -> str:
    if "." in option:
        return f"{json.dumps(value)} does not reach the process through vLLM's --config file{_as_dict(option, value)}"
    if value is False:
        fix = f"write {negated[0]}: true" if negated else "remove the line"
        return f"vLLM's --config file drops this false, and the process {said}: {fix}"
    if value is None:
        return f"vLLM's --config file makes the text 'None' of null, and the process {said}: give it a value, or remove the line"
    return f"{json.dumps(value)} does not reach the process through vLLM's --config file: it {said}; write one value, or remove the line"


def _fix(option: str, value: Any, why: str) -> str:
    """What to write instead, as far as the kind of the value says it."""
    if why != "parser":
        return ""
    if value is None:
        return "; vLLM's --config file makes the text 'None' of null: give it a value, or remove the line"
    if "." in option:
        return _as_dict(option, value)
    if isinstance(value, list):
        return f"; if the option takes JSON, write it as a text: '{json.dumps(value)}'"
    return ""


def _as_dict(option: str, value: Any) -> str:
    """How to write a field of an option that takes JSON."""
    text = json.dumps(value)
    for field in reversed(option.split(".")[1:]):
        text = f"{{{field}: {text}}}"
    return f"; write it as a dict, {option.partition('.')[0]}: {text}"
