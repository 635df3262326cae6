# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: constraint_findings
short_description: What the rules of constraints.yml say of models, their engines and their machine
description:
  - Holds each model's options, GPUs and memory against the rules of C(roles/model_switch/files/constraints.yml), by the version of its
    engine. Each rule names its source.
  - The shape of a model (heads, experts, latent attention, quantization) is what its config.json says on a host, else what
    constraints.yml knows of its repository. A rule that asks for something unknown says nothing.
  - Each finding is a sentence that names the variable, the value, the reason, the fix and the rule.
positional: _input
options:
  _input:
    description:
      - "What is declared: C(models), C(engines) and C(gpus) as the inventory has them; C(keyed), the names of the models with an API key;
        and C(constraints), the content of C(roles/model_switch/files/constraints.yml)."
    type: dict
    required: true
  shapes:
    description: RV(modelhost.vllm.model_shape_info#module:shapes), what the host's weights say. Left out, no host was asked.
    type: dict
author:
  - The modelhost authors
"""

EXAMPLES = r"""
findings: "{{ modelhost_constraints | modelhost.vllm.constraint_findings }}"
"""

RETURN = r"""
_value:
  description: C(errors), for which a model is refused; C(warnings). Both are lists of sentences.
  type: dict
  sample:
    errors:
      - "modelhost_models.kimi-k25-int4.serve.tensor-parallel-size: 16; the parallel sizes ask for 16 GPUs, and the model has 8; fix: choose
        sizes whose product is 8 or less, or give the model more GPUs (gpus-too-few of constraints.yml)"
    warnings: []
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils.constraints import constraint_findings


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"constraint_findings": constraint_findings}
