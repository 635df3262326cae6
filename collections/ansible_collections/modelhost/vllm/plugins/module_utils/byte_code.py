# GNU General Public License v3.0+ (see LICENSE)
"""Whether compiled Python files hold what their sources say.

The import system takes a `.pyc` for its source when four words of its header fit (PEP 552); nothing compares the code. So each is either
known from the end of the installation, or its source is compiled again by the environment's own interpreter and the two are compared.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.modelhost.vllm.plugins.module_utils.engine_tree import Layout

LIST = ".byte-code"
# PEP 3147 and PEP 488: __pycache__/<module>.<tag>[.opt-<level>].pyc
_CACHED = re.compile(r"(?P<folder>.*/)?__pycache__/(?P<module>[^/]+?)\.(?P<tag>[^./]+)(\.opt-(?P<level>[^./]+))?\.pyc\Z")
_LINE = re.compile(r"([0-9a-f]{64})  (.+)\Z")

# Runs in the interpreter of the environment. Its input is a list of [source, byte code, optimization level]; it prints the reason for each
# that is not what its source makes, and an empty text for the others. Names of files are no part of a code object's equality.
_COMPARE = r"""
import importlib.util, json, marshal, sys, warnings
warnings.simplefilter("ignore")
reasons = []
for source, cached, level in json.load(sys.stdin):
    try:
        with open(cached, "rb") as stream:
            data = stream.read()
        if data[:4] != importlib.util.MAGIC_NUMBER:
            reasons.append("")  # another interpreter's: this one does not load it
            continue
        with open(source, "rb") as stream:
            made = compile(stream.read(), source, "exec", dont_inherit=True, optimize=level)
        reasons.append("" if marshal.loads(data[16:]) == made else "holds other code than its source")
    except SyntaxError:
        reasons.append("has a source that does not compile")
    except Exception as error:
        reasons.append("cannot be compared: %s: %s" % (type(error).__name__, error))
json.dump(reasons, sys.stdout)
"""


def source_of(path: str) -> str | None:
    """The source that a `.pyc` belongs to; None for one outside `__pycache__`, which is imported without any."""
    match = _CACHED.match(path)
    return "%s%s.py" % (match["folder"] or "", match["module"]) if match else None


def recorded(root: str) -> tuple[str, dict[str, str]]:
    """The list that the installation made, as its text and as digests by path; both empty where there is none."""
    try:
        with open(os.path.join(root, LIST), encoding="utf-8", errors="surrogateescape") as stream:
            text = stream.read()
    except OSError:
        return "", {}
    return text, {match[2]: match[1] for match in map(_LINE.match, text.splitlines()) if match}


def differing(layout: Layout, paths: list[str]) -> dict[str, str]:
    """Why a `.pyc` is not what its source makes, by path, for those of `paths` (each with a source) that are not.

    Raises subprocess.CalledProcessError or OSError where the interpreter does not run.
    """
    jobs = []
    for path in sorted(paths):
        level = _CACHED.match(path)["level"]
        places = [os.path.join(layout.root, each) for each in (source_of(path), path)]
        jobs.append([*places, int(level) if level and level.isdigit() else 0])
    workers = os.cpu_count() or 1
    parts = [part for part in (jobs[start::workers] for start in range(workers)) if part]
    with ThreadPoolExecutor(workers) as pool:
        answers = list(pool.map(lambda part: _ask(layout, part), parts))
    return {os.path.relpath(job[1], layout.root): reason
            for part, reasons in zip(parts, answers) for job, reason in zip(part, reasons) if reason}


def _ask(layout: Layout, jobs: list[list]) -> list[str]:
    # -I -S: nothing of the environment itself is imported, no .pth file, no sitecustomize, no variable; and it runs as whom it belongs to.
    answer = subprocess.run(
        [layout.interpreter, "-I", "-S", "-c", _COMPARE], input=json.dumps(jobs), check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        universal_newlines=True, **layout.owner)
    return json.loads(answer.stdout)
