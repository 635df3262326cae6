"""One switch at a time: who gets the lock of a host, who is refused, and who has lost it. On a real file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.modelhost.vllm.plugins.action import switch_lock as action
from ansible_collections.modelhost.vllm.plugins.module_utils import switch_record
from ansible_collections.modelhost.vllm.plugins.modules import switch_lock

BOOT = "6e1c4d2a-0000-4000-8000-000000000001"
ALICE = {"user": "alice", "controller": "bastion", "pid": 4711, "run": "bastion b:pid:[1] 4711 99"}
BOB = {"user": "bob", "controller": "laptop", "pid": 12, "run": "laptop - 12 gone"}
SINCE = "2026-11-30T09:37:40+00:00"
HELD_BY_ALICE = {
    "schema": 1, "owner": ALICE, "since": SINCE, "boot": BOOT, "model": "small", "step": "wait", "silence": 1020,
    "progress": "loading weights"}


@pytest.fixture
def lock(host, call, monkeypatch):
    """Ask for the lock of a host, in this boot."""
    monkeypatch.setattr(switch_record, "boot_id", lambda: BOOT)
    return lambda state="held", **params: call(switch_lock, **{"state": state, "owner": ALICE, **params})


@pytest.fixture
def held(lock, host):
    """Alice has it, for so many seconds without a sign of life."""
    def put(age=0, **facts):
        switch_record.write({**HELD_BY_ALICE, **facts})
        then = time.time() - age
        os.utime(switch_record.RECORD, (then, then))

    return put


def on_disk():
    return json.loads(Path(switch_record.RECORD).read_text())


def test_nobody_has_it(lock, host):
    assert lock(model="small") == {"changed": False, "interrupted": {}}
    record = on_disk()
    assert record.pop("since").endswith("+00:00")
    assert record == {
        "schema": 1, "owner": ALICE, "boot": BOOT, "model": "small", "step": "check", "silence": 120, "progress": ""}
    assert host.mode("state/switch.json") == "0600"


def test_the_next_step_of_ones_own_switch(lock, held):
    held()
    assert lock(step="stop", silence=600) == {"changed": False, "interrupted": {}}
    assert on_disk() == {**HELD_BY_ALICE, "step": "stop", "silence": 600, "progress": ""}


def test_ones_own_lock_taken_again(lock, held):
    held()
    assert lock(model="other") == {"changed": False, "interrupted": {}}
    assert on_disk() == {**HELD_BY_ALICE, "model": "other", "step": "check", "silence": 120, "progress": ""}


@pytest.mark.parametrize(("facts", "step"), [
    ({}, "'wait' (loading weights)"), ({"step": "go back", "progress": ""}, "'go back'"),
])
@pytest.mark.case("L6")
def test_another_one_is_refused(lock, held, facts, step):
    held(age=41, **facts)
    result = lock(model="other", owner=BOB)
    assert result["failed"]
    assert result["msg"] in {
        f"alice@bastion (process 4711), since {SINCE} switches this host to small: step {step}, last sign of life {age} s ago. Wait until "
        "it has ended, or break in with -e switch_force=true; a run that was killed counts as ended after 1020 s of silence"
        for age in (41, 42, 43)}
    assert result["holder"]["owner"] == ALICE
    assert on_disk() == {**HELD_BY_ALICE, **facts}


def test_a_reboot_has_interrupted_it(lock, held):
    held(boot="6e1c4d2a-0000-4000-8000-000000000002")
    result = lock(model="other", owner=BOB)
    assert result["warnings"] == [
        f"A switch to small by alice@bastion (process 4711), since {SINCE} was interrupted at step 'wait'."]
    assert (result["interrupted"]["owner"], result["interrupted"]["interrupted"]) == (ALICE, True)
    record = on_disk()
    assert record["since"] != SINCE
    assert (record["owner"], record["boot"], record["model"], record["step"]) == (BOB, BOOT, "other", "check")


@pytest.mark.parametrize(("age", "broken"), [(1015, False), (1022, True)])
def test_silence(lock, held, age, broken):
    held(age)
    result = lock(model="other", owner=BOB)
    assert result.get("failed", False) is not broken
    assert on_disk()["owner"] == (BOB if broken else ALICE)
    assert result.get("warnings", []) == [
        f"A switch to small by alice@bastion (process 4711), since {SINCE} was interrupted at step 'wait'."] * broken


@pytest.mark.parametrize(("dead", "broken"), [(ALICE["run"], True), ("bastion b:pid:[1] 4711 98", False), ("", False)])
def test_a_run_that_is_known_to_have_ended(lock, held, dead, broken):
    held()
    result = lock(model="other", owner=BOB, dead=dead)
    assert result.get("failed", False) is not broken
    assert on_disk()["owner"] == (BOB if broken else ALICE)


def test_force(lock, held):
    held()
    result = lock(model="other", owner=BOB, force=True)
    assert result["warnings"] == [
        f"A switch to small by alice@bastion (process 4711), since {SINCE} is broken off, by force, at step 'wait'."]
    assert on_disk()["owner"] == BOB


def test_a_lock_that_is_lost_is_not_taken_again(lock, held):
    """Neither from a run that is there, nor from one that was interrupted: what it began is for the next run to judge."""
    sentence = (
        "the lock of this switch was broken by another run (alice@bastion (process 4711), since 2026-11-30T09:37:40+00:00): nothing more "
        "is done")
    for facts in ({}, {"boot": "another"}):
        held(**facts)
        for more in ({}, {"force": True}, {"dead": ALICE["run"]}):
            result = lock(owner=BOB, step="stop", silence=600, **more)
            assert (result["failed"], result["msg"]) == (True, sentence)
            assert "holder" not in result
            assert on_disk()["owner"] == ALICE


def test_a_lock_that_was_broken_by_a_run_that_has_ended(lock, host):
    assert lock(step="go back")["msg"] == "the lock of this switch was broken by another run (which has ended): nothing more is done"
    assert host.files("state") == {}


def test_release(lock, held, host):
    held()
    assert lock("released") == {"changed": False}
    assert host.files("state") == {}
    assert lock("released") == {"changed": False}


@pytest.mark.parametrize("files", [[], ["applied.json"]])
def test_the_folder_of_a_host_that_modelhost_has_left_goes_with_the_lock(lock, host, files):
    for name in files:
        host.write(f"state/{name}", "{}")
    lock()
    lock("released")
    assert (host.root / "state").exists() == bool(files)


@pytest.mark.parametrize("facts", [{}, {"boot": "another"}])
def test_only_ones_own_lock_is_released(lock, held, facts):
    held(**facts)
    assert lock("released", owner=BOB) == {"changed": False}
    assert on_disk() == {**HELD_BY_ALICE, **facts}


def test_check_mode_takes_none(lock, host):
    assert lock(check_mode=True, model="small") == {"changed": False, "interrupted": {}}
    assert list(host.root.iterdir()) == []


def test_check_mode_is_refused_where_another_run_switches(lock, held):
    held()
    assert lock(check_mode=True, owner=BOB)["failed"]
    assert not lock(check_mode=True, owner=BOB, force=True).get("failed")
    assert on_disk() == HELD_BY_ALICE


def test_check_mode_releases_nothing(lock, held):
    held()
    assert lock("released", check_mode=True) == {"changed": False}
    assert on_disk() == HELD_BY_ALICE


RACER = """
import json, sys, time
from ansible.module_utils.testing import patch_module_args
from ansible_collections.modelhost.vllm.plugins.module_utils import switch_record
from ansible_collections.modelhost.vllm.plugins.modules import switch_lock
switch_record.RECORD, user = sys.argv[1:]
real = switch_record.read
def read():
    found = real()
    time.sleep(0.3)  # between the look and the write, where the other one would come in
    return found
switch_record.read = read
print("ready", flush=True)
sys.stdin.readline()
with patch_module_args({"state": "held", "model": user, "owner": {"user": user, "controller": "c", "pid": 1, "run": user}}):
    switch_lock.main()
"""


def test_two_runs_at_the_same_moment(tmp_path):
    path = tmp_path / "state/switch.json"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(path), user], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        for user in ("alice", "bob")]
    for run in runs:
        assert run.stdout.readline() == "ready\n"
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    results = [json.loads(run.communicate(timeout=60)[0]) for run in runs]
    (winner,) = [user for user, result in zip(("alice", "bob"), results) if not result.get("failed")]
    (loser,) = [result for result in results if result.get("failed")]
    assert json.loads(path.read_text())["owner"]["user"] == winner
    assert loser["msg"].startswith(f"{winner}@c (process 1), since ")


class Task:
    """What an action plugin needs of a task."""

    args = {"state": "held", "model": "small"}


@pytest.fixture
def act(monkeypatch):
    """Run the action plugin; what the module was called with each time."""
    def run(ended, *results):
        calls, left = [], list(results)
        plugin = object.__new__(action.ActionModule)
        plugin._task = Task()
        plugin._execute_module = lambda module_args, task_vars: (calls.append(module_args), left.pop(0))[1]
        monkeypatch.setattr(action.ActionBase, "run", lambda self, tmp, task_vars: {})
        monkeypatch.setattr(action, "this_run", lambda: BOB)
        monkeypatch.setattr(action, "has_ended", lambda owner: (owner == ALICE) and ended)
        return plugin.run(task_vars={}), calls

    return run


def test_the_action_says_whose_run_it_is(act):
    assert act(True, {"changed": False}) == ({"changed": False}, [{"state": "held", "model": "small", "owner": BOB}])


def test_the_action_asks_again_where_the_holder_has_ended(act):
    result, calls = act(True, {"failed": True, "holder": {"owner": ALICE}}, {"changed": False})
    assert result == {"changed": False}
    assert calls == [
        {"state": "held", "model": "small", "owner": BOB}, {"state": "held", "model": "small", "owner": BOB, "dead": ALICE["run"]}]


def test_the_action_leaves_a_holder_alone_that_is_there(act):
    refused = {"failed": True, "holder": {"owner": ALICE}}
    assert act(False, refused) == (refused, [{"state": "held", "model": "small", "owner": BOB}])


def test_a_damaged_lock_is_broken_and_said(lock, host):
    host.write("state/switch.json", "{")
    assert lock(model="small")["warnings"] == [
        "A switch to unknown by unknown@unknown (process 0), since unknown was interrupted at step 'unknown'."]
    assert on_disk()["owner"] == ALICE


def test_whose_lock_was_damaged_stops_nothing(lock, host):
    host.write("state/switch.json", "{")
    assert lock(step="stop")["msg"].startswith("the lock of this switch was broken by another run (unknown@unknown")


def test_a_full_disk_ends_a_switch_before_the_stop_and_no_way_back(lock, held, host, fill_the_disk):
    held()
    fill_the_disk()
    assert lock(step="stop")["msg"] == (
        f"{switch_record.RECORD} cannot be written, and nothing more is done: [Errno 28] No space left on device")
    assert lock(step="go back")["warnings"] == ["That this run goes back is not noted: [Errno 28] No space left on device"]
