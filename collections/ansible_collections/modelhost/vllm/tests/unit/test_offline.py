"""The offline directory: apt's index, the manifest, and what is wrong with a directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import offline

HELLO = {"size": 6, "sha256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"}


INDEX = {"size": 14, "sha256": "e0f96624535b9c85d4c80285581d3bbb227b854245123839abe1b56c45964cc4"}


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole directory, as offline_index leaves it; who runs the tests stands for root."""
    monkeypatch.setattr(offline, "OWNERS", (0, os.getuid()))
    for name in ("apt/tool_1%3a2.0-1_amd64.deb", "wheels/tool-1.0-py3-none-any.whl", "weights/tiny/model.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("hello\n")
    (tmp_path / "apt/Packages").write_text("Package: tool\n")
    files = {
        "apt/tool_1%3a2.0-1_amd64.deb": HELLO, "wheels/tool-1.0-py3-none-any.whl": HELLO, "weights/tiny/model.bin": HELLO,
        "apt/Packages": INDEX}
    (tmp_path / "manifest.json").write_text(json.dumps({"path": str(tmp_path), "system": "debian 13 x86_64", "files": files}))
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tmp_path


def test_apt_sees_the_directory_and_nothing_else() -> None:
    assert offline.apt_configuration("/srv/offline") == {
        "apt/apt.conf": (
            'Dir::Etc::SourceList "/srv/offline/apt/sources.list";\n'
            'Dir::Etc::SourceParts "/dev/null";\n'
            'Dir::Cache::pkgcache "";\n'
            'Dir::Cache::srcpkgcache "";\n'
            'APT::Get::List-Cleanup "false";\n'
            'Acquire::Languages "none";\n'),
        "apt/sources.list": "deb [trusted=yes] file:/srv/offline/apt ./\n"}


def test_a_stanza_of_the_index() -> None:
    assert offline.stanza("Package: tool\nVersion: 1:2.0-1\nDescription: a tool\n for all\n", "tool_1%3a2.0-1_amd64.deb", HELLO) == (
        "Package: tool\nVersion: 1:2.0-1\nDescription: a tool\n for all\n"
        "Filename: ./tool_1%3a2.0-1_amd64.deb\n"
        "Size: 6\n"
        "SHA256: 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03\n")


def test_only_packages_and_wheels_are_carried(top: Path) -> None:
    for name in ("apt/lock", "apt/apt.conf", "apt/tool.deb", "wheels/tool-1.0.tar.gz", "wheels/tool.whl.tmp"):
        (top / name).touch()
    (top / "apt/partial").mkdir()
    assert offline.carried(str(top)) == ["apt/tool_1%3a2.0-1_amd64.deb", "wheels/tool-1.0-py3-none-any.whl"]
    assert offline.carried(str(top / "none")) == []


def test_files_are_measured(top: Path) -> None:
    assert offline.measured(str(top), ["wheels/tool-1.0-py3-none-any.whl", "apt/Packages"]) == {
        "wheels/tool-1.0-py3-none-any.whl": HELLO, "apt/Packages": INDEX}
    assert offline.entry_of("hello\n") == HELLO


def test_weights_count_when_their_fetch_is_complete(top: Path) -> None:
    for folder in ("tiny", "cut.partial"):
        (top / "weights" / folder).mkdir(exist_ok=True)
        (top / "weights" / folder / ".modelhost.json").write_text(json.dumps({"files": {"model.bin": HELLO, "a/b.json": HELLO}}))
    (top / "weights/by-hand").mkdir()
    assert offline.weights_entries(str(top)) == {"weights/tiny/model.bin": HELLO, "weights/tiny/a/b.json": HELLO}
    assert offline.weights_entries(str(top / "none")) == {}


def test_the_manifest(top: Path) -> None:
    assert json.loads(offline.manifest_text("/srv/offline", "debian 13 x86_64", {"apt/Packages": INDEX})) == {
        "path": "/srv/offline", "system": "debian 13 x86_64", "files": {"apt/Packages": INDEX}}


def test_the_system_in_three_words() -> None:
    assert offline.system({"ID": "ubuntu", "VERSION_ID": "24.04"}, "aarch64") == "ubuntu 24.04 aarch64"


def test_a_whole_directory_has_no_findings(top: Path) -> None:
    assert offline.findings(str(top), "debian 13 x86_64") == []


def test_nothing_there_says_how_to_build_it(tmp_path: Path) -> None:
    assert offline.findings(str(tmp_path), "debian 13 x86_64") == [
        f"modelhost_offline is {tmp_path}, and there is no manifest.json in it. Build it on a connected machine (ansible-playbook "
        "playbooks/build_offline.yml), and copy all of it to the same path"]


@pytest.mark.parametrize("text", ["{", "[]", '{"path": "/x", "system": "y"}', '"text"'])
def test_a_manifest_that_is_none(top: Path, text: str) -> None:
    (top / "manifest.json").write_text(text)
    [finding] = offline.findings(str(top), "debian 13 x86_64")
    assert finding.startswith(f"modelhost_offline is {top}, and its manifest.json cannot be read: ")


def test_another_release_is_refused(top: Path) -> None:
    assert offline.findings(str(top), "debian 12 x86_64") == [
        f"modelhost_offline is {top}, made for debian 13 x86_64, and this host is debian 12 x86_64: build one on a machine of the host's "
        "own release"]


def test_another_path_is_refused(top: Path) -> None:
    text = (top / "manifest.json").read_text().replace(str(top), "/srv/offline")
    (top / "manifest.json").write_text(text)
    assert offline.findings(str(top), "debian 13 x86_64") == [
        f"modelhost_offline is {top}, built as /srv/offline, and apt's configuration in it names that path: put it there, or build it "
        "under this path"]


def test_what_is_missing_truncated_or_changed_is_named(top: Path) -> None:
    (top / "apt/Packages").write_text("Package: evil\n")  # of the same size
    (top / "wheels/tool-1.0-py3-none-any.whl").write_text("hel")
    (top / "weights/tiny/model.bin").unlink()
    assert offline.findings(str(top), "debian 13 x86_64") == [
        f"modelhost_offline is {top} and not what its manifest.json says. Missing: weights/tiny/model.bin; damaged: "
        "wheels/tool-1.0-py3-none-any.whl (3 of 6 bytes), apt/Packages (other content). Copy it again from where it was built"]


@pytest.mark.parametrize(("name", "mode"), [
    ("", 0o775), ("", 0o1777), ("manifest.json", 0o664), ("apt", 0o777), ("apt/Packages", 0o666), ("apt/tool_1%3a2.0-1_amd64.deb", 0o646)])
def test_what_others_than_root_may_write_to_is_refused(top: Path, name: str, mode: int) -> None:
    (top / name).chmod(mode)
    assert offline.findings(str(top), "debian 13 x86_64") == [
        f"modelhost_offline is {top}, root installs from it, and others than root may write to {top / name}: chown -R root:root and "
        "chmod -R go-w the directory; without -R what is above it"]


def test_what_belongs_to_others_than_root_is_refused(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "OWNERS", (-1,))
    [finding] = offline.findings(str(top), "debian 13 x86_64")
    assert f"others than root may write to {top.parents[-1]}" in finding and "more: chown -R root:root" in finding


def test_the_folders_above_count_too_unless_they_are_sticky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "OWNERS", (0, os.getuid()))
    real, link = tmp_path / "disk/offline", tmp_path / "offline"
    for folder in (real.parent, real, real / "apt"):
        folder.mkdir(mode=0o755)
    (real / "manifest.json").touch(mode=0o644)
    link.symlink_to(real)
    real.parent.chmod(0o1777)
    assert offline.writable(str(link)) == []
    real.parent.chmod(0o777)
    assert offline.writable(str(link)) == [str(real.parent)]


def test_weights_and_wheels_may_belong_to_anybody(top: Path) -> None:
    for name in ("wheels", "weights", "wheels/tool-1.0-py3-none-any.whl"):
        (top / name).chmod(0o777)
    assert offline.findings(str(top), "debian 13 x86_64") == []
