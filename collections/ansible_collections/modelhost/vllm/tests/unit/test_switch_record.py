"""The record of a switch: what is noted in it, and when it counts as interrupted."""

from __future__ import annotations

import os
import time

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import models, switch_record

BOOT = "6e1c4d2a-0000-4000-8000-000000000001"
RECORD = {
    "schema": 1, "owner": {"user": "alice", "controller": "bastion", "pid": 4711, "run": "bastion b:pid:[1] 4711 99"}, "boot": BOOT,
    "since": "2026-11-30T09:37:40+00:00", "model": "small", "step": "stop", "silence": 600, "progress": "2 requests in flight"}


@pytest.fixture
def record(host, monkeypatch):
    """The record as it is on the disk, which the test may set, with its age in seconds."""
    monkeypatch.setattr(switch_record, "boot_id", lambda: BOOT)

    def put(age=0, **facts):
        switch_record.write({**RECORD, **facts})
        then = time.time() - age
        os.utime(switch_record.RECORD, (then, then))
        return host

    return put


def test_there_is_none(host):
    assert switch_record.read() == {}


@pytest.mark.parametrize(("age", "facts", "interrupted"), [
    (0, {}, False), (599, {}, False), (602, {}, True), (0, {"boot": "6e1c4d2a-0000-4000-8000-000000000002"}, True),
    (602, {"silence": 1020}, False), (121, {"silence": 120}, True),
    (-3600, {}, False),  # the clock was set back
])
def test_age(record, age, facts, interrupted):
    record(age, **facts)
    found = switch_record.read()
    assert max(0, age) <= found.pop("age") <= max(0, age) + 5
    assert found == {**RECORD, **facts, "interrupted": interrupted}


def test_it_ends_between_two_looks(record, monkeypatch):
    """One look sees one record: it is opened once."""
    record()
    monkeypatch.setattr(switch_record.json, "load", lambda stream: (os.remove(switch_record.RECORD), dict(RECORD))[1])
    assert switch_record.read()["step"] == "stop"
    assert switch_record.read() == {}


def test_a_note_is_a_sign_of_life(record):
    record(age=500)
    switch_record.note(1020, step="wait", progress="loading weights")
    found = switch_record.read()
    assert found["age"] < 5
    assert {**found, "age": 0} == {**RECORD, "step": "wait", "silence": 1020, "progress": "loading weights", "interrupted": False, "age": 0}


def test_what_a_note_does_not_say_ends(record):
    record()
    switch_record.note(step="start")
    found = switch_record.read()
    assert (found["step"], found["silence"], found["progress"]) == ("start", 120, "")


def test_going_back_stays_the_step(record):
    record(step="go back")
    switch_record.note(1020, step="wait", progress="loading weights")
    found = switch_record.read()
    assert (found["step"], found["silence"], found["progress"]) == ("go back", 1020, "loading weights")


def test_where_no_switch_is_under_way_nothing_is_noted(host):
    switch_record.note(step="wait")
    assert list(host.root.iterdir()) == []


def test_a_note_waits_while_another_run_decides(record, monkeypatch):
    """Else a run whose lock is being broken could write its own record back."""
    held = []
    real = models.write
    monkeypatch.setattr(switch_record.fcntl, "flock", lambda stream, how: held.append(how))
    monkeypatch.setattr(models, "write", lambda *arguments: (held.append("write"), real(*arguments)))
    record()
    held.clear()
    switch_record.note(step="wait")
    assert held == [switch_record.fcntl.LOCK_EX, "write"]


def test_only_root_reads_it(record):
    host = record()
    assert host.mode("state/switch.json") == "0600"
    switch_record.note(step="wait")
    assert host.mode("state/switch.json") == "0600"


def test_the_end(record):
    record()
    switch_record.remove()
    switch_record.remove()
    assert switch_record.read() == {}


def test_the_holder_for_people():
    assert switch_record.holder(RECORD) == "alice@bastion (process 4711), since 2026-11-30T09:37:40+00:00"


def test_this_boot():
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        assert switch_record.boot_id() == stream.read().strip() != ""


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"owner": {}}'])
def test_a_damaged_record_is_that_of_an_unknown_run_that_was_interrupted(host, text):
    host.write("state/switch.json", text)
    found = switch_record.read()
    assert (found["interrupted"], found["model"], found["step"], found["age"]) == (True, "unknown", "unknown", 0)
    switch_record.note(step="wait")
    assert host.files("state")["switch.json"] == text


def test_a_full_disk_ends_no_switch(record, fill_the_disk):
    record(step="start")
    fill_the_disk()
    switch_record.note(step="wait")
    assert switch_record.read()["step"] == "start"
