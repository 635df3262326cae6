"""Engines are complete, absent, partial or changed."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.modules import engine_info


@pytest.mark.parametrize(("mark", "state"), [
    ('{"lock_sha256": "aa", "python": "Python 3.12.3"}\n', "complete"),
    ('{"lock_sha256": "bb", "python": "Python 3.12.3"}\n', "changed"),
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
    host.write("engines/vllm-1/.complete", '{"lock_sha256": "aa"}')
    root = f"{host.root}/engines"
    command = "{{ path={0}/{1}/bin/vllm ; argv[]={0}/{1}/bin/vllm serve --config /etc/modelhost/models/small.yaml }}"
    host.units = {
        "vllm-a.service": {**host.RUNNING, "ExecStart": command.format(root, "vllm-1")},
        "vllm-b.service": {**host.STOPPED, "ExecStart": command.format(root, "vllm-1")},
        "vllm-c.service": {**host.RUNNING, "ExecStart": command.format(root, "vllm-1.1")},
    }
    assert call(engine_info, root=root, engines={"vllm-1": "aa", "vllm-1.1": "bb", "vllm-2": "cc"}) == {"changed": False, "engines": {
        "vllm-1": {"state": "complete", "used_by": ["vllm-a.service"]},
        "vllm-1.1": {"state": "absent", "used_by": ["vllm-c.service"]},
        "vllm-2": {"state": "absent", "used_by": []},
    }}
