#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: model_generation
short_description: Apply or drop the files that a model has on trial
description:
  - M(modelhost.vllm.model_started) begins a trial. The live files stay, so that whatever happens before V(applied), a reboot boots what was
    proven last.
  - V(applied) makes a trial permanent, enables the unit for boot, disables those it replaces, and records what serves.
  - V(dropped) forgets a trial.
options:
  model:
    description: Name of the model.
    type: str
    required: true
  state:
    description: What to do.
    type: str
    choices: [applied, dropped]
    required: true
  replaces:
    description: Models whose units are disabled for boot and whose records end, with O(state=applied).
    type: list
    elements: str
    default: []
  record:
    description:
      - What to remember beside the generation and the time, with O(state=applied). C(wish), C(engine), C(host), C(port) and C(gpus).
    type: dict
    default: {}
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Keep the model that has answered
  modelhost.vllm.model_generation:
    model: kimi-k25-int4
    state: applied
    replaces: [minimax-m25]
    record: {wish: kimi-k25-int4, engine: vllm-0.33.0, host: 127.0.0.1, port: 8000, gpus: all}
"""

RETURN = r"""
generation:
  description: Digest over the files, the name of their folder below C(/var/lib/modelhost/generations/MODEL/).
  type: str
  returned: with O(state=applied)
"""

import datetime
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, switch_record, systemd, trial


def apply(model: str, replaces: list[str], record: dict[str, object], check_mode: bool) -> tuple[bool, str]:
    """Make permanent what the unit reads and has answered with, whatever has been declared since its start."""
    tried = models.tried(model)
    files = tried or {name: models.read(models.live_path(name)) for name in models.declared(model)}
    shown = {name: text for name, text in files.items() if text is not None and not models.is_secret(name)}
    generation = models.digest(shown)
    applied = models.read_applied()
    before = applied.get(model, {})
    after = {**record, "generation": generation, "since": before.get("since")}
    others = [other for other in replaces if other != model]
    unit = models.show([model])[model]
    changed = before != after or unit["UnitFileState"] != "enabled" or bool(tried) or any(other in applied for other in others)
    if check_mode or not changed:
        return changed, generation
    switch_record.note(step="apply")
    folder = os.path.join(models.GENERATIONS, model, generation)
    models.write_all([(os.path.join(folder, name), text, 0o600) for name, text in shown.items()], 0o700)
    # The live files are what is gone back to, so that they change all together.
    models.write_all([(models.live_path(name), text, models.mode_of(name)) for name, text in tried.items() if text is not None])
    for name, text in tried.items():
        if text is None:
            models.remove(models.live_path(name))
    trial.end(model)
    # The target is enabled before the others are not: a crash in between leaves one too many, never none.
    systemd.run(["systemctl", "daemon-reload"])
    systemd.run(["systemctl", "enable", "--quiet", models.unit_name(model)])
    after["since"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    models.write_applied({**{name: each for name, each in applied.items() if name not in others}, model: after})
    stale = [models.unit_name(other) for other, unit in models.show(others).items() if unit["UnitFileState"] == "enabled"]
    if stale:
        systemd.run(["systemctl", "disable", "--quiet", *stale])
    return True, generation


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["applied", "dropped"], "required": True},
            "replaces": {"type": "list", "elements": "str", "default": []},
            "record": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    model = module.params["model"]
    if module.params["state"] == "applied":
        changed, generation = apply(model, module.params["replaces"], module.params["record"], module.check_mode)
        module.exit_json(changed=changed, generation=generation)
    left = trial.left(model)
    if not module.check_mode:
        trial.end(model)
    module.exit_json(changed=bool(left))


if __name__ == "__main__":
    main()
