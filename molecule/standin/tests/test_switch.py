"""The switch: what serves afterwards, whatever happened."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.fixture(autouse=True)
def plain_serves(controller, endpoint, host, wait_for):
    """Each test begins with the wish served, with the scenario's own options, and with all its starts left."""
    host.check_output("systemctl reset-failed --all 'vllm-*.service'")
    options = host.run("grep -h max-model-len /run/modelhost/models/plain.yaml /etc/modelhost/models/plain.yaml").stdout
    if host.run("systemctl is-active vllm-plain").rc != 0 or options != "max-model-len: 2048\n":
        controller.plays("switch_model", "-e", "switch_force=true")
    wait_for(lambda: endpoint.names() == ["plain", "default"])


def serves(endpoint, unit, model):
    assert endpoint.names()[0] == model
    assert unit(model).show("ActiveState", "UnitFileState") == {"ActiveState": "active", "UnitFileState": "enabled"}


@pytest.mark.case("L7")
def test_a_choice_is_kept_until_the_wish_is_applied_again(controller, endpoint, unit, host, wait_for, reboot):
    controller.plays("switch_model", "-e", "model=odd")
    serves(endpoint, unit, "odd")
    assert unit("plain").show("ActiveState", "UnitFileState") == {"ActiveState": "inactive", "UnitFileState": "disabled"}
    # Values are data: this one reaches the process byte for byte.
    assert unit("odd").environment["ODD"] == 'a "quoted" $HOME %n \\t `x` #'
    pid = unit("odd").pid

    site = controller.plays("site")
    assert re.search(r"changed=0 .* failed=0", site.said)
    assert unit("odd").pid == pid
    assert "odd: serving" in controller.plays("status").said

    reboot()
    wait_for(lambda: endpoint.names()[0] == "odd")
    serves(endpoint, unit, "odd")
    assert unit("plain").show("ActiveState")["ActiveState"] == "inactive"

    controller.plays("switch_model")
    serves(endpoint, unit, "plain")


@pytest.mark.case("L14")
def test_an_edited_option_waits_for_the_switch(controller, endpoint, unit, host, overlay, tmp_path):
    pid, live = unit("plain").pid, host.file("/etc/modelhost/models/plain.yaml").sha256sum
    edited = overlay(modelhost_models={"plain": {
        "engine": "vllm-standin-1.0.0", "gpus": [], "port": 8000, "weights": {"source": "directory", "path": "/srv/weights/standin"},
        "alias": "default", "serve": {"max-model-len": 4096}, "environment": {"STANDIN_LOAD_SECONDS": "1"},
        "nccl": {"NCCL_P2P_LEVEL": "SYS", "NCCL_DEBUG": "INFO"}}})

    site = controller.plays("site", overlay=edited)
    assert "plain: 2 changes pending, apply with switch_model.yml" in site.said
    assert "-max-model-len: 2048" in site.said and "+max-model-len: 4096" in site.said
    assert '-NCCL_DEBUG="WARN"' in site.said and '+NCCL_DEBUG="INFO"' in site.said
    assert unit("plain").pid == pid
    assert host.file("/etc/modelhost/models/plain.yaml").sha256sum == live
    assert endpoint.ask("/v1/models")[1]["data"][0]["max_model_len"] == 2048

    plan = controller.plays("switch_model", "--check", overlay=edited)
    assert "reapply: apply the declared files of plain, of which 2 have changed" in plan.said
    assert unit("plain").pid == pid

    controller.plays("switch_model", overlay=edited)
    assert unit("plain").pid != pid
    assert endpoint.ask("/v1/models")[1]["data"][0]["max_model_len"] == 4096
    assert host.check_output("grep max-model-len /etc/modelhost/models/plain.yaml") == "max-model-len: 4096"
    assert unit("plain").show("FragmentPath")["FragmentPath"] == "/etc/systemd/system/vllm-plain.service"
    assert host.run("ls /run/systemd/system.control /run/modelhost/models").stdout.split() == [
        "/run/modelhost/models:", "/run/systemd/system.control:"]


@pytest.mark.case("L14")
def test_a_new_option_that_does_not_serve_gives_way_to_the_old_ones(controller, endpoint, unit, host, overlay):
    live = host.file("/etc/modelhost/models/plain.yaml").sha256sum
    edited = overlay(modelhost_models={"plain": {
        "engine": "vllm-standin-1.0.0", "gpus": [], "port": 8000, "weights": {"source": "directory", "path": "/srv/weights/standin"},
        "serve": {"max-model-len": 4096}, "environment": {"STANDIN_FAULT": "crash-at-start"}}})
    failed = controller.play("switch_model", overlay=edited)
    assert failed.returncode != 0
    assert "State: plain serves again, as before." in failed.said
    assert endpoint.ask("/v1/models")[1]["data"][0]["max_model_len"] == 2048
    assert host.file("/etc/modelhost/models/plain.yaml").sha256sum == live
    assert "STANDIN_FAULT" not in unit("plain").environment


@pytest.mark.case("L14")
def test_a_reboot_in_the_middle_of_a_new_attempt_boots_the_old_options(controller, endpoint, unit, host, overlay, wait_for, reboot):
    """The attempt lives in /run: while it loads, what would boot is still what was proven."""
    edited = overlay(modelhost_models={"plain": {
        "engine": "vllm-standin-1.0.0", "gpus": [], "port": 8000, "weights": {"source": "directory", "path": "/srv/weights/standin"},
        "serve": {"max-model-len": 4096}, "environment": {"STANDIN_LOAD_SECONDS": "20"}}})
    attempt = controller.begin("switch_model", overlay=edited)
    wait_for(lambda: unit("plain").show("FragmentPath")["FragmentPath"].startswith("/run/systemd/system.control/"))
    assert host.check_output("grep max-model-len /etc/modelhost/models/plain.yaml") == "max-model-len: 2048"
    reboot()
    attempt.kill()
    attempt.wait()
    wait_for(lambda: endpoint.names()[0] == "plain")
    assert endpoint.ask("/v1/models")[1]["data"][0]["max_model_len"] == 2048


@pytest.mark.case("L1")
def test_a_long_load_that_moves_is_waited_for_and_its_time_is_known_from_then_on(controller, endpoint, unit, host):
    """20 s, while model_switch_stall is 6."""
    loaded = controller.plays("switch_model", "-e", "model=patient")
    assert re.search(r" s loading weights: \d+% Completed \| \d/8 shards \(", loaded.said)
    assert "left of the usual" not in loaded.said
    serves(endpoint, unit, "patient")
    host.check_output("systemctl restart vllm-patient")
    assert re.search(r"patient: loading, since .*; about 1?\d s left of the usual 2\d s", controller.plays("status").said)


@pytest.mark.parametrize(("model", "reason"), [
    pytest.param("crashing", "ValueError", marks=pytest.mark.case("L4")),
    pytest.param("refused", "error: unrecognized arguments: --no-such-option", marks=pytest.mark.case("L5")),
    pytest.param("stalling", "nothing has moved for", marks=pytest.mark.case("L2")),
    pytest.param("hanging", "the server listens but did not answer within", marks=pytest.mark.case("C5")),
    pytest.param("dying", "the server listens but did not answer", marks=pytest.mark.case("L9")),
    pytest.param("garbage", "incoherent: asked 'What is the capital of France?'", marks=pytest.mark.case("C1")),
])
@pytest.mark.case("L13")
def test_a_model_that_does_not_serve_gives_way_to_the_one_that_did(controller, endpoint, unit, model, reason):
    """One after the other, more often than StartLimitBurst allows: a deliberate start is never refused for it."""
    failed = controller.play("switch_model", "-e", f"model={model}")
    assert failed.returncode != 0
    assert reason in failed.said
    assert "State: plain serves again, as before." in failed.said
    serves(endpoint, unit, "plain")
    assert unit(model).show("ActiveState", "UnitFileState")["UnitFileState"] == "disabled"
    assert unit(model).show("ActiveState")["ActiveState"] in ("inactive", "failed")
    assert endpoint.capital_of_france("plain") == ("plain", "The capital of France is Paris.")


@pytest.mark.case("L6")
@pytest.mark.case("L10")
def test_a_model_that_loads_is_stopped_by_force_only(controller, endpoint, unit, host, wait_for):
    # Whether it moves is another test; a busy machine may well let it stand still for a while.
    loading = controller.begin("switch_model", "-e", "model=slow", "-e", "model_switch_stall=600")
    wait_for(lambda: "loading weights" in host.file("/var/lib/modelhost/state/switch.json").content_string)
    pid = unit("slow").pid
    # While its run is there, it has the lock, and status says how far it is.
    second = controller.play("switch_model")
    assert second.returncode != 0
    assert re.search(r"\(process \d+\), since \S+ switches this host to slow: step .+wait.+ \(loading weights", second.said)
    assert re.search(r"switch to slow by \S+ since \S+: at step .+wait.+ \(loading weights: 0% Completed", controller.plays("status").said)
    loading.kill()
    loading.wait()
    # The run is gone, the load is not.
    third = controller.play("switch_model")
    assert third.returncode != 0
    assert re.search(r"A switch to slow by .* was interrupted at step .+wait", third.said)
    assert "slow is loading since" in third.said
    assert "-e switch_force=true" in third.said
    assert unit("slow").pid == pid

    controller.plays("switch_model", "-e", "switch_force=true")
    serves(endpoint, unit, "plain")
    # The server and the engine of the one that serves: nothing is left of the load, which swallows SIGTERM.
    assert host.check_output("pgrep -u modelhost -c -f vllm_standin") == "2"
    assert unit("slow").show("ActiveState")["ActiveState"] == "inactive"
    assert not host.file("/var/lib/modelhost/state/switch.json").exists


def test_a_start_by_hand_does_not_take_the_gpus_of_another(unit, host):
    pid = unit("plain").pid
    assert host.run("systemctl start vllm-odd").rc != 0
    assert "not started: vllm-plain.service is active (running) on GPUs none" in host.check_output("journalctl --no-pager -o cat -u vllm-odd -n 20")
    assert unit("plain").pid == pid
    host.check_output("systemctl stop vllm-odd")


@pytest.mark.case("L3")
def test_what_a_model_leaves_behind_is_ended(controller, endpoint, unit, host):
    """One process in the unit's cgroup with the port, and one that has left it."""
    controller.plays("switch_model", "-e", "model=orphan")
    host.check_output("systemd-run --unit=stray --setenv=MODELHOST_MODEL=orphan sleep 3600")
    stray = int(host.check_output("systemctl show stray --property=MainPID --value"))
    left = controller.plays("switch_model")
    assert f"orphan: 1 of its processes outlived the unit and were ended: [{stray}]" in left.said
    serves(endpoint, unit, "plain")
    assert host.check_output("pgrep -u modelhost -c -f vllm_standin") == "2"


def test_a_request_in_flight_ends_before_the_stop(controller, endpoint):
    """Its 40,000 words take 40 s; it arrives whole."""
    request = {"model": "plain", "messages": [{"role": "user", "content": "x"}], "max_tokens": 40000, "ignore_eos": True}
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(endpoint.ask, "/v1/chat/completions", request)
        switched = controller.plays("switch_model", "-e", "model=odd")
        status, body = asked.result()
    assert (status, body["usage"]["completion_tokens"]) == (200, 40000)
    assert "1 requests in flight at plain; it is stopped in" in switched.said


@pytest.mark.case("L3")
def test_a_killed_server_leaves_no_orphan_and_comes_back(endpoint, unit, host, wait_for):
    before = host.check_output("pgrep -u modelhost -f vllm_standin").split()
    host.check_output("kill -9 %s", str(unit("plain").pid))
    wait_for(lambda: host.run("ps -p %s", ",".join(before)).rc != 0)
    wait_for(lambda: endpoint.names()[0] == "plain")


@pytest.mark.case("L9")
def test_a_killed_engine_brings_the_unit_back(endpoint, unit, host, wait_for):
    """The server exits with 0 when its engine has died, so Restart=on-failure would do nothing."""
    before = unit("plain").show("MainPID", "NRestarts")
    host.check_output("pkill -9 -u modelhost -f vllm_standin.engine")
    wait_for(lambda: unit("plain").show("MainPID")["MainPID"] not in ("0", before["MainPID"]))
    wait_for(lambda: endpoint.names()[0] == "plain")
    assert int(unit("plain").show("NRestarts")["NRestarts"]) == int(before["NRestarts"]) + 1


@pytest.mark.case("L8")
def test_an_api_key_is_seen_by_nobody_but_the_process(controller, endpoint, unit, host):
    key = "s3cret-of-the-test"
    assert key not in controller.plays("switch_model", "-e", "model=locked", "--diff", "-v").stdout
    body = {"model": "locked", "messages": [{"role": "user", "content": "hello"}]}
    assert endpoint.ask("/v1/chat/completions", body)[0] == 401
    assert endpoint.ask("/v1/chat/completions", body, key=key)[0] == 200
    secret = host.file("/etc/modelhost/models/locked.secret.env")
    assert (secret.user, secret.mode) == ("root", 0o600)
    for places in (
            "journalctl --no-pager -u vllm-locked", "systemctl show vllm-locked", "systemctl cat vllm-locked", "ps -eo args",
            "cat /var/lib/modelhost/state/applied.json",
            "grep -r . /etc/modelhost/models/locked.env /var/lib/modelhost/generations/locked"):
        seen = host.check_output(places)
        assert "locked" in seen
        assert key not in seen


@pytest.mark.case("W1")
def test_weights_from_a_hub_are_fetched_and_then_served(controller, endpoint, unit, host):
    refused = controller.play("switch_model", "-e", "model=hub")
    assert refused.returncode != 0
    assert "ansible-playbook playbooks/fetch_weights.yml -e model=hub" in refused.said
    controller.plays("fetch_weights", "-e", "model=hub")
    controller.plays("switch_model", "-e", "model=hub")
    serves(endpoint, unit, "hub")
    assert endpoint.ask("/v1/models")[1]["data"][0]["root"] == "/var/lib/modelhost/weights/tiny--llama--0123456789ab"
