"""The filters that are more than a door to module_utils."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.filter.entries import entries
from ansible_collections.modelhost.vllm.plugins.filter.lock_digests import lock_digests

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
