"""The filters that are more than a door to module_utils."""

from __future__ import annotations

import json

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


MANIFEST = {"lock_sha256": "fb9113767c39e80b14e4ec964c7b4b210452799efc98c76264a56312e86d7ebb", "wheels": {}}


@pytest.fixture
def files(tmp_path):
    """The folder of locks and patches, with one of each."""
    for name, text in {
        "locks/vllm.txt": "torch==2.13.0 \\\n    --hash=sha256:aa\nvllm==0.33.0 \\\n    --hash=sha256:bb\n", "patches/a.patch": "--- a\n",
        "locks/vllm.json": json.dumps(MANIFEST),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_without_patches_the_digest_is_what_sha256sum_says_of_the_lock(files):
    (locked,) = lock_digests([ENGINE], str(files))
    assert locked == {
        **ENGINE, "lock": f"{files}/locks/vllm.txt", "manifest": MANIFEST, "patches": [], "patch_words": [],
        "digest": "fb9113767c39e80b14e4ec964c7b4b210452799efc98c76264a56312e86d7ebb"}
    assert lock_digests([{**ENGINE, "lock": f"{files}/locks/vllm.txt", "patches": []}], "/elsewhere") == [locked]


PATCH = {
    "id": "a", "upstream": "https://example.org/1", "reason": "it fails", "drop_when": "vllm>=0.34.0", "file": "vllm/envs.py",
    "sha256_before": "b" * 64, "sha256_after": "c" * 64, "patch": "a.patch"}


def test_the_digest_of_an_engine_with_a_patch(files):
    (locked,) = lock_digests([{**ENGINE, "patches": [PATCH]}], str(files))
    assert locked["patches"] == [{**PATCH, "patch": f"{files}/patches/a.patch"}]
    digest = "ce37ca72790a51ea83c172b0ad80082d7507efea0a1c818536a2a89f8fd96e96"
    assert locked["patch_words"] == [digest, "b" * 64, "c" * 64, "a", "vllm/envs.py"]
    assert locked["digest"] == "ad1934a80909889f4b3d6275f9db9c26f1ca612ec0f552a6c0974053afb0e4d8"


@pytest.mark.parametrize(("change", "another"), [
    ({"sha256_before": "d" * 64}, True), ({"sha256_after": "d" * 64}, True), ({"file": "vllm/env.py"}, True),
    ({"reason": "said better"}, False), ({"drop_when": "vllm>=0.35.0"}, False), ({"upstream": "https://example.org/2"}, False),
])
def test_what_makes_another_engine(files, change, another):
    one, other = (lock_digests([{**ENGINE, "patches": [each]}], str(files))[0]["digest"] for each in (PATCH, {**PATCH, **change}))
    assert (one != other) is another


def test_another_patch_is_another_engine(files):
    before = lock_digests([{**ENGINE, "patches": [PATCH]}], str(files))[0]["digest"]
    (files / "patches/a.patch").write_text("--- b\n")
    assert lock_digests([{**ENGINE, "patches": [PATCH]}], str(files))[0]["digest"] != before


def test_a_patch_that_is_not_there(files):
    with pytest.raises(AnsibleFilterError, match=r"modelhost_engines.vllm-1.patches: a: .*No such file or directory: '.*/patches/b.patch'"):
        lock_digests([{**ENGINE, "patches": [{**PATCH, "patch": "b.patch"}]}], str(files))


@pytest.mark.parametrize(("manifest", "reason"), [
    (None, "is no manifest ([Errno 2] No such file or directory"), ("{", "is no manifest (Expecting property name"),
    ('{"lock_sha256": "0"}', "was not made with vllm.txt: make both with `make lock`"), ("{}", "is no manifest ('lock_sha256')"),
])
def test_a_manifest_that_does_not_fit(files, manifest, reason):
    (files / "locks/vllm.json").unlink()
    if manifest is not None:
        (files / "locks/vllm.json").write_text(manifest)
    with pytest.raises(AnsibleFilterError) as refused:
        lock_digests([ENGINE], str(files))
    assert f"modelhost_engines.vllm-1.lock: '{files}/locks/vllm.json', which says what the wheels hold, {reason}" in str(refused.value)


@pytest.mark.parametrize(("lock", "message"), [
    (None, "modelhost_engines.vllm-1.lock: '{folder}/locks/vllm.txt' is not a file: make it with `make lock ENGINE=vllm-1`"),
    ("vllm==0.33.1 \\\n", "modelhost_engines.vllm-1.version: its lock vllm.txt does not pin vllm==0.33.0: correct the version, or make "
                          "the lock anew"),
    ("vllm==0.33.0.post1 \\\n",
     "modelhost_engines.vllm-1.version: its lock vllm.txt does not pin vllm==0.33.0: correct the version, or make the lock anew"),
    ("my-vllm==0.33.0 \\\n", "modelhost_engines.vllm-1.version: its lock vllm.txt does not pin vllm==0.33.0: correct the version, or "
                             "make the lock anew"),
])
def test_a_lock_that_does_not_fit(tmp_path, lock, message):
    (tmp_path / "locks").mkdir()
    if lock is not None:
        (tmp_path / "locks/vllm.txt").write_text(lock)
    with pytest.raises(AnsibleFilterError) as refused:
        lock_digests([ENGINE], str(tmp_path))
    assert message.format(folder=tmp_path) in str(refused.value)


def model(state, unit_file="disabled", pending=0, **applied):
    return {
        "state": state, "pending": [{}] * pending, "applied": applied, "progress": "", "foreign": False,
        "unit": {"ExecMainStartTimestamp": "Mon 09:00", "UnitFileState": unit_file},
    }


KIMI = {"host": "127.0.0.1", "port": 8000, "engine": "vllm-0.33.0"}


@pytest.mark.parametrize(("models", "lines"), [
    ({"a": model("stopped"), "b": model("failed")}, ["a: stopped", "b: failed"]),
    ({"a": model("stopped"), "b": model("serving", "enabled", wish="b", **KIMI)},
     ["b: serving, since Mon 09:00, http://127.0.0.1:8000/v1, engine vllm-0.33.0, starts at boot", "a: stopped"]),
    ({"b": model("loading")}, ["b: loading, since Mon 09:00"]),
    ({"b": {**model("loading"), "progress": "loading weights; about 12 min left of the usual 31 min"}},
     ["b: loading, since Mon 09:00, loading weights; about 12 min left of the usual 31 min"]),
    ({"a": {**model("serving", "enabled"), "foreign": True}},
     ["a: serving, since Mon 09:00, a unit that modelhost did not write: take it over with -e adopt=true, starts at boot"]),
    ({"a": model("serving", "enabled", 2, wish="b", **KIMI)},
     ["a: serving, since Mon 09:00, http://127.0.0.1:8000/v1, engine vllm-0.33.0, starts at boot, chosen with -e model=, "
      "2 changes pending, apply with switch_model.yml"]),
    ({"a": model("stopped", wish="a", **KIMI)},
     ["a: stopped, http://127.0.0.1:8000/v1, engine vllm-0.33.0, the inventory now wishes b: apply with switch_model.yml"]),
])
def test_status_lines(models, lines):
    assert status_lines({"models": models, "switch": {}}, "b") == lines


SWITCH = {
    "owner": {"user": "alice", "controller": "bastion", "pid": 4711, "run": "bastion b:pid:[1] 4711 99"}, "model": "b", "step": "wait",
    "since": "2026-11-30T09:37:40+00:00", "progress": "", "age": 3, "silence": 1020, "interrupted": False}
WHO = "switch to b by alice@bastion since 2026-11-30T09:37:40+00:00"
INTERRUPTED = (
    f"{WHO}: interrupted at step 'wait'. What serves now is below; switch_model.yml finishes it or serves the wish, and a reboot boots "
    "what was applied")


@pytest.mark.parametrize(("change", "ended", "line"), [
    ({}, False, f"{WHO}: at step 'wait', last sign of life 3 s ago"),
    ({"step": "go back", "progress": "loading weights"}, False, f"{WHO}: at step 'go back' (loading weights), last sign of life 3 s ago"),
    ({"interrupted": True}, False, INTERRUPTED),
    ({"progress": "loading weights"}, True, INTERRUPTED),  # by a run of this controller whose process is gone
])
def test_the_switch_comes_first(monkeypatch, change, ended, line):
    monkeypatch.setattr("ansible_collections.modelhost.vllm.plugins.filter.status_lines.has_ended", lambda owner: ended)
    assert status_lines({"models": {"a": model("stopped")}, "switch": {**SWITCH, **change}}, "b") == [line, "a: stopped"]
