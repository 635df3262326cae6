#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)

from __future__ import annotations

DOCUMENTATION = r"""
module: model_shape_info
short_description: The shape of models, from the config.json of their weights
description:
  - Reads the C(config.json) beside the weights of each model, also where the configuration of the text is nested (C(text_config)), and
    says under one name for each thing what it has of attention, experts, context and quantization.
  - Beside GGUF weights there is no configuration; then that of C(serve.hf-config-path) or C(serve.tokenizer) is read.
  - A configuration of which something cannot be read gives no shape, and the reason.
options:
  models:
    description: The models to look at.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the model in C(modelhost_models).
        type: str
        required: true
      weights:
        description: Source of the weights, as described by the role C(model_weights).
        type: dict
        required: true
      serve:
        description: Options of vLLM.
        type: dict
        default: {}
  root:
    description: The directory under which fetched weights lie.
    type: path
    default: /var/lib/modelhost/weights
attributes:
  check_mode:
    support: full
    description: The module only reads.
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- name: Read what the weights say of the model
  modelhost.vllm.model_shape_info:
    models:
      - name: minimax-m25
        weights:
          source: directory
          path: /srv/minimax-m25
  register: shape
"""

RETURN = r"""
shapes:
  description: The shape by model, empty where there is none. What a configuration does not have is left out.
  returned: always
  type: dict
  sample:
    minimax-m25:
      expert_bits: 8
      full_attention: true
      head_dim: 128
      hidden_size: 3072
      max_position_embeddings: 196608
      moe_intermediate_size: 1536
      num_attention_heads: 48
      num_experts: 256
      num_hidden_layers: 62
      num_key_value_heads: 8
      weight_block_size: [128, 128]
      weights_bytes: 230000000000
unread:
  description: Why a model has no shape, one sentence for each.
  returned: always
  type: list
  elements: str
  sample:
    - "modelhost_models.minimax-m25.weights: /srv/minimax-m25/config.json: No such file or directory"
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils.model_shape import config_folder, read_shape
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import model_path


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "models": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "weights": {"type": "dict", "required": True},
                    "serve": {"type": "dict", "default": {}},
                },
            },
            "root": {"type": "path", "default": "/var/lib/modelhost/weights"},
        },
        supports_check_mode=True,
    )
    shapes, unread = {}, []
    for model in module.params["models"]:
        folder = config_folder(model_path(model["weights"], module.params["root"]), model["serve"])
        shape, why = read_shape(folder) if folder else ({}, "serve names a repository and no folder for its configuration")
        shapes[model["name"]] = shape
        unread += [f"modelhost_models.{model['name']}.weights: {why}"] if why else []
    module.exit_json(changed=False, shapes=shapes, unread=unread)


if __name__ == "__main__":
    main()
