# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: download_findings
short_description: Everything that is wrong with the settings of downloads, without asking a host
description:
  - Holds addresses, paths and folders of an inventory's C(downloads.yml) against what they have to be.
  - Each finding is a sentence that names the variable, the value, the rule and the fix.
positional: _input
options:
  _input:
    description: The settings by the names of their variables; null for one that the inventory does not have.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
findings: "{{ {'modelhost_find_links': ['/srv/wheels'], 'modelhost_offline': ''} | modelhost.vllm.download_findings }}"
"""

RETURN = r"""
_value:
  description: The findings; empty where nothing is wrong.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.downloads import download_findings


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"download_findings": download_findings}
