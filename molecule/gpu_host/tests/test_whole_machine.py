"""A model on the provisioned machine, and what happens to it when a GPU is lost. Runs after the tests of the roles, by its name."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def served(controller):
    controller.plays("site")


def journal(host):
    return host.check_output("journalctl --boot --unit=vllm-plain --output=cat")


def test_the_model_answers(endpoint, unit):
    assert endpoint.capital_of_france("plain") == ("plain", "The capital of France is Paris.")
    assert unit("plain").environment["CUDA_HOME"] == "/usr/local/cuda-13.0"
    assert "/usr/local/cuda-13.0/bin" in unit("plain").environment["PATH"].split(":")


def test_the_driver_is_not_changed_below_it(controller, overlay, host, unit):
    pid = unit("plain").pid
    refused = controller.play("provision", overlay=overlay(modelhost_driver={"source": "nvidia", "version": "580.126.09"}))
    assert refused.returncode != 0
    assert "vllm-plain.service is loading or serving, and this would change the driver under it. Nothing was changed." in refused.said
    assert "-e provision_force=true" in refused.said
    assert unit("plain").pid == pid
    assert host.check_output("dpkg-query --show --showformat='${Version}' nvidia-driver-cuda").startswith("580.105.08-")
    assert "changed=0" in controller.plays("provision").said  # nothing to change is nothing to refuse


@pytest.mark.case("H7")
def test_a_lost_gpu_is_named_and_the_start_not_tried_again(controller, host, unit, reboot, wait_for):
    """After a boot with seven of eight GPUs: no restart loop, the cause in the unit's journal, and provision refuses with the same."""
    host.check_output("mv /srv/gpu/recording /srv/gpu/whole && cp -a /srv/gpu/seven /srv/gpu/recording")
    try:
        reboot()
        wait_for(lambda: "not started: 7 of 8 GPUs answer" in journal(host))
        state = unit("plain").show("ActiveState", "Result", "NRestarts", "UnitFileState")
        assert state == {"ActiveState": "inactive", "Result": "exec-condition", "NRestarts": "0", "UnitFileState": "enabled"}
        assert "GPU has fallen off the bus" in journal(host)
        refused = controller.play("provision")
        assert refused.returncode != 0
        assert "7 of 8" in refused.said
    finally:
        host.check_output("rm -rf /srv/gpu/recording && mv /srv/gpu/whole /srv/gpu/recording")
        reboot()
        wait_for(lambda: unit("plain").show("ActiveState")["ActiveState"] == "active")


# What stays after a teardown, and belongs to nobody: logs, caches, apt's and systemd's own records.
IGNORED = (
    "/var/cache/", "/var/log/", "/var/lib/apt/lists/", "/var/lib/apt/extended_states", "/var/lib/apt/periodic/", "/var/lib/dpkg/",
    "/var/lib/systemd/", "/var/lib/ucf/",
    "/var/lib/modelhost/benchmarks/", "/var/lib/modelhost/weights/", "/root/", "/home/",
)
CHANGED = (
    "/etc/ld.so.cache", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-",
)


def test_removal_restores_the_machine(controller, host):
    controller.plays("teardown")
    host.check_output("/srv/snapshot /srv/after")

    def lines(name):
        return [set(host.file(f"/srv/{when}/{name}").content_string.splitlines()) for when in ("before", "after")]

    before, after = lines("packages")
    assert after ^ before == set()
    before, after = lines("files")
    assert {path for path in after - before if not path.startswith(IGNORED)} == set()
    assert {path for path in before - after if not path.startswith(IGNORED)} == set()
    before, after = lines("contents")
    assert {line.split(maxsplit=1)[1] for line in after ^ before} <= set(CHANGED)
    assert "changed=0" in controller.plays("teardown").said
