# GNU General Public License v3.0+ (see LICENSE)
"""Distributions installed anew, to be compared with."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Iterable

# A wheel's download and its unpacking, at most
SECONDS = 1800


def pins(lock: str) -> dict[str, str]:
    """The requirement of each package in a lock, with its hashes, by normalised name."""
    blocks = re.findall(r"^(?P<name>[A-Za-z0-9._-]+)(==[^\\\n]+(?:\\\n[^\n]+)*)", lock, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): name + rest for name, rest in blocks}


def can_be_asked_for(name: str, version: str) -> bool:
    """Whether these, which come from the name of a folder, are a requirement, and no option of uv's on a line of its own."""
    return re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) is not None and re.fullmatch(r"[A-Za-z0-9.!+_]+", version) is not None


def install(uv: str, python: str, folder: str, requirements: dict[str, str], hashes: bool) -> Iterable[str]:
    """Install `requirements` (by name) into a new environment at `folder`; return the names of those that could be had.

    With `hashes`, nothing is installed but what the lock names. uv finds its index, mirror and certificates in our own environment.
    """
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "UV_CACHE_DIR": folder + ".cache"}
    subprocess.run([uv, "venv", "--quiet", "--python", python, folder], check=True, env=environment, **_PIPES)

    def attempt(names: list[str]) -> bool:
        listed = os.path.join(folder, "requirements.txt")
        with open(listed, "w", encoding="utf-8") as stream:
            stream.write("".join(requirements[name] + "\n" for name in names))
        done = subprocess.run(
            [uv, "pip", "install", "--quiet", "--python", os.path.join(folder, "bin", "python"), "--no-deps", "--only-binary", ":all:",
             *(["--require-hashes"] if hashes else []), "--requirement", listed],
            check=False, env=environment, timeout=SECONDS, **_PIPES)
        return done.returncode == 0

    names = sorted(requirements)
    if attempt(names):
        return names
    return [name for name in names if attempt([name])]


_PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
