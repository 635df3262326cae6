"""The settings that a boot undoes: read, made, and given back, on a machine of files and a stand-in nvidia-smi."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import tuning

# Keeps what was set in files beside it, as a driver does.
NVIDIA_SMI = """\
#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >> asked
[ ! -e broken ] || { echo "Unable to determine the device handle"; exit 15; }
case "$*" in
  "-q -x")
    echo '<?xml version="1.0" ?><nvidia_smi_log>'
    for gpu in 0 1; do
      cat <<EOF
<gpu id="0000000$gpu:01:00.0"><persistence_mode>$(cat mode-$gpu)</persistence_mode>
<POWER><min_power_limit>300.00 W</min_power_limit><max_power_limit>600.00 W</max_power_limit><LIMIT>$(cat limit-$gpu).00 W</LIMIT></POWER></gpu>
EOF
    done
    echo '</nvidia_smi_log>';;
  -L) [ ! -e loads ] || { mkdir -p ../proc/driver/nvidia; echo "NVRM version: ..." > ../proc/driver/nvidia/version; };;
  "-i "*" -pm 1") echo Enabled > mode-$2;;
  "-i "*" -pm 0") echo Disabled > mode-$2;;
  "-i 1 -pl 599") echo "Provided power limit 599.00 W is not applied"; exit 1;;
  "-i "*" -pl "*) echo $4 > limit-$2;;
esac
"""
ELEMENTS = {"new": ("gpu_power_readings", "current_power_limit"), "old": ("power_readings", "power_limit")}


def space(*, acs: int | None) -> bytes:
    """A configuration space whose second extended capability is ACS, with this control register."""
    header = bytearray(4096)
    header[0x100:0x104] = (0x0001 | 0x150 << 20).to_bytes(4, "little")  # Advanced Error Reporting, the next one at 0x150
    if acs is not None:
        header[0x150:0x154] = (0x000D | 1 << 16).to_bytes(4, "little")
        header[0x156:0x158] = acs.to_bytes(2, "little")
    return bytes(header)


class Machine:
    def __init__(self, root, monkeypatch):
        self.root = root
        self.shm = {"size": "2147483648"}
        monkeypatch.setattr(tuning, "CONF", str(root / "tuning.conf"))
        monkeypatch.setattr(tuning, "RECORD", str(root / "record.json"))
        monkeypatch.setattr(tuning, "PROC", str(root / "proc"))
        monkeypatch.setattr(tuning, "PCI", str(root / "bus"))
        monkeypatch.setattr(tuning, "NVIDIA_SMI", str(root / "smi/nvidia-smi"))
        monkeypatch.setattr(tuning, "shm_size", lambda: self.shm["size"])
        run = tuning.run
        monkeypatch.setattr(tuning, "run", lambda *words: self.remount(words) if words[0] == "mount" else run(*words))
        self.write("proc/sys/kernel/shmmni", "4096\n")
        self.write("proc/driver/nvidia/version", "NVRM version: ...\n")
        for gpu in ("0", "1"):
            self.write(f"smi/mode-{gpu}", "Disabled\n")
            self.write(f"smi/limit-{gpu}", "600\n")
        self.smi("new")
        (root / "bus").mkdir()
        # A root port, a switch without ACS, a GPU and its audio function; another root port with an NVMe drive
        for path, vendor, kind, acs in (
            ("pci0000:00/0000:00:01.1", "0x1022", "0x060400", 0x1D), ("pci0000:00/0000:00:01.1/0000:01:00.0", "0x1000", "0x060400", None),
            ("pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0", "0x10de", "0x030200", None),
            ("pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.1", "0x10de", "0x040300", None),
            ("pci0000:00/0000:00:02.1", "0x1022", "0x060400", 0x1D), ("pci0000:00/0000:00:02.1/0000:05:00.0", "0x144d", "0x010802", None),
        ):
            self.write(f"devices/{path}/vendor", vendor + "\n")
            self.write(f"devices/{path}/class", kind + "\n")
            (root / "devices" / path / "config").write_bytes(space(acs=acs))
            (root / "bus" / os.path.basename(path)).symlink_to(root / "devices" / path)

    def remount(self, words):
        assert words[:2] == ("mount", "-o") and words[3] == tuning.SHM
        self.shm["size"] = words[2].removeprefix("remount,size=")

    def smi(self, schema):
        power, limit = ELEMENTS[schema]
        self.write("smi/nvidia-smi", NVIDIA_SMI.replace("POWER", power).replace("LIMIT", limit))
        (self.root / "smi/nvidia-smi").chmod(0o755)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def read(self, path):
        return (self.root / path).read_text().strip()

    def acs(self, address):
        return (self.root / "bus" / address / "config").read_bytes()[0x156]

    def run(self, conf=None):
        """As the unit does it, in a process of its own."""
        tuning.gpus.cache_clear()
        if conf is not None:
            self.write("tuning.conf", conf)
        return tuning.main(["restore" if conf is None else "apply"])

    def state(self):
        gpus = [(self.read(f"smi/mode-{gpu}"), self.read(f"smi/limit-{gpu}")) for gpu in "01"]
        return self.shm["size"], self.read("proc/sys/kernel/shmmni"), gpus, self.acs("0000:00:01.1")


FULL = """\
# Ansible managed
[host]
shm=1000000000
persistence_mode=1
power_limit=450
acs=off
[sysctl]
kernel.shmmni=4098
"""
BEFORE = ("2147483648", "4096", [("Disabled", "600"), ("Disabled", "600")], 0x1D)
# 1000000000 is no whole number of pages
TUNED = ("1000001536", "4098", [("Enabled", "450"), ("Enabled", "450")], 0x00)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    yield Machine(tmp_path, monkeypatch)
    tuning.gpus.cache_clear()


@pytest.mark.parametrize("schema", ["new", "old"])
@pytest.mark.case("H5")
def test_everything_is_made_and_given_back(machine, schema):
    machine.smi(schema)
    assert machine.state() == BEFORE
    assert machine.run(FULL) == 0
    assert machine.state() == TUNED
    assert machine.acs("0000:00:02.1") == 0x1D  # no GPU below it
    assert machine.run(FULL) == 0
    assert machine.state() == TUNED
    assert machine.run() == 0
    assert machine.state() == BEFORE
    assert not (machine.root / "record.json").exists()


def test_what_is_as_wished_is_not_touched(machine, capsys):
    machine.run(FULL)
    (machine.root / "smi/asked").unlink()
    capsys.readouterr()
    assert machine.run(FULL) == 0
    assert capsys.readouterr().out == ""
    assert set(machine.read("smi/asked").splitlines()) == {"-q -x"}


def test_a_setting_that_is_taken_out_gets_its_value_back_and_the_others_stay(machine, capsys):
    machine.run(FULL)
    capsys.readouterr()
    assert machine.run("[host]\nshm=1000000000\npersistence_mode=1\n") == 0
    assert machine.state() == ("1000001536", "4096", [("Enabled", "600"), ("Enabled", "600")], 0x1D)
    assert capsys.readouterr().out.splitlines() == [
        "sysctl kernel.shmmni: 4098 -> 4096", "power_limit 0: 450 -> 600", "power_limit 1: 450 -> 600",
        "acs 0000:00:01.1: 0x0000 -> 0x001d"]
    assert json.loads(machine.read("record.json")) == {"shm": "2147483648", "persistence_mode 0": "0", "persistence_mode 1": "0"}


def test_the_value_before_is_that_of_the_first_touch(machine):
    machine.run("[sysctl]\nkernel.shmmni=5000\n")
    machine.run("[sysctl]\nkernel.shmmni=6000\n")
    assert machine.read("proc/sys/kernel/shmmni") == "6000"
    machine.run()
    assert machine.read("proc/sys/kernel/shmmni") == "4096"


def test_what_fails_is_said_and_the_rest_is_made(machine, capsys):
    assert machine.run("[host]\nshm=4096\npower_limit=599\n[sysctl]\nnothing.here=1\n") == 1
    assert machine.state() == ("4096", "4096", [("Disabled", "599"), ("Disabled", "600")], 0x1D)
    failed = capsys.readouterr().err.splitlines()
    assert len(failed) == 2
    assert failed[0].startswith("sysctl nothing.here: [Errno 2] No such file or directory")
    assert failed[1].endswith("-i 1 -pl 599` ended with status 1: Provided power limit 599.00 W is not applied")
    assert machine.run() == 0
    assert machine.state() == BEFORE


def test_a_value_that_the_kernel_does_not_keep_is_a_failure(machine, capsys, monkeypatch):
    monkeypatch.setitem(tuning.KINDS, "sysctl", (lambda name: "3", lambda name, value: None))
    assert machine.run("[sysctl]\nvm.nr_hugepages=512\n") == 1
    assert capsys.readouterr().err == "sysctl vm.nr_hugepages: 512 was asked for, and it is 3\n"


def test_a_driver_that_does_not_answer_does_not_keep_memory_from_being_set(machine, capsys):
    machine.write("smi/broken", "")
    assert machine.run(FULL) == 1
    assert machine.state() == ("1000001536", "4098", [("Disabled", "600"), ("Disabled", "600")], 0x00)
    assert capsys.readouterr().err.count("ended with status 15: Unable to determine the device handle") == 2


def test_before_the_driver_is_there_its_settings_wait(machine):
    machine.write("smi/broken", "")
    (machine.root / "proc/driver/nvidia/version").unlink()
    assert machine.run("[host]\nshm=4096\npersistence_mode=1\n") == 0
    assert (machine.shm["size"], machine.read("smi/mode-0")) == ("4096", "Disabled")


def test_a_boot_loads_the_driver_for_its_settings_only(machine):
    machine.write("smi/loads", "")
    (machine.root / "proc/driver/nvidia/version").unlink()
    assert machine.run("[host]\nshm=4096\n") == 0
    assert not (machine.root / "smi/asked").exists()
    assert machine.run("[host]\npersistence_mode=1\n") == 0
    assert machine.read("smi/mode-0") == "Enabled"


def test_a_gpu_that_is_gone_keeps_nothing_from_being_given_back(machine):
    machine.run(FULL)
    machine.write("smi/broken", "")
    (machine.root / "proc/driver/nvidia/version").unlink()
    assert machine.run() == 0
    assert machine.state() == ("2147483648", "4096", [("Enabled", "450"), ("Enabled", "450")], 0x1D)
    assert not (machine.root / "record.json").exists()


def test_nothing_is_written_to_a_device_that_has_taken_the_address_of_a_bridge(machine):
    machine.run(FULL)
    other = machine.root / "bus/0000:00:01.1/config"
    other.write_bytes(space(acs=None))
    assert machine.run() == 0
    assert other.read_bytes() == space(acs=None)
    with pytest.raises(tuning.Failed):
        tuning.write_acs("0000:00:01.1", "0x001d")
    assert other.read_bytes() == space(acs=None)


def test_a_command_that_hangs_ends_with_its_name(monkeypatch):
    monkeypatch.setattr(tuning, "TIMEOUT", 0.2)
    with pytest.raises(tuning.Failed, match="`sleep 60` did not end within 0 s"):
        tuning.run("sleep", "60")


@pytest.mark.parametrize(("shown", "watts"), [("450.00 W", "450"), ("412.50 W", "412.5"), ("N/A", ""), ("[N/A]", "")])
def test_watts(shown, watts):
    assert tuning.watts(shown) == watts


def test_other_words_are_refused(capsys):
    assert tuning.main([]) == 2
    assert "apply" in capsys.readouterr().err
