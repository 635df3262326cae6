"""The host of `make demo`, as the figures reach it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
INVENTORY = "inventory/demo"
HOST = "modelhost-demo"
BIN = ROOT / ".venv/bin"


def playbook(path: Path | str, *arguments: str, **environment: str) -> float:
    """Run a playbook and return its seconds."""
    began = time.monotonic()
    subprocess.run(
        [BIN / "ansible-playbook", "-i", INVENTORY, str(path), *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
        env={**os.environ, **environment})
    return time.monotonic() - began


def on_host(command: str, **environment: str) -> float:
    """Run a shell command on the host as root and return its seconds."""
    began = time.monotonic()
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    subprocess.run(
        ["ssh", "-F", ROOT / f".cache/testhost/{HOST}.ssh_config", HOST, f"sudo env {settings} sh -euc {shlex.quote(command)}"], check=True,
        stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def copy(files: list[Path], folder: str) -> None:
    """Copy files into a folder of the host."""
    packed = subprocess.run(
        ["tar", "-c", *[word for path in files for word in ("-C", path.parent, path.name)]], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(
        ["ssh", "-F", ROOT / f".cache/testhost/{HOST}.ssh_config", HOST, f"sudo sh -c 'mkdir -p {folder} && tar -x -C {folder}'"], check=True,
        input=packed)


def ask(module: str, arguments: str) -> dict[str, object]:
    """What a module answers on the host, with the variables of the playbooks."""
    said = subprocess.run(
        [BIN / "ansible", "demo", "-i", INVENTORY, "--playbook-dir", "playbooks", "--become", "-m", module, "-a", arguments], cwd=ROOT, check=True,
        text=True, stdout=subprocess.PIPE,
        env={**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_FORCE_COLOR": "false"}).stdout
    return json.loads(said.partition("=>")[2])


def downloads() -> dict[str, str]:
    """The environment of every download."""
    return ask("ansible.builtin.debug", "var=modelhost_download_environment")["modelhost_download_environment"]
