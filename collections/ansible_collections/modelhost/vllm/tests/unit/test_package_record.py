"""Packages that were added: what is remembered, and what may go."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import packages as rules
from ansible_collections.modelhost.vllm.plugins.modules import package_record

DPKG = """\
adduser install installed
gcc install installed
gcc-12 hold installed
old deinstall config-files
gone unknown not-installed
odd install half-configured
"""


@pytest.fixture
def apt(host, monkeypatch):
    """A host with dpkg and apt: what is installed, what nobody needs anyway and without ours, and what was run on it."""
    monkeypatch.setattr(package_record, "FOLDER", str(host.root / "provisioned"))
    monkeypatch.setattr(package_record, "STATES", str(host.root / "extended_states"))
    host.installed, host.anyway, host.unneeded = DPKG, "", ""

    def run_command(module, command, check_rc=False, environ_update=None):
        marked = any(line.startswith("apt-mark auto") for line in host.ran)
        said = host.installed if command[0] == "dpkg-query" else ""
        if "--simulate" in command:
            said = host.anyway + (host.unneeded if marked else "")
        if command[0] != "dpkg-query" and "--simulate" not in command:
            host.ran.append(" ".join(word for word in command if "=" not in word and word != "-o"))
        return 0, said, ""

    monkeypatch.setattr(AnsibleModule, "run_command", run_command)
    return host


def test_installed_packages():
    assert rules.parse_installed(DPKG) == {"adduser": False, "gcc": False, "gcc-12": True, "odd": False}
    assert rules.parse_installed("") == {}


def test_what_apt_would_remove():
    text = (
        "Reading package lists...\nThe following packages will be REMOVED:\n  gcc* gcc-12*\n"
        "Purg gcc [4:12.2.0-3]\nRemv gcc-12 [12.2.0-14+deb12u1]\nInst other (1.0 Debian:12)\n")
    assert rules.parse_simulation(text) == ["gcc", "gcc-12"]


def test_the_first_call_remembers_what_the_host_had(apt, call):
    result = call(package_record, name="ml_env", packages=["ninja-build", "gcc"])
    assert result["changed"]
    assert result["diff"] == {"before": {}, "after": {"asked": ["gcc", "ninja-build"], "held": []}}
    assert json.loads((apt.root / "provisioned/ml_env.json").read_text()) == {
        "asked": ["gcc", "ninja-build"], "held": [], "had": ["adduser", "gcc", "gcc-12", "odd"]}


def test_later_calls_only_add_to_what_is_asked_for(apt, call):
    call(package_record, name="ml_env", packages=["ninja-build"])
    apt.installed += "ninja-build install installed\nlibfoo install installed\n"
    assert not call(package_record, name="ml_env", packages=["ninja-build"])["changed"]
    assert call(package_record, name="ml_env", packages=["libfoo"])["changed"]
    assert json.loads((apt.root / "provisioned/ml_env.json").read_text()) == {
        "asked": ["libfoo", "ninja-build"], "held": [], "had": ["adduser", "gcc", "gcc-12", "odd"]}


def test_check_mode_writes_nothing(apt, call):
    assert call(package_record, check_mode=True, name="ml_env", packages=["gcc"])["changed"]
    assert not (apt.root / "provisioned").exists()


def test_what_was_added_goes_and_nothing_else(apt, call):
    call(package_record, name="ml_env", packages=["gcc", "ninja-build"])
    apt.installed += "ninja-build install installed\nlibninja install installed\nlibforeign install installed\n"
    apt.unneeded = "Remv ninja-build [1.11]\nRemv libninja [1]\nRemv odd [1]\n"
    result = call(package_record, name="ml_env", state="absent")
    assert result["removed"] == ["libninja", "ninja-build"]
    assert apt.ran == [
        "apt-mark auto ninja-build", "apt-get --assume-yes --allow-change-held-packages purge libninja ninja-build"]
    assert not (apt.root / "provisioned").exists()


def test_what_nobody_needs_anyway_is_not_ours(apt, call):
    """A later recommendation of the operator's own package, which the simulation does not count, or an older kernel."""
    call(package_record, name="ml_env", packages=["ninja-build"])
    apt.installed += "ninja-build install installed\ndocker.io install installed\ncgroupfs-mount install installed\n"
    apt.anyway, apt.unneeded = "Remv cgroupfs-mount [1.4]\n", "Remv ninja-build [1.11]\n"
    assert call(package_record, name="ml_env", state="absent")["removed"] == ["ninja-build"]


def test_only_what_was_free_is_held_and_freed_again(apt, call):
    call(package_record, name="ml_env", packages=["ninja-build"])
    apt.installed += "ninja-build install installed\n"
    result = call(package_record, name="ml_env", hold=["gcc", "gcc-12", "ninja-build"])
    assert result["changed"] and result["held"] == ["gcc", "ninja-build"]
    assert apt.ran == ["apt-mark hold gcc ninja-build"]
    apt.installed = "adduser hold installed\ngcc hold installed\ngcc-12 hold installed\nninja-build hold installed\n"
    assert not call(package_record, name="ml_env", hold=["gcc", "gcc-12", "ninja-build"])["changed"]
    apt.unneeded = "Remv ninja-build [1.11]\n"
    assert call(package_record, name="ml_env", state="absent")["removed"] == ["ninja-build"]
    assert apt.ran[1:] == [
        "apt-mark auto ninja-build", "apt-mark unhold gcc", "apt-get --assume-yes --allow-change-held-packages purge ninja-build"]


def test_a_hold_in_check_mode(apt, call):
    result = call(package_record, check_mode=True, name="ml_env", hold=["gcc"])
    assert result["changed"] and result["held"] == ["gcc"]
    assert apt.ran == []


def test_what_another_record_asked_for_stays(apt, call):
    call(package_record, name="ml_env", packages=["ninja-build"])
    apt.installed += "ninja-build install installed\n"
    call(package_record, name="cuda_toolkit", packages=["ninja-build"])
    apt.unneeded = "Remv ninja-build [1.11]\n"
    assert call(package_record, name="ml_env", state="absent")["removed"] == []
    assert apt.ran == []
    assert (apt.root / "provisioned/cuda_toolkit.json").exists()


def test_a_removal_in_check_mode(apt, call):
    call(package_record, name="ml_env", packages=["ninja-build"])
    apt.installed += "ninja-build install installed\n"
    apt.unneeded = "Remv ninja-build [1.11]\n"
    result = call(package_record, check_mode=True, name="ml_env", state="absent")
    assert result["changed"] and result["removed"] == ["ninja-build"]
    assert apt.ran == ["apt-mark auto ninja-build"]  # on a copy of apt's marks
    assert (apt.root / "provisioned/ml_env.json").exists()


def test_nothing_was_ever_added(apt, call):
    assert call(package_record, name="ml_env", state="absent") == {"changed": False, "removed": []}
