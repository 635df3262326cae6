"""A switch whose controller is killed: the status names the step, and a model serves after a reboot or after the next run."""

import re
import signal

import pytest

# The task at whose beginning the controller dies, and the step that has begun by then
STEPS = [
    ("plan | The plan", "check"),
    ("act | Note that the stop begins", "drain"),
    ("start | Exchange the units, with the declared files on trial", "stop"),
    ("start | Wait until it answers", "start"),
    ("start | Enable it for boot and record it", "wait"),
    ("act | What serves now", "apply"),
    ("go_back | Drop its trial", "go back"),
]


@pytest.fixture(scope="module", autouse=True)
def plain_serves(controller):
    controller.plays("switch_model", "-e", "switch_force=true")


@pytest.fixture
def kill(controller, endpoint, wait_for):
    """A run that dies at a step: the model that answers at its beginning, and the target; and what the run said."""
    def act(task, step):
        wait_for(endpoint.names)
        before = endpoint.names()[0]
        target = "crashing" if step == "go back" else {"plain": "odd", "odd": "plain"}[before]
        run = controller.play("switch_model", "-e", f"model={target}", kill_at=task)
        assert run.returncode == -signal.SIGKILL
        return before, target, run.said

    return act


@pytest.mark.parametrize(("task", "step"), STEPS, ids=[step for _, step in STEPS])
def test_a_killed_run(kill, controller, endpoint, reboot, wait_for, task, step):
    before, target, _said = kill(task, step)
    # YAML doubles quotes within quotes
    assert re.search(rf"switch to {target} by \S+ since \S+: interrupted at step '+{step}'", controller.plays("status").said)

    reboot()
    # What was applied last: until the target has answered, the model before
    served = target if step == "apply" else before
    wait_for(lambda: endpoint.names()[0] == served)
    assert endpoint.capital_of_france(served) == (served, "The capital of France is Paris.")


def test_each_run_goes_on_where_the_one_before_was_killed(kill, controller, endpoint, host):
    interrupted = ""
    for task, step in STEPS:
        _before, target, said = kill(task, step)
        assert re.search(interrupted, said)
        interrupted = rf"A switch to {target} by .* was interrupted at step '+{step}'"
    last = controller.plays("switch_model", "-e", "model=odd")
    assert re.search(interrupted, last.said)
    assert endpoint.capital_of_france("odd") == ("odd", "The capital of France is Paris.")
    assert host.check_output("systemctl list-unit-files 'vllm-*' --state=enabled --no-legend --no-pager | awk '{print $1}'") == (
        "vllm-odd.service")
    assert not host.file("/var/lib/modelhost/state/switch.json").exists


def test_nothing_runs_between_the_stop_and_the_start(kill, controller, endpoint, host):
    _before, target, _said = kill("start | Wait until it answers", "start")
    host.check_output(f"systemctl stop vllm-{target}")
    controller.plays("switch_model", "-e", f"model={target}")
    assert endpoint.capital_of_france(target) == (target, "The capital of France is Paris.")
