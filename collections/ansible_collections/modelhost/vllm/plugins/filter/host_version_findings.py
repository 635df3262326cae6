# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: host_version_findings
short_description: What the driver and the GPUs of a host contradict in the versions that its inventory declares
description:
  - Judges the same chain as P(modelhost.vllm.version_findings#filter), with the driver and the compute capabilities that the host has, and
    says only what the declared chain does not say.
  - A driver that provisioning will replace is a warning. With the source V(present) it is an error.
  - Also says which driver and toolkits the packages of the host's system do not have.
positional: _input
options:
  _input:
    description:
      - "The chain: C(driver), C(cuda), C(gpus), C(engines) and C(models) as the inventory has them, C(pins) from
        P(modelhost.vllm.lock_pins#filter), and C(compatibility), the content of C(roles/host_check/files/compatibility.yml)."
    type: dict
    required: true
  gpu_info:
    description: What P(modelhost.vllm.gpu_info#module) returned. Read are C(gpus) and C(driver); what it does not know is not judged.
    type: dict
    required: true
  os_release:
    description: C(ID) and C(VERSION_ID) of C(/etc/os-release).
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
findings: "{{ host_check_versions | modelhost.vllm.host_version_findings(gpus, {'ID': 'debian', 'VERSION_ID': '13'}) }}"
"""

RETURN = r"""
_value:
  description: The findings, in the form of P(modelhost.vllm.host_findings_info#module).
  type: list
  elements: dict
  sample:
    - check: versions
      severity: error
      variable: modelhost_driver.version
      seen: 550.163.01 on the host
      needed: 570 or later, for compute capability 12.0 (Blackwell)
      fix: pin that branch or a later one
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.versions import host_version_findings


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"host_version_findings": host_version_findings}
