#!/usr/bin/python
# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: directories
short_description: Keep a set of directories, in one task
version_added: 0.1.0
description:
  - Creates directories with their parents and sets owner, group and mode, for all entries in one call.
  - Parents that are not entries themselves are created for root with mode V(0755), and left alone where they exist.
  - A link to a directory counts as that directory.
  - Everything that forbids to begin is said at once, before anything is changed.
author:
  - The modelhost authors
options:
  directories:
    description: The directories, in any order.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      owner:
        description: Name of the owner. In check mode it need not exist yet.
        type: str
        default: root
      group:
        description: Name of the group. In check mode it need not exist yet.
        type: str
        default: root
      mode:
        description: Four octal digits, in quotes.
        type: str
        default: "0755"
  state:
    description:
      - V(present) makes the directories what is declared.
      - V(absent) removes those that are empty, the deepest first. Nothing that somebody stored is ever removed.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    description: Predicts the changes. An owner or group that does not exist yet is no error then.
    support: full
  diff_mode:
    description: Shows owner, group and mode before and after.
    support: full
"""

EXAMPLES = r"""
- name: Keep the directories of the service
  modelhost.vllm.directories:
    directories:
      - path: /opt/modelhost/engines
      - path: /var/cache/modelhost
        owner: modelhost
        group: modelhost
        mode: "0750"

- name: Remove them where nothing is left in them
  modelhost.vllm.directories:
    directories:
      - path: /opt/modelhost/engines
    state: absent
"""

RETURN = r"""
paths:
  description: Directories that were created, changed or removed.
  returned: always
  type: list
  elements: str
  sample: [/opt/modelhost/engines]
kept:
  description: Directories that are not empty and so were not removed.
  returned: when O(state=absent)
  type: list
  elements: str
  sample: [/var/lib/modelhost/benchmarks]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import directories as rules


def keep(module: AnsibleModule, wanted: list) -> dict:
    seen = {entry["path"]: rules.look(entry["path"]) for entry in wanted}
    problems = rules.problems(wanted, seen) + ([] if module.check_mode else rules.strangers(wanted))
    if problems:
        module.fail_json(msg="nothing was changed: " + "; ".join(problems))
    changes = rules.differences(wanted, seen)
    if not module.check_mode:
        for entry, there in changes:
            rules.apply(entry)
    return {
        "paths": [entry["path"] for entry, there in changes],
        "diff": {
            "before": {entry["path"]: rules.aspects(there) for entry, there in changes},
            "after": {entry["path"]: rules.aspects(entry) for entry, there in changes},
        },
    }


def remove(module: AnsibleModule, paths: list) -> dict:
    children = {path: os.listdir(path) for path in paths if os.path.isdir(path) and not os.path.islink(path)}
    gone, kept = rules.removable(paths, children)
    if not module.check_mode:
        for path in gone:
            os.rmdir(path)
    return {"paths": gone, "kept": kept, "diff": {"before": {"paths": gone}, "after": {"paths": []}}}


def main() -> None:
    entry = {
        "path": {"type": "path", "required": True},
        "owner": {"type": "str", "default": "root"},
        "group": {"type": "str", "default": "root"},
        "mode": {"type": "str", "default": "0755"},
    }
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "required": True, "options": entry},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    wanted = module.params["directories"]
    result = keep(module, wanted) if module.params["state"] == "present" else remove(module, [item["path"] for item in wanted])
    module.exit_json(changed=bool(result["paths"]), **result)


if __name__ == "__main__":
    main()
