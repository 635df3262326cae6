"""What the inventory declares, written beside the live files of a model that serves, and over those of one that does not."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from ansible_collections.modelhost.vllm.plugins.modules import model_files

UNIT = "[Unit]\nDocumentation=file:{root}/live/small.yaml\n[Service]\nExecStart=/nowhere/bin/vllm serve\n"


@pytest.fixture
def small(host):
    """The files of a model, and the text of its unit."""
    unit = UNIT.replace("{root}", str(host.root))
    return [
        {"model": "small", "name": "vllm-small.service", "content": unit},
        {"model": "small", "name": "small.yaml", "content": "port: 8000\n"},
    ]


def test_a_model_that_is_not_there_yet(host, call, small):
    result = call(model_files, files=small, api_keys={"small": 'a"b'})
    assert (result["changed"], result["pending"]) == (True, {})
    assert host.files("live") == {"small.secret.env": 'VLLM_API_KEY="a\\"b"\n', "small.yaml": "port: 8000\n"}
    assert host.files("units") == {"vllm-small.service": small[0]["content"]}
    assert sorted(host.files("declared")) == ["small/small.secret.env", "small/small.yaml", "small/vllm-small.service"]
    assert [host.mode(f"{folder}/small.secret.env") for folder in ("live", "declared/small")] == ["0600", "0600"]
    assert host.ran == ["systemctl daemon-reload"]
    assert 'a"b' not in str(result["diff"]) and "a\\" not in str(result["diff"])
    host.ran.clear()
    assert call(model_files, files=small, api_keys={"small": 'a"b'}) == {"changed": False, "pending": {}, "diff": []}
    assert host.ran == []


def test_the_live_files_of_a_served_model_stay(host, call, small):
    call(model_files, files=small)
    host.units, host.ran = {"vllm-small.service": host.RUNNING}, []
    changed = [small[0], {**small[1], "content": "port: 8001\n"}]
    pending = {"small": [
        {"file": "small.yaml", "diff": "--- small.yaml (live)\n+++ small.yaml (declared)\n@@ -1 +1 @@\n-port: 8000\n+port: 8001\n"}]}
    result = call(model_files, files=changed)
    assert (result["changed"], result["pending"]) == (True, pending)
    assert host.files("live") == {"small.yaml": "port: 8000\n"}
    assert host.files("declared")["small/small.yaml"] == "port: 8001\n"
    assert host.ran == []
    # Until it is applied, each run says so without a change
    assert call(model_files, files=changed) == {"changed": False, "pending": pending, "diff": []}


def test_keys_of_models_without_one_go_and_a_call_about_other_files_leaves_them(host, call, small):
    call(model_files, files=small, api_keys={"small": "1"})
    call(model_files, files=[{"model": "small", "name": "small.nccl.env", "content": ""}])
    assert "small.secret.env" in host.files("live")
    call(model_files, files=small, api_keys={})
    assert "small.secret.env" not in host.files("live")
    assert "small/small.secret.env" not in host.files("declared")


def test_check_mode_writes_nothing(host, call, small):
    unit = small[0]["content"]
    result = call(model_files, check_mode=True, files=small)
    assert result["changed"]
    assert [each["after"] for each in result["diff"]] == [unit, unit, "port: 8000\n", "port: 8000\n"]
    assert (host.files("."), host.ran) == ({}, [])


@pytest.mark.parametrize("text", ["[Service]\n", "# Ansible managed\n[Unit]\nDocumentation=file:/etc/vllm/small.yaml\n[Service]\n"])
def test_a_unit_that_somebody_else_wrote_is_left_alone(host, call, small, text):
    host.write("units/vllm-small.service", text)
    host.units = {"vllm-small.service": host.STOPPED}
    result = call(model_files, files=small)
    assert result["failed"]
    assert result["msg"] == (
        f"{host.root}/units/vllm-small.service is there and modelhost did not write it: it stays as it is. To take it over, say -e adopt=true: it "
        f"is copied to {host.root}/adopted, counts as what was applied before, and comes back if its successor does not answer. Or move it "
        "away, or give the model another name")
    assert host.files(".") == {"units/vllm-small.service": text}


FOREIGN = "[Service]\nExecStart=/srv/venv/bin/vllm serve /srv/small\n"


@pytest.mark.case("L15")
def test_a_unit_that_is_taken_over_is_copied_and_stays_until_the_switch(host, call, small):
    host.write("units/vllm-small.service", FOREIGN)
    host.units = {"vllm-small.service": host.STOPPED}
    result = call(model_files, files=small, adopt=True)
    assert result["changed"]
    assert [each["file"] for each in result["pending"]["small"]] == ["vllm-small.service", "small.yaml"]
    assert host.files("units") == {"vllm-small.service": FOREIGN}
    assert host.files("live") == {}
    assert host.files("adopted") == {"vllm-small.service.352aab9294e5": FOREIGN}
    assert (host.mode("adopted"), host.mode("adopted/vllm-small.service.352aab9294e5")) == ("0700", "0600")
    assert call(model_files, files=small, adopt=True)["changed"] is False


@pytest.mark.case("L15")
def test_a_unit_with_drop_ins_is_not_taken_over(host, call, small):
    host.write("units/vllm-small.service", FOREIGN)
    host.write("units/vllm-small.service.d/override.conf", "[Service]\nUser=root\n")
    host.units = {"vllm-small.service": host.STOPPED}
    assert call(model_files, files=small, adopt=True)["msg"] == (
        f"{host.root}/units/vllm-small.service.d changes a unit that shall be taken over, and would change its successor: move its settings "
        "into the inventory")
    assert host.files("adopted") == {}


def test_a_unit_whose_program_is_not_there_yet_is_not_judged(host):
    assert model_files.unit_error("vllm-small.service", "[Service]\nExecStart=/nowhere/bin/vllm\nRestart=perhaps\n") == ""


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize(("directive", "error"), [
    ("Restart=always", ""),
    ("Restart=perhaps", "Failed to parse"),
    ("Restrat=always", "Unknown key"),
])
def test_systemd_judges_a_unit(host, directive, error):
    host.version = subprocess.run(["systemd-analyze", "--version"], check=True, capture_output=True, text=True).stdout
    found = model_files.unit_error("vllm-small.service", f"[Unit]\nDescription=x\n[Service]\nExecStart=/bin/true\n{directive}\n")
    assert (error in found) if error else (found == "")


@pytest.mark.parametrize(("version", "rc", "said", "error"), [
    (252, 0, "", ""),
    # With --recursive-errors=no a line about our unit is a remark where the status is 0
    (252, 0, "vllm-small.service: remark\n", ""),
    (252, 1, "x.service: no\nvllm-small.service: bad\n", "vllm-small.service: bad"),
    (252, 1, "Failed to open the bus\n", "Failed to open the bus\n"),
    (249, 0, "x.service: no\n", ""),
    (249, 0, "x.service: no\nvllm-small.service: bad\n", "vllm-small.service: bad"),
    (249, 1, "Failed to open the bus\n", "Failed to open the bus\n"),
])
def test_what_systemd_analyze_says(host, monkeypatch, version, rc, said, error):
    ran = []

    def run(argv, **_how):
        ran.append(argv[:-1])
        return subprocess.CompletedProcess(argv, rc, said)

    host.version = f"systemd {version}"
    monkeypatch.setattr(model_files.subprocess, "run", run)
    assert model_files.unit_error("vllm-small.service", "[Service]\nExecStart=/bin/true\n") == error
    assert ran == [["systemd-analyze", "verify"] + (["--recursive-errors=no"] if version == 252 else [])]


def test_the_programs_of_the_units(host, call, small):
    guard = f"{host.root}/tools/check-gpus"
    programs = {guard: "#!/bin/sh\n"}
    result = call(model_files, check_mode=True, files=[], programs=programs)
    assert (result["changed"], (host.root / "tools").exists()) == (True, False)
    assert result["diff"] == [{"before_header": guard, "after_header": guard, "before": "", "after": "#!/bin/sh\n"}]
    assert call(model_files, files=[], programs=programs)["changed"]
    assert (host.files("tools"), host.mode("tools/check-gpus")) == ({"check-gpus": "#!/bin/sh\n"}, "0755")
    assert not call(model_files, files=[], programs=programs)["changed"]
    (host.root / "tools/check-gpus").chmod(0o644)
    assert call(model_files, files=[], programs=programs)["changed"]
    assert host.mode("tools/check-gpus") == "0755"
