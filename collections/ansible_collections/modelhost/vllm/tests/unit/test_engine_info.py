"""Engines are complete, absent, partial or changed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ansible_collections.modelhost.vllm.plugins.modules import engine_info


@pytest.mark.parametrize(("mark", "state"), [
    ('{"digest": "aa", "python": "3.12.3"}\n', "complete"),
    ('{"digest": "bb", "python": "3.12.3"}\n', "changed"),
    ('{"of": "an earlier version of modelhost"}', "changed"),
    ("", "partial"),
    (None, "partial"),
])
def test_state(tmp_path, mark, state):
    if mark is not None:
        (tmp_path / ".complete").write_text(mark)
    assert engine_info.state(str(tmp_path), "aa") == state


def test_an_engine_that_was_never_built(tmp_path):
    assert engine_info.state(str(tmp_path / "none"), "aa") == "absent"
    (tmp_path / "file").write_text("")
    assert engine_info.state(str(tmp_path / "file"), "aa") == "absent"


def test_who_uses_an_engine(host, call):
    host.write("engines/vllm-1/.complete", '{"digest": "aa"}')
    root = f"{host.root}/engines"
    command = "{{ path={0}/{1}/bin/vllm ; argv[]={0}/{1}/bin/vllm serve --config /etc/modelhost/models/small.yaml }}"
    host.units = {
        "vllm-a.service": {**host.RUNNING, "ExecStart": command.format(root, "vllm-1")},
        "vllm-b.service": {**host.STOPPED, "ExecStart": command.format(root, "vllm-1")},
        "vllm-c.service": {**host.RUNNING, "ExecStart": command.format(root, "vllm-1.1")},
    }
    assert call(engine_info, root=root, engines={"vllm-1": "aa", "vllm-1.1": "bb", "vllm-2": "cc"}) == {
        "changed": False, "undeclared": {}, "engines": {
            "vllm-1": {"state": "complete", "used_by": ["vllm-a.service"]},
            "vllm-1.1": {"state": "absent", "used_by": ["vllm-c.service"]},
            "vllm-2": {"state": "absent", "used_by": []},
        }}


def test_what_refers_to_an_engine_that_is_not_declared(host, call):
    root = f"{host.root}/engines"
    for engine in ("declared", "running", "there", "declared-unit", "trial", "applied", "past", "unused", "unused-2", "process"):
        host.write(f"engines/{engine}.lock", "vllm==1")
    host.write("engines/lost+found/a", "not an engine of ours: it has no lock")
    host.units = {"vllm-a.service": {**host.RUNNING, "ExecStart": f"{{ path={root}/running/bin/vllm ; argv[]=... }}"}}
    unit = f"[Service]\nExecStart={root}/%s/bin/vllm serve\n"
    host.write("units/vllm-b.service", unit % "there")
    host.write("declared/c/vllm-c.service", unit % "declared-unit")
    host.write("trial-units/vllm-d.service", unit % "trial")
    host.write("state/applied.json", '{"schema": 1, "models": {"e": {"engine": "applied"}}}')
    host.write("generations/e/0a1b/vllm-e.service", unit % "past")
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()", f"{root}/process/bin/vllm"], stdin=subprocess.PIPE) as process:
        found = call(engine_info, root=root, engines={"declared": "aa"})
    assert found["undeclared"] == {
        "applied": ["what was applied for e"],
        "declared-unit": [f"the unit file {host.root}/declared/c/vllm-c.service"],
        "past": [],
        "process": [f"the process {process.pid}"],
        "running": ["vllm-a.service"],
        "there": [f"the unit file {host.root}/units/vllm-b.service"],
        "trial": [f"the unit file {host.root}/trial-units/vllm-d.service"],
        "unused": [],
        "unused-2": [],
    }
