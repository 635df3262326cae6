"""What the role is told to do, from a host's files, units and live settings."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd, tuning
from ansible_collections.modelhost.vllm.plugins.modules import tuning_info

GRUB, MODPROBE, MARKER = "/etc/default/grub.d/90-modelhost.cfg", "/etc/modprobe.d/modelhost-tuning.conf", "/run/modelhost/reboot-required.d/host_tuning"
CONF, UNIT = "/etc/modelhost-tuning.conf", "/etc/systemd/system/modelhost-tuning.service"
NOTHING = {
    "shm": "", "hugepages": 0, "sysctl": {}, "persistence_mode": False, "power_limit": 0, "acs_redirect_off": False, "kernel_arguments": [],
    "module_options": {}}
ABSENT = {GRUB: "", MODPROBE: "", CONF: "", UNIT: ""}
FRAGMENT = 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT iommu=pt"\n'
SHM = "[host]\nshm=1073741824\n"
MENU = "\tlinux\t/boot/vmlinuz root=/dev/sda1 ro quiet\n"
IDLE = {"ActiveState": "inactive", "UnitFileState": "", "LoadState": "not-found"}
DONE = {"ActiveState": "active", "UnitFileState": "enabled", "LoadState": "loaded"}


@pytest.fixture
def ask(call, monkeypatch):
    """The module's answer on a host with these texts (by path), this unit and this size of /dev/shm."""

    def act(wish, files, texts=None, unit=IDLE, shm="2147483648", record=None, programs=("update-grub",)):
        texts = {
            "/proc/meminfo": "MemTotal:       25276510 kB\nHugepagesize:       2048 kB\n", "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz ro quiet\n",
            "/boot/grub/grub.cfg": MENU, **(texts or {})}
        monkeypatch.setattr(tuning_info, "text_of", lambda path: texts.get(path, ""))
        monkeypatch.setattr(tuning_info, "VFIO", "/nowhere")
        monkeypatch.setattr(tuning_info.AnsibleModule, "get_bin_path", lambda self, name: name if name in programs else None)
        monkeypatch.setattr(systemd, "show", lambda names, properties: {names[0]: unit})
        monkeypatch.setattr(tuning, "shm_size", lambda: shm)
        monkeypatch.setattr(tuning, "recorded", lambda: record or {})
        result = call(tuning_info, wish={**NOTHING, **wish}, files={**ABSENT, **files})
        assert result.pop("changed") is False
        return result

    return act


AS_WISHED = {
    "findings": [], "changes": [], "write": [], "remove": [], "grub": False, "start": False, "stop": False,
    "startable": False, "marker": "", "marker_differs": False, "waits": []}


def test_no_wish_and_nothing_there(ask):
    assert ask({}, {}) == AS_WISHED


def test_a_wish_on_a_host_that_was_never_tuned(ask):
    wish, files = {"shm": "1GiB", "kernel_arguments": ["iommu=pt"]}, {CONF: SHM, UNIT: "[Unit]\n", GRUB: FRAGMENT}
    assert ask(wish, files) == {
        **AS_WISHED,
        "changes": [
            f"{GRUB} is written", f"{CONF} is written", f"{UNIT} is written", "shm: 2147483648 -> 1073741824",
            "modelhost-tuning.service is inactive"],
        "write": [GRUB, CONF, UNIT], "grub": True, "start": True, "marker_differs": True,
        "marker": "kernel arguments that are not in /proc/cmdline yet: iommu=pt\n"}


def test_the_same_wish_after_a_boot(ask):
    wish, files = {"shm": "1GiB", "kernel_arguments": ["iommu=pt"]}, {CONF: SHM, UNIT: "[Unit]\n", GRUB: FRAGMENT}
    texts = {**files, "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz ro quiet iommu=pt\n", "/boot/grub/grub.cfg": MENU.replace("quiet", "quiet iommu=pt")}
    assert ask(wish, files, texts, DONE, shm="1073741824") == {**AS_WISHED, "startable": True}


@pytest.mark.parametrize(("unit", "shm", "changes"), [
    ({**DONE, "ActiveState": "failed"}, "1073741824", ["modelhost-tuning.service is failed"]),
    ({**DONE, "UnitFileState": "disabled"}, "1073741824", ["modelhost-tuning.service is active"]),
    (DONE, "65536", ["shm: 65536 -> 1073741824"]),
])
def test_what_was_changed_behind_the_roles_back(ask, unit, shm, changes):
    files = {CONF: SHM, UNIT: "[Unit]\n"}
    assert ask({"shm": "1GiB"}, files, files, unit, shm) == {**AS_WISHED, "startable": True, "start": True, "changes": changes}


def test_a_menu_that_a_killed_run_has_not_written(ask):
    files = {GRUB: FRAGMENT}
    found = ask({"kernel_arguments": ["iommu=pt"]}, files, {**files, MARKER: "kernel arguments that are not in /proc/cmdline yet: iommu=pt\n"})
    assert (found["write"], found["grub"], found["marker_differs"]) == ([], True, False)


def test_everything_is_taken_out(ask):
    texts = {CONF: SHM, UNIT: "[Unit]\n", GRUB: FRAGMENT, "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz ro quiet iommu=pt\n"}
    found = ask({}, {}, texts, DONE, shm="1073741824", record={"shm": "2147483648"})
    assert found == {
        **AS_WISHED,
        "changes": [f"{GRUB} is removed", f"{CONF} is removed", f"{UNIT} is removed", "shm: 1073741824 -> 2147483648"],
        "remove": [GRUB, CONF, UNIT], "grub": True, "stop": True, "startable": True, "marker_differs": True,
        "marker": "kernel arguments that are still in /proc/cmdline: iommu=pt\n"}


def test_kernel_arguments_without_grub(ask):
    found = ask({"kernel_arguments": ["iommu=pt"]}, {GRUB: FRAGMENT}, programs=())
    assert list(found) == ["findings"]
    assert found["findings"][0].startswith("modelhost_tuning.kernel_arguments: this host was not started by GRUB")


def test_a_reason_that_is_no_longer_true_is_taken_back(ask):
    marker = "kernel arguments that are still in /proc/cmdline: iommu=pt\n"
    assert ask({}, {}, {MARKER: marker, "/proc/cmdline": "ro iommu=pt\n"}) == {**AS_WISHED, "marker": marker}
    assert ask({}, {}, {MARKER: marker}) == {**AS_WISHED, "marker_differs": True}


def test_no_driver_is_loaded_by_asking(ask, monkeypatch, tmp_path):
    def run(*words):
        raise AssertionError(words)

    monkeypatch.setattr(tuning, "PROC", str(tmp_path))
    monkeypatch.setattr(tuning, "run", run)
    tuning.gpus.cache_clear()
    found = ask({"power_limit": 450, "persistence_mode": True}, {CONF: "[host]\npersistence_mode=1\npower_limit=450\n"})
    assert (found["findings"], found["waits"]) == ([], ["persistence_mode", "power_limit"])


def test_devices_of_virtual_machines_stay_apart(tmp_path, monkeypatch, call):
    for name in ("0000:05:00.1", "0000:05:00.0", "bind", "new_id"):
        (tmp_path / name).touch()
    monkeypatch.setattr(tuning_info, "VFIO", str(tmp_path))
    (said,) = call(tuning_info, wish={**NOTHING, "acs_redirect_off": True}, files=ABSENT)["findings"]
    assert said.startswith("modelhost_tuning.acs_redirect_off: 0000:05:00.0, 0000:05:00.1: held by vfio-pci")
