# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_findings
short_description: What is wrong with the GPUs of a host
description:
  - Judges what P(modelhost.vllm.gpu_info#module) knows against the machine that was declared.
  - An error keeps a model from serving, and no role repairs it. What a role or a reboot repairs is a warning.
  - Of a host without a driver only what the PCI bus shows is judged.
positional: _input, machine
options:
  _input:
    description: The result of P(modelhost.vllm.gpu_info#module).
    type: dict
    required: true
  machine:
    description:
      - The machine as it was declared; only C(count) is needed, and a key that is absent, empty or 0 asks for nothing.
      - C(name), a part of the name that C(nvidia-smi) gives; C(compute_capability); C(memory) of each, such as V(96GB);
        C(link_generation) and C(link_width) of the PCI Express link; C(nvlink), whether NVLink connects them.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- ansible.builtin.debug:
    msg: "{{ gpu | modelhost.vllm.gpu_findings({'count': 8, 'name': 'RTX PRO 6000 Blackwell', 'memory': '96GB'}) }}"
"""

RETURN = r"""
_value:
  description:
    - The findings, as P(modelhost.vllm.host_findings_info#module) returns them, in the order of repair. C(check) is one of V(gpu_count),
      V(nouveau), V(gpu_driver), V(secure_boot), V(xid), V(gpu_name), V(gpu_compute_capability), V(gpu_memory), V(gpu_link_width),
      V(gpu_link_generation), V(gpu_nvlink), V(gpu_memory_errors), V(gpu_mig), V(gpu_processes), V(iommu), V(acs), V(gpu_persistence),
      V(gpu_unknown).
  type: list
  elements: dict
  sample:
    - check: gpu_link_width
      severity: error
      variable: modelhost_gpus.link_width
      seen: "0000:61:00.0: x8 of x16"
      needed: x16
      fix: reseat the card or its riser, ...
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import gpu_findings


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"gpu_findings": gpu_findings.judge}
