#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: switch_lock
short_description: One switch at a time on a host, and a record of how far it is
description:
  - With O(state=held) the run takes the lock of the host, or notes the next step if it has it. The lock is a file that survives a reboot and
    names its holder, so that a second operator is told who switches, and an interrupted switch is seen for what it is.
  - A lock is broken where its holder cannot be there any more, which is said in a warning. That is the case after a reboot, after a silence
    that is longer than the step allows, or where the holder ran on this very controller and its process has ended.
  - A run whose lock was broken by another fails at its next step, before it stops anything.
  - Where the disk is full, the step V(go back) is taken without the note, and every other one fails.
  - The lock is no part of the host's state. Taking and releasing it is never reported as a change.
options:
  state:
    description: Whether this run has the lock afterwards.
    type: str
    choices: [held, released]
    required: true
  step:
    description: The step that begins now.
    type: str
    default: check
  model:
    description: The model that is switched to.
    type: str
    default: ""
  silence:
    description: Seconds that the step may last without a sign of life.
    type: int
    default: 120
  force:
    description: Whether the lock of a run that is still there is broken, too.
    type: bool
    default: false
  owner:
    description: Who runs the playbook. Set by the action plugin only.
    type: dict
  dead:
    description: The run whose process is known to have ended. Set by the action plugin only.
    type: str
    default: ""
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Fails where another run holds the lock, and takes none.
"""

EXAMPLES = r"""
- name: Take the lock
  modelhost.vllm.switch_lock:
    state: held
    model: kimi-k25-int4
"""

RETURN = r"""
interrupted:
  description: The record of the switch whose lock was broken, or an empty dict.
  type: dict
  returned: with O(state=held)
holder:
  description: The record of the switch that holds the lock.
  type: dict
  returned: when another run holds it
"""

import contextlib
import datetime

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import switch_record


def hold(module: AnsibleModule) -> dict[str, object]:
    params = module.params
    record = switch_record.read()
    ours = record and record["owner"]["run"] == params["owner"]["run"]
    ended = record and (record["interrupted"] or record["owner"]["run"] == params["dead"])
    if params["step"] != "check" and not ours and not module.check_mode:
        module.fail_json(msg="the lock of this switch was broken by another run ({0}): nothing more is done".format(
            switch_record.holder(record) if record else "which has ended"))
    if record and not ours and not ended and not params["force"]:
        module.fail_json(
            holder=record,
            msg="{0} switches this host to {1}: step {2!r}{3}, last sign of life {4} s ago. Wait until it has ended, or break in with -e "
            "switch_force=true; a run that was killed counts as ended after {5} s of silence".format(
                switch_record.holder(record), record["model"], record["step"], f" ({record['progress']})" if record["progress"] else "",
                record["age"], record["silence"]))
    if not module.check_mode:
        since = record["since"] if ours else datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        try:
            switch_record.write({
                "owner": params["owner"], "since": since, "boot": switch_record.boot_id(),
                "model": params["model"] or record.get("model", ""), "step": params["step"], "silence": params["silence"], "progress": ""})
        except OSError as error:
            if params["step"] != switch_record.GOING_BACK:
                module.fail_json(msg=f"{switch_record.RECORD} cannot be written, and nothing more is done: {error}")
            module.warn(f"That this run goes back is not noted: {error}")  # what served before matters more
    if record and not ours:
        module.warn("A switch to {0} by {1} {3} at step {2!r}.".format(
            record["model"], switch_record.holder(record), record["step"], "was interrupted" if ended else "is broken off, by force,"))
    return {} if ours else record


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "released"], "required": True},
            "step": {"type": "str", "default": "check"},
            "model": {"type": "str", "default": ""},
            "silence": {"type": "int", "default": switch_record.SILENCE},
            "force": {"type": "bool", "default": False},
            "owner": {"type": "dict"},
            "dead": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    with contextlib.nullcontext() if module.check_mode else switch_record.exclusive():
        if module.params["state"] == "held":
            module.exit_json(changed=False, interrupted=hold(module))
        record = switch_record.read()
        if record and record["owner"]["run"] == module.params["owner"]["run"] and not module.check_mode:
            switch_record.remove()
        module.exit_json(changed=False)


if __name__ == "__main__":
    main()
