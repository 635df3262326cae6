"""The options of the server: a command line, or a YAML file that becomes one by vLLM's rules."""

import argparse
import json
import sys


def scalar(text):
    """Read a YAML scalar: JSON where it is JSON, otherwise a quoted or plain string."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return {"": None, "~": None, "True": True, "False": False}.get(text, text)


def read_yaml(text):
    """Read flat YAML: `key: scalar`, `key: [a, b]`, or `key:` and lines of `- scalar`."""
    values = {}
    key = None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped == "---" or stripped.startswith("#"):
            continue
        name, colon, rest = stripped.partition(":")
        if key and stripped.startswith("- "):
            values[key] = (values[key] or []) + [scalar(stripped[2:].strip())]
        elif colon and line[0] not in " -" and rest[:1] in ("", " "):
            key, rest = scalar(name), rest.strip()
            value = scalar(rest)
            if value == rest and rest.startswith("["):
                value = [scalar(element.strip()) for element in rest[1:-1].split(",")]
            values[key] = value
        else:
            raise ValueError(f"line {number} is more YAML than the stand-in reads: {line}")
    return values


def arguments(values, known):
    """Turn the file's values into arguments; vLLM drops a false where no --no- form exists and writes null as None."""
    result = []
    for key, value in values.items():
        if value is False:
            result += [f"--no-{key}"] if f"--no-{key}" in known else []
        elif isinstance(value, dict):
            result += [f"--{key}", json.dumps(value)]
        else:
            result += [f"--{key}", *map(str, value if isinstance(value, list) else [] if value is True else [value])]
    return result


def declare(result):
    """Declare the options that the stand-in knows: real ones, of vLLM 0.32."""
    result.add_argument("model_tag", nargs="?")
    result.add_argument("--config")
    result.add_argument("--served-model-name", nargs="+")
    for name in ("model", "host", "dtype", "kv-cache-dtype", "load-format", "quantization", "reasoning-parser", "tool-call-parser"):
        result.add_argument(f"--{name}")
    for name in ("max-model-len", "max-num-batched-tokens", "max-num-seqs", "seed", "shutdown-timeout", "tensor-parallel-size"):
        result.add_argument(f"--{name}", type=int)
    result.add_argument("--port", type=int, default=8000)
    result.add_argument("--gpu-memory-utilization", type=float)
    for name in ("enable-auto-tool-choice", "enable-expert-parallel", "enforce-eager", "trust-remote-code"):
        result.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    result.add_argument("--disable-custom-all-reduce", action="store_true")
    return result


def parser():
    return declare(argparse.ArgumentParser(prog="vllm serve"))


def parse(argv):
    """Parse a command line; the arguments of its --config file come first, so that the command line wins."""
    declared = parser()
    if "--config" in argv:
        at = argv.index("--config")
        with open(argv[at + 1], encoding="utf-8") as file:
            values = read_yaml(file.read())
        argv = arguments(values, declared._option_string_actions) + argv[:at] + argv[at + 2 :]
    options = declared.parse_args(argv)
    options.model = options.model or options.model_tag or sys.exit("No model specified!")
    options.served_model_name = options.served_model_name or [options.model]
    return options


def changed(options):
    """Return the options that differ from their defaults, as vLLM logs them."""
    defaults = parser().parse_args([])
    return {name: value for name, value in vars(options).items() if value != getattr(defaults, name)}
