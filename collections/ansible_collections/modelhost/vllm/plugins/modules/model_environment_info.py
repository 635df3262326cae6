#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: model_environment_info
short_description: The environment that the running unit of a model has
description:
  - Reads the environment files that the unit was started with, which an edited inventory leaves as they are until the next switch.
  - The API key is among what it returns, so a task that calls it needs C(no_log).
options:
  model:
    description: Name of the model.
    type: str
    required: true
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Read the environment of the served model
  modelhost.vllm.model_environment_info:
    model: kimi-k25-int4
  register: served
  no_log: true
"""

RETURN = r"""
environment:
  description: The variables of C(<model>.env).
  type: dict
  returned: always
  sample: {HF_HUB_OFFLINE: "1"}
nccl:
  description: The variables of C(<model>.nccl.env).
  type: dict
  returned: always
  sample: {NCCL_P2P_LEVEL: SYS}
api_key:
  description: The key that the server asks for, an empty text where it asks for none.
  type: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, systemd


def running(name: str) -> dict[str, str]:
    return systemd.parse_environment(models.read(models.running_path(name)) or "")


def main() -> None:
    module = AnsibleModule(argument_spec={"model": {"type": "str", "required": True}}, supports_check_mode=True)
    model = module.params["model"]
    module.exit_json(
        changed=False,
        environment=running(f"{model}.env"),
        nccl=running(f"{model}.nccl.env"),
        api_key=running(f"{model}.secret.env").get("VLLM_API_KEY", ""),
    )


if __name__ == "__main__":
    main()
