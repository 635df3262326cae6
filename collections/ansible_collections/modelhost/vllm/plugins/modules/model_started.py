#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: model_started
short_description: Start a model's unit with its declared files, in the place of others
description:
  - Stops the units of O(instead_of), proves that nothing is left of them as M(modelhost.vllm.unit_stopped) does, puts the declared files of
    O(model) on trial, and starts its unit. In one go, since nothing is served meanwhile.
  - On trial means that the unit reads the declared files, where they differ from the live ones, from places in C(/run) that systemd prefers
    and a reboot forgets. The live files stay, so that until M(modelhost.vllm.model_generation) applies the trial, a reboot boots what was
    proven last.
  - A unit that was started is not one that serves. M(modelhost.vllm.model_answer) waits for that.
options:
  model:
    description: Name of the model to start.
    type: str
    required: true
  instead_of:
    description: Names of the models to stop before.
    type: list
    elements: str
    default: []
  patience:
    description: Seconds from the end of a unit until its processes and its port have to be gone.
    type: int
    default: 20
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Exchange two models
  modelhost.vllm.model_started:
    model: kimi-k25-int4
    instead_of: [minimax-m25]
"""

RETURN = r"""
processes:
  description: Process ids by model that outlived its unit and were ended.
  type: dict
  returned: success
  sample: {minimax-m25: []}
trial:
  description: Whether the declared files differ from the live ones, and are on trial.
  type: bool
  returned: success
"""

from subprocess import CalledProcessError

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, stopping, switch_record, systemd, trial


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "instead_of": {"type": "list", "elements": "str", "default": []},
            "patience": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    model, others = module.params["model"], module.params["instead_of"]
    starts = bool(others) or models.show([model])[model]["ActiveState"] in ("inactive", "failed")
    if module.check_mode:
        pending = bool(models.pending(models.declared(model)))
        module.exit_json(changed=starts or pending, processes={}, trial=pending)
    doing = f"stop {' and '.join(others)}"
    try:
        found = stopping.stop(others, module.params["patience"])
        doing = f"start {model}"
        switch_record.note(step="start")
        on_trial = trial.begin(model)
        systemd.run(["systemctl", "start", models.unit_name(model)])
    except stopping.NotGone as error:
        module.fail_json(msg=str(error))
    except CalledProcessError as error:
        module.fail_json(msg=f"systemd does not {doing}: {error.stderr.strip()}")
    for name, left in found.items():
        if left:
            module.warn(f"{name}: {len(left)} of its processes outlived the unit and were ended: {left}")
    module.exit_json(changed=starts or on_trial, processes=found, trial=on_trial)


if __name__ == "__main__":
    main()
