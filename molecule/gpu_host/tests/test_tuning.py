"""Settings of the host: what the kernel, the bridges and the GPUs say after the role, after a boot, and after the wish is gone.

vm.* and the huge pages are those of the machine that carries the container; module_utils/tuning.py is tested on them without a host.
"""

import pytest

WISH = {
    "shm": "1GB",
    "sysctl": {"kernel.shmmni": 4098, "net.core.somaxconn": "8192"},
    "persistence_mode": True,
    "power_limit": 450,
    "acs_redirect_off": True,
    "kernel_arguments": ["iommu=pt", "pcie_aspm=off"],
    "module_options": {"nvidia_uvm": {"uvm_disable_hmm": 1}, "nvidia": {"NVreg_EnableStreamMemOPs": 1}},
}
FILES = (
    "/etc/default/grub.d/90-modelhost.cfg", "/etc/modprobe.d/modelhost-tuning.conf", "/etc/modelhost-tuning.conf",
    "/usr/local/sbin/modelhost-tuning", "/etc/systemd/system/modelhost-tuning.service")
ROOT_PORTS = ("00:01.1", "20:01.1", "40:01.1", "60:01.1", "80:01.1", "a0:01.1", "c0:01.1", "e0:01.1")
MARKER = "/run/modelhost/reboot-required.d/host_tuning"
# What the host has of its own: the size is create.yml's, the rest the kernel's, the recording's and its persistence daemon's
UNTUNED = {"shm": 2147483648, "shmmni": "4096", "somaxconn": "4096", "limits": ["600.00 W"] * 8, "acs": "1d"}
TUNED = {"shm": 1000001536, "shmmni": "4098", "somaxconn": "8192", "limits": ["450.00 W"] * 8, "acs": "00"}


@pytest.fixture
def live(host):
    """What is live, asked from the kernel, nvidia-smi and the bridges' registers."""

    def ask():
        gpus = host.check_output("nvidia-smi -q -x")
        controls = {
            host.check_output("od --address-radix=n --skip-bytes=262 --read-bytes=1 --format=x1 /sys/bus/pci/devices/0000:%s/config", port).strip()
            for port in ROOT_PORTS}
        assert len(controls) == 1
        return {
            "shm": int(host.check_output("df --block-size=1 --output=size /dev/shm | tail -n 1")),
            "shmmni": host.check_output("cat /proc/sys/kernel/shmmni"),
            "somaxconn": host.check_output("cat /proc/sys/net/core/somaxconn"),
            "limits": [line.split(">")[1].split("<")[0] for line in gpus.splitlines() if "<current_power_limit>" in line],
            "acs": controls.pop(),
        }

    return ask


@pytest.fixture(scope="module")
def tune(controller, tmp_path_factory):
    """Run the role with a wish, in place of the scenario's."""

    def act(wish, *arguments, fails=False):
        folder = tmp_path_factory.mktemp("wish")
        (folder / "hosts.yml").write_text("gpu_hosts: {hosts: {demo: {}}}\n")
        (folder / "group_vars/gpu_hosts").mkdir(parents=True)
        (folder / "group_vars/gpu_hosts/wish.yml").write_text(f"modelhost_tuning: {wish!r}\n".replace("True", "true"))
        done = controller.play("../molecule/gpu_host/tuning", *arguments, overlay=folder)
        assert (done.returncode != 0) is fails
        return done.said

    return act


@pytest.fixture(scope="module", autouse=True)
def untuned(controller, tune, host):
    """Begin with a machine that was booted without any wish, and leave it as the scenario's inventory says."""
    tune({})
    host.check_output("rm --force %s && systemctl restart gpu-replay.service", MARKER)
    yield
    controller.plays("../molecule/gpu_host/tuning")


@pytest.fixture
def busy(host):
    host.check_output("systemd-run --quiet --unit=vllm-busy sleep 600")
    yield
    host.check_output("systemctl stop vllm-busy")


def listed(host):
    return [path for path in FILES if host.file(path).exists]


def test_check_mode_says_what_would_change_and_changes_nothing(tune, live, host):
    assert listed(host) == []
    said = tune(WISH, "--check", "--diff")
    for change in ("/etc/default/grub.d/90-modelhost.cfg is written", "shm: 2147483648 -> 1000001536", "power_limit 0 1 2 3 4 5 6 7: 600 -> 450",
                   "0000:e0:01.1: 0x001d -> 0x0000", "+options nvidia_uvm uvm_disable_hmm=1"):
        assert change in said
    assert (listed(host), live()) == ([], UNTUNED)


def test_what_the_host_cannot_do_is_refused_all_at_once(tune, live, host):
    said = tune({**WISH, "power_limit": 700, "shm": "9TB", "hugepages": 9000000, "sysctl": {"kernel.nothing": 1}}, fails=True)
    assert "Nothing was changed." in said
    for sentence in ("modelhost_tuning.power_limit: 700 W; what can be set on GPU 0, 1, 2, 3, 4, 5, 6, 7: 300 to 600 W",
                     "modelhost_tuning.shm and hugepages: 9.0 TB and 18.9 TB of memory, and the host has",
                     "modelhost_tuning.sysctl.kernel.nothing: this kernel has no such setting: remove the line"):
        assert sentence in said
    assert (listed(host), live()) == ([], UNTUNED)


@pytest.mark.parametrize("state", ["active", "activating"])
def test_nothing_is_changed_below_a_model(tune, live, host, busy, state):
    if state == "activating":  # between two starts
        host.check_output("systemctl stop vllm-busy && systemd-run --quiet --unit=vllm-busy --property=Restart=always --property=RestartSec=600 false")
    said = tune(WISH, fails=True)
    assert "Nothing was changed, since vllm-busy.service loads or serves" in said
    assert "power_limit 0 1 2 3 4 5 6 7: 600 -> 450" in said and "-e provision_force=true" in said
    assert (listed(host), live()) == ([], UNTUNED)


def test_no_change_below_a_model_is_no_refusal(tune, busy):
    assert "changed=0" in tune({})


@pytest.mark.case("H5")
def test_what_can_be_live_is_and_the_rest_asks_for_a_reboot(tune, live, host):
    assert "changed=0" not in tune(WISH)
    assert live() == TUNED
    assert host.file(MARKER).content_string == (
        "kernel arguments that are not in /proc/cmdline yet: iommu=pt pcie_aspm=off\n"
        "options of the loaded kernel module nvidia_uvm that are not set yet: uvm_disable_hmm=1\n")
    assert host.file(MARKER).mode == 0o644
    assert host.check_output("systemctl show modelhost-tuning --property=ActiveState,UnitFileState,Result --value").split() == [
        "success", "active", "enabled"]
    assert host.run("systemd-analyze verify /etc/systemd/system/modelhost-tuning.service").rc == 0
    assert "changed=0" in tune(WISH)


def test_after_a_boot_everything_is_as_wished(tune, live, host, reboot, wait_for):
    reboot()
    wait_for(lambda: host.check_output("systemctl is-active modelhost-tuning") == "active")
    assert live() == TUNED
    assert host.check_output("nvidia-smi -q -x | grep --count '<persistence_mode>Enabled<'") == "8"
    assert host.check_output("cat /proc/cmdline").split()[-2:] == ["iommu=pt", "pcie_aspm=off"]
    assert host.check_output("cat /sys/bus/pci/devices/0000:01:00.0/iommu_group/type") == "identity"
    assert host.check_output("cat /sys/module/nvidia_uvm/parameters/uvm_disable_hmm") == "Y"
    assert host.file("/proc/driver/nvidia/params").content_string == "EnableStreamMemOPs: 1\n"
    assert not host.file(MARKER).exists
    assert "changed=0" in tune(WISH)


def test_a_setting_that_is_taken_out_is_undone_and_the_others_stay(tune, live, host):
    tune({name: value for name, value in WISH.items() if name not in ("power_limit", "sysctl", "kernel_arguments")})
    assert live() == {**TUNED, "limits": ["600.00 W"] * 8, "shmmni": "4096", "somaxconn": "4096"}
    assert listed(host) == [path for path in FILES if "grub" not in path]
    assert "iommu=pt" not in host.file("/boot/grub/grub.cfg").content_string
    assert host.file(MARKER).content_string == "kernel arguments that are still in /proc/cmdline: iommu=pt pcie_aspm=off\n"


def test_a_setting_that_somebody_changed_is_set_again(tune, live, host):
    host.check_output("mount -o remount,size=500m /dev/shm")
    assert "shm: 524288000 -> 1000001536" in tune({"shm": "1GB"})
    assert live() == {**UNTUNED, "shm": 1000001536}
    assert host.file(MARKER).content_string == (  # what was taken out before is still in effect
        "kernel arguments that are still in /proc/cmdline: iommu=pt pcie_aspm=off\n"
        "options that the loaded kernel module nvidia_uvm was given: uvm_disable_hmm=1\n"
        "options that the loaded kernel module nvidia was given: NVreg_EnableStreamMemOPs=1\n")


def test_a_device_of_a_virtual_machine_keeps_acs_on(tune, live, host):
    held = "/sys/bus/pci/drivers/vfio-pci"
    host.check_output("mkdir %s && touch %s/0000:05:00.0", held, held)
    try:
        said = tune({"acs_redirect_off": True}, fails=True)
    finally:
        host.check_output("rm -r %s", held)
    assert "modelhost_tuning.acs_redirect_off: 0000:05:00.0: held by vfio-pci for a virtual machine" in said
    assert live()["acs"] == "1d"


def test_removal_leaves_nothing(tune, live, host, reboot, wait_for):
    tune(WISH, "-e", "tuning_entry=remove")
    assert (listed(host), live()) == ([], UNTUNED)
    assert host.run("systemctl cat modelhost-tuning").rc != 0
    assert not host.file("/run/modelhost-tuning.json").exists
    assert "changed=0" in tune(WISH, "-e", "tuning_entry=remove")
    reboot()
    wait_for(lambda: host.check_output("systemctl is-active gpu-replay") == "active")
    assert "iommu=pt" not in host.check_output("cat /proc/cmdline")
    assert host.check_output("cat /sys/module/nvidia_uvm/parameters/uvm_disable_hmm") == "N"
    assert live() == UNTUNED
