#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: busy_units_info
short_description: Which units run, load or stop at this moment
description:
  - A driver, a toolkit or a kernel setting is not changed below a model that serves or loads. This says whether there is one, without
    asking an endpoint, and also for units that modelhost did not write. Models are the units C(vllm-*.service).
  - Busy is every state of C(systemctl show --property=ActiveState) but C(inactive) and C(failed). A unit that waits for its next restart is
    C(activating).
options: {}
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Works the same in check mode.
"""

EXAMPLES = r"""
- name: Ask whether a model serves or loads
  modelhost.vllm.busy_units_info:
  register: busy
"""

RETURN = r"""
units:
  description: Names of the busy units, in alphabetical order.
  type: list
  elements: str
  returned: always
  sample: [vllm-kimi-k25-int4.service]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd

MODELS = "vllm-*.service"
IDLE = ("inactive", "failed")


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    units = systemd.show(MODELS, ["ActiveState"])
    module.exit_json(changed=False, units=sorted(name for name, unit in units.items() if unit["ActiveState"] not in IDLE))


if __name__ == "__main__":
    main()
