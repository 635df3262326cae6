# GNU General Public License v3.0+ (see LICENSE)
"""How a file differs from its wheel's, and whether that looks like something left over from debugging."""

from __future__ import annotations

import difflib
import re

LINES = 400
MOST = 20
SIZE = 4 << 20

INSTRUMENTATION = {
    "torch.save": re.compile(r"\btorch\.save\s*\("),
    "print": re.compile(r"(?<![\w.])print\s*\("),
    "breakpoint": re.compile(r"(?<![\w.])breakpoint\s*\(|\b(?:i?pdb|pudb)\.(?:set_trace|post_mortem)\s*\(|\bcode\.interact\s*\("),
    "pickle.dump": re.compile(r"\bpickle\.dump\s*\("),
    "write to /tmp": re.compile(r"""["'](?:/var)?/tmp\b|["']/dev/shm\b|\btempfile\."""),
}


def text_of(path: str) -> str | None:
    """The content of a text file; None for a binary one, one too large to be read by people, or none."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(SIZE + 1)
    except OSError:
        return None
    if len(data) > SIZE or b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def unified(path: str, before: str, after: str) -> str:
    """A unified diff of one file, at most LINES lines of it."""
    lines = list(difflib.unified_diff(
        before.splitlines(), after.splitlines(), "wheel/" + path, "installed/" + path, lineterm=""))
    more = len(lines) - LINES
    return "\n".join(lines[:LINES] + (["[%d more lines]" % more] if more > 0 else []))


def added(before: str, after: str) -> list[tuple[int, str]]:
    """The lines that `after` has and `before` has not, with their numbers in `after`."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=after.count("\n") > 5000)
    lines = after.splitlines()
    return [(number + 1, lines[number]) for tag, _i, _j, start, end in matcher.get_opcodes() if tag in ("replace", "insert")
            for number in range(start, end)]


def instrumentation(lines: list[tuple[int, str]]) -> list[str]:
    """What in these numbered lines looks like debugging, as "line 12: torch.save: torch.save(x, ...)", at most MOST."""
    found = ["line %d: %s: %s" % (number, kind, line.strip()[:160]) for number, line in lines if not line.lstrip().startswith("#")
             for kind, pattern in INSTRUMENTATION.items() if pattern.search(line)]
    return found[:MOST] + (["%d more" % (len(found) - MOST)] if len(found) > MOST else [])
