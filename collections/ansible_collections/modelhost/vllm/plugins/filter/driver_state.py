# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: driver_state
short_description: Whether NVIDIA's driver answers as it was wished, and whether the host has to be rebooted for it
description:
  - The answer of nvidia-smi counts. Where there is none, what is known of the cause is said.
positional: _input
options:
  _input:
    description: What P(modelhost.vllm.gpu_info#module) returned.
    type: dict
    required: true
  wishes:
    description: C(version), C(minimum) and number of C(gpus) of the role nvidia_driver; empty or 0 asks for nothing.
    type: dict
    required: true
  data:
    description: C(generations) of the role nvidia_driver.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
state: "{{ facts | modelhost.vllm.driver_state(wishes, data) }}"
"""

RETURN = r"""
_value:
  description: C(reboot), the reasons for a reboot; C(findings), what is wrong with the driver. Sentences, both empty where all is well.
  type: dict
  sample:
    reboot: ["driver 590.48.01 is installed, 580.105.08 is loaded"]
    findings: ["driver 580.105.08 answers, modelhost_driver.version is 590.48.01"]
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.driver import driver_state


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"driver_state": driver_state}
