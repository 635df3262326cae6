# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: remote_code
short_description: The folders of weights whose Python code an engine runs
description:
  - Those of the models with C(trust-remote-code) that name the engine.
positional: engine, root
options:
  _input:
    description: The models, with C(engine), C(serve) and C(weights).
    type: list
    elements: dict
    required: true
  engine:
    description: Name of the engine.
    type: str
    required: true
  root:
    description: The directory on the host under which fetched weights lie.
    type: path
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
folders: "{{ models | modelhost.vllm.remote_code('vllm-0.33.0', '/var/lib/modelhost/weights') }}"
"""

RETURN = r"""
_value:
  description: The folders.
  type: list
  elements: path
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.weights import directory


def remote_code(models: list[dict[str, Any]], engine: str, root: str) -> list[str]:
    return sorted({
        directory(model["weights"], root) for model in models if model["engine"] == engine and model["serve"].get("trust-remote-code")})


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"remote_code": remote_code}
