#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: tuning_info
short_description: What it takes to make a host's settings the wished ones
description:
  - Compares wishes and the files that carry them with the host as it is, and changes nothing. The role C(host_tuning) acts on the answer.
  - C(nvidia-smi), which as root would load a driver, is only run where one is loaded.
  - Live settings (C(/dev/shm), sysctl, GPUs, bridges) are compared with what the kernel and C(nvidia-smi) say now, kernel arguments with
    C(/proc/cmdline), options of kernel modules with C(/sys/module) and, for C(nvidia), with C(/proc/driver/nvidia/params).
  - What is no longer wished counts as different while it has not yet got back the value that it had before
    (C(/run/modelhost-tuning.json)).
options:
  wish:
    description:
      - The wishes; their names and types are those of the role's variables, without C(host_tuning_).
    type: dict
    required: true
  files:
    description: The text of each file that carries the wishes, by its path. An empty text means that the file shall not be there.
    type: dict
    required: true
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Works the same in check mode.
notes:
  - Needs root, since only root reads the whole configuration space of a bridge.
"""

EXAMPLES = r"""
- name: Compare the host with the wishes
  modelhost.vllm.tuning_info:
    wish:
      shm: 64GB
      hugepages: 0
      sysctl: {}
      persistence_mode: false
      power_limit: 0
      acs_redirect_off: false
      kernel_arguments: [iommu=pt]
      module_options: {}
    files:
      /etc/default/grub.d/90-modelhost.cfg: 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT iommu=pt"'
  register: host
"""

RETURN = r"""
findings:
  description: Why the wishes cannot be made, each a sentence. Nothing else is returned then.
  type: list
  elements: str
  returned: always
  sample: ["modelhost_tuning.power_limit: 700 W; what can be set on GPU 0, 1: 300 to 600 W: write a limit that each GPU can keep"]
changes:
  description: What would change, a line each; empty on a host that is as wished.
  type: list
  elements: str
  returned: when RV(findings) is empty
  sample: ["/dev/shm: 2147483648 -> 64000000000"]
write:
  description: Files to be written.
  type: list
  elements: str
  returned: when RV(findings) is empty
remove:
  description: Files that are there and shall not be.
  type: list
  elements: str
  returned: when RV(findings) is empty
grub:
  description: Whether GRUB's menu is older than the wishes.
  type: bool
  returned: when RV(findings) is empty
start:
  description: Whether the unit has something to do, or is not active and enabled.
  type: bool
  returned: when RV(findings) is empty
stop:
  description: Whether the unit is there and nothing is left for it to do.
  type: bool
  returned: when RV(findings) is empty
startable:
  description: Whether the unit is known to systemd; it is not in check mode on a host that was never tuned.
  type: bool
  returned: when RV(findings) is empty
marker:
  description: Text of the file that asks for a reboot; empty where none is needed.
  type: str
  returned: when RV(findings) is empty
  sample: |
    kernel arguments that are not in /proc/cmdline yet: iommu=pt
marker_differs:
  description: Whether that file has to be written or removed.
  type: bool
  returned: when RV(findings) is empty
waits:
  description: Wishes about GPUs that wait for the driver, which is not loaded.
  type: list
  elements: str
  returned: when RV(findings) is empty
  sample: [persistence_mode]
"""

import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd, tuning
from ansible_collections.modelhost.vllm.plugins.module_utils import tuning_rules as rules

UNIT = "modelhost-tuning.service"
MENU = "/boot/grub/grub.cfg"
VFIO = "/sys/bus/pci/drivers/vfio-pci"


def text_of(path: str) -> str:
    """A file's text; empty where there is none."""
    return tuning.read(path) if os.path.isfile(path) else ""


def options_of(module: str) -> dict[str, str]:
    """The options of a loaded kernel module, as far as it shows them. NVIDIA's shows them in a file of its own, without NVreg_."""
    folder = f"/sys/module/{module.replace('-', '_')}/parameters"
    values = {name: text_of(os.path.join(folder, name)).strip() for name in (os.listdir(folder) if os.path.isdir(folder) else [])}
    if module == "nvidia":
        pairs = (line.partition(": ") for line in text_of("/proc/driver/nvidia/params").splitlines())
        values.update({f"NVreg_{name}": value for name, _, value in pairs})
    return values


def loaded_options(modules: set) -> dict[str, dict[str, str]]:
    return {module: options_of(module) for module in modules if os.path.isdir(f"/sys/module/{module.replace('-', '_')}")}


def look(module: AnsibleModule, before: dict[str, str]) -> dict:
    wish = module.params["wish"]
    meminfo = dict(re.findall(r"^(MemTotal|Hugepagesize):\s+(\d+) kB$", text_of("/proc/meminfo"), re.MULTILINE))
    cmdline = text_of("/proc/cmdline").split()
    lockdown = re.search(r"\[(integrity|confidentiality)\]", text_of("/sys/kernel/security/lockdown"))
    return {
        "memory": int(meminfo["MemTotal"]) * 1024,
        "hugepage": int(meminfo.get("Hugepagesize", 0)) * 1024,
        "unknown_sysctls": [name for name in wish["sysctl"] if not os.path.exists(tuning.sysctl_path(name))],
        "gpus": tuning.gpus() if wish["power_limit"] else [],
        "lockdown": lockdown.group(1) if lockdown else "",
        "vfio": sorted(name for name in os.listdir(VFIO) if ":" in name) if os.path.isdir(VFIO) else [],
        "cmdline": cmdline,
        # GRUB says which image it loaded
        "grub": bool(module.get_bin_path("update-grub")) and any(word.startswith("BOOT_IMAGE=") for word in cmdline),
        "options": loaded_options({*wish["module_options"], *rules.taken_out(before)[1]}),
    }


def plan(module: AnsibleModule, before: dict[str, str], host: dict) -> dict:
    wish, files = module.params["wish"], module.params["files"]
    differ = [path for path, text in files.items() if text != before[path]]
    conf = files[tuning.CONF]
    wished = {setting: value for kind in tuning.KINDS for setting, value in tuning.wished(tuning.parse(conf), kind).items()}
    state = systemd.show([UNIT], ["ActiveState", "UnitFileState", "LoadState"])[UNIT]
    loaded = state["LoadState"] == "loaded"
    live = tuning.differences(wished) if conf or loaded else {}
    idle = (state["ActiveState"], state["UnitFileState"]) != ("active", "enabled")
    marker = "".join(reason + "\n" for reason in rules.reboot_reasons(wish, before, host))
    menu = rules.menu_words(text_of(MENU))
    return {
        "changes": rules.change_lines(files, before, live, f"{UNIT} is {state['ActiveState']}" if conf and idle else ""),
        "write": [path for path in differ if files[path]],
        "remove": [path for path in differ if not files[path]],
        "grub": rules.GRUB in differ or any(word not in menu for word in rules.fragment_words(files[rules.GRUB])),
        "start": bool(conf) and (bool(live) or idle or tuning.CONF in differ),
        "stop": loaded and not conf,
        "startable": loaded,
        "marker": marker,
        "marker_differs": marker != before[rules.MARKER],
        "waits": [name for name in ("persistence_mode", "power_limit") if wish[name] and not tuning.driver_is_loaded()],
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={"wish": {"type": "dict", "required": True}, "files": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    wish = module.params["wish"]
    findings = rules.wish_findings(wish)
    if findings:
        module.exit_json(changed=False, findings=findings)
    try:
        before = {path: text_of(path) for path in (*module.params["files"], rules.MARKER)}
        host = look(module, before)
        findings = rules.host_findings(wish, host)
        module.exit_json(changed=False, findings=findings, **({} if findings else plan(module, before, host)))
    except tuning.Failed as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
