"""The revision of an inventory, asked from a real git."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.modelhost.vllm.plugins.lookup import git_revision


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True, stdout=subprocess.PIPE)


@pytest.fixture
def checkout(tmp_path):
    """A checkout with one commit, of a file in site/ and one beside it."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/hosts.yml").write_text("a: 1\n")
    (tmp_path / "README").write_text("x\n")
    (tmp_path / ".gitignore").write_text("mine/\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "one")
    return tmp_path


@pytest.mark.parametrize(("path", "text", "modified"), [
    ("site/hosts.yml", "a: 1\n", False),
    ("site/hosts.yml", "a: 2\n", True),
    ("site/new.yml", "b: 1\n", True),
    ("README", "y\n", False),  # not of the inventory
])
def test_the_commit_and_what_differs_from_it(checkout, path, text, modified):
    (checkout / path).write_text(text)
    found = git_revision.revision(str(checkout / "site"))
    assert (len(found["revision"]), found["modified"]) == (40, modified)


def test_a_folder_that_no_commit_has(checkout, tmp_path_factory, monkeypatch):
    (checkout / "mine").mkdir()
    (checkout / "mine/hosts.yml").write_text("a: 1\n")
    nothing = {"revision": "", "modified": False}
    assert git_revision.revision(str(checkout / "mine")) == nothing
    assert git_revision.revision(str(tmp_path_factory.mktemp("plain"))) == nothing
    monkeypatch.setenv("PATH", "")
    assert git_revision.revision(str(checkout / "site")) == nothing
