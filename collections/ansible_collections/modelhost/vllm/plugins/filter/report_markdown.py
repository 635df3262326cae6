# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: report_markdown
short_description: A host's report as Markdown
description:
  - Fills a static template. What Markdown or HTML would act on is escaped.
positional: _input, template
options:
  _input:
    description: A document of P(modelhost.vllm.host_report#filter).
    type: dict
    required: true
  template:
    description: Path of the Jinja template.
    type: path
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
page: "{{ document | modelhost.vllm.report_markdown(role_path ~ '/files/report.md.j2') }}"
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
        return {"report_markdown": report_pages.markdown}
