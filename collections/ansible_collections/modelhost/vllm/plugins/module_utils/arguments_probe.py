# GNU General Public License v3.0+ (see LICENSE)
"""What an engine's own packages say about the arguments of models. This file is run by the engine's Python, see engine_args_info.

Each option is parsed alone first, so that every mistake is found and each is known by its option; then all together, as the unit starts
vLLM. What the parser takes is held against what was declared, since vLLM's `--config` file loses some values without a word. Then the
engine's configuration is built, which needs the model's config.json and no weights.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import re
import sys
from typing import Any, Callable, Iterator

MARK = "modelhost-arguments: "  # in front of an answer, since packages print too
# A package that does not have what is called, or takes it in another form, is another release than this file knows.
MOVED = (ImportError, AttributeError)
# vLLM's own list of what it never logs: _SENSITIVE_ARG_FIELDS of 0.32 (entrypoints/serve/utils/api_utils.py)
SECRET = ("api_key", "hf_token", "watermark_config")
# Variables that say where the probe itself may write and what it runs on
KEPT = ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_TARGET_DEVICE")


class Refused(Exception):
    """What vLLM's parser says where it would end the process."""


def module(name: str) -> Any:
    return importlib.import_module(name)


def one_line(text: str) -> str:
    """A text in one line of bearable length, without pydantic's notes on types and its links."""
    text = " ".join(re.sub(r" \[type=.*?, input_type=\w+\]|For further information visit \S+", "", text).split())
    return text if len(text) <= 600 else text[:600] + " ..."


def said(error: BaseException) -> str:
    """An error in one line; of pydantic's only the fields and what is wrong with each."""
    try:
        text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}".lstrip(": ") for each in error.errors())
    except AttributeError:
        text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    return one_line(text) or type(error).__name__


class Engine:
    """The parser of an engine's server, and its list of environment variables.

    Raises ImportError or AttributeError where a release has moved them.
    """

    def __init__(self, console: bool) -> None:
        serve, utils = module("vllm.entrypoints.cli.serve"), module("vllm.utils.argparse_utils")
        self.validate = serve.validate_parsed_serve_args
        self.read_yaml = utils.yaml.safe_load
        self.parser = serve.make_arg_parser(utils.FlexibleArgumentParser(prog="vllm serve", allow_abbrev=False))
        self.options = self.parser._option_string_actions
        # `vllm serve` reads the file with the parser of `vllm`, which knows no option of `serve`, so that it drops every false
        # (entrypoints/cli/main.py and utils/argparse_utils.py, load_config_file, 0.32 and 0.33).
        self.reader = utils.FlexibleArgumentParser() if console else self.parser
        self.start = {"subparser": "serve"} if console else {}
        self.variables = module("vllm.envs").environment_variables

        def refuse(message: str) -> None:
            raise Refused(message)

        self.parser.error = refuse
        self.defaults = self.parser.parse_args([])

    def action(self, key: str) -> Any:
        return self.options.get("--" + key.partition(".")[0].replace("_", "-"))

    def words(self, values: dict[str, Any]) -> list[str]:
        """The command line that vLLM makes of a file with these values."""
        with open("one.yaml", "w", encoding="utf-8") as stream:
            stream.writelines(
                f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False, default=str)}\n"
                for key, value in values.items())
        return self.reader.load_config_file("one.yaml")

    def parse(self, words: list[str]) -> argparse.Namespace:
        try:
            return self.parser.parse_args(words, argparse.Namespace(**self.start))
        except SystemExit as error:  # --help and the like
            raise Refused("vLLM would print and end") from error


def judge_option(engine: Engine, key: str, value: Any) -> dict[str, Any]:
    """What is wrong with one option; {} for nothing."""
    action = engine.action(key)
    if action is None:
        longer = sorted(each[2:] for each in engine.options if each.startswith("--" + key.partition(".")[0].replace("_", "-")))
        return {"why": "abbreviation" if longer else "unknown", "allowed": longer}
    choices = [str(each) for each in action.choices or [] if each is not None]
    try:
        words = engine.words({key: value})
        parsed = engine.parse(words)
    except Refused as error:
        text = str(error)
        start = text.find(": ") + 2 if text.startswith("argument ") else 0
        return {"why": "parser", "said": one_line(text[start:]), "allowed": choices if "invalid choice" in text else []}
    except Exception as error:  # a value that vLLM's reader trips over
        return {"why": "parser", "said": f"{type(error).__name__}: {said(error)}", "allowed": []}
    got = getattr(parsed, action.dest)
    stray = [getattr(parsed, each.dest) for each in engine.parser._actions if not each.option_strings]
    if stray != [getattr(engine.defaults, each.dest) for each in engine.parser._actions if not each.option_strings]:
        return {"why": "lost", "said": f"takes {stray[0]!r} for the name of a model", "allowed": []}
    if "." in key and words or "." not in key and fits(value, got):
        return {}
    negated = ["no-" + key] if "--no-" + key in engine.options and value is False else []
    return {"why": "lost", "said": "gets nothing" if "." in key else f"gets {plain(got)!r}", "allowed": negated}


def fits(declared: Any, got: Any) -> bool:
    """Whether the process gets what was declared, as far as values can be compared: a converted one is the parser's own affair."""
    if declared is None or declared is False:
        return got is declared
    if isinstance(declared, list):
        got = got if isinstance(got, (list, tuple, set)) else [got]
        return len(got) == len(declared) and (isinstance(got, set) or all(fits(*pair) for pair in zip(declared, got)))
    if isinstance(declared, str) and isinstance(got, str):
        return got == declared
    if isinstance(declared, (int, float)) and isinstance(got, (int, float)) and not isinstance(declared, bool):
        return got == declared
    return True


def plain(value: Any, default: Any = None) -> Any:
    """A value of the parser as JSON has it; of a configuration object the fields that differ from the default's."""
    if dataclasses.is_dataclass(value) and type(value) is type(default):
        fields = {field.name: (getattr(value, field.name), getattr(default, field.name)) for field in dataclasses.fields(value)}
        return {name: plain(each) for name, (each, usual) in fields.items() if each != usual}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def judge_options(engine: Engine, values: dict[str, Any]) -> list[dict[str, Any]]:
    found, seen = [], {}
    for key, value in values.items():
        wrong = judge_option(engine, key, value)
        action = engine.action(key)
        if not wrong and action is not None:
            first = seen.setdefault(action.dest, key)
            # Fields of one JSON option may be said one by one
            if first != key and not ("." in first and "." in key):
                wrong = {"why": "twice", "allowed": [first]}
        if wrong:
            shown = "***" if action is not None and action.dest in SECRET else plain(value)
            found.append({"option": key, "value": shown, "said": "", **wrong})
    return found


def judge_variables(engine: Engine, variables: dict[str, str]) -> list[dict[str, Any]]:
    found = []
    for name, value in variables.items():
        if not name.startswith("VLLM_"):
            continue
        wrong: dict[str, Any] = {"option": name, "value": value, "said": "", "allowed": []}
        if name not in engine.variables:
            found.append({**wrong, "why": "variable"})
            continue
        try:
            engine.variables[name]()
        except Exception as error:  # whatever reading it raises would end the start
            found.append({**wrong, "why": "variable-value", "said": said(error)})
    return found


# What is chosen by name, by the option. vLLM asks these only after the weights, or not before the server starts. A name is held as vLLM
# holds it: load formats in small letters (config/load.py), attention backends in capitals (config/attention.py).
NAMES: dict[str, tuple[Callable[[], Any], Callable[[str], str]]] = {
    "load-format": (lambda: module("vllm.model_executor.model_loader")._LOAD_FORMAT_TO_MODEL_LOADER, str.lower),
    "quantization": (lambda: module("vllm.model_executor.layers.quantization").QUANTIZATION_METHODS, str),
    "attention-backend": (
        lambda: ["AUTO", *module("vllm.v1.attention.backends.registry").AttentionBackendEnum.__members__], str.upper),
    "tool-call-parser": (lambda: module("vllm.tool_parsers").ToolParserManager.list_registered(), str),
    "reasoning-parser": (lambda: module("vllm.reasoning").ReasoningParserManager.list_registered(), str),
}
# Files that add names, of the operator's own, which are not run here
PLUGINS = {"tool-call-parser": "tool_parser_plugin", "reasoning-parser": "reasoning_parser_plugin"}


def judge_names(parsed: argparse.Namespace, values: dict[str, Any], unasked: list[dict[str, str]]) -> list[dict[str, Any]]:
    found = []
    for option, (names, spelled) in NAMES.items():
        value = getattr(parsed, option.replace("-", "_"), None)
        if not isinstance(value, str):
            continue
        if getattr(parsed, PLUGINS.get(option, ""), None):
            unasked.append({"what": option, "said": f"{value!r} may come from the plug-in, which is not loaded for this"})
            continue
        try:
            allowed = sorted(str(each) for each in names())
        except MOVED as error:
            unasked.append({"what": option, "said": said(error)})
            continue
        if option in values and spelled(value) not in allowed:
            found.append({"option": option, "value": value, "why": "name", "said": "", "allowed": allowed})
    return found


def blamed(text: str, values: dict[str, Any]) -> str:
    """The option that an error speaks of; "" where none is named. A name of one word is also a word, so it counts in front only."""
    for option in sorted(values, key=len, reverse=True):
        spellings = (option, option.replace("-", "_"), option.replace("-", " ")) if "-" in option else ()
        if any(each in text for each in spellings) or text.startswith(option + ":"):
            return option
    return ""


def in_platform(error: BaseException) -> bool:
    """Whether the code of a platform raised it. That of the processors stands in for that of the GPUs here."""
    trace, files = error.__traceback__, []
    while trace:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return any("/vllm/platforms/" in each for each in files)


def judge_configuration(parsed: argparse.Namespace, values: dict[str, Any], unasked: list[dict[str, str]]) -> list[dict[str, Any]]:
    """What vLLM has against the options when it builds its configuration, for a model whose config.json is here."""
    folder = getattr(parsed, "hf_config_path", None) or getattr(parsed, "model", None) or ""
    folder = os.path.dirname(folder) if os.path.isfile(folder) else folder  # GGUF weights are one file
    if not os.path.isfile(os.path.join(folder, "config.json")):
        unasked.append({"what": "configuration", "said": f"{folder}/config.json is not there yet"})
        return []
    try:
        module("vllm").AsyncEngineArgs.from_cli_args(parsed).create_engine_config()
    except (*MOVED, OSError) as error:  # files that are missing or that the service may not read are the affair of the weights
        unasked.append({"what": "configuration", "said": f"{type(error).__name__}: {said(error)}"})
    except Exception as error:  # whatever a package raises is its answer
        if in_platform(error) or "failed to be inspected" in str(error):
            unasked.append({"what": "configuration", "said": said(error)})
        else:
            return [together(error, values)]
    return []


def together(error: BaseException, values: dict[str, Any]) -> dict[str, Any]:
    """A refusal that comes from more than an option's own value."""
    text = re.sub(r"\bValue error, |^Error: ", "", said(error))
    option = blamed(f"{text} {error}", values)
    shown = "***" if option.replace("-", "_") in SECRET else plain(values.get(option))
    return {"option": option, "value": shown, "why": "together", "said": text, "allowed": []}


def judge(engine: Engine, model: dict[str, Any]) -> dict[str, Any]:
    """model: yaml (text of its --config file), variables (those of its environment)."""
    values = {str(key): value for key, value in engine.read_yaml(model["yaml"]).items()}
    unasked: list[dict[str, str]] = []
    refused = judge_variables(engine, model["variables"]) + judge_options(engine, values)
    answer = {"refused": refused, "unasked": unasked, "arguments": {}}
    if any(each["why"] not in ("variable", "variable-value") for each in refused):
        unasked.append({"what": "configuration", "said": "not before all of this is right"})
        return answer
    try:
        parsed = engine.parse(engine.words(values))
        answer["arguments"] = {
            name: "***" if name in SECRET else plain(value, getattr(engine.defaults, name)) for name, value in vars(parsed).items()
            if name not in engine.start and value != getattr(engine.defaults, name)}
        engine.validate(parsed)
        refused += judge_names(parsed, values, unasked)
    except Exception as error:  # the parser's own, and those of a check over several options
        refused.append(together(error, values))
    if all(each["why"] == "variable" for each in refused):  # one that vLLM does not know, it does not read either
        refused += judge_configuration(parsed, values, unasked)
    else:
        unasked.append({"what": "configuration", "said": "not before all of this is right"})
    return answer


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """The variables of a model for vLLM, as far as they do not say where the probe may write."""
    added = {name: value for name, value in variables.items() if name.startswith("VLLM_") and name not in KEPT}
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def answer(**what: Any) -> None:
    print("\n" + MARK + json.dumps(what), flush=True)


def main() -> None:
    models = json.load(sys.stdin)
    try:
        engines = {console: Engine(console) for console in {model["console"] for model in models.values()}}
        with contextlib.suppress(*MOVED):
            module("vllm.plugins").load_general_plugins()
    except MOVED as error:
        module("vllm")  # an engine without it does not start either: that error is left to end this
        answer(moved=f"{type(error).__name__}: {said(error)}")
        return
    engine = next(iter(engines.values()))
    with contextlib.suppress(*MOVED):
        answer(cuda=module("torch").version.cuda or "")
    answer(options=sorted(each[2:] for each in engine.options if each.startswith("--")), variables=sorted(engine.variables))
    for name, model in models.items():
        with environment(model["variables"]):
            answer(model=name, answer=judge(engines[model["console"]], model))


if __name__ == "__main__":
    main()
