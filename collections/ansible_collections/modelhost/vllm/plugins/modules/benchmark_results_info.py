#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: benchmark_results_info
short_description: What a benchmark wrote, and what earlier ones on this host say
description:
  - Reads the result files of C(vllm bench serve), and the documents that the role P(smoke_benchmark#role) has kept of a model.
options:
  results:
    description: The result files.
    type: list
    elements: path
    required: true
  history:
    description: The folder of the model's documents. One that is not there has none; folders below it are not looked at.
    type: path
    required: true
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Read what was measured
  modelhost.vllm.benchmark_results_info:
    results: [/var/cache/modelhost/benchmarks/kimi-k25-int4-20261130T094500Z-1.json]
    history: /var/lib/modelhost/benchmarks/kimi-k25-int4
"""

RETURN = r"""
results:
  description: The content of the result files, in their order. A number that is none (NaN) is null.
  type: list
  elements: dict
  returned: always
history:
  description: What the gate needs of each document, oldest first. Runs that failed, or were refused, are not among them.
  type: list
  elements: dict
  returned: always
  sample:
    - started: 20261130T094500Z
      profile: single_stream
      engine: {name: vllm-0.33.0, distribution: vllm, version: 0.33.0}
      points:
        - name: single_stream
          options: {num-prompts: 4, max-concurrency: 1}
          values: [{decode_tok_s: 82.1, output_throughput_tok_s: 74.9, ttft_ms: 231.4}]
unreadable:
  description: Files of the folder that are no documents.
  type: list
  elements: str
  returned: always
  sample: [20261101T000000Z.json]
"""

import glob
import json
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark_gate


def load(path: str) -> Any:
    with open(path, encoding="utf-8") as stream:
        return json.load(stream, parse_constant=lambda _name: None)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "results": {"type": "list", "elements": "path", "required": True},
            "history": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    history, unreadable = [], []
    for path in sorted(glob.glob(os.path.join(glob.escape(module.params["history"]), "*.json"))):
        try:
            history.append(benchmark_gate.summary(load(path)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            unreadable.append(os.path.basename(path))
    module.exit_json(
        changed=False,
        results=[load(path) for path in module.params["results"]],
        history=[each for each in history if each],
        unreadable=unreadable,
    )


if __name__ == "__main__":
    main()
