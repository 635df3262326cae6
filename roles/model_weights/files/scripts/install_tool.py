"""Make a Python environment of exactly what a lock names, complete with its file .complete or made anew.

    install_tool.py UV PYTHON ENVIRONMENT LOCK [OPTION OF uv pip sync ...]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

uv, python, environment, lock, *options = sys.argv[1:]
for argv in (
    [uv, "venv", "--clear", "--python", python, environment],
    [uv, "pip", "sync", "--no-cache", "--link-mode", "copy", "--no-build", "--require-hashes", "--python", environment, *options, lock],
):
    status = subprocess.run(argv, check=False).returncode
    if status:
        sys.exit(status)
Path(environment, ".complete").touch()
