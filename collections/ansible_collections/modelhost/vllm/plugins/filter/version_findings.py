# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: version_findings
short_description: What contradicts itself in the versions that an inventory declares, and what is not known of them
description:
  - Compares driver, CUDA toolkit, GPUs, and what each engine's lock pins (torch, CUDA runtime, NCCL, FlashInfer) with each other.
  - Each finding is a sentence that names the variable, the value, what is needed and the fix.
  - A version that the data does not have is a warning, never an error.
positional: _input
options:
  _input:
    description:
      - "The chain: C(driver), C(cuda), C(uv), C(gpus), C(engines) and C(models) as the inventory has them, C(pins) from
        P(modelhost.vllm.lock_pins#filter), and C(compatibility), the content of C(roles/host_check/files/compatibility.yml)."
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
findings: "{{ modelhost_versions | modelhost.vllm.version_findings }}"
"""

RETURN = r"""
_value:
  description: C(errors), what cannot work; C(warnings), what is not known. Both are lists of sentences.
  type: dict
  sample:
    errors:
      - "modelhost_driver.version: 570.86.15; needed: 580 or later, for CUDA 13.0 of modelhost_engines.vllm-0.33.0; fix: raise the driver,
        or take an engine for an older CUDA"
    warnings: []
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.versions import version_findings


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"version_findings": version_findings}
