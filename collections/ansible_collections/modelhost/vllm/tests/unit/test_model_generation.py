"""Trial, applied and dropped: which files a unit reads, now and after a reboot."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import models, trial
from ansible_collections.modelhost.vllm.plugins.modules import model_generation

UNIT = "# Ansible managed\nDocumentation=file:{root}/live/small.yaml\nEnvironmentFile=-{root}/live/small.secret.env\n"
RECORD = {"wish": "small", "engine": "vllm-1", "host": "127.0.0.1", "port": 8000, "gpus": "all"}


@pytest.fixture
def small(host):
    """A model that was applied with port 8000, and shall get 8001 and a key."""
    unit = UNIT.replace("{root}", str(host.root))
    host.write("units/vllm-small.service", unit)
    host.write("live/small.yaml", "port: 8000\n")
    host.write("declared/small/vllm-small.service", unit)
    host.write("declared/small/small.yaml", "port: 8001\n")
    host.write("declared/small/small.secret.env", 'VLLM_API_KEY="1"\n')
    host.units = {"vllm-small.service": host.RUNNING}
    return host


def test_a_trial_is_read_first_and_forgotten_by_a_reboot(small):
    live = small.files("live")
    assert trial.begin("small")
    assert small.files("trial") == {"small.secret.env": 'VLLM_API_KEY="1"\n', "small.yaml": "port: 8001\n"}
    root = small.root
    assert small.files("trial-units") == {"vllm-small.service": (
        f"# Ansible managed\nDocumentation=file:{root}/trial/small.yaml\nEnvironmentFile=-{root}/trial/small.secret.env\n")}
    assert small.mode("trial/small.secret.env") == "0600"
    assert small.files("live") == live
    assert small.ran == ["systemctl daemon-reload", "systemctl reset-failed --all --quiet vllm-*.service"]


def test_what_differs_in_nothing_is_not_tried(small):
    small.write("live/small.yaml", "port: 8001\n")
    small.write("live/small.secret.env", 'VLLM_API_KEY="1"\n')
    assert not trial.begin("small")
    assert small.files("trial") == {}
    assert small.ran == ["systemctl reset-failed --all --quiet vllm-*.service"]


def test_a_trial_that_an_interrupted_run_left_is_not_started_again(small):
    small.write("live/small.yaml", "port: 8001\n")
    small.write("live/small.secret.env", 'VLLM_API_KEY="1"\n')
    small.write("trial/small.yaml", "port: 9999\n")
    small.write("trial-units/vllm-small.service", "[Service]\n")
    trial.begin("small")
    assert (small.files("trial"), small.files("trial-units")) == ({}, {})
    assert small.ran == ["systemctl daemon-reload", "systemctl reset-failed --all --quiet vllm-*.service"]


def test_a_key_that_is_no_longer_declared_is_not_tried_and_goes_when_applied(small, call):
    small.write("live/small.secret.env", 'VLLM_API_KEY="1"\n')
    (small.root / "declared/small/small.secret.env").unlink()
    trial.begin("small")
    assert small.files("trial") == {"small.yaml": "port: 8001\n"}
    call(model_generation, model="small", state="applied", record=RECORD)
    assert small.files("live") == {"small.yaml": "port: 8001\n"}


def test_a_dropped_trial_leaves_the_live_files(small, call):
    trial.begin("small")
    small.ran.clear()
    assert call(model_generation, model="small", state="dropped") == {"changed": True}
    assert (small.files("trial"), small.files("trial-units"), small.files("live")) == ({}, {}, {"small.yaml": "port: 8000\n"})
    assert small.ran == ["systemctl daemon-reload"]
    assert call(model_generation, model="small", state="dropped") == {"changed": False}


def test_applied_files_are_live_kept_and_recorded(small, call):
    small.units = {
        "vllm-small.service": {**small.RUNNING, "UnitFileState": "disabled"},
        "vllm-old.service": {**small.STOPPED, "UnitFileState": "enabled"},
    }
    small.write("state/applied.json", json.dumps({"schema": 1, "models": {"old": {"port": 8000}, "elsewhere": {"port": 9000}}}))
    trial.begin("small")
    small.ran.clear()
    result = call(model_generation, model="small", state="applied", replaces=["old", "never", "small"], record=RECORD)
    assert result["changed"]
    assert small.files("live") == {"small.secret.env": 'VLLM_API_KEY="1"\n', "small.yaml": "port: 8001\n"}
    assert small.mode("live/small.secret.env") == "0600"
    assert (small.files("trial"), small.files("trial-units")) == ({}, {})
    generation = result["generation"]
    assert sorted(small.files("generations")) == [f"small/{generation}/small.yaml", f"small/{generation}/vllm-small.service"]
    assert small.mode(f"generations/small/{generation}") == "0700"
    applied = json.loads(small.files("state")["applied.json"])["models"]
    assert sorted(applied) == ["elsewhere", "small"]
    assert applied["small"].pop("since").endswith("+00:00")
    assert applied["small"] == {**RECORD, "generation": generation}
    # The target is enabled before the other is not
    assert [command for command in small.ran if "daemon-reload" not in command] == [
        "systemctl enable --quiet vllm-small.service", "systemctl disable --quiet vllm-old.service"]


def test_applying_again_changes_nothing(small, call):
    first = call(model_generation, model="small", state="applied", record=RECORD)
    before, small.ran = small.files("."), []
    assert call(model_generation, model="small", state="applied", replaces=["old"], record=RECORD) == {**first, "changed": False}
    assert (small.files("."), small.ran) == (before, [])


def test_applying_ends_a_trial_even_where_nothing_else_differs(small, call):
    first = call(model_generation, model="small", state="applied", record=RECORD)
    small.write("trial-units/vllm-small.service", small.files("units")["vllm-small.service"].replace("/live/", "/trial/"))
    small.write("trial/small.yaml", "port: 8000\n")
    live = (small.files("live"), small.files("units"))
    assert call(model_generation, model="small", state="applied", record=RECORD) == first
    assert (small.files("trial-units"), small.files("trial")) == ({}, {})
    assert (small.files("live"), small.files("units")) == live


def test_what_answered_is_applied_and_not_what_was_declared_since(small, call):
    trial.begin("small")
    small.write("declared/small/small.yaml", "port: 8002\n")
    small.write("declared/small/vllm-small.service", "[Service]\nNice=5\n")
    (small.root / "declared/small/small.secret.env").unlink()
    assert models.trial("small") == "other"

    generation = call(model_generation, model="small", state="applied", record=RECORD)["generation"]
    unit = UNIT.replace("{root}", str(small.root))
    assert small.files("live") == {"small.secret.env": 'VLLM_API_KEY="1"\n', "small.yaml": "port: 8001\n"}
    assert small.files("units") == {"vllm-small.service": unit}
    assert small.files(f"generations/small/{generation}") == {"small.yaml": "port: 8001\n", "vllm-small.service": unit}
    assert [each["file"] for each in models.pending(models.declared("small"))] == ["small.secret.env", "small.yaml", "vllm-small.service"]
    assert models.trial("small") == ""


def test_without_a_trial_the_live_files_are_applied(small, call):
    generation = call(model_generation, model="small", state="applied", record=RECORD)["generation"]
    assert small.files("live") == {"small.yaml": "port: 8000\n"}
    assert small.files(f"generations/small/{generation}")["small.yaml"] == "port: 8000\n"
    assert [each["file"] for each in models.pending(models.declared("small"))] == ["small.secret.env", "small.yaml"]


def test_what_is_left_of_a_trial_without_its_unit_is_dropped_too(small, call):
    small.write("trial/small.secret.env", 'VLLM_API_KEY="0"\n')
    assert call(model_generation, model="small", state="dropped") == {"changed": True}
    assert small.files("trial") == {}


def test_a_new_wish_is_recorded_and_keeps_the_generation(small, call):
    first = call(model_generation, model="small", state="applied", record=RECORD)
    assert call(model_generation, model="small", state="applied", record={**RECORD, "wish": "other"}) == first


@pytest.mark.parametrize("state", ["applied", "dropped"])
def test_check_mode_changes_nothing(small, call, state):
    if state == "dropped":
        small.write("trial/small.yaml", "")
    before = small.files(".")
    assert call(model_generation, check_mode=True, model="small", state=state, record=RECORD)["changed"]
    assert (small.files("."), small.ran) == (before, [])
