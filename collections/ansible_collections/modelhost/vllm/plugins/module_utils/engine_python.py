# GNU General Public License v3.0+ (see LICENSE)
"""Ask an engine's own packages: a program of ours, run by the engine's Python, as the service user and, unless asked, without the GPUs."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from typing import Any


def as_user(user: str, folder: str) -> dict[str, Any]:
    """Arguments of a process that runs as the user, whose own the folder becomes; none where that cannot be."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        return {}
    if os.geteuid() != 0:
        return {}
    os.chown(folder, account.pw_uid, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def may_run(user: str) -> bool:
    """Whether the packages of an engine run as somebody else than root, or as whoever runs the module."""
    if os.geteuid() != 0:
        return True
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def ask(
    python: str, program: str, mark: str, questions: dict[str, Any], user: str, timeout: int, more: dict[str, str] | None = None,
) -> tuple[list[Any], str]:  # fmt: skip
    """What the program answers to the questions, which it reads as JSON: the lines with the mark, and how it ended, "" for well.

    program: its text. It has a folder of its own as home and working directory, which is gone afterwards, and writes nothing elsewhere.
    more: variables of its environment beside, or in place of, those below.
    """
    folder = tempfile.mkdtemp(prefix="modelhost-")
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "LC_ALL": "C.UTF-8", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        # -I and -B do not reach the processes that vLLM starts itself
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1",
        # With it, vLLM's build for CUDA can be asked on a machine without a GPU, and below a model that holds the GPUs.
        "VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", **(more or {})}
    said, status, ended = "", 0, ""
    try:
        done = subprocess.run(
            [python, "-I", "-B", "-c", program], input=json.dumps(questions), cwd=folder, env=environment, timeout=timeout,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False, **as_user(user, folder))
        said, status = done.stdout, done.returncode
        last = [line.strip() for line in done.stderr.splitlines() if line.strip()][-1:]
        ended = f"it ended with status {status}: {''.join(last) or 'without a word'}" if status else ""
    except subprocess.TimeoutExpired as error:
        said = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        ended = f"it gave no answer within {timeout} s"
    except OSError as error:
        ended = f"{python}: {error.strerror}"
    finally:
        shutil.rmtree(folder)
    # After a time limit the last line may be half a line
    lines = [line[len(mark):] for line in said.splitlines(keepends=True) if line.startswith(mark) and line.endswith("\n")]
    return [json.loads(line) for line in lines], ended
