"""NVIDIA's own programs, as Debian packages them, on a host without a GPU: what the recorded machines and the roles take for granted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GPU = Path(__file__).parents[2] / "shared/gpu"
SOURCE = "/etc/apt/sources.list.d/test.list"
APT = "DEBIAN_FRONTEND=noninteractive apt-get --assume-yes --quiet"


@pytest.fixture(scope="module", autouse=True)
def programs(host):
    host.check_output("sed 's/ main.*/ contrib non-free non-free-firmware/' /etc/apt/sources.list > %s", SOURCE)
    host.check_output(f"{APT} update && {APT} install --no-install-recommends nvidia-smi nvidia-persistenced mokutil")
    yield
    host.check_output(f"{APT} purge nvidia-smi nvidia-persistenced mokutil && {APT} --purge autoremove && rm {SOURCE} && {APT} update")


def test_nvidia_smi_without_a_driver_says_what_the_stand_in_says(host, tmp_path):
    real = host.run("nvidia-smi -q -x")
    assert real.rc == 9
    assert real.stdout == (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed "
        "and running.\n\n")
    replayed = subprocess.run(
        [sys.executable, GPU / "nvidia-smi", "-q", "-x"], capture_output=True, text=True, check=False,
        env={**os.environ, "GPU_STATE": str(tmp_path), "GPU_RECORDING": str(GPU / "recordings/rtx-pro-6000-x8")})
    assert (replayed.returncode, replayed.stdout) == (real.rc, real.stdout)


def test_the_persistence_daemon_is_the_unit_that_the_driver_enables(host):
    assert host.check_output("systemctl show nvidia-persistenced --property=UnitFileState --value") == "enabled"
    assert host.run("nvidia-persistenced").rc == 1  # without a driver


def test_mokutil_where_there_is_no_firmware_to_ask(host):
    asked = host.run("mokutil --sb-state")
    assert (asked.rc, asked.stderr) == (1, "EFI variables are not supported on this system\n")


def test_a_driver_that_cannot_drive_blackwell_is_what_this_release_has(host):
    offered = host.check_output("apt-cache madison nvidia-open-kernel-dkms").split()[2]
    assert offered.startswith("550.163.01-")
