"""The filters that are more than a door to module_utils."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.filter.entries import entries
from ansible_collections.modelhost.vllm.plugins.filter.lock_digests import lock_digests
from ansible_collections.modelhost.vllm.plugins.filter.status_lines import status_lines

ENGINE = {"name": "vllm-1", "distribution": "vllm", "version": "0.33.0", "lock": "vllm.txt"}


def test_entries_know_their_names_and_keep_their_order():
    assert entries({"b": {"port": 1, "host": "0.0.0.0"}, "a": {"port": 2}}, {"host": "127.0.0.1", "serve": {}}) == [
        {"name": "b", "host": "0.0.0.0", "serve": {}, "port": 1}, {"name": "a", "host": "127.0.0.1", "serve": {}, "port": 2}]
    assert entries({"a": {"port": 1}}) == [{"name": "a", "port": 1}]
    assert entries({}) == []


def test_the_digest_of_a_lock_is_the_hosts_sha256sum(tmp_path):
    (tmp_path / "vllm.txt").write_text("torch==2.13.0 \\\n    --hash=sha256:aa\nvllm==0.33.0 \\\n    --hash=sha256:bb\n")
    (locked,) = lock_digests([ENGINE], str(tmp_path))
    assert locked == {
        **ENGINE, "lock": f"{tmp_path}/vllm.txt", "lock_sha256": "fb9113767c39e80b14e4ec964c7b4b210452799efc98c76264a56312e86d7ebb"}
    assert lock_digests([{**ENGINE, "lock": f"{tmp_path}/vllm.txt"}], "/elsewhere") == [locked]


@pytest.mark.parametrize(("lock", "message"), [
    (None, "modelhost_engines.vllm-1.lock: '{folder}/vllm.txt' is not a file: make it with `make lock ENGINE=vllm-1`"),
    ("vllm==0.33.1 \\\n", "modelhost_engines.vllm-1.version: its lock vllm.txt does not pin vllm==0.33.0: correct the version, or make "
                          "the lock anew"),
    ("vllm==0.33.0.post1 \\\n",
     "modelhost_engines.vllm-1.version: its lock vllm.txt does not pin vllm==0.33.0: correct the version, or make the lock anew"),
    ("my-vllm==0.33.0 \\\n", "modelhost_engines.vllm-1.version: its lock vllm.txt does not pin vllm==0.33.0: correct the version, or "
                             "make the lock anew"),
])
def test_a_lock_that_does_not_fit(tmp_path, lock, message):
    if lock is not None:
        (tmp_path / "vllm.txt").write_text(lock)
    with pytest.raises(AnsibleFilterError) as refused:
        lock_digests([ENGINE], str(tmp_path))
    assert message.format(folder=tmp_path) in str(refused.value)


def model(state, unit_file="disabled", pending=0, **applied):
    return {
        "state": state, "pending": [{}] * pending, "applied": applied,
        "unit": {"ExecMainStartTimestamp": "Mon 09:00", "UnitFileState": unit_file},
    }


KIMI = {"host": "127.0.0.1", "port": 8000, "engine": "vllm-0.33.0"}


@pytest.mark.parametrize(("models", "lines"), [
    ({"a": model("stopped"), "b": model("failed")}, ["a: stopped", "b: failed"]),
    ({"a": model("stopped"), "b": model("serving", "enabled", wish="b", **KIMI)},
     ["b: serving, since Mon 09:00, http://127.0.0.1:8000/v1, engine vllm-0.33.0, starts at boot", "a: stopped"]),
    ({"b": model("loading")}, ["b: loading, since Mon 09:00"]),
    ({"a": model("serving", "enabled", 2, wish="b", **KIMI)},
     ["a: serving, since Mon 09:00, http://127.0.0.1:8000/v1, engine vllm-0.33.0, starts at boot, chosen with -e model=, "
      "2 changes pending, apply with switch_model.yml"]),
    ({"a": model("stopped", wish="a", **KIMI)},
     ["a: stopped, http://127.0.0.1:8000/v1, engine vllm-0.33.0, the inventory now wishes b: apply with switch_model.yml"]),
])
def test_status_lines(models, lines):
    assert status_lines({"models": models}, "b") == lines
