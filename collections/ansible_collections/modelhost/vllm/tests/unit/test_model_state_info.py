"""What the host serves: the states of its models, from systemd, the record and the endpoint."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelhost.vllm.plugins.modules import model_environment_info, model_state_info


@pytest.fixture
def endpoints(monkeypatch):
    """The names that each endpoint serves, by port; and which endpoints were asked."""
    names: dict[int, list[str]] = {}
    asked = []

    class Endpoint:
        def __init__(self, host, port, secret_file):
            asked.append((host, port, secret_file.rsplit("/", 2)[-2]))
            self.port = port

        def served_names(self):
            return names.get(self.port, [])

    monkeypatch.setattr(model_state_info, "Endpoint", Endpoint)
    return names, asked


@pytest.mark.parametrize(("properties", "names", "state", "busy"), [
    ({}, ["small", "default"], "serving", ["small"]),
    ({}, [], "loading", ["small"]),
    ({}, ["other"], "loading", ["small"]),
    ({"ActiveState": "activating", "SubState": "start-pre"}, [], "loading", ["small"]),
    ({"ActiveState": "activating", "SubState": "start"}, [], "loading", ["small"]),
    ({"ActiveState": "activating", "SubState": "auto-restart"}, ["small"], "failed", ["small"]),
    ({"ActiveState": "deactivating", "SubState": "stop-sigterm"}, ["small"], "stopping", ["small"]),
    ({"ActiveState": "failed", "SubState": "failed"}, [], "failed", []),
    ({"ActiveState": "inactive", "SubState": "dead"}, [], "stopped", []),
])
def test_state(host, call, endpoints, properties, names, state, busy):
    host.units = {"vllm-small.service": {**host.RUNNING, **properties}}
    endpoints[0][8000] = names
    result = call(model_state_info, models=["small"])
    assert (result["changed"], result["models"]["small"]["state"], result["busy"]) == (False, state, busy)


def test_how_far_a_load_is(host, call, endpoints, monkeypatch):
    monkeypatch.setattr(model_state_info.models, "running_for", lambda unit: 660.0)
    host.journal = "Initializing a V1 LLM engine\n" \
        "Loading safetensors checkpoint shards:  52% Completed | 33/64 [12:10<11:26, 22.15s/it]\r\n"
    host.write("state/loads.json", json.dumps({"models": {"small": [{"seconds": 1860.0}]}}))
    host.units = {"vllm-small.service": host.RUNNING, "vllm-served.service": {**host.RUNNING, "InvocationID": "ffff"}}
    host.write("live/served.yaml", "port: 8001\n")
    endpoints[0][8001] = ["served"]
    found = call(model_state_info, models=["small", "served", "idle"])["models"]
    assert {name: each["progress"] for name, each in found.items()} == {
        "small": "loading weights: 52% Completed | 33/64 shards; about 20 min left of the usual 31 min", "served": "", "idle": ""}
    assert {name: each["load_seconds"] for name, each in found.items()} == {"small": 1860, "served": 0, "idle": 0}
    assert host.ran == ["journalctl --quiet --no-pager --output=cat --lines=200 _SYSTEMD_INVOCATION_ID=0a1b"]


@pytest.mark.case("L15")
@pytest.mark.parametrize(("names", "state"), [(["zai-org/GLM-5"], "serving"), (["small"], "serving"), ([], "loading")])
def test_a_foreign_unit_of_a_models_name(host, call, endpoints, names, state):
    """It may serve under another name than the catalogue's."""
    host.write("units/vllm-small.service", "[Service]\nExecStart=/opt/vllm/bin/vllm serve\n")
    host.write("declared/small/small.yaml", "host: 127.0.0.1\nport: 8005\n")
    host.write("declared/small/vllm-small.service", "[Unit]\n")
    host.units = {"vllm-small.service": host.RUNNING}
    endpoints[0][8005] = names
    result = call(model_state_info, models=["small", "other"])
    small = result["models"]["small"]
    assert (small["state"], small["foreign"], small["applied"], result["models"]["other"]["foreign"]) == (state, True, {}, False)
    assert [each["file"] for each in small["pending"]] == ["small.yaml", "vllm-small.service"]


def test_the_switch_that_is_under_way(host, call, endpoints, monkeypatch):
    assert call(model_state_info, models=["small"])["switch"] == {}
    record = {
        "owner": {"user": "alice", "controller": "bastion", "pid": 4711, "run": "x"}, "since": "2026-11-30T09:37:40+00:00", "boot": "b",
        "model": "small", "step": "wait", "silence": 1020, "progress": "loading weights"}
    monkeypatch.setattr(model_state_info.switch_record, "boot_id", lambda: "b")
    host.write("state/switch.json", json.dumps({"schema": 1, **record}))
    found = call(model_state_info, models=["small"])["switch"]
    assert 0 <= found.pop("age") < 30
    assert found == {"schema": 1, **record, "interrupted": False}


def test_models_outside_the_catalogue_are_reported_where_they_matter(host, call, endpoints):
    host.units = {"vllm-old.service": host.RUNNING, "vllm-tried.service": host.RUNNING}
    host.write("units/vllm-old.service", f"[Unit]\nDocumentation=file:{host.root}/live/old.yaml\n")
    host.write("trial-units/vllm-tried.service", f"[Unit]\nDocumentation=file:{host.root}/trial/tried.yaml\n")
    host.write("state/applied.json", json.dumps({"schema": 1, "models": {"applied": {"port": 1}}}))
    result = call(model_state_info, models=["small"])
    assert {name: each["state"] for name, each in result["models"].items()} == {
        "small": "stopped", "old": "loading", "tried": "loading", "applied": "stopped"}
    assert result["models"]["applied"]["applied"] == {"port": 1}
    assert result["models"]["small"]["applied"] == {}
    assert result["busy"] == ["old", "tried"]


@pytest.mark.parametrize("files", [
    {"units/vllm-exporter.service": "# Ansible managed\n[Unit]\nDocumentation=https://example.org/exporter\n"},
    # One that a package brought: not where modelhost writes
    {},
])
def test_a_foreign_unit_is_no_model(host, call, endpoints, files):
    for path, text in files.items():
        host.write(path, text)
    host.units = {"vllm-exporter.service": host.RUNNING}
    result = call(model_state_info, models=["small"])
    assert (list(result["models"]), result["busy"]) == (["small"], [])


def test_only_a_protected_model_has_something_pending(host, call, endpoints):
    for model in ("served", "stopped"):
        host.write(f"declared/{model}/{model}.yaml", "port: 8001\n")
    host.units = {"vllm-served.service": host.RUNNING}
    found = call(model_state_info, models=["served", "stopped"])["models"]
    assert found["served"]["pending"] == [
        {"file": "served.yaml", "diff": "--- served.yaml (live)\n+++ served.yaml (declared)\n@@ -0,0 +1 @@\n+port: 8001\n"}]
    assert found["stopped"]["pending"] == []


def test_whether_a_unit_reads_a_trial(host, call, endpoints):
    host.write("declared/small/vllm-small.service", "[Service]\n")
    host.write("trial-units/vllm-small.service", "[Service]\n")
    found = call(model_state_info, models=["small", "other"])["models"]
    assert (found["small"]["trial"], found["other"]["trial"]) == ("declared", "")


def test_a_key_that_is_no_longer_declared_is_pending(host, call, endpoints):
    host.write("live/small.secret.env", 'VLLM_API_KEY="1"\n')
    host.units = {"vllm-small.service": host.RUNNING}
    assert call(model_state_info, models=["small"])["models"]["small"]["pending"] == [
        {"file": "small.secret.env", "diff": "small.secret.env: differs (secret, not shown)\n"}]


@pytest.mark.parametrize(("files", "asked"), [
    ({}, ("127.0.0.1", 8000, "live")),
    ({"state/applied.json": '{"models": {"small": {"host": "10.0.0.1", "port": 9000}}}'}, ("10.0.0.1", 9000, "live")),
    ({"live/small.yaml": "# Ansible managed\nmodel: /srv\nhost: 0.0.0.0\nport: 8001\nserve: x\n"}, ("0.0.0.0", 8001, "live")),
    ({"live/small.yaml": "host: '::1'\nport: 8001\n"}, ("::1", 8001, "live")),
    ({"live/small.yaml": "host: 0.0.0.0\nport: 8001\n", "trial/small.yaml": "host: 0.0.0.0\nport: 8002\n", "trial/small.secret.env": ""},
     ("0.0.0.0", 8002, "trial")),
])
def test_where_a_running_unit_is_asked(host, call, endpoints, files, asked):
    for path, text in files.items():
        host.write(path, text)
    host.units = {"vllm-small.service": host.RUNNING}
    call(model_state_info, models=["small"])
    assert endpoints[1] == [asked]


def test_the_environment_that_a_running_unit_has(host, call):
    host.write("live/small.env", '# Ansible managed\nHF_HUB_OFFLINE="1"\n')
    host.write("trial/small.nccl.env", 'NCCL_P2P_LEVEL="SYS"\n')
    host.write("live/small.nccl.env", 'NCCL_P2P_LEVEL="PHB"\n')
    host.write("live/small.secret.env", 'VLLM_API_KEY="a\\"b"\n')
    assert call(model_environment_info, model="small") == {
        "changed": False, "environment": {"HF_HUB_OFFLINE": "1"}, "nccl": {"NCCL_P2P_LEVEL": "SYS"}, "api_key": 'a"b'}


def test_the_environment_of_a_model_that_was_never_declared(host, call):
    assert call(model_environment_info, model="small") == {"changed": False, "environment": {}, "nccl": {}, "api_key": ""}
