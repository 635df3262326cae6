# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: driver_minimum
short_description: The oldest driver that the GPUs, the CUDA toolkit and the engines of an inventory can work with
description:
  - The highest of what they ask for.
positional: _input
options:
  _input:
    description:
      - "The chain: C(driver), C(cuda), C(gpus), C(engines) and C(models) as the inventory has them, C(pins) from
        P(modelhost.vllm.lock_pins#filter), and C(compatibility), the content of C(roles/host_check/files/compatibility.yml)."
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
minimum: "{{ modelhost_versions | modelhost.vllm.driver_minimum }}"
"""

RETURN = r"""
_value:
  description: A branch, or an empty text where nothing asks for a driver.
  type: str
  sample: "580"
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.versions import driver_minimum


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"driver_minimum": driver_minimum}
