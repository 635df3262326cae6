# GNU General Public License v3.0+ (see LICENSE)
"""Rules about the inventory that need no host. Every broken rule is one sentence: the variable, the value, the rule, the fix."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from typing import Any, Iterable

from ansible_collections.modelhost.vllm.plugins.module_utils.switching import overlap
from ansible_collections.modelhost.vllm.plugins.module_utils.systemd import quote_environment
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import declaration_findings

# systemd.unit(5): a unit's name; a model's is also a file's name and part of a URL, so it is kept simpler.
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?\Z")
# A model's files are NAME.env, NAME.nccl.env and so on, side by side: the files of a model "a.nccl" would be those of "a".
_SUFFIXES = (".service", ".yaml", ".env", ".nccl", ".secret")
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "path": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "list": (list, tuple), "dict": (dict,),
    "raw": (object,),
}


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name most like this one, or an empty text."""
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)), "")


def unknown(variable: str, name: str, known: Iterable[str]) -> str:
    """What to say about a name that is not among the known ones."""
    known = sorted(known)
    guess = nearest(name, known)
    hint = f" Did you mean {guess!r}?" if guess else ""
    return "{0}: {1!r} is not one of {2}.{3}".format(variable, name, ", ".join(known) or "(none)", hint)


def spec_findings(path: str, value: Any, options: dict[str, dict[str, Any]]) -> list[str]:
    """Hold a dict against the options of a specification: keys unknown and missing, empty values, types, choices, to any depth."""
    if value is None:
        return [f"{path} is missing or empty: write its keys below it, as inventory/example does"]
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is not a dict: write its keys below it"]
    found = [unknown(f"{path}.{key}", str(key), options) for key in value if key not in options]
    for key, option in options.items():
        where = f"{path}.{key}"
        if key not in value:
            if option.get("required"):
                found.append(f"{where} is missing: {_first_sentence(option)}")
            continue
        found += _value_findings(where, value[key], option)
    return found


def _value_findings(where: str, value: Any, option: dict[str, Any]) -> list[str]:
    if value is None:
        return [f"{where} is empty: " + (_first_sentence(option) if option.get("required") else "give it a value, or remove the line")]
    wanted = option.get("type", "str")
    fits = isinstance(value, _TYPES[wanted]) and (isinstance(value, bool) <= (wanted in ("bool", "raw")))
    if not fits:
        return [f"{where}: {value!r} is {_type_of(value)}, {wanted} is needed{_quotes(value, wanted)}: {_first_sentence(option)}"]
    if "choices" in option and wanted != "list" and value not in option["choices"]:
        return [unknown(where, str(value), map(str, option["choices"]))]
    if wanted == "dict" and "options" in option:
        return spec_findings(where, value, option["options"])
    if wanted == "list":
        element = {key.replace("elements", "type"): each for key, each in option.items() if key in ("elements", "options", "choices", "description")}
        return [finding for number, each in enumerate(value) for finding in _value_findings(f"{where}[{number}]", each, element)]
    return []


def _type_of(value: Any) -> str:
    """The type's name in a specification; on the controller values are of Ansible's own subclasses."""
    plain = (bool, int, float, str, list, dict)
    return next((each.__name__ for each in plain if isinstance(value, each)), type(value).__name__)


def _quotes(value: Any, wanted: str) -> str:
    """How to write it, where YAML has taken a text for a number or a bool, such as 3.10 or no, or the other way round."""
    if wanted in ("str", "path") and isinstance(value, (bool, int, float)):
        return ", in quotes"
    scalar = isinstance(value, str) and re.match(r"(-?\d+(\.\d+)?|true|false|yes|no|on|off)\Z", value, re.IGNORECASE)
    return ", without quotes" if scalar and wanted in ("int", "float", "bool") else ""


def _first_sentence(option: dict[str, Any]) -> str:
    """The start of a description, without ansible-doc's marks such as C(...)."""
    description = option.get("description", "")
    return re.sub(r"\b[A-Z]\(([^)]*)\)", r"\1", description if isinstance(description, str) else description[0])


def variable_findings(names: Iterable[str], known: Iterable[str], prefixes: Iterable[str]) -> dict[str, list[str]]:
    """Names of variables that nothing reads: `errors` for modelhost's own names, `warnings` for those that begin as a role's (prefixes) do.

    known: every name that something reads. Values are not asked for, since one may be a secret.
    """
    found: dict[str, list[str]] = {"errors": [], "warnings": []}
    known = set(known)
    for name in sorted(set(names) - known):
        own, prefix = name.startswith("modelhost_"), next(filter(name.startswith, prefixes), "modelhost_")
        if own or prefix != "modelhost_":
            guess = nearest(name, (each for each in known if each.startswith(prefix)))
            fix = f"did you mean {guess}? Rename it, or remove it" if guess else "remove it"
            found["errors" if own else "warnings"].append(f"{name}: nothing reads a variable of this name, so it has no effect: {fix}")
    return found


def catalogue_findings(
    models: dict[str, dict[str, Any]],
    engines: dict[str, dict[str, Any]],
    served: str,
    requested: str,
    keys_of: dict[str, Any],
    model_options: dict[str, dict[str, Any]],
    engine_options: dict[str, dict[str, Any]],
) -> list[str]:
    """Everything that is wrong with the catalogue and with what is asked of it.

    served: modelhost_served_model. requested: the extra variable `model`, or an empty text. keys_of: modelhost_api_keys, whose values are
    never said.
    model_options and engine_options are the `options` of the roles' own argument specifications; `name` in them is the dict's key.
    """
    found: list[str] = []
    for variable, catalogue, options in (("modelhost_models", models, model_options), ("modelhost_engines", engines, engine_options)):
        if catalogue is None:
            found.append(f"{variable} is missing or empty: write each entry below its name, as inventory/example does")
            continue
        if not isinstance(catalogue, dict):
            found.append(f"{variable}: {_type_of(catalogue)} given, a dict by name is needed: write each entry below its name")
            continue
        keys = {key: option for key, option in options.items() if key != "name"}
        for name, entry in catalogue.items():
            if not isinstance(name, str) or not _NAME.match(name) or len(name) > 64 or name.endswith(_SUFFIXES):
                found.append(
                    f"{variable}: {name!r} cannot name a systemd unit and files: use at most 64 lower-case letters, digits, '.', '_' and "
                    f"'-', and no ending such as {', '.join(_SUFFIXES)}")
            found += spec_findings(f"{variable}.{name}", entry, keys)
    for variable, name in (("modelhost_served_model", served), ("model", requested)):
        if name is None:
            found.append(f"{variable} is missing or empty: write the name of one model")
        elif not isinstance(name, str):
            found.append(f"{variable}: {name!r} is {_type_of(name)}, the name of one model is needed")
    found = found or _gpu_findings(models) + _key_findings(keys_of, models)
    if found:
        return found
    for name, model in models.items():
        where = f"modelhost_models.{name}"
        if model["engine"] not in engines:
            found.append(unknown(f"{where}.engine", model["engine"], engines) + " Engines are declared in modelhost_engines.")
        found += _address_findings(where, name, model, models)
        found += _serve_findings(where, model.get("serve", {}))
        found += _environment_findings(where, model)
        found += declaration_findings(name, model["weights"])
        found += [
            f"{where}.coherence.{key}: {value} is no number of {unit}: write 1 or more, or remove the line"
            for key, unit in (("max_tokens", "tokens"), ("timeout", "seconds")) for value in [model.get("coherence", {}).get(key, 1)] if value < 1]
        found += [
            f"{where}.expect.{key}: {value} says nothing about a run: write a number above 0, or remove the line"
            for key, value in model.get("expect", {}).items() if not 0 < value < math.inf]
    found += _port_findings(models)
    for variable, name in (("modelhost_served_model", served), ("model", requested)):
        if name not in models and (name or variable != "model"):
            found.append(unknown(variable, name, models) + " Models are declared in modelhost_models.")
    return found


def _key_findings(keys_of: Any, models: dict[str, Any]) -> list[str]:
    if keys_of is None:
        return ["modelhost_api_keys is empty: write {} where no model has a key"]
    if not isinstance(keys_of, dict):
        return [f"modelhost_api_keys is {_type_of(keys_of)}: write a dict of one key for each model"]
    found = [unknown("modelhost_api_keys", str(name), models) for name in keys_of if name not in models]
    for name, key in keys_of.items():
        if not isinstance(key, str) or not key or not key.isprintable():
            found.append(f"modelhost_api_keys.{name}: a key is a text of one line that is not empty; without one, leave the model out")
    return found


def _gpu_findings(models: dict[str, dict[str, Any]]) -> list[str]:
    """The one type that the specification cannot say: a text or a list of numbers."""
    found = []
    for name, model in models.items():
        gpus = model["gpus"]
        indexes = isinstance(gpus, list) and all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in gpus)
        if gpus != "all" and not (indexes and len(set(gpus)) == len(gpus)):
            found.append(f"modelhost_models.{name}.gpus: {gpus!r} is neither 'all' nor a list of different GPUs such as [0, 1]")
    return found


# What the model's entry says elsewhere: two places for one thing would contradict each other one day.
_SAID_ELSEWHERE = {
    "model": "{0}.weights", "served-model-name": "{0}.alias", "host": "{0}.host", "port": "{0}.port", "config": "{0}.serve",
    "CUDA_VISIBLE_DEVICES": "{0}.gpus",
    # Everyone can read a unit's files, except the one for this.
    "api-key": "modelhost_api_keys, in the Vault file", "VLLM_API_KEY": "modelhost_api_keys, in the Vault file"}
# Secrets that no unit needs, since weights are there before a start. The others' readers: huggingface_hub's "Environment variables".
_OF_THE_HUB = ("hf-token", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def _address_findings(where: str, name: str, model: dict[str, Any], models: dict[str, Any]) -> list[str]:
    found = []
    if not 1 <= model["port"] <= 65535:
        found.append(f"{where}.port: {model['port']} is no TCP port: write one from 1 to 65535")
    host = model.get("host", "127.0.0.1")
    if not re.match(r"[A-Za-z0-9.:-]+\Z", host):
        found.append(f"{where}.host: {host!r} is no address that a server binds: write one such as 127.0.0.1 or 0.0.0.0")
    alias = model.get("alias", "")
    if alias in models and alias != name:
        found.append(f"{where}.alias: {alias!r} is the name of another model, whose clients would get this one: choose another alias")
    return found


def _serve_findings(where: str, serve: dict[str, Any]) -> list[str]:
    found = []
    for option, value in serve.items():
        # Behind a dot is a field of an option that takes JSON, such as compilation-config.cudagraph_mode: vLLM takes it as it is written.
        name, dot, field = str(option).partition(".")
        if name.startswith("-") or "_" in name:
            plain = name.lstrip("-").replace("_", "-") + dot + field
            found.append(f"{where}.serve.{option}: write {plain!r}, as `vllm serve --help` does but without the dashes in front")
        elif name in _OF_THE_HUB:
            found.append(_hub_finding(f"{where}.serve.{option}"))
        elif option in _SAID_ELSEWHERE:
            found.append(f"{where}.serve.{option}: say it in {_SAID_ELSEWHERE[option].format(where)}, from where the unit takes it")
        elif value is None:
            found.append(f"{where}.serve.{option} is empty: vLLM would read the text 'None'; give it a value, or remove the line")
    return found


def _hub_finding(variable: str) -> str:
    return (
        f"{variable}: everyone on the host can read it there, and the unit fetches nothing: write the token as modelhost_hub_token, in the "
        "Vault file, for the fetch alone")


def _environment_findings(where: str, model: dict[str, Any]) -> list[str]:
    found = []
    for name, value in model.get("environment", {}).items():
        if name in _SAID_ELSEWHERE:
            found.append(f"{where}.environment.{name}: say it in {_SAID_ELSEWHERE[name].format(where)}, from where the unit takes it")
        elif name in _OF_THE_HUB:
            found.append(_hub_finding(f"{where}.environment.{name}"))
        elif name in ("CUDA_HOME", "CUDA_PATH") and not re.match(r"/[^:\s]+\Z", str(value)):
            found.append(
                f"{where}.environment.{name}: {value!r} is not one absolute path, and programs put /bin/nvcc behind it: write the folder "
                "of one toolkit, or leave it out for that of modelhost_cuda")
        try:
            quote_environment({name: value})
        except ValueError as error:
            found.append(f"{where}.environment.{error}")
    return found


def _port_findings(models: dict[str, dict[str, Any]]) -> list[str]:
    """One sentence for each model that does not go with the others: those with the ports that most models have come first."""
    found = []
    shared = Counter(model["port"] for model in models.values())
    names = sorted((name for name in models if 1 <= models[name]["port"] <= 65535), key=lambda name: -shared[models[name]["port"]])
    for number, other in enumerate(names):
        for one in names[:number]:
            same_port = models[one]["port"] == models[other]["port"]
            same_gpus = overlap(models[one]["gpus"], models[other]["gpus"])
            if same_gpus and not same_port:
                found.append(
                    f"modelhost_models.{other}.port: {models[other]['port']} differs from {models[one]['port']} of {one}, which takes the "
                    "same GPUs: give both one port, so that clients keep their address after a switch")
                break
            if same_port and not same_gpus:
                found.append(
                    f"modelhost_models.{other}.port: {models[other]['port']} is also the port of {one}, which takes other GPUs and may "
                    "serve at the same time: give each set of GPUs a port of its own")
                break
    return found + _alias_findings(models)


def _alias_findings(models: dict[str, dict[str, Any]]) -> list[str]:
    found = []
    named = [(name, model["port"], model["alias"]) for name, model in models.items() if model.get("alias")]
    shared = Counter((port, alias) for _name, port, alias in named)
    first: dict[int, tuple[str, str]] = {}  # what the most models of each port have, and one of these
    for name, port, alias in sorted(named, key=lambda each: -shared[each[1:]]):
        other, usual = first.setdefault(port, (name, alias))
        if alias != usual:
            found.append(
                f"modelhost_models.{name}.alias: {alias!r} differs from {usual!r} of {other}, which has the same "
                f"port {port}: give both one alias, so that clients keep their name for the model after a switch")
    return found
