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


@pytest.fixture(autouse=True)
def plain_serves(controller, endpoint, wait_for):
    controller.plays("switch_model", "-e", "switch_force=true")
    wait_for(lambda: endpoint.names() == ["plain", "default"])


@pytest.mark.parametrize(("task", "step"), STEPS, ids=[step for _, step in STEPS])
def test_a_killed_run(controller, endpoint, host, reboot, wait_for, task, step):
    target = "crashing" if step == "go back" else "odd"
    assert controller.play("switch_model", "-e", f"model={target}", kill_at=task).returncode == -signal.SIGKILL
    # YAML doubles quotes within quotes
    assert re.search(rf"switch to {target} by \S+ since \S+: interrupted at step '+{step}'", controller.plays("status").said)

    reboot()
    # What was applied last: until the target has answered, the model before
    served = "odd" if step == "apply" else "plain"
    wait_for(lambda: endpoint.names()[0] == served)
    assert endpoint.capital_of_france(served) == (served, "The capital of France is Paris.")
    assert re.search(f"interrupted at step '+{step}'", controller.plays("status").said)


@pytest.mark.parametrize(("task", "step"), STEPS, ids=[step for _, step in STEPS])
def test_the_next_run(controller, endpoint, host, task, step):
    target = "crashing" if step == "go back" else "odd"
    controller.play("switch_model", "-e", f"model={target}", kill_at=task)
    again = controller.plays("switch_model", "-e", "model=odd")
    assert re.search(rf"A switch to {target} by .* was interrupted at step '+{step}'", again.said)
    assert endpoint.capital_of_france("odd") == ("odd", "The capital of France is Paris.")
    assert host.check_output("systemctl list-unit-files 'vllm-*' --state=enabled --no-legend --no-pager | awk '{print $1}'") == "vllm-odd.service"
    assert not host.file("/var/lib/modelhost/state/switch.json").exists


def test_nothing_runs_between_the_stop_and_the_start(controller, endpoint, host):
    controller.play("switch_model", "-e", "model=odd", kill_at="start | Wait until it answers")
    host.check_output("systemctl stop vllm-odd")
    assert "nothing is served" in controller.plays("switch_model", "-e", "model=odd").said
    assert endpoint.capital_of_france("odd") == ("odd", "The capital of France is Paris.")
