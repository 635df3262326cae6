#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: unit_stopped
short_description: Stop a model's unit, and make sure that nothing is left of it
description:
  - Stops the unit, ends every process that it started and that outlived it, and waits until these are gone and nothing listens on the port of
    its configuration. An engine process that outlives its API server keeps the GPU's memory while the port looks free (vLLM issue 55510).
  - Processes are found by the unit's cgroup, and by C(MODELHOST_MODEL) in their environment, which the unit sets, in case one has left the
    cgroup. They get SIGKILL; those that the kernel does not end within O(patience) are a failure.
options:
  model:
    description: Name of the model.
    type: str
    required: true
  patience:
    description: Seconds from the end of the unit until processes and port have to be gone.
    type: int
    default: 20
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Make sure that it is gone
  modelhost.vllm.unit_stopped:
    model: minimax-m25
"""

RETURN = r"""
processes:
  description: Process ids that outlived the unit and were ended. In check mode those of the unit.
  type: list
  elements: int
  returned: success
"""

from subprocess import CalledProcessError

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, stopping


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "patience": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    model = module.params["model"]
    runs = models.show([model])[model]["ActiveState"] not in ("inactive", "failed")
    if module.check_mode:
        found = stopping.left_over(model)
        module.exit_json(changed=runs or bool(found), processes=found)
    try:
        found = stopping.stop([model], module.params["patience"])[model]
    except stopping.NotGone as error:
        module.fail_json(msg=str(error))
    except CalledProcessError as error:
        module.fail_json(msg=f"{model} is not gone: {error.stderr.strip()}")
    if found:
        module.warn(f"{model}: {len(found)} of its processes outlived the unit and were ended: {found}")
    module.exit_json(changed=runs or bool(found), processes=found)


if __name__ == "__main__":
    main()
