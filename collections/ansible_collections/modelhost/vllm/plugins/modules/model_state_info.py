#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: model_state_info
short_description: What the host serves, what was applied, what is pending
description:
  - Reads systemd's view of every unit C(vllm-*.service) that modelhost wrote, the record of what was applied, the files that wait to be
    applied, and asks the endpoint of each running unit for the names that it serves.
options:
  models:
    description: Names of the models in the catalogue. Units of other models are reported too, where they run, are enabled or were applied.
    type: list
    elements: str
    required: true
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Ask what the host serves
  modelhost.vllm.model_state_info:
    models: [kimi-k25-int4, minimax-m25]
  register: state
"""

RETURN = r"""
models:
  description: State by model.
  type: dict
  returned: always
  contains:
    state:
      description:
        - V(serving) when the endpoint answers to the model's name, V(loading) while the unit runs without an answer, V(stopping),
          V(failed), or V(stopped).
      type: str
    unit:
      description: systemd's properties of the unit.
      type: dict
    applied:
      description: The record of what was applied, empty for a model that was not.
      type: dict
    pending:
      description: Files whose declared text differs from the live one, with their diffs.
      type: list
    trial:
      description:
        - V(declared) where the unit reads declared files that have not been applied, V(other) where it reads such that are not declared any
          more, and an empty text where it reads its live files.
      type: str
  sample:
    kimi-k25-int4: {state: serving, applied: {port: 8000}, pending: [], trial: ""}
busy:
  description: Models whose unit runs, loads or stops.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, systemd
from ansible_collections.modelhost.vllm.plugins.module_utils.endpoint import Endpoint


def address(model: str, applied: dict[str, dict[str, object]]) -> tuple[str, int]:
    """Where the running unit of a model listens: what the configuration that it reads says."""
    text = models.read(models.running_path(f"{model}.yaml")) or ""
    found = dict(line.split(": ", 1) for line in text.splitlines() if line.startswith(("host: ", "port: ")))
    record = applied.get(model, {})
    host = found.get("host", record.get("host", "127.0.0.1"))
    return str(host).strip("'\""), int(found.get("port", record.get("port", 8000)))


def judge(model: str, unit: dict[str, str], applied: dict[str, dict[str, object]]) -> str:
    if unit["ActiveState"] == "failed" or unit["SubState"] == "auto-restart":
        return "failed"
    if unit["ActiveState"] == "inactive":
        return "stopped"
    if unit["ActiveState"] == "deactivating":
        return "stopping"
    endpoint = Endpoint(*address(model, applied), models.running_path(f"{model}.secret.env"))
    return "serving" if model in endpoint.served_names() else "loading"


def main() -> None:
    module = AnsibleModule(
        argument_spec={"models": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    applied = models.read_applied()
    loaded = [unit[len("vllm-"):-len(".service")] for unit in systemd.show("vllm-*.service", ["LoadState"])]
    names = list(dict.fromkeys(module.params["models"] + [model for model in loaded if models.is_ours(model)] + list(applied)))
    found = {}
    for model, unit in models.show(names).items():
        found[model] = {
            "state": judge(model, unit, applied),
            "unit": unit,
            "applied": applied.get(model, {}),
            "pending": models.pending(models.declared(model)) if models.protected(model, unit, applied) else [],
            "trial": models.trial(model),
        }
    module.exit_json(changed=False, models=found, busy=[
        model for model, each in found.items() if each["unit"]["ActiveState"] not in ("inactive", "failed")])


if __name__ == "__main__":
    main()
