# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: driver_plan
short_description: What to install so that a host has NVIDIA's driver at one version, and what speaks against it
description:
  - Chooses names and kernel modules by source, system, branch and generation of the GPUs.
  - Refuses what cannot work (a driver too old or too new for a GPU, closed modules where only the open ones do, modules that Secure Boot
    would not load, a version that apt does not offer, a driver from a .run installer below), before anything is touched.
positional: _input
options:
  _input:
    description: What P(modelhost.vllm.gpu_info#module) returned. Read are C(pci), C(driver), C(kernel) and C(secure_boot).
    type: dict
    required: true
  system:
    description: Distribution and release, such as V(Debian 13).
    type: str
    required: true
  wishes:
    description: C(source), C(version), C(modules), C(secure_boot) of the role nvidia_driver, and whether there is a C(password).
    type: dict
    required: true
  data:
    description: C(packages), C(generations), C(closed_last) and C(family) of the role nvidia_driver.
    type: dict
    required: true
  dpkg:
    description: Rows of C(${Package} ${Version} ${db:Status-Want} ${db:Status-Status}) from dpkg-query.
    type: str
    default: ""
  offers:
    description: What C(apt-cache madison) printed; null where it was not asked, and then nothing is refused for it.
    type: str
  fresh:
    description: Whether apt's lists were just fetched. If not, a driver of which they know nothing is no refusal.
    type: bool
    default: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
plan: "{{ facts | modelhost.vllm.driver_plan('Debian 13', wishes, data, installed.stdout, offered.stdout) }}"
"""

RETURN = r"""
_value:
  description:
    - C(refusals), sentences; empty where the rest can be done.
    - C(packages), all names; C(install), the words for apt; C(missing), what is not there at its version; C(superseded), what is there of
      another branch; C(hold), what is there and not held; C(ask), the names whose offers decide.
    - C(modules), V(open) or V(closed); C(enrol), whether Secure Boot needs a key of the host.
  type: dict
  sample:
    refusals: []
    modules: open
    packages: [nvidia-driver-cuda, nvidia-persistenced, nvidia-kernel-open-dkms, linux-headers-6.12.48+deb13-amd64]
    install: [nvidia-driver-cuda=590.48.01-*, nvidia-kernel-open-dkms=590.48.01-*, nvidia-persistenced=590.48.01-*,
              linux-headers-6.12.48+deb13-amd64]
    ask: [linux-headers-6.12.48+deb13-amd64, nvidia-driver-cuda, nvidia-kernel-open-dkms, nvidia-persistenced]
    missing: []
    superseded: []
    hold: []
    enrol: false
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.driver import driver_plan


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"driver_plan": driver_plan}
