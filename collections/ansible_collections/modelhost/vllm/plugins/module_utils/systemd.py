# GNU General Public License v3.0+ (see LICENSE)
"""What systemd knows, and how to write what it reads."""

from __future__ import annotations

import itertools
import re
import subprocess
from typing import Iterable

# systemd.exec(5), EnvironmentFile=: inside double quotes these four are escaped with a backslash; nothing is expanded.
_ESCAPED_IN_ENVIRONMENT = re.compile(r'(["\\`$])')
# src/basic/env-util.c, env_value_is_valid(): of the control characters only tab and newline are kept.
_REFUSED_IN_ENVIRONMENT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# src/basic/fileio.c, read_line_full(): each of these ends a line of a unit file.
_LINE_END = re.compile(r"[\n\r\x00]")
# systemd.service(5), "Quoting"
_ESCAPED_IN_EXEC = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ASSIGNMENT = re.compile(r'^([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"$', re.MULTILINE | re.DOTALL)
_BARE_WORD = re.compile(r"[A-Za-z0-9_@:,./=+-]+\Z")


def run(argv: list[str]) -> str:
    """Standard output of a command that must succeed."""
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True).stdout


def show(pattern: str | Iterable[str], properties: Iterable[str]) -> dict[str, dict[str, str]]:
    """Properties of units, by unit name; one that systemd does not print, such as EnvironmentFiles of a unit without any, is an empty text.

    A unit that does not exist has LoadState `not-found`; a pattern gives only units that are loaded.
    """
    units = [pattern] if isinstance(pattern, str) else list(pattern)
    properties = list(properties)
    if not units:
        return {}
    text = run(["systemctl", "show", "--all", "--property=Id," + ",".join(properties), "--", *units])
    found = {}
    for block in text.strip().split("\n\n"):
        values: dict[str, str] = {}
        for line in block.splitlines():
            name, _equals, value = line.partition("=")
            values[name] = values[name] + "\n" + value if name in values else value  # EnvironmentFiles has a line for each
        if values:
            found[values["Id"]] = {**dict.fromkeys(properties, ""), **values}
    return found


def journal(unit: str, invocation: str, lines: int) -> list[str]:
    """The last lines that one run of a unit wrote (systemd.exec(5), $INVOCATION_ID); progress bars are cut at their carriage returns."""
    match = [f"_SYSTEMD_INVOCATION_ID={invocation}"] if invocation else [f"_SYSTEMD_UNIT={unit}"]
    text = run(["journalctl", "--quiet", "--no-pager", "--output=cat", f"--lines={lines}", *match])
    return [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]


def journal_start(invocation: str, lines: int) -> list[str]:
    """The first lines that one run of a unit wrote. A run of weeks has written many more, which are not read."""
    command = ["journalctl", "--quiet", "--no-pager", "--output=cat", f"_SYSTEMD_INVOCATION_ID={invocation}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, errors="replace") as process:
        found = [line.strip() for line in itertools.islice(process.stdout, lines)]
        process.kill()
    return found


def quote_environment(values: dict[str, object]) -> str:
    """The text of an environment file in which every value reaches the process as it is given.

    Raises ValueError for a name or a value that systemd would drop.
    """
    lines = []
    for name, value in values.items():
        if not isinstance(name, str) or not _ENVIRONMENT_NAME.match(name):
            raise ValueError(f"{name!r} is not the name of an environment variable: use letters, digits and _, not a digit first")
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError(
                f"{name}: {value!r} has no spelling of its own in an environment; write the text that the program expects, in quotes")
        text = str(value)
        if _REFUSED_IN_ENVIRONMENT.search(text):
            raise ValueError(f"{name}: the value has a control character, which systemd drops together with the variable: remove it")
        lines.append('{0}="{1}"\n'.format(name, _ESCAPED_IN_ENVIRONMENT.sub(r"\\\1", text)))
    return "".join(lines)


def parse_environment(text: str) -> dict[str, str]:
    """The values of a file that quote_environment wrote, by name."""
    return {name: re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL) for name, value in _ASSIGNMENT.findall(text)}


def quote_exec(argv: Iterable[object]) -> str:
    """A command line for ExecStart= that runs exactly these words (systemd.service(5), "Command lines"; systemd.unit(5), specifiers)."""
    return " ".join(_quote_word(str(word)) for word in argv)


def quote_value(value: object) -> str:
    """One directive's value, with no specifier in it."""
    text = str(value)
    if _LINE_END.search(text) or text.endswith("\\"):
        raise ValueError(f"{text!r} would run into the next line of a unit file")
    return text.replace("%", "%%")


def _quote_word(word: str) -> str:
    if "\x00" in word:
        raise ValueError(f"{word!r} cannot be a word of a command line")
    doubled = word.replace("%", "%%").replace("$", "$$")
    if _BARE_WORD.match(word):
        return doubled
    return '"' + "".join(_ESCAPED_IN_EXEC.get(character, character) for character in doubled) + '"'
