"""The NCCL variables of a model: refused where NCCL would not take them, in every process of the unit, and shown with their origin."""

import json

import pytest

MODEL = {"engine": "vllm-standin-1.0.0", "gpus": [], "port": 8000, "weights": {"source": "directory", "path": "/srv/weights/standin"}}
STATE = (
    "find /etc/modelhost /etc/systemd/system /run/modelhost/models /var/lib/modelhost -type f -printf '%p %s %T@\\n' | sort | sha256sum; "
    "systemctl show vllm-plain --property=MainPID --property=ActiveState")


@pytest.fixture(scope="module", autouse=True)
def plain_serves(controller):
    controller.plays("switch_model")


@pytest.mark.case("N6")
def test_every_process_of_the_unit_has_exactly_what_was_declared(host, unit):
    group = unit("plain").show("ControlGroup")["ControlGroup"]
    pids = host.check_output("cat /sys/fs/cgroup%s/cgroup.procs", group).split()
    assert len(pids) == 2
    for pid in pids:
        variables = host.check_output("tr '\\0' '\\n' < /proc/%s/environ", pid).splitlines()
        assert {each for each in variables if each.startswith("NCCL_")} == {"NCCL_P2P_LEVEL=SYS", "NCCL_DEBUG=WARN"}


@pytest.mark.case("N6")
@pytest.mark.case("N9")
def test_the_status_shows_them_with_what_a_forgotten_file_adds(controller, host):
    host.check_output("printf '# left over\\nNCCL_P2P_LEVEL=LOC\\nNCCL_IB_DISABLE=1\\n' > /etc/nccl.conf")
    try:
        controller.plays("status")
    finally:
        host.check_output("rm /etc/nccl.conf")
    found = json.loads((controller.artifacts / "demo/report.json").read_text())["nccl"]
    assert {(each["model"], each["name"], each["value"], each["origin"]) for each in found["variables"]} == {
        ("plain", "NCCL_P2P_LEVEL", "SYS", "unit"), ("plain", "NCCL_DEBUG", "WARN", "unit"),
        ("plain", "NCCL_IB_DISABLE", "1", "/etc/nccl.conf:3")}
    assert any(note.startswith("/etc/nccl.conf:2 sets NCCL_P2P_LEVEL=LOC for every model that does not declare") for note in found["notes"])


@pytest.mark.case("N1")
@pytest.mark.case("N5")
@pytest.mark.parametrize(("nccl", "sentence"), [
    ({"NCCL_P2P_LEVEL": "sys"}, "modelhost_models.plain.nccl.NCCL_P2P_LEVEL: 'sys' is none of NCCL's names"),
    ({"NCCL_P2PLEVEL": "SYS"},
     "modelhost_models.plain.nccl.NCCL_P2PLEVEL: NCCL knows no such variable and ignores it without a word: did you mean "
     "NCCL_P2P_LEVEL?"),
])
def test_what_nccl_would_ignore_is_refused_and_the_host_stays_as_it_is(controller, overlay, host, nccl, sentence):
    before = host.check_output(STATE)
    failed = controller.play("switch_model", overlay=overlay(modelhost_models={"plain": {**MODEL, "nccl": nccl}}))
    assert failed.returncode != 0
    assert sentence in failed.said.replace("''", "'")
    assert host.check_output(STATE) == before
