#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: model_drain
short_description: Wait until a model has no request in flight
description:
  - Counts the requests that run or wait by the server's C(/metrics), C(vllm:num_requests_running) and C(vllm:num_requests_waiting) (vLLM 0.31
    to 0.33), until there is none or O(timeout) has passed. Requests that are left then are cut by the stop, and said in a warning.
  - New requests are not kept away, since the port belongs to the server. vLLM's own C(shutdown-timeout) finishes those that a stop meets.
options:
  model:
    description: Name of the model.
    type: str
    required: true
  timeout:
    description: Seconds to wait at most. V(0) only counts.
    type: int
    required: true
  resume:
    description: What the previous call of one task returned. Set by the action plugin only.
    type: dict
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Counts and does not wait.
"""

EXAMPLES = r"""
- name: Let the requests in flight end
  modelhost.vllm.model_drain:
    model: minimax-m25
    timeout: 60
"""

RETURN = r"""
in_flight:
  description: Requests that were left at the end.
  type: int
  returned: when the server counts them
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, switch_record
from ansible_collections.modelhost.vllm.plugins.module_utils.endpoint import Endpoint

SLICE = 4.0  # seconds that one call waits at most


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "timeout": {"type": "int", "required": True},
            "resume": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    model, timeout = module.params["model"], 0 if module.check_mode else module.params["timeout"]
    endpoint = Endpoint(*models.address(model, models.read_applied()), models.running_path(f"{model}.secret.env"))
    if not module.check_mode:
        switch_record.note(step="drain")
    began = (module.params["resume"] or {}).get("began", time.time())
    deadline = time.monotonic() + SLICE
    while True:
        try:
            count = endpoint.in_flight()
        except OSError as error:
            module.warn(f"{model}: whether requests are in flight is not known: {error}")
            module.exit_json(changed=False, finished=True)
        left = began + timeout - time.time()
        if not count or left <= 0:
            break
        progress = f"{count} requests in flight at {model}; it is stopped in {left:.0f} s at the latest"
        if time.monotonic() > deadline:
            switch_record.note(step="drain", progress=progress)
            module.exit_json(changed=False, finished=False, resume={"began": began}, progress=progress)
        time.sleep(0.2)
    if count and not module.check_mode:
        module.warn(f"{model}: {count} requests are still in flight after {timeout} s and are cut.")
    module.exit_json(changed=False, finished=True, in_flight=count)


if __name__ == "__main__":
    main()
