#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: package_record
short_description: Remember which packages a host had, to take away later what was added
description:
  - With O(state=present), called before packages are installed. The first call writes down all packages of the host, later ones only add to
    what was asked for. A run that is killed between this and the installation loses nothing.
  - With O(state=absent), purges what was asked for under this name and everything that came with it, except what the host had before, what
    another record asked for, what a package that stays depends on, and what apt would remove without that too. Holds that were set under
    this name are lifted, and no others. The record goes last.
  - Names are those of dpkg, without version or architecture.
options:
  name:
    description: Name of the record, that of the role. The file is C(/var/lib/modelhost/provisioned/NAME.json).
    type: str
    required: true
  packages:
    description: Packages that are going to be installed.
    type: list
    elements: str
    default: []
  hold:
    description: Installed packages to hold. Those that somebody else holds already are not remembered, so that their holds stay.
    type: list
    elements: str
    default: []
  state:
    description: Whether packages are about to be added, or taken away.
    type: str
    choices: [present, absent]
    default: present
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Says what would be written or removed.
  diff_mode:
    support: full
    description: Shows what was asked for before and after, or the packages that go.
notes:
  - What nobody needs any more is decided by C(apt-get autoremove), with recommendations and holds left out of account
    (C(APT::AutoRemove::RecommendsImportant), C(APT::Ignore-Hold), apt.conf(5)). What nobody needed before, say a kernel that was replaced
    or what an earlier version of our packages came with, is left to the next C(apt-get autoremove) of the host.
"""

EXAMPLES = r"""
- name: Remember what the host had
  modelhost.vllm.package_record:
    name: ml_env
    packages: [gcc, ninja-build]

- name: Hold one of them
  modelhost.vllm.package_record:
    name: ml_env
    hold: [ninja-build]

- name: Take away what was added
  modelhost.vllm.package_record:
    name: ml_env
    state: absent
"""

RETURN = r"""
removed:
  description: Packages that were purged, or would be.
  type: list
  elements: str
  returned: when O(state=absent)
  sample: [gcc, gcc-14, ninja-build]
held:
  description: Packages that were held, or would be.
  type: list
  elements: str
  returned: when O(state=present)
  sample: [ninja-build]
"""

import glob
import json
import os
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import packages as rules

FOLDER = "/var/lib/modelhost/provisioned"
STATES = "/var/lib/apt/extended_states"


def read(path: str) -> rules.Record | None:
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def write(path: str, record: rules.Record) -> None:
    os.makedirs(FOLDER, mode=0o755, exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(record, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(path + ".new", path)


def installed(module: AnsibleModule) -> dict[str, bool]:
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Want} ${db:Status-Status}\\n"]
    return rules.parse_installed(module.run_command(command, check_rc=True)[1])


def removable(module: AnsibleModule, asked: list[str], added: list[str]) -> list[str]:
    """What would go if apt took the packages for installed as dependencies only, and stays as it is. apt's own marks stay as they are."""
    if not asked:
        return []
    with tempfile.TemporaryDirectory() as folder:
        marks = os.path.join(folder, "extended_states")
        if os.path.exists(STATES):
            shutil.copy(STATES, marks)
        on_copy = ["-o", "Dir::State::extended_states=" + marks]
        simulate = ["apt-get", *on_copy, *rules.ONLY_DEPENDS, "--simulate", "autoremove"]
        anyway = rules.parse_simulation(module.run_command(simulate, check_rc=True)[1])
        module.run_command(["apt-mark", *on_copy, "auto", *asked], check_rc=True)
        without = rules.parse_simulation(module.run_command(simulate, check_rc=True)[1])
    return [name for name in without if name in added and name not in anyway]


def remember(module: AnsibleModule, path: str) -> dict:
    before, present = read(path), installed(module)
    hold = [name for name in module.params["hold"] if not present.get(name)]
    after = rules.remember(before, module.params["packages"], hold, present)
    if not module.check_mode:
        if after != before:
            write(path, after)
        if hold:
            module.run_command(["apt-mark", "hold", *hold], check_rc=True)
    return {
        "changed": after != before or bool(hold), "held": hold, "diff": {"before": rules.show(before), "after": rules.show(after)}}


def take_away(module: AnsibleModule, path: str) -> dict:
    record = read(path)
    if record is None:
        return {"changed": False, "removed": []}
    others = [read(other) for other in glob.glob(os.path.join(FOLDER, "*.json")) if other != path]
    present = installed(module)
    going = removable(module, *rules.candidates(record, present, others))
    held = [name for name in record["held"] if present.get(name) and name not in going]
    if not module.check_mode:
        if held:
            module.run_command(["apt-mark", "unhold", *held], check_rc=True)
        if going:
            command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "--assume-yes", "--allow-change-held-packages", "purge", *going]
            module.run_command(command, check_rc=True, environ_update={"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"})
        os.unlink(path)
        if not os.listdir(FOLDER):
            os.rmdir(FOLDER)
    return {
        "changed": True, "removed": going, "diff": {"before": {"packages": going, "held": held}, "after": {"packages": [], "held": []}}}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "hold": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    path = os.path.join(FOLDER, module.params["name"] + ".json")
    module.exit_json(**(remember if module.params["state"] == "present" else take_away)(module, path))


if __name__ == "__main__":
    main()
