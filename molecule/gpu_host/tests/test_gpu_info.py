"""What is known of the recorded machine, on a real host with a real systemd, and what host_check makes of it."""

import base64
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RECORDINGS = ROOT / "molecule/shared/gpu/recordings"


@pytest.fixture
def replay(host, reboot):
    """Make this host another recorded machine; the scenario's own comes back with a reboot, and with it what starts at boot."""

    def become(name):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(RECORDINGS / name, arcname="recording")
        text = base64.b64encode(packed.getvalue()).decode()
        host.check_output("rm -r /srv/gpu/recording && echo %s | base64 -d | tar -xzC /srv/gpu", text)
        host.check_output("systemctl restart gpu-replay.service")

    menu = "/boot/grub/grub.cfg"
    host.check_output("mv %s /srv/gpu/", menu)  # another machine starts with the command line that was recorded
    yield become
    host.check_output("mv /srv/gpu/grub.cfg %s", menu)
    become("rtx-pro-6000-x8")
    reboot()


@pytest.fixture
def gpu_info(controller):
    def ask():
        inventories = [f"--inventory={path}" for path in controller.inventories]
        command = ["ansible", "demo", *inventories, "--module-name=modelhost.vllm.gpu_info"]
        environment = {**controller.environment, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        said = subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE, env=environment).stdout
        return json.loads(said.partition("=>")[2])

    return ask


def test_the_machine_is_known(gpu_info):
    found = gpu_info()
    assert [gpu["pci_address"] for gpu in found["gpus"]] == [
        "0000:01:00.0", "0000:21:00.0", "0000:41:00.0", "0000:61:00.0", "0000:81:00.0", "0000:a1:00.0", "0000:c1:00.0", "0000:e1:00.0"]
    assert {(gpu["compute_capability"], gpu["memory_total_mib"], gpu["link"]["width"]) for gpu in found["gpus"]} == {("12.0", 97887, 16)}
    assert {(gpu["generation"], gpu["driver"], gpu["bridges"][0][-4:]) for gpu in found["pci"]} == {("Blackwell", "nvidia", "01.1")}
    assert found["driver"]["loaded"] == found["driver"]["on_disk"] == found["driver"]["userspace"]
    assert (found["driver"]["license"], found["driver"]["open"]) == ("Dual MIT/GPL", True)


def test_a_driver_that_hangs_ends_with_what_is_not_known(host, gpu_info):
    host.check_output("touch /run/gpu/hangs")
    try:
        found = gpu_info()
    finally:
        host.check_output("rm /run/gpu/hangs")
    assert (found["gpus"], len(found["pci"])) == ([], 8)
    assert {"what": "gpus", "why": "nvidia-smi -q -x did not answer within 30 s"} in found["unknown"]


@pytest.mark.case("H7")
def test_seven_of_eight_gpus_are_refused_with_the_cause(controller, replay):
    replay("rtx-pro-6000-x7")
    done = controller.play("provision")
    assert done.returncode != 0
    assert "demo is not ready; nothing was changed. Found: 3" in done.said
    assert "gpu_count: 7 of 8 GPUs" in done.said and "0000:c1:00.0 is gone from the PCI bus" in done.said
    assert "xid: 0000:c1:00.0: Xid 79 (GPU has fallen off the bus)" in done.said
    assert "gpu_link_width: 0000:61:00.0: x8 of x16" in done.said
    assert "changed=0" in done.said


@pytest.mark.case("H3")
@pytest.mark.case("H5")
def test_what_a_later_role_repairs_is_said_with_its_setting(controller, replay):
    replay("mixed")  # Secure Boot, IOMMU and ACS are on, and the module on the disk is not signed
    said = controller.play("provision").said
    assert "iommu: the IOMMU translates addresses (DMA) of 2 GPUs" in said
    assert "modelhost_tuning.kernel_arguments: [iommu=pt]" in said
    assert "acs: PCI Express Access Control Services are on at" in said
    assert "modelhost_tuning.acs_redirect_off: true" in said
    assert "secure_boot: Secure Boot is on, and module" in said and "is not signed" in said
    assert "modelhost_driver.secure_boot: enrol" in said
