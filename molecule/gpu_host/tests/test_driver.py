"""NVIDIA's driver on a real host with real apt and systemd: pinned, held, changed, refused and removed. Inventory: 580.105.08."""

import re
from contextlib import contextmanager

import pytest

DRIVER = "../molecule/gpu_host/driver"
PINNED, NEWER = "580.105.08", "590.48.01"
# The packages of the driver, compute only, and what they bring
PACKAGES = [
    "firmware-nvidia-gsp", "libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-driver-cuda",
    "nvidia-kernel-open-dkms", "nvidia-modprobe", "nvidia-persistenced"]
PIN, BLACKLIST = "/etc/apt/preferences.d/modelhost-nvidia", "/etc/apt/apt.conf.d/52modelhost-nvidia"
MARKER = "/run/modelhost/reboot-required.d/nvidia_driver"
UPGRADE = "env DEBIAN_FRONTEND=noninteractive apt-get --assume-yes --quiet dist-upgrade"
SIMULATED = "apt-get --simulate --quiet dist-upgrade"
# What packages may leave behind on any host, whoever removes them; and what other roles install
IGNORED = (
    "/etc/.pwd.lock", "/etc/ld.so.cache", "/opt/modelhost", "/run", "/tmp", "/usr/share/doc", "/usr/share/man", "/var/cache/apt",
    "/var/cache/debconf", "/var/cache/ldconfig", "/var/cache/man", "/var/lib/apt", "/var/lib/dpkg", "/var/lib/systemd", "/var/lib/ucf",
    "/var/log", "/var/tmp", "/root/.ansible", "/home", "/srv")


def versions(host):
    """Version of each package of the driver."""
    rows = host.check_output("dpkg-query --show --showformat='${Package} ${Version}\\n' %s", PACKAGES[0])
    rows += "\n" + host.check_output("dpkg-query --show --showformat='${Package} ${Version}\\n' " + " ".join(PACKAGES[1:]))
    return dict(row.split() for row in rows.splitlines())


def pinned_at(version):
    return dict.fromkeys(PACKAGES, f"{version}-1")


def files(host):
    pruned = " -o ".join(f"-path {path}" for path in IGNORED)
    return set(host.check_output(f"find / -xdev '(' {pruned} ')' -prune -o -not -name __pycache__ -not -name '*.pyc' -print").splitlines())


def installed(host):
    return set(host.check_output("dpkg-query --show --showformat='${Package} ${db:Status-Want} ${db:Status-Status}\\n'").splitlines())


def held(host):
    return set(host.check_output("apt-mark showhold").split())


@contextmanager
def serving(host):
    """A unit by the name of a model's that modelhost did not write."""
    host.check_output("systemd-run --unit=vllm-busy sleep infinity")
    try:
        yield
    finally:
        host.check_output("systemctl stop vllm-busy")


@contextmanager
def operators_own(host):
    """A package with a name as the driver's, installed later and held by the operator, and one that is there since that recommends it."""
    host.check_output("""
        build() {
            mkdir -p /tmp/$1/DEBIAN
            printf 'Package: %s\nVersion: 1.18.0-1\nArchitecture: all\nMaintainer: site\nDescription: site\n%s' "$1" "$2" > /tmp/$1/DEBIAN/control
            dpkg-deb --build /tmp/$1 && dpkg --install /tmp/$1.deb && rm -r /tmp/$1 /tmp/$1.deb
        }
        build site-extra '' && build nvidia-container-toolkit 'Recommends: site-extra
'
        apt-mark auto site-extra
    """)
    try:
        yield {"nvidia-container-toolkit", "site-extra"}
    finally:
        host.check_output("apt-mark unhold nvidia-container-toolkit && dpkg --purge nvidia-container-toolkit site-extra")


@contextmanager
def away(host, *paths):
    for path in paths:
        host.check_output("mv %s /srv/%s", path, path.replace("/", "-"))
    try:
        yield
    finally:
        for path in paths:
            host.check_output("mv /srv/%s %s", path.replace("/", "-"), path)


@contextmanager
def unheld(host):
    host.check_output("apt-mark unhold " + " ".join(PACKAGES))
    try:
        yield
    finally:
        host.check_output("apt-mark hold " + " ".join(PACKAGES))


@pytest.fixture
def driver(overlay):
    """An inventory with another driver."""
    return lambda **wish: overlay(modelhost_driver={"source": "nvidia", "version": PINNED, **wish})


@pytest.mark.case("H1")
def test_every_package_has_the_pinned_version_and_is_held(host):
    assert versions(host) == pinned_at(PINNED)
    assert set(PACKAGES) <= held(host)


def test_it_answers(host):
    assert host.check_output("nvidia-smi -L").count("RTX PRO 6000 Blackwell") == 8
    assert host.check_output("modinfo -F version nvidia") == PINNED
    assert host.check_output("modinfo -F license nvidia") == "Dual MIT/GPL"
    assert host.service("nvidia-persistenced").is_enabled
    assert not host.file(MARKER).exists


@pytest.mark.case("H6")
def test_nouveau_is_blacklisted_and_gone(host):
    assert "blacklist nouveau" in host.file("/etc/modprobe.d/modelhost-nouveau.conf").content_string.splitlines()
    assert not host.file("/sys/module/nouveau").exists
    assert host.file("/sys/module/nvidia").exists


@pytest.mark.case("H1")
def test_neither_upgrade_moves_it(host):
    """The pin, the hold and the blacklist, each alone where one of them would do, and together for real."""
    with away(host, PIN), unheld(host):
        assert f"Inst nvidia-driver-cuda [{PINNED}-1] ({NEWER}-1" in host.check_output(SIMULATED)  # there is something to keep back
    with unheld(host):
        assert "Inst nvidia-" not in host.check_output(SIMULATED)
    with away(host, PIN):
        assert "Inst nvidia-" not in host.check_output(SIMULATED)
    host.check_output(UPGRADE)
    assert versions(host) == pinned_at(PINNED)


@pytest.mark.case("H1")
def test_unattended_upgrades_leave_it(host):
    """Debian's real unattended-upgrades, allowed to take packages from NVIDIA, with nothing but the blacklist in their way."""
    apt = "env DEBIAN_FRONTEND=noninteractive apt-get --assume-yes --quiet"
    before = {row.split()[0] for row in installed(host)}
    host.check_output(f"{apt} install --no-install-recommends unattended-upgrades")
    came = sorted({row.split()[0] for row in installed(host)} - before)
    host.check_output("echo 'Unattended-Upgrade::Origins-Pattern { \"origin=NVIDIA\"; };' > /etc/apt/apt.conf.d/60test")
    try:
        with away(host, PIN), unheld(host):
            with away(host, BLACKLIST):
                would = host.run("unattended-upgrade --dry-run --debug 2>&1").stdout
            assert re.search("Packages that will be upgraded:.* nvidia-driver-cuda", would)
            host.check_output("unattended-upgrade")
        assert versions(host) == pinned_at(PINNED)
    finally:
        host.check_output(f"rm /etc/apt/apt.conf.d/60test; {apt} purge {' '.join(came)}; rm -rf /var/lib/unattended-upgrades")


@pytest.mark.case("H2")
def test_a_driver_that_cannot_drive_the_gpus_is_refused(controller, driver, host):
    before = installed(host)
    failed = controller.play(DRIVER, overlay=driver(source="distribution", version="550.163.01"))
    assert failed.returncode != 0
    assert "The driver was not touched." in failed.said
    assert (
        "modelhost_driver.version: 550.163.01 cannot drive the Blackwell GPU 0000:01:00.0: it needs a branch 570 or later, and its open "
        "kernel modules, for example nvidia-open-kernel-dkms") in failed.said
    assert "changed=0" in failed.said
    assert installed(host) == before


@pytest.mark.parametrize("moved", ["forward", "back"])
def test_the_pin_moves_the_driver(controller, driver, host, moved):
    """Up to another branch with the reboot in the same run, and down again in two runs."""
    if moved == "forward":
        kernels = [row for row in installed(host) if row.startswith("linux-image-")]
        controller.plays(DRIVER, "-e", "reboot_allowed=true", overlay=driver(version=NEWER))
        assert host.check_output("nvidia-smi --query-gpu=index,compute_cap --format=csv,noheader").count("12.0") == 8
        assert versions(host) == pinned_at(NEWER)
        assert [row for row in installed(host) if row.startswith("linux-image-")] == kernels
    else:
        waits = controller.play(DRIVER)
        assert waits.returncode != 0
        assert f"nvidia_driver: driver {PINNED} is installed, {NEWER} is loaded" in waits.said
        assert "-e reboot_allowed=true" in waits.said
        assert host.file(MARKER).content_string == f"driver {PINNED} is installed, {NEWER} is loaded\n"
        assert "changed=1 " in controller.plays(DRIVER, "-e", "reboot_allowed=true").said  # the reboot
        assert versions(host) == pinned_at(PINNED)
    assert set(PACKAGES) <= held(host)
    assert not host.file(MARKER).exists


def test_nothing_moves_below_a_model(controller, driver, host):
    with serving(host):
        refused = controller.play(DRIVER, overlay=driver(version=NEWER))
        assert refused.returncode != 0
        assert "vllm-busy.service is loading or serving, and this would change the driver under it. Nothing was changed." in refused.said
        assert f"Would change: {PIN}, firmware-nvidia-gsp={NEWER}-*" in refused.said
        assert versions(host) == pinned_at(PINNED)
        assert f"Pin: version {PINNED}-*" in host.file(PIN).content_string
        assert "changed=0" in controller.plays(DRIVER).said  # nothing to change is nothing to refuse
        refused = controller.play(DRIVER, "-e", "driver_wanted=false")
        assert refused.returncode != 0
        assert "vllm-busy.service is loading or serving. The driver stays" in refused.said
        said = controller.plays("teardown", "--check").said  # where it is not stopped first
        assert "vllm-busy.service is loading or serving: the driver goes only after it was stopped." in said
        assert versions(host) == pinned_at(PINNED)
        assert host.file(PIN).exists
        assert set(PACKAGES) <= held(host)


def test_removal_leaves_the_host_as_it_was(controller, host):
    """Removed, installed and removed: the second removal leaves what the first has left, and the first nothing of NVIDIA.

    A container runtime's toolkit, which came in between, stays as the operator left it.
    """
    controller.plays(DRIVER, "-e", "driver_wanted=false")
    kept = {  # its own role's
        "/etc/apt/preferences.d/modelhost-nvidia-repository", "/etc/apt/keyrings/modelhost-nvidia.gpg",
        "/etc/apt/sources.list.d/modelhost-nvidia.sources"}
    before = files(host), installed(host)
    kept.add("/usr/include/drm/nouveau_drm.h")  # the compiler's
    assert {path for path in before[0] if re.search("nvidia|nouveau", path.lower())} - kept == set()
    assert not {row.split()[0] for row in before[1]} & {*PACKAGES, "linux-headers-" + host.check_output("uname -r")}
    with serving(host):
        assert "changed=0" in controller.plays(DRIVER, "-e", "driver_wanted=false").said  # nothing to remove is nothing to refuse
    controller.plays(DRIVER, "-e", "reboot_allowed=true")
    with operators_own(host) as own:
        assert "changed=0" in controller.plays(DRIVER).said
        host.check_output("apt-mark hold nvidia-container-toolkit")
        held_before = held(host)
        controller.plays(DRIVER, "-e", "driver_wanted=false")
        assert held(host) == held_before - set(PACKAGES)
        assert own <= {row.split()[0] for row in installed(host)}
    assert (files(host), installed(host)) == before
    controller.plays(DRIVER, "-e", "reboot_allowed=true")
