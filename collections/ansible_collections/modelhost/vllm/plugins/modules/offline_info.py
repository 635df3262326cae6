#!/usr/bin/python
# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: offline_info
short_description: Whether an offline directory is whole and made for this host
description:
  - Compares the directory with its C(manifest.json), which M(modelhost.vllm.offline_index) wrote. The system and the path that it was built
    for, that every file is there with its size, the content of what apt reads first, and that only root may write to what apt reads.
  - The content of the other files is verified by who uses them, since hashing a terabyte in each run would take an hour. apt verifies a
    package against the index, pip and uv a wheel against the lock, and the role C(model_weights) what it copies.
options:
  path:
    description: The directory.
    type: path
    required: true
attributes:
  check_mode:
    support: full
    description: The module only reads.
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- name: Look at the offline directory
  modelhost.vllm.offline_info:
    path: /srv/offline
  register: offline
"""

RETURN = r"""
findings:
  description: Why it cannot be used, each with the variable, what is seen and what to do. Empty where it can.
  returned: always
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import offline
from ansible_collections.modelhost.vllm.plugins.module_utils.host_findings import parse_os_release


def main() -> None:
    module = AnsibleModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)
    with open("/etc/os-release", encoding="utf-8") as stream:
        here = offline.system(parse_os_release(stream.read()), os.uname().machine)
    module.exit_json(changed=False, findings=offline.findings(module.params["path"], here))


if __name__ == "__main__":
    main()
