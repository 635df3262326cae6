# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: host_report
short_description: The state of a host as one document
description:
  - Puts together what the modules say of a host, judges it by the rules of P(host_check#role), and derives what to do next.
  - C(docs/status-report.schema.json) is the schema of the document. There is no secret in it, and no text of a declared file.
positional: _input
options:
  _input:
    description:
      - What P(modelhost.vllm.host_report_info#module) returned for the questions C(gpu), C(host), C(engines), C(state), C(weights) and
        C(nccl).
    type: dict
    required: true
  host:
    description: Name of the host in the inventory.
    type: str
    required: true
  started:
    description: When it was asked, in UTC, such as V(20261130T094500Z).
    type: str
    required: true
  declared:
    description:
      - C(models) and C(engines), the lists of the catalogue; C(wish), the model to serve; C(gpus); and C(versions), the chain that
        P(modelhost.vllm.version_findings#filter) takes.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
document: "{{ looked | modelhost.vllm.host_report(inventory_hostname, '20261130T094500Z', declared) }}"
"""

RETURN = r"""
_value:
  description: The document.
  type: dict
  sample: {schema: 1, host: kimi, state: serving, summary: kimi-k25-int4 is serving, next_steps: []}
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import host_report
from ansible_collections.modelhost.vllm.plugins.plugin_utils.controller import has_ended


def report(looked: dict[str, Any], host: str, started: str, declared: dict[str, Any]) -> dict[str, Any]:
    switch = looked["answers"].get("state", {}).get("switch")
    return host_report.report(host, started, looked, declared, said(switch) if switch else {})


def said(switch: dict[str, Any]) -> dict[str, Any]:
    """Of a switch that is under way, or was interrupted: then a reboot or the next run decides what serves."""
    owner = switch["owner"]
    who = f"switch to {switch['model']} by {owner['user']}@{owner['controller']} since {switch['since']}"
    if switch["interrupted"] or has_ended(owner):
        return {"interrupted": True, "says": (
            f"{who}: interrupted at step {switch['step']!r}. What serves now is below; switch_model.yml finishes it or serves the wish, and "
            "a reboot boots what was applied")}
    progress = f" ({switch['progress']})" if switch["progress"] else ""
    return {"interrupted": False, "says": f"{who}: at step {switch['step']!r}{progress}, last sign of life {switch['age']} s ago"}


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"host_report": report}
