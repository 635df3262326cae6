# GNU General Public License v3.0+ (see LICENSE)
"""What is wrong with declared NCCL variables, by the rules with which NCCL 2.30.7 reads them. Nothing here asks a host.

NCCL says nothing of a name that it does not know. How it reads a value depends on the variable, and parameters.yml of the role nccl says
which kind each is:

integer     ncclLoadParam(), src/misc/param.cc: strtoll(text, NULL, 0). The digits in front count, 0x is hexadecimal, a leading 0 octal,
            and a word is 0. What does not fit into 64 bits is the default.
level       ncclGetLevel(), src/graph/paths.cc: strcmp() with the names of paths, or, for a digit in front, a number of before 2.4. Anything
            else is ignored without a word.
selection   parseList(), src/graph/tuning.cc: lists of words by function, in any case; an unknown word ends the start. An algorithm that
            was not selected is not taken in place of one that a function does not have (since 2.24), which ends the start as well.
word, set   src/include/param/: one unknown word, and the default is taken. NCCL's documentation gives the words.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from ansible_collections.modelhost.vllm.plugins.module_utils.findings import nearest
from ansible_collections.modelhost.vllm.plugins.module_utils.systemd import quote_environment
from ansible_collections.modelhost.vllm.plugins.module_utils.versions import nccl_of, numbers

Rule = Dict[str, Any]
# What speaks against a value, and what only warns
Judgement = Tuple[str, str]

# topoPathTypeStr, src/graph/topo.cc, up to the last that a level may be; levelsOldToNew, src/graph/paths.cc
_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
_DOCUMENTED_LEVELS = "LOC, NVL, PIX, PXB, PHB, SYS"
_OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")

# ncclFuncStr, src/enqueue.cc, and the algorithms that ncclTopoTuneModel(), src/graph/tuning.cc, gives to each
_ABLE = {
    "Broadcast": {"Ring"},
    "Reduce": {"Ring"},
    "AllGather": {"Ring", "NVLS", "PAT", "CollNetDirect"},
    "ReduceScatter": {"Ring", "NVLS", "PAT", "CollNetDirect"},
    "AllReduce": {"Ring", "Tree", "NVLS", "NVLSTree", "CollNetDirect", "CollNetChain"},
}
_ENDS = "which ends NCCL's start"
# Those that need neither NVSwitch nor a network that reduces
_ANYWHERE = {"Ring", "Tree"}

_NAME = re.compile(r"NCCL_[A-Z0-9_]+\Z")
_LONGEST = 1023  # what NCCL takes of a value in a file: setEnvFile(), src/misc/param.cc
_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)\Z")
_FRONT = re.compile(r"\s*(?P<sign>[+-]?)(?P<digits>0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")  # what strtoll(text, NULL, 0) takes
_SIZE = re.compile(r"\s*([0-9]+)\s*([kKmMgG])(i?[bB])?\s*\Z")
_SWITCH = {"true": 1, "yes": 1, "on": 1, "enable": 1, "enabled": 1, "false": 0, "no": 0, "off": 0, "disable": 0, "disabled": 0}
_INTERFACES = re.compile(r"\^?=?[A-Za-z0-9_.:@-]+(,[A-Za-z0-9_.:@-]+)*\Z")


def nccl_findings(models: Any, table: Dict[str, Any], pins: Dict[str, Dict[str, str]]) -> Dict[str, List[str]]:
    """The errors and the warnings, each one sentence.

    models: the catalogue by name; what is not even of its type, the specification of a model says. table: parameters.yml. pins: the
    packages of each engine as its lock pins them, from which its NCCL follows; an engine that is not there is not judged by version.
    """
    errors: List[str] = []
    warnings: List[str] = []
    for name, model in models.items() if isinstance(models, dict) else ():
        if not isinstance(model, dict):
            continue
        where = f"modelhost_models.{name}"
        environment, declared = model.get("environment"), model.get("nccl")
        errors += [
            f"{where}.environment.{variable}: say it in {where}.nccl, where NCCL's variables are held against NCCL's rules"
            for variable in (environment if isinstance(environment, dict) else ()) if str(variable).startswith("NCCL_")]
        if not isinstance(declared, dict) or not declared:
            continue
        engine = model.get("engine")
        packages = pins.get(engine) if isinstance(engine, str) else None
        version = nccl_of(packages) if packages is not None else table["checked"]
        if not version:
            warnings.append(f"{where}.nccl: {engine} has no NCCL in its lock, so that nothing reads {', '.join(map(str, declared))}")
            version = table["checked"]
        for variable, value in declared.items():
            error, warning = _judged(variable, value, table, version)
            errors += [f"{where}.nccl.{variable}: {error}"] if error else []
            warnings += [f"{where}.nccl.{variable}: {warning}"] if warning else []
        warnings += [f"{where}.nccl: {each}" for each in _together(declared)]
    return {"errors": errors, "warnings": warnings}


def _judged(variable: Any, value: Any, table: Dict[str, Any], version: str) -> Judgement:
    known = {**table["documented"], **table["undocumented"]}
    rule = known.get(variable)
    if rule is None:
        error, warning = _unknown(str(variable), known, table, version)
        return error or _value({"kind": "text"}, value)[0], warning
    since = rule.get("since", "0")
    if numbers(since) > numbers(version):
        return (
            f"NCCL {since} is the first that reads it, and the engine has {version}: remove the line, or take an engine with a newer one",
            "")
    error, warning = _value(rule, value)
    if not error and not warning and variable in table["undocumented"]:
        warning = "NCCL's documentation does not know it, and another version may read it otherwise, or not at all"
    return error, warning


def _unknown(variable: str, known: Dict[str, Rule], table: Dict[str, Any], version: str) -> Judgement:
    # Without the beginning that all have, which would make any two alike
    guess = nearest(variable.upper().removeprefix("NCCL_"), [name.removeprefix("NCCL_") for name in known])
    hint = f"did you mean NCCL_{guess}?" if guess else "remove the line"
    if not variable.startswith("NCCL_"):
        return f"NCCL's variables begin with NCCL_; others belong into `environment`{': ' + hint if variable.upper() in known else ''}", ""
    if variable in table["removed"]:
        removed = table["removed"][variable]
        instead = f"write {removed['instead']}" if "instead" in removed else "remove the line"
        return f"no NCCL since {removed['since']} reads it: {instead}", ""
    if numbers(version) > numbers(table["checked"]) and _NAME.match(variable):
        return "", f"not among the variables of NCCL {table['checked']}, and the engine has {version}; {hint}"
    return f"NCCL knows no such variable and ignores it without a word: {hint}", ""


def _value(rule: Rule, value: Any) -> Judgement:
    if isinstance(value, bool):
        kind = rule.get("kind", "integer")
        fix = f"write {int(value)}" if kind == "integer" else f"write {_allowed(rule)}"
        return f"{value!r} has no spelling of its own in an environment: {fix}", ""
    if not isinstance(value, (str, int, float)):
        return f"{value!r} has no spelling of its own in an environment: write {_allowed(rule)}", ""
    text = str(value)
    if not text and rule.get("empty"):
        return "", ""
    if not text:
        return "it is empty: give it a value, or remove the line", ""
    if len(text) > _LONGEST:
        return f"it has {len(text)} characters, more than any value that NCCL reads: shorten it", ""
    try:
        quote_environment({"NCCL": text})
    except ValueError as error:
        return str(error).partition(": ")[2], ""
    return _KINDS[rule.get("kind", "integer")](rule, text)


def _allowed(rule: Rule) -> str:
    """What can be written, for people."""
    kind = rule.get("kind", "integer")
    if kind == "integer":
        if "values" in rule:
            return " or ".join(map(str, rule["values"]))
        multiple = f"a multiple of {rule['multiple']} " if "multiple" in rule else "a whole number "
        if "max" in rule:
            return f"{multiple}from {rule['min']} to {rule['max']}"
        return f"{multiple}of {rule['min']} or more" if "min" in rule else "a whole number"
    return {
        "level": f"one of {_DOCUMENTED_LEVELS}", "interfaces": "names with commas and without blanks", "path": "an absolute path",
        "number": "a number above 0", "text": "a text"}.get(kind) or f"one of {', '.join(rule['words'])}"


def _fits(rule: Rule, number: int) -> bool:
    if "values" in rule:
        return number in rule["values"]
    return rule.get("min", -2 ** 63) <= number <= rule.get("max", 2 ** 63 - 1) and number % rule.get("multiple", 1) == 0


def read_integer(text: str) -> int:
    """What strtoll(text, NULL, 0) makes of a text."""
    match = _FRONT.match(text)
    if not match:
        return 0
    digits = match["digits"].lower()
    number = int(digits, 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10)
    return -number if match["sign"] == "-" else number


def _meant(text: str) -> Optional[int]:
    """The number that somebody meant who wrote this: 32M, true, 010, or one with blanks around it."""
    size = _SIZE.match(text)
    if size:
        return int(size[1]) * 1024 ** ("kmg".index(size[2].lower()) + 1)
    plain = text.strip()
    if plain.lower() in _SWITCH:
        return _SWITCH[plain.lower()]
    return int(plain) if re.match(r"[+-]?[0-9]+\Z", plain, re.ASCII) else None


def _integer(rule: Rule, text: str) -> Judgement:
    if not _NUMBER.match(text):
        meant = _meant(text)
        fix = str(meant) if meant is not None and _fits(rule, meant) else _allowed(rule)
        what = "begins with 0 as octal numbers do" if re.match(r"[+-]?0[0-9]", text) else "is no whole number"
        return f"{text!r} {what}, NCCL reads {read_integer(text)}: write {fix}", ""
    number = int(text, 0)
    if not -2 ** 63 <= number < 2 ** 63 and "max" not in rule:
        return f"{text} does not fit into 64 bits, NCCL takes its default: write {_allowed(rule)}", ""
    if not _fits(rule, number):
        return f"{text} is not allowed: write {_allowed(rule)}", ""
    if rule.get("power_of_two") and number & (number - 1):
        return "", f"{text} is no power of 2, which NCCL's documentation recommends: write {1 << (number.bit_length() - 1)}"
    return "", ""


def _level(_rule: Rule, text: str) -> Judgement:
    if text in _LEVELS:
        return "", ""
    if re.match(r"[0-9]+\Z", text, re.ASCII):
        name = _OLD_LEVELS[min(int(text), len(_OLD_LEVELS) - 1)]
        return "", f"{text} is a number of before NCCL 2.4 and means {name}; NCCL's documentation advises against numbers: write {name}"
    meant = text.strip().upper()
    fix = meant if meant in _LEVELS else f"one of {_DOCUMENTED_LEVELS}"
    return f"{text!r} is none of NCCL's names, whose case counts, and is ignored without a word: write {fix}", ""


def _word(rule: Rule, text: str) -> Judgement:
    parts = text.split(rule["joined"]) if "joined" in rule else [text]
    wrong = [part for part in parts if (part.upper() if rule.get("any_case") else part) not in rule["words"]]
    return (_not_among(rule, wrong[0]), "") if wrong else ("", "")


def _set(rule: Rule, text: str) -> Judgement:
    wrong = [part for part in (text[1:] if text.startswith("^") else text).split(",") if part.upper() not in rule["words"]]
    return (_not_among(rule, wrong[0]), "") if wrong else ("", "")


def _not_among(rule: Rule, word: str) -> str:
    guess = nearest(word.strip().upper(), rule["words"])
    words = ", ".join(rule["words"])
    return f"{word!r} is not one of {words}, and NCCL ignores the whole value: write {guess or 'one of these'}"


def _selection(rule: Rule, text: str) -> Judgement:
    try:
        chosen, forced = select(rule["words"], text)
    except ValueError as error:
        return str(error), ""
    if "Ring" not in rule["words"]:
        empty = [function for function, words in chosen.items() if not words]
        if empty:
            return f"{text!r} leaves {_and(empty)} without any, which ends the start: select one of {', '.join(rule['words'])}", ""
        if "LL128" in forced:
            return "", (
                "LL128 where the links are not made for it, as over PCI Express, can corrupt data (NCCL's documentation): leave it to NCCL")
        return "", ""
    empty = [function for function, words in chosen.items() if not words & _ABLE[function]]
    if empty:
        fix = "add Ring" if "AllReduce" in empty or ":" in text else f"write 'allreduce:{text.lower()}', or add Ring"
        return f"{text!r} leaves {_and(empty)} without an algorithm, and since NCCL 2.24 none is taken in its place: {fix}", ""
    bound = [function for function, words in chosen.items() if not words & _ABLE[function] & _ANYWHERE]
    if bound:
        return "", (
            f"{text!r} leaves {_and(bound)} only what needs NVSwitch or a network that reduces: add Ring where the machine has neither")
    return "", ""


def select(words: List[str], text: str) -> Tuple[Dict[str, Set[str]], Set[str]]:
    """What parseList() selects for each function, and the words that are asked for by name.

    Raises ValueError for what it refuses, with the word and what to write.
    """
    chosen = {function: set(words) for function in _ABLE}
    forced: Set[str] = set()
    for number, entry in enumerate(text.split(";")):
        function, colon, listed = entry.rpartition(":")
        if ":" in function:
            raise ValueError(f"{entry!r} names more than one function, {_ENDS}: put ; between the lists of functions")
        functions = [each for each in _ABLE if each.lower() == function.lower()] if colon else list(_ABLE)
        if not functions:
            raise ValueError(f"{function!r} is not one of the functions {', '.join(_ABLE)}, {_ENDS}: write one of these")
        if number and not colon:
            raise ValueError(f"{entry!r} says no function, {_ENDS}: write one in front, as before each list but the first")
        named = {_selected(word, words) for word in listed.removeprefix("^").split(",")}
        forced |= set() if listed.startswith("^") else named
        for each in functions:
            chosen[each] = set(words) - named if listed.startswith("^") else named
    return chosen, forced


def _selected(word: str, words: List[str]) -> str:
    for each in words:
        if each.lower() == word.lower():
            return each
    guess = nearest(word.strip(), words)
    raise ValueError(f"{word!r} is not one of {', '.join(words)}, {_ENDS}: write {guess or 'one of these'}")


def _and(names: List[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _interfaces(_rule: Rule, text: str) -> Judgement:
    if _INTERFACES.match(text):
        return "", ""
    return (
        f"{text!r} is no list of names: write them with commas and without blanks, with ^ in front for all but these, = for exact names",
        "")


def _path(_rule: Rule, text: str) -> Judgement:
    return ("", "") if text.startswith("/") else (f"{text!r} is no absolute path, and NCCL expands nothing: write one from / on", "")


def _float(_rule: Rule, text: str) -> Judgement:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    return ("", "") if number > 0 and math.isfinite(number) else (f"{text!r} is no number above 0, and NCCL takes 1: write one", "")


def _text(_rule: Rule, _value_text: str) -> Judgement:
    return "", ""


_KINDS = {
    "integer": _integer, "level": _level, "word": _word, "set": _set, "selection": _selection, "interfaces": _interfaces, "path": _path,
    "number": _float, "text": _text}


def _together(declared: Dict[str, Any]) -> Iterator[str]:
    """What contradicts itself, though each value is fine."""
    text = {str(name): str(value) for name, value in declared.items()}
    if text.get("NCCL_P2P_DISABLE") == "1":
        if "NCCL_P2P_LEVEL" in text:
            yield "NCCL_P2P_LEVEL has no effect beside NCCL_P2P_DISABLE: remove one of them"
        if text.get("NCCL_SHM_DISABLE") == "1":
            yield "NCCL_P2P_DISABLE and NCCL_SHM_DISABLE together leave the GPUs only sockets: remove one of them"
    for kind in ("CTAS", "NCHANNELS"):
        low, high = (text.get(f"NCCL_{end}_{kind}", "") for end in ("MIN", "MAX"))
        if _NUMBER.match(low) and _NUMBER.match(high) and int(low, 0) > int(high, 0):
            yield f"NCCL_MIN_{kind} {low} is above NCCL_MAX_{kind} {high}, and NCCL takes the former: write one range"
