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
def killed(controller, endpoint, wait_for):
    """A run that dies at a step: the model before and the target."""
    def kill(task, step):
        wait_for(endpoint.names)
        before = endpoint.names()[0]
        target = "crashing" if step == "go back" else {"plain": "odd", "odd": "plain"}[before]
        assert controller.play("switch_model", "-e", f"model={target}", kill_at=task).returncode == -signal.SIGKILL
        return before, target

    return kill


@pytest.mark.parametrize(("task", "step"), STEPS, ids=[step for _, step in STEPS])
def test_a_killed_run(killed, controller, endpoint, reboot, wait_for, task, step):
    before, target = killed(task, step)
    # YAML doubles quotes within quotes
    assert re.search(rf"switch to {target} by \S+ since \S+: interrupted at step '+{step}'", controller.plays("status").said)

    reboot()
    # What was applied last: until the target has answered, the model before
    served = target if step == "apply" else before
    wait_for(lambda: endpoint.names()[0] == served)
    assert endpoint.capital_of_france(served) == (served, "The capital of France is Paris.")


@pytest.mark.parametrize(("task", "step"), STEPS, ids=[step for _, step in STEPS])
def test_the_next_run(killed, controller, endpoint, host, task, step):
    before, target = killed(task, step)
    served = "odd" if before == "plain" else "plain"
    again = controller.plays("switch_model", "-e", f"model={served}")
    assert re.search(rf"A switch to {target} by .* was interrupted at step '+{step}'", again.said)
    assert endpoint.capital_of_france(served) == (served, "The capital of France is Paris.")
    assert host.check_output("systemctl list-unit-files 'vllm-*' --state=enabled --no-legend --no-pager | awk '{print $1}'") == (
        f"vllm-{served}.service")
    assert not host.file("/var/lib/modelhost/state/switch.json").exists


def test_nothing_runs_between_the_stop_and_the_start(killed, controller, endpoint, host):
    _, target = killed("start | Wait until it answers", "start")
    host.check_output(f"systemctl stop vllm-{target}")
    controller.plays("switch_model", "-e", f"model={target}")
    assert endpoint.capital_of_france(target) == (target, "The capital of France is Paris.")
