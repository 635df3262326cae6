"""Packages that were added: what is remembered, and what may go."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import packages as rules
from ansible_collections.modelhost.vllm.plugins.modules import package_record

DPKG = "adduser installed\ngcc installed\ngcc-12 installed\nold config-files\ngone not-installed\nodd half-configured\n"


@pytest.fixture
def apt(host, monkeypatch):
    """A host with dpkg and apt that answer from a dict, and what was run on it."""
    monkeypatch.setattr(package_record, "FOLDER", str(host.root / "provisioned"))
    monkeypatch.setattr(package_record, "STATES", str(host.root / "extended_states"))
    host.installed, host.unneeded = DPKG, ""

    def run_command(module, command, check_rc=False, environ_update=None):
        said = {"dpkg-query": host.installed, "apt-get": host.unneeded if "--simulate" in command else ""}.get(command[0], "")
        if command[0] != "dpkg-query" and "--simulate" not in command:
            host.ran.append(" ".join(word for word in command if "=" not in word and word != "-o"))
        return 0, said, ""

    monkeypatch.setattr(AnsibleModule, "run_command", run_command)
    return host


def test_installed_packages():
    assert rules.parse_installed(DPKG) == ["adduser", "gcc", "gcc-12", "odd"]
    assert rules.parse_installed("") == []


def test_what_apt_would_remove():
    text = (
        "Reading package lists...\nThe following packages will be REMOVED:\n  gcc* gcc-12*\n"
        "Purg gcc [4:12.2.0-3]\nRemv gcc-12 [12.2.0-14+deb12u1]\nInst other (1.0 Debian:12)\n")
    assert rules.parse_simulation(text) == ["gcc", "gcc-12"]


def test_the_first_call_remembers_what_the_host_had(apt, call):
    result = call(package_record, name="ml_env", packages=["ninja-build", "gcc"])
    assert result["changed"]
    assert result["diff"] == {"before": {}, "after": {"asked": ["gcc", "ninja-build"]}}
    assert json.loads((apt.root / "provisioned/ml_env.json").read_text()) == {
        "asked": ["gcc", "ninja-build"], "had": ["adduser", "gcc", "gcc-12", "odd"]}


def test_later_calls_only_add_to_what_is_asked_for(apt, call):
    call(package_record, name="ml_env", packages=["ninja-build"])
    apt.installed += "ninja-build installed\nlibfoo installed\n"
    assert not call(package_record, name="ml_env", packages=["ninja-build"])["changed"]
    assert call(package_record, name="ml_env", packages=["libfoo"])["changed"]
    assert json.loads((apt.root / "provisioned/ml_env.json").read_text()) == {
        "asked": ["libfoo", "ninja-build"], "had": ["adduser", "gcc", "gcc-12", "odd"]}


def test_check_mode_writes_nothing(apt, call):
    assert call(package_record, check_mode=True, name="ml_env", packages=["gcc"])["changed"]
    assert not (apt.root / "provisioned").exists()


def test_what_was_added_goes_and_nothing_else(apt, call):
    call(package_record, name="ml_env", packages=["gcc", "ninja-build"])
    apt.installed += "ninja-build installed\nlibninja installed\nlibforeign installed\n"
    apt.unneeded = "Remv ninja-build [1.11]\nRemv libninja [1]\nRemv odd [1]\n"
    result = call(package_record, name="ml_env", state="absent")
    assert result["removed"] == ["libninja", "ninja-build"]
    assert apt.ran == [
        "apt-mark auto ninja-build", "apt-get --assume-yes --allow-change-held-packages purge libninja ninja-build"]
    assert not (apt.root / "provisioned").exists()


def test_what_another_record_asked_for_stays(apt, call):
    call(package_record, name="ml_env", packages=["ninja-build"])
    apt.installed += "ninja-build installed\n"
    call(package_record, name="cuda_toolkit", packages=["ninja-build"])
    apt.unneeded = "Remv ninja-build [1.11]\n"
    assert call(package_record, name="ml_env", state="absent")["removed"] == []
    assert apt.ran == []
    assert (apt.root / "provisioned/cuda_toolkit.json").exists()


def test_a_removal_in_check_mode(apt, call):
    call(package_record, name="ml_env", packages=["ninja-build"])
    apt.installed += "ninja-build installed\n"
    apt.unneeded = "Remv ninja-build [1.11]\n"
    result = call(package_record, check_mode=True, name="ml_env", state="absent")
    assert result["changed"] and result["removed"] == ["ninja-build"]
    assert apt.ran == ["apt-mark auto ninja-build"]  # on a copy of apt's marks
    assert (apt.root / "provisioned/ml_env.json").exists()


def test_nothing_was_ever_added(apt, call):
    assert call(package_record, name="ml_env", state="absent") == {"changed": False, "removed": []}
