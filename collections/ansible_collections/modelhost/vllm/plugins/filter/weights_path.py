# GNU General Public License v3.0+ (see LICENSE)

from __future__ import annotations

DOCUMENTATION = r"""
name: weights_path
short_description: The path on the host that an engine loads a model from
description:
  - Derived from the source alone, so that two models with the same source share one copy of the weights.
  - A Hugging Face repository lies in C(ORG--REPO--REVISION), with the first 12 digits of the revision. Where C(include) is given, a
    digest of the patterns follows. An archive or a wheel lies in C(STEM--SHA256), with the first 12 digits. A directory is used in place.
positional: root
options:
  _input:
    description: The C(weights) of a model in C(modelhost_models), as described by the role C(model_weights).
    type: dict
    required: true
  root:
    description: The directory on the host under which fetched weights lie.
    type: path
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
# /var/lib/modelhost/weights/moonshotai--Kimi-K2.5--4d01dfe0332d
model: "{{ {'source': 'huggingface', 'repo': 'moonshotai/Kimi-K2.5', 'revision': '4d01dfe0332d63057c186e0b262165819efb6611'}
  | modelhost.vllm.weights_path('/var/lib/modelhost/weights') }}"
"""

RETURN = r"""
_value:
  description: A directory, or the GGUF file where the source is a wheel's member that is not converted.
  type: path
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import model_path


def weights_path(weights: dict, root: str) -> str:
    try:
        return model_path(weights, root)
    except (KeyError, TypeError) as lacking:
        raise AnsibleFilterError(f"weights_path: {weights!r} is no complete source of weights: {lacking} is missing") from lacking


class FilterModule:
    def filters(self) -> dict:
        return {"weights_path": weights_path}
