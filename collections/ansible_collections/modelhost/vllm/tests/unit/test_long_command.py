"""Long commands: their jobs as systemd shows them, and waits that show where they are."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.modelhost.vllm.plugins.action import long_command as action
from ansible_collections.modelhost.vllm.plugins.modules import long_command
from ansible_collections.modelhost.vllm.plugins.plugin_utils import polling

UNIT = "modelhost-job-make-small.service"
PARAMS = {"name": "make small", "argv": ["/bin/make", "small"], "environment": {"A": "1"}, "secret_environment": {"TOKEN": "t$"},
          "progress_every": 0}


@pytest.fixture
def jobs(host, monkeypatch):
    monkeypatch.setattr(long_command, "JOBS", f"{host.root}/jobs")
    return host


@pytest.mark.parametrize(("written", "lines"), [
    (b"", []),
    (b"one\ntwo\n", ["one", "two"]),
    (b"  10%|#   |\r  50%|##  |\r 100%|####|\n\ndone", ["10%|#   |", "50%|##  |", "100%|####|", "done"]),
    (b"half\xc3", ["half\N{REPLACEMENT CHARACTER}"]),
])
def test_tail(tmp_path, written, lines):
    (tmp_path / "log").write_bytes(written)
    assert long_command.tail(str(tmp_path / "log")) == lines


def test_tail_reads_the_end_only(tmp_path):
    (tmp_path / "log").write_text("".join(f"line {number}\n" for number in range(10000)))
    assert long_command.tail(str(tmp_path / "log"), 15) == ["9998", "line 9999"]
    assert long_command.tail(str(tmp_path / "none")) == []


def test_what_is_there_is_not_made_again(jobs, call, tmp_path):
    assert call(long_command, **PARAMS, creates=str(tmp_path)) == {"changed": False, "finished": True}
    assert jobs.ran == []


def test_check_mode_starts_nothing(jobs, call):
    assert call(long_command, check_mode=True, **PARAMS, creates="/nowhere") == {"changed": True, "finished": True}
    assert jobs.ran == []


def test_a_job_is_started_with_its_environment_in_a_file(jobs, call):
    result = call(long_command, **PARAMS, creates="/nowhere")
    start = jobs.ran[-1].replace(str(jobs.root), "")
    assert start == (
        f"systemd-run --quiet --unit={UNIT} --property=Type=exec --property=EnvironmentFile=/jobs/{UNIT}.env "
        f"--property=StandardOutput=truncate:/jobs/{UNIT}.log -- /bin/make small")
    # It ended at once, as the units of this host say, without what it should have made
    assert result["failed"]
    assert result["msg"].replace(str(jobs.root), "") == (
        f"make small ended well but did not make /nowhere. All it said: /jobs/{UNIT}.log on the host")
    assert jobs.files("jobs") == {}


def test_a_job_that_runs_is_waited_for(jobs, call, monkeypatch):
    handed_over = []

    def run(argv):
        if argv[0] == "systemd-run":
            handed_over.append((jobs.files("jobs")[f"{UNIT}.env"], jobs.mode(f"jobs/{UNIT}.env")))
            jobs.units = {UNIT: jobs.RUNNING}
            jobs.write(f"jobs/{UNIT}.log", "Fetching\n 40% of 595 GB\r")
        return jobs.run(argv)

    monkeypatch.setattr(long_command.systemd, "run", run)
    assert call(long_command, **PARAMS, creates="/nowhere") == {
        "changed": True, "finished": False, "resume": {"ours": True}, "progress": "40% of 595 GB"}
    assert handed_over == [('HOME="/root"\nA="1"\nTOKEN="t\\$"\n', "0600")]
    # The command has it by now, and nobody else needs it
    assert list(jobs.files("jobs")) == [f"{UNIT}.log"]


def test_a_job_that_cannot_start_leaves_no_secrets(jobs, monkeypatch):
    def run(argv):
        if argv[0] == "systemd-run":
            raise subprocess.CalledProcessError(1, argv)
        return jobs.run(argv)

    monkeypatch.setattr(long_command.systemd, "run", run)
    with pytest.raises(subprocess.CalledProcessError):
        long_command.start(UNIT, f"{jobs.root}/jobs/{UNIT}.log", ["/bin/make"], {"TOKEN": "t"}, 0)
    assert jobs.files("jobs") == {}


def test_the_job_of_an_earlier_run_is_waited_for_and_looked_at_again(jobs, call):
    jobs.units = {UNIT: jobs.RUNNING}
    assert call(long_command, **PARAMS, creates="/nowhere") == {
        "changed": True, "finished": False, "resume": {"ours": False}, "progress": "started"}
    assert jobs.ran == []


def test_a_job_that_failed(jobs, call):
    jobs.units = {UNIT: {**jobs.STOPPED, "ActiveState": "failed", "ExecMainStatus": "7"}}
    jobs.write(f"jobs/{UNIT}.log", "one\ndisk full\n")
    result = call(long_command, **PARAMS, creates="/nowhere", resume={"ours": True})
    assert (result["rc"], result["output"]) == (7, ["one", "disk full"])
    assert result["msg"].replace(str(jobs.root), "") == (
        f"make small failed with status 7. Its last words:\none\ndisk full\nAll of them: /jobs/{UNIT}.log on the host")


def test_a_job_with_a_limit(jobs, call):
    limited = {**PARAMS, "limit": 600, "limit_hint": "Make less."}
    call(long_command, **limited)
    assert "--property=RuntimeMaxSec=600 -- /bin/make small" in jobs.ran[-1]
    # systemd.service(5), RuntimeMaxSec=: the unit is put into the failed state; its process got SIGTERM
    jobs.units = {UNIT: {**jobs.STOPPED, "ActiveState": "failed", "Result": "timeout", "ExecMainStatus": "15"}}
    result = call(long_command, **limited, resume={"ours": True})
    assert (result["failed"], result["msg"]) == (True, "make small was ended after 600 s, its time limit. Make less.")


def test_a_job_that_ended_well(jobs, call, tmp_path):
    jobs.write(f"jobs/{UNIT}.log", "done\n")
    assert call(long_command, **PARAMS, creates=str(tmp_path), resume={"ours": True}) == {
        "changed": True, "finished": True, "rc": 0, "output": ["done"]}


class Task:
    def __init__(self, no_log=False):
        self.args, self.no_log = {"name": "x"}, no_log

    def get_name(self):
        return "fetch | Fetch the weights"


@pytest.fixture
def poll(monkeypatch):
    """Run the action over scripted results of its module: its own result, what the module was called with, and what was shown."""
    def run(results, no_log=False, seconds=1.0):
        calls, shown, clock = [], [], iter(range(1000))
        plugin = action.ActionModule.__new__(action.ActionModule)
        plugin._task = Task(no_log)
        monkeypatch.setattr(polling.ActionBase, "run", lambda self, tmp, task_vars: {})
        monkeypatch.setattr(polling.time, "monotonic", lambda: next(clock) * seconds)
        monkeypatch.setattr(polling.display, "display", shown.append)

        def execute(module_args, task_vars):
            calls.append(module_args)
            return dict(results[len(calls) - 1])

        plugin._execute_module = execute
        return plugin.run(task_vars={"inventory_hostname": "gpu01"}), calls, shown

    return run


def unfinished(progress, **resume):
    return {"changed": True, "finished": False, "resume": resume, "progress": progress}


def test_each_call_gets_what_the_one_before_returned(poll):
    result, calls, shown = poll([unfinished("10%", step=1), unfinished("20%", step=2), {"changed": True, "finished": True, "rc": 0}])
    assert result == {"changed": True, "rc": 0}
    assert calls == [{"name": "x", "resume": None}, {"name": "x", "resume": {"step": 1}}, {"name": "x", "resume": {"step": 2}}]
    assert shown == ["\ngpu01: fetch | Fetch the weights", "      1 s  10%", "      2 s  20%"]


def test_a_line_that_stays_is_shown_every_half_minute(poll):
    shown = poll([unfinished("10%")] * 9 + [{"finished": True}], seconds=10.0)[2]
    assert shown[1:] == ["     10 s  10%", "     40 s  10%", "     70 s  10%"]


def test_a_failure_ends_the_wait(poll):
    result, calls, _shown = poll([unfinished("10%"), {"failed": True, "msg": "no"}, {"finished": True}])
    assert (result, len(calls)) == ({"failed": True, "msg": "no"}, 2)


def test_an_old_or_broken_module_is_not_called_for_ever(poll):
    assert len(poll([{"changed": False}])[1]) == 1


def test_no_log_shows_nothing(poll):
    assert poll([unfinished("10%"), {"finished": True}], no_log=True)[2] == []


def test_a_job_that_makes_nothing_is_run_each_time(jobs, call):
    result = call(long_command, **PARAMS)
    assert jobs.ran[-1].startswith("systemd-run ")
    assert result == {"changed": True, "finished": True, "rc": 0, "output": []}
    assert call(long_command, check_mode=True, **PARAMS) == {"changed": True, "finished": True}
