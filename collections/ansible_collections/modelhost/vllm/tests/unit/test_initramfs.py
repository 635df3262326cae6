"""Which initramfs is built anew, and with what."""

from __future__ import annotations

import os

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.modules import initramfs

NOW, NEXT, GONE = os.uname().release, "6.99.0-next", "5.1.0-gone"


@pytest.fixture
def boot(host, monkeypatch):
    """A host with an image for the running and for the next kernel, and one of a kernel that is gone."""
    monkeypatch.setattr(initramfs, "IMAGE", str(host.root / "boot/initrd.img-"))
    monkeypatch.setattr(initramfs, "MODULES", str(host.root / "modules") + "/")
    host.dracut = ""
    for release in (NOW, NEXT, GONE):
        host.write(f"boot/initrd.img-{release}", "")
        host.write(f"modules/{release}/modules.dep" if release != GONE else "modules/x", "")
    host.write("blacklist.conf", "")
    host.conf, host.images = str(host.root / "blacklist.conf"), sorted(str(host.root / f"boot/initrd.img-{each}") for each in (NOW, NEXT))

    def run_command(module, command, check_rc=False):
        if command[0] != "dpkg-query":
            host.ran.append(" ".join(command))
        return 0, host.dracut, ""

    monkeypatch.setattr(AnsibleModule, "run_command", run_command)
    return host


def age(path: str, seconds: int) -> None:
    os.utime(path, (1_000_000_000 - seconds,) * 2)


def test_by_what_the_host_has(boot, call):
    assert call(initramfs) == {"changed": True, "images": boot.images}
    assert boot.ran == ["update-initramfs -u -k all"]


def test_by_dracut_where_it_is_installed(boot, call):
    boot.dracut = "installed"
    call(initramfs)
    assert boot.ran == [f"dracut --force {image} {image.partition('initrd.img-')[2]}" for image in boot.images]


@pytest.mark.parametrize(("image", "conf", "changed"), [(2, 1, True), (1, 2, False)])
def test_only_if_it_is_older(boot, call, image, conf, changed):
    age(str(boot.root / f"boot/initrd.img-{NOW}"), image)
    age(boot.conf, conf)
    assert call(initramfs, older_than=boot.conf)["changed"] is changed
    assert bool(boot.ran) is changed


def test_a_file_that_is_not_there_yet(boot, call):
    assert call(initramfs, older_than=str(boot.root / "absent")) == {"changed": False, "images": []}


def test_check_mode_builds_nothing(boot, call):
    assert call(initramfs, check_mode=True)["changed"]
    assert boot.ran == []


def test_a_host_without_any(boot, call):
    for image in boot.images:
        os.unlink(image)
    assert call(initramfs) == {"changed": False, "images": []}
    assert boot.ran == []
