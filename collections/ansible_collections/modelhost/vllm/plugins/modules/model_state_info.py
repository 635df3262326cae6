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
    progress:
      description: Of a loading model, the stage that its log names, and what earlier loads say about the time left.
      type: str
    load_seconds:
      description: How long its last load on this host took, from the start of its process to its first answer; 0 where none is known.
      type: int
    foreign:
      description: Whether the live unit is one that modelhost did not write.
      type: bool
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
switch:
  description: The record of the switch that is under way, or was interrupted; an empty dict without one.
  type: dict
  returned: always
  contains:
    owner:
      description: Who runs it, C(user), C(controller), C(pid) and C(run).
      type: dict
    since:
      description: When it began.
      type: str
    model:
      description: The model that is switched to.
      type: str
    step:
      description: V(check), V(drain), V(stop), V(start), V(wait), V(apply) or V(go back).
      type: str
    progress:
      description: How far the step is.
      type: str
    age:
      description: Seconds since the last sign of life.
      type: int
    silence:
      description: Seconds without one after which the run counts as ended.
      type: int
    interrupted:
      description: Whether the run has ended without a word, for its silence or a reboot say so.
      type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, switch_record, systemd, vllm_log
from ansible_collections.modelhost.vllm.plugins.module_utils.endpoint import Endpoint


def judge(model: str, unit: dict[str, str], applied: dict[str, dict[str, object]]) -> str:
    if unit["ActiveState"] == "failed" or unit["SubState"] == "auto-restart":
        return "failed"
    if unit["ActiveState"] == "inactive":
        return "stopped"
    if unit["ActiveState"] == "deactivating":
        return "stopping"
    names = Endpoint(*models.address(model, applied), models.running_path(f"{model}.secret.env")).served_names()
    return "serving" if model in names or (names and models.is_foreign(model)) else "loading"


def progress(model: str, unit: dict[str, str]) -> str:
    """How far a load is."""
    lines = systemd.journal(models.unit_name(model), unit["InvocationID"], 200)
    return vllm_log.progress(lines, models.read_loads(model), models.running_for(unit))


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
        state = judge(model, unit, applied)
        found[model] = {
            "state": state,
            "progress": progress(model, unit) if state == "loading" else "",
            "load_seconds": round(next((load["seconds"] for load in reversed(models.read_loads(model))), 0)),
            "unit": unit,
            "applied": applied.get(model, {}),
            "pending": models.pending(models.declared(model)) if models.protected(model, unit, applied) else [],
            "trial": models.trial(model),
            "foreign": models.is_foreign(model),
        }
    module.exit_json(changed=False, models=found, switch=switch_record.read(), busy=[
        model for model, each in found.items() if each["unit"]["ActiveState"] not in ("inactive", "failed")])


if __name__ == "__main__":
    main()
