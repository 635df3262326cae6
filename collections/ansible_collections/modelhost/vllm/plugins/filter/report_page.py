# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: report_page
short_description: Reports of hosts as one HTML page
description:
  - Fills a static template. Everything that a report says is escaped. The page needs no network and has no script; plots are inline SVG.
positional: _input, template
options:
  _input:
    description: Documents of P(modelhost.vllm.host_report#filter).
    type: list
    elements: dict
    required: true
  template:
    description: Path of the Jinja template.
    type: path
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
page: "{{ [document] | modelhost.vllm.report_page(role_path ~ '/files/report.html.j2') }}"
"""

RETURN = r"""
_value:
  description: The page.
  type: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.plugin_utils import report_pages


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"report_page": report_pages.html}
