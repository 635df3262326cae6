"""Declared, live, trial and applied files, on a real file system."""

from __future__ import annotations

import json
import os
import time

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import models

ENABLED = {"ActiveState": "inactive", "UnitFileState": "enabled"}
DISABLED = {"ActiveState": "inactive", "UnitFileState": "disabled"}


@pytest.fixture
def small(host):
    """A model whose declared files are all live."""
    files = {"vllm-small.service": "# Ansible managed\n[Service]\n", "small.yaml": "port: 8000\n", "small.secret.env": 'KEY="1"\n'}
    for name, text in files.items():
        host.write(f"declared/small/{name}", text)
        host.write(f"units/{name}" if name.endswith(".service") else f"live/{name}", text)
    return host


def test_places_of_a_host():
    assert models.unit_name("small") == "vllm-small.service"
    assert models.declared_path("small", "small.yaml") == "/etc/modelhost/declared/small/small.yaml"
    assert models.live_path("small.yaml") == "/etc/modelhost/models/small.yaml"
    assert models.live_path("vllm-small.service") == "/etc/systemd/system/vllm-small.service"
    assert models.trial_path("small.yaml") == "/run/modelhost/models/small.yaml"
    assert models.trial_path("vllm-small.service") == "/run/systemd/system.control/vllm-small.service"


def test_files_of_a_trial_as_they_will_be_live(small):
    assert models.tried("small") == {}
    small.write("trial/small.yaml", "port: 1\n")
    assert models.tried("small") == {}, "without its unit there is no trial"
    small.write("trial-units/vllm-small.service", f"EnvironmentFile=-{small.root}/trial/small.secret.env\n")
    assert models.tried("small") == {
        "vllm-small.service": f"EnvironmentFile=-{small.root}/live/small.secret.env\n",
        "small.yaml": "port: 1\n", "small.env": None, "small.nccl.env": None, "small.secret.env": None}


@pytest.mark.parametrize(("folder", "text", "ours"), [
    ("units", "[Unit]\nDocumentation=file:{root}/live/small.yaml\n", True),
    ("trial-units", "[Unit]\nDocumentation=file:{root}/trial/small.yaml\n", True),
    ("units", "# Ansible managed\n[Unit]\nDocumentation=file:/etc/vllm/small.yaml\n", False),
    ("elsewhere", "[Unit]\nDocumentation=file:{root}/live/small.yaml\n", False),
])
def test_which_units_are_of_modelhost(host, folder, text, ours):
    host.write(f"{folder}/vllm-small.service", text.replace("{root}", str(host.root)))
    assert models.is_ours("small") == ours


@pytest.mark.parametrize(("name", "mode"), [
    ("small.secret.env", 0o600), ("small.env", 0o644), ("small.yaml", 0o644), ("vllm-small.service", 0o644),
])
def test_only_root_reads_a_secret(name, mode):
    assert models.mode_of(name) == mode


def test_write_replaces_in_one_step(tmp_path):
    path = tmp_path / "a/b/file"
    models.write(str(path), "one\n")
    with open(path, encoding="utf-8") as reader:
        models.write(str(path), "two\n", 0o600)
        assert reader.read() == "one\n"
    assert path.read_text() == "two\n"
    assert f"{path.stat().st_mode & 0o777:o}" == "600"
    assert os.listdir(tmp_path / "a/b") == ["file"]


def test_the_mode_does_not_depend_on_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        models.write(str(tmp_path / "file"), "")
    finally:
        os.umask(before)
    assert f"{(tmp_path / 'file').stat().st_mode & 0o777:o}" == "644"


def test_a_failed_write_leaves_the_old_text(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        models.write(str(tmp_path / "file"), "new")
    assert (tmp_path / "file").read_text() == "old"


def test_read_and_remove_what_is_not_there(tmp_path):
    assert models.read(str(tmp_path / "none")) is None
    models.remove(str(tmp_path / "none"))
    (tmp_path / "dangling").symlink_to("none")
    models.remove(str(tmp_path / "dangling"))
    assert os.listdir(tmp_path) == []


def test_record_of_what_was_applied(host):
    assert models.read_applied() == {}
    models.write_applied({"small": {"port": 8000, "wish": "small"}})
    assert models.read_applied() == {"small": {"port": 8000, "wish": "small"}}
    assert host.files("state") == {"applied.json": """\
{
  "models": {
    "small": {
      "port": 8000,
      "wish": "small"
    }
  },
  "schema": 1
}
"""}


@pytest.mark.parametrize(("unit", "applied", "expected"), [
    (DISABLED, {}, False),
    ({"ActiveState": "failed", "UnitFileState": "disabled"}, {}, False),
    ({"ActiveState": "inactive", "UnitFileState": ""}, {}, False),
    (DISABLED, {"other": {}}, False),
    (ENABLED, {}, True),
    (DISABLED, {"small": {}}, True),
    ({"ActiveState": "active", "UnitFileState": "disabled"}, {}, True),
    ({"ActiveState": "activating", "UnitFileState": "disabled"}, {}, True),
    ({"ActiveState": "deactivating", "UnitFileState": "disabled"}, {}, True),
    ({"ActiveState": "reloading", "UnitFileState": "disabled"}, {}, True),
])
def test_protected(unit, applied, expected):
    assert models.protected("small", unit, applied) is expected


def test_nothing_is_pending_where_live_is_declared(small):
    assert models.declared("small") == {
        "small.secret.env": 'KEY="1"\n', "small.yaml": "port: 8000\n", "vllm-small.service": "# Ansible managed\n[Service]\n"}
    assert models.pending(models.declared("small")) == []


def test_what_is_pending_with_its_diff(small):
    small.write("declared/small/small.yaml", "port: 8001\n")
    small.write("declared/small/small.nccl.env", 'NCCL_P2P_LEVEL="SYS"\n')
    assert models.pending(models.declared("small")) == [
        {"file": "small.nccl.env",
         "diff": '--- small.nccl.env (live)\n+++ small.nccl.env (declared)\n@@ -0,0 +1 @@\n+NCCL_P2P_LEVEL="SYS"\n'},
        {"file": "small.yaml", "diff": "--- small.yaml (live)\n+++ small.yaml (declared)\n@@ -1 +1 @@\n-port: 8000\n+port: 8001\n"},
    ]


@pytest.mark.parametrize("declared", ['KEY="2"\n', None])
def test_a_secret_is_never_shown(small, declared):
    path = small.root / "declared/small/small.secret.env"
    path.write_text(declared) if declared else path.unlink()
    assert models.pending(models.declared("small")) == [{"file": "small.secret.env", "diff": "small.secret.env: differs (secret, not "
                                                                                             "shown)\n"}]


def test_a_model_that_was_never_declared(host):
    assert models.declared("small") == {"small.secret.env": None}
    assert models.pending(models.declared("small")) == []


def test_a_running_unit_reads_its_trial_first(small):
    assert models.running_path("small.secret.env") == str(small.root / "live/small.secret.env")
    small.write("trial/small.secret.env", "")
    assert models.running_path("small.secret.env") == str(small.root / "trial/small.secret.env")


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, "declared"),
    ({"trial/small.yaml": "port: 9999\n"}, "other"),
    ({"trial/small.yaml": None}, "other"),
    ({"declared/small/small.secret.env": None}, "other"),
    ({"declared/small/small.secret.env": None, "trial/small.secret.env": None}, "declared"),
    ({"trial-units/vllm-small.service": "# Ansible managed\n"}, "other"),
    ({"trial-units/vllm-small.service": None}, ""),
])
def test_what_is_on_trial(small, changes, expected):
    unit = "EnvironmentFile={0}/small.env\n"
    small.write("declared/small/vllm-small.service", unit.format(small.root / "live"))
    small.write("trial-units/vllm-small.service", unit.format(small.root / "trial"))
    small.write("trial/small.yaml", "port: 8000\n")
    small.write("trial/small.secret.env", 'KEY="1"\n')
    for path, text in changes.items():
        (small.root / path).unlink()
        if text is not None:
            small.write(path, text)
    assert models.trial("small") == expected


def test_digest_names_the_texts():
    assert models.digest({"a": "1"}) == "452647e07c48"
    assert models.digest({"b": "2", "a": "1"}) == models.digest({"a": "1", "b": "2"})
    assert len({models.digest(texts) for texts in ({"a": "1"}, {"a": "2"}, {"b": "1"}, {"a": "1", "b": ""})}) == 4


FOREIGN = "[Service]\nEnvironment=VLLM_API_KEY=hand-made\nExecStart=/opt/vllm/bin/vllm serve\n"


@pytest.mark.parametrize(("files", "applied", "expected"), [
    ({}, {}, ("127.0.0.1", 8000)),
    ({"live/small.yaml": "model: /srv\nhost: 0.0.0.0\nport: 8001\nserve: {port: 1}\n"}, {}, ("0.0.0.0", 8001)),
    ({"live/small.yaml": "host: '::1'\nport: 8001\n"}, {}, ("::1", 8001)),
    ({"live/small.yaml": 'host: "::"\n'}, {}, ("::", 8000)),
    ({"live/small.yaml": "port: 8001\n"}, {"host": "10.0.0.1", "port": 9000}, ("10.0.0.1", 8001)),
    ({"live/small.yaml": "port: 8001\n", "trial/small.yaml": "port: 8002\n"}, {}, ("127.0.0.1", 8002)),
    # Never written live: the first start, before its trial
    ({"declared/small/small.yaml": "host: 0.0.0.0\nport: 8003\n"}, {}, ("0.0.0.0", 8003)),
    ({"declared/small/small.yaml": "port: 8003\n"}, {"host": "10.0.0.1", "port": 9000}, ("10.0.0.1", 9000)),
    # A foreign unit reads no file of ours: what is declared for its model is the best guess, also when an older file of ours lies there
    ({"units/vllm-small.service": FOREIGN, "live/small.yaml": "port: 8001\n", "declared/small/small.yaml": "port: 8003\n"}, {},
     ("127.0.0.1", 8003)),
    # It is being replaced: its successor on trial runs
    ({"units/vllm-small.service": FOREIGN, "declared/small/small.yaml": "port: 8003\n", "trial/small.yaml": "port: 8004\n",
      "trial-units/vllm-small.service": "[Unit]\n"}, {}, ("127.0.0.1", 8004)),
])
def test_where_a_unit_listens(host, files, applied, expected):
    for path, text in files.items():
        host.write(path, text)
    assert models.address("small", {"small": applied} if applied else {}) == expected


@pytest.mark.parametrize(("files", "foreign"), [
    ({}, False),
    ({"units/vllm-small.service": FOREIGN}, True),
    ({"units/vllm-small.service": "[Unit]\nDocumentation=file:{root}/live/small.yaml\n"}, False),
    ({"units/vllm-small.service": FOREIGN, "trial-units/vllm-small.service": "[Unit]\nDocumentation=file:{root}/trial/small.yaml\n"}, True),
    ({"trial-units/vllm-small.service": FOREIGN}, False),
])
def test_a_unit_that_modelhost_did_not_write(host, files, foreign):
    for path, text in files.items():
        host.write(path, text.replace("{root}", str(host.root)))
    assert models.is_foreign("small") is foreign


def test_a_foreign_unit_is_protected(host):
    host.write("units/vllm-small.service", FOREIGN)
    assert models.protected("small", DISABLED, {}) is True
    assert models.protected("other", DISABLED, {}) is False


@pytest.mark.case("L15")
def test_a_foreign_unit_which_may_hold_a_key_is_not_shown(host):
    host.write("units/vllm-small.service", FOREIGN)
    assert models.pending({"vllm-small.service": "[Unit]\n"}) == [{
        "file": "vllm-small.service", "diff": "vllm-small.service: replaces one that modelhost did not write (not shown)\n"}]


def test_how_long_a_unit_has_run():
    began = time.clock_gettime(time.CLOCK_MONOTONIC) - 60
    assert 60 <= models.running_for({"ExecMainStartTimestampMonotonic": str(round(began * 1e6) - 1)}) < 70
    assert models.running_for({"ExecMainStartTimestampMonotonic": "0"}) == 0
    assert models.running_for({"ExecMainStartTimestampMonotonic": ""}) == 0


def test_the_last_loads_of_each_model(host):
    assert models.read_loads("small") == []
    models.add_load("large", {"seconds": 1860.0, "engine": "vllm-1", "at": "2026-11-30T09:37:40+00:00"})
    for number in range(12):
        models.add_load("small", {"seconds": float(number)})
    assert [load["seconds"] for load in models.read_loads("small")] == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]
    assert models.read_loads("large") == [{"seconds": 1860.0, "engine": "vllm-1", "at": "2026-11-30T09:37:40+00:00"}]
    assert models.read_loads("other") == []
    assert json.loads((host.root / "state/loads.json").read_text())["schema"] == 1


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"models": []}', '{"models": {"small": 1}}'])
def test_a_damaged_record_of_what_was_applied_is_not_taken_for_an_empty_one(host, text):
    host.write("state/applied.json", text)
    with pytest.raises(ValueError, match="applied.json, the record of what was applied, cannot be read: put back a copy, or move it away"):
        models.read_applied()


def test_what_a_killed_write_left_is_not_declared(host):
    host.write("declared/small/small.yaml", "port: 1\n")
    host.write("declared/small/.abc123", "port:")
    assert models.declared("small") == {"small.yaml": "port: 1\n", "small.secret.env": None}


def test_where_one_file_cannot_be_written_none_is(host, monkeypatch):
    host.write("live/a", "old")
    real = os.fsync
    synced = []

    def fsync(handle):
        synced.append(handle)
        if len(synced) == 2:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(models.os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        models.write_all([(str(host.root / "live/a"), "new", 0o644), (str(host.root / "live/c"), "new", 0o644)])
    assert host.files("live") == {"a": "old"}
