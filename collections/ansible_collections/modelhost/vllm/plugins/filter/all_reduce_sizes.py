# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: all_reduce_sizes
short_description: Sizes of the all-reduce messages of a model
description:
  - For decode, one hidden state of 16 bits a value for each of 1, 2, 4 to 64 streams; for prefill one for each token of
    C(max-num-batched-tokens), or of 8192.
  - Of a model whose shape is not known, a fixed ladder from 1 KiB to 64 MiB.
positional: _input, serve
options:
  _input:
    description: The shape, as M(modelhost.vllm.model_shape_info) returns it, or an empty dict.
    type: dict
    required: true
  serve:
    description: Options of vLLM.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
sizes: "{{ shape | modelhost.vllm.all_reduce_sizes({'max-num-batched-tokens': 8192}) }}"
"""

RETURN = r"""
_value:
  description: The sizes in bytes, in ascending order.
  type: list
  elements: int
  sample: [14336, 28672, 57344, 114688, 229376, 458752, 917504, 117440512]
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import all_reduce


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"all_reduce_sizes": all_reduce.sizes}
