#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: long_command
short_description: Run a command that takes minutes, showing where it is
description:
  - Runs the command as a transient systemd service C(modelhost-job-NAME.service), as root. It survives a lost connection and a killed
    controller, and the unit's name is a lock, so the next run waits for the job of an earlier one instead of starting a second.
  - While it runs, its last line of output (progress bars included) is shown every O(progress_every) seconds.
options:
  name:
    description: Name of the job. One job of a name runs at a time.
    type: str
    required: true
  argv:
    description: The command as a list of words. There is no shell.
    type: list
    elements: str
    required: true
  creates:
    description: Path that exists once the job has been done. Where it exists, nothing is run. Without it the command is run each time.
    type: path
  environment:
    description: Environment variables of the command.
    type: dict
    default: {}
  secret_environment:
    description:
      - More of them, whose values are never shown. All are handed over in a file that only root reads, which goes once the command has
        started.
    type: dict
    default: {}
  limit:
    description: Seconds after which the command is ended, and the task fails. 0 is no limit.
    type: int
    default: 0
  limit_hint:
    description: What to do where the limit has ended the command, for the message.
    type: str
    default: ""
  progress_every:
    description:
      - Seconds between two looks of the controller. Each takes half a second of a processor, which matters to a job that measures.
    type: int
    default: 5
  resume:
    description: What the previous call of one task returned. Set by the action plugin only.
    type: dict
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Reports a change unless O(creates) exists.
"""

EXAMPLES = r"""
- name: Convert the weights
  modelhost.vllm.long_command:
    name: convert-smollm2
    argv: [/opt/modelhost/tools/gguf/bin/python, convert.py, model.gguf, /var/lib/modelhost/weights/smollm2]
    creates: /var/lib/modelhost/weights/smollm2
"""

RETURN = r"""
rc:
  description: Exit status of the command, or the number of the signal that ended it.
  type: int
  returned: when the command was run
output:
  description: The last lines that it wrote.
  type: list
  elements: str
  returned: when the command was run
"""

import os
import re
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd

JOBS = "/run/modelhost/jobs"
PAUSE = 1.0  # seconds between two questions for the unit's state, where the job takes long


def tail(path: str, size: int = 8192) -> list[str]:
    """The last lines of a file, with progress bars cut at their carriage returns."""
    try:
        with open(path, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - size))
            text = log.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]


def start(unit: str, log: str, argv: list[str], environment: dict[str, str], limit: int) -> None:
    os.makedirs(JOBS, mode=0o700, exist_ok=True)
    path = os.path.join(JOBS, unit + ".env")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(systemd.quote_environment({"HOME": "/root", **environment}))
    systemd.run(["systemctl", "reset-failed", "--all", "--quiet", "modelhost-job-*.service"])
    bound = [f"--property=RuntimeMaxSec={limit}"] if limit else []
    try:
        systemd.run([
            "systemd-run", "--quiet", f"--unit={unit}", "--property=Type=exec", f"--property=EnvironmentFile={path}",
            # systemd would put variables in place of $NAME (systemd.service(5), "Command lines")
            f"--property=StandardOutput=truncate:{log}", *bound, "--", *(word.replace("$", "$$") for word in argv)])
    finally:
        os.remove(path)  # Type=exec: the command has it by now


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "argv": {"type": "list", "elements": "str", "required": True},
            "creates": {"type": "path"},
            "environment": {"type": "dict", "default": {}},
            "secret_environment": {"type": "dict", "default": {}, "no_log": True},
            "limit": {"type": "int", "default": 0},
            "limit_hint": {"type": "str", "default": ""},
            "progress_every": {"type": "int", "default": 5},
            "resume": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    unit = "modelhost-job-{0}.service".format(re.sub(r"[^A-Za-z0-9_.-]", "-", module.params["name"]))
    log = os.path.join(JOBS, unit + ".log")
    creates = module.params["creates"]
    done = bool(creates and os.path.exists(creates))
    ours = bool(module.params["resume"] and module.params["resume"]["ours"])

    def state() -> dict[str, str]:
        return systemd.show(unit, ["ActiveState", "ExecMainStatus", "Result"])[unit]

    current = state()
    running = current["ActiveState"] in ("active", "activating", "deactivating")
    if not running and not ours:
        if done or module.check_mode:
            module.exit_json(changed=not done, finished=True)
        environment = {**module.params["environment"], **module.params["secret_environment"]}
        start(unit, log, module.params["argv"], environment, module.params["limit"])
        ours = True
    deadline = time.monotonic() + module.params["progress_every"]
    pause = PAUSE if module.params["resume"] else PAUSE / 16
    while True:
        current = state()
        if current["ActiveState"] in ("inactive", "failed"):
            break
        if time.monotonic() > deadline:
            lines = tail(log)
            module.exit_json(changed=True, finished=False, resume={"ours": ours}, progress=lines[-1][:110] if lines else "started")
        time.sleep(pause)
        pause = min(pause * 2, PAUSE)
    if not ours:
        # An earlier run's job has ended: look again at what it left.
        module.exit_json(changed=True, finished=False, resume=None, progress="the job of an earlier run has ended")
    lines = tail(log)
    if current["Result"] == "timeout":
        module.fail_json(
            msg="{name} was ended after {limit} s, its time limit. {limit_hint}".format(**module.params),
            rc=int(current["ExecMainStatus"]), output=lines[-15:])
    if current["ActiveState"] == "failed":
        module.fail_json(
            msg="{0} failed with status {1}. Its last words:\n{2}\nAll of them: {3} on the host".format(
                module.params["name"], current["ExecMainStatus"], "\n".join(lines[-15:]), log),
            rc=int(current["ExecMainStatus"]), output=lines[-15:])
    if creates and not os.path.exists(creates):
        module.fail_json(msg="{0} ended well but did not make {1}. All it said: {2} on the host".format(
            module.params["name"], creates, log), rc=0, output=lines[-15:])
    module.exit_json(changed=True, finished=True, rc=0, output=lines[-15:])


if __name__ == "__main__":
    main()
