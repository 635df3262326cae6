"""Directories: comparison and removal, on a real file system."""

from __future__ import annotations

import grp
import os
import pwd

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import directories as rules

ME = pwd.getpwuid(os.geteuid()).pw_name
MINE = grp.getgrgid(os.getegid()).gr_name


def entry(path, mode="0755", owner=ME, group=MINE):
    return {"path": str(path), "owner": owner, "group": group, "mode": mode}


def see(wanted):
    return {item["path"]: rules.look(item["path"]) for item in wanted}


def test_directories_are_made_with_their_parents_and_then_left_alone(tmp_path):
    wanted = [entry(tmp_path / "var/lib/service", "0750"), entry(tmp_path / "var", "0711")]
    changes = rules.differences(wanted, see(wanted))
    assert [(item["path"], there) for item, there in changes] == [(str(tmp_path / "var"), None), (str(tmp_path / "var/lib/service"), None)]
    for item, _there in changes:
        rules.apply(item)
    modes = {name: "%04o" % (os.stat(tmp_path / name).st_mode & 0o7777) for name in ("var", "var/lib", "var/lib/service")}
    assert modes == {"var": "0711", "var/lib": "0755", "var/lib/service": "0750"}
    assert rules.differences(wanted, see(wanted)) == []


def test_modes_do_not_depend_on_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        rules.apply(entry(tmp_path / "a/b", "0755"))
    finally:
        os.umask(before)
    assert ["%04o" % (os.stat(tmp_path / name).st_mode & 0o7777) for name in ("a", "a/b")] == ["0755", "0755"]


def test_only_what_differs_is_changed(tmp_path):
    (tmp_path / "kept").mkdir(mode=0o755)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    wanted = [entry(tmp_path / "kept"), entry(tmp_path / "open", "0700")]
    ((changed, there),) = rules.differences(wanted, see(wanted))
    assert changed["path"] == str(tmp_path / "open")
    assert (rules.aspects(there), rules.aspects(changed)) == ("%s:%s 0777" % (ME, MINE), "%s:%s 0700" % (ME, MINE))


def test_an_owner_that_does_not_exist_yet_differs(tmp_path):
    wanted = [entry(tmp_path, owner="nobody-of-this-name")]
    assert len(rules.differences(wanted, see(wanted))) == 1
    assert rules.strangers(wanted) == ["directories[0].owner: 'nobody-of-this-name' is not known on this host: create it first"]


def test_a_link_to_a_directory_is_that_directory(tmp_path):
    (tmp_path / "large").mkdir(mode=0o755)
    (tmp_path / "root").symlink_to(tmp_path / "large")
    wanted = [entry(tmp_path / "root")]
    assert rules.problems(wanted, see(wanted)) == []
    assert rules.differences(wanted, see(wanted)) == []


def test_all_problems_are_said_at_once(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    wanted = [
        entry(tmp_path / "file"),
        entry(tmp_path / "link"),
        entry("relative/path"),
        entry(tmp_path / "a", mode="493"),
        entry(tmp_path / "a", mode="755"),
    ]
    assert rules.problems(wanted, see(wanted)) == [
        "directories[0].path: %s/file is a file: move it away" % tmp_path,
        "directories[1].path: %s/link is a dangling link: move it away" % tmp_path,
        "directories[2].path: 'relative/path' is not absolute",
        "directories[3].mode: '493' is not four octal digits in quotes, such as '0755'",
        "directories[4].path: %s/a is declared twice" % tmp_path,
        "directories[4].mode: '755' is not four octal digits in quotes, such as '0755'",
    ]


@pytest.mark.parametrize(
    ("children", "gone", "kept"),
    [
        ({"/o": ["e", "t"], "/o/e": [], "/o/t": []}, ["/o/e", "/o/t", "/o"], []),
        ({"/o": ["e", "t"], "/o/e": ["vllm"], "/o/t": []}, ["/o/t"], ["/o", "/o/e"]),
        ({"/o": ["e", "notes"], "/o/e": []}, ["/o/e"], ["/o"]),
        ({}, [], []),
    ],
)
def test_only_what_is_empty_is_removed(children, gone, kept):
    assert rules.removable(["/o", "/o/e", "/o/t"], children) == (gone, kept)
