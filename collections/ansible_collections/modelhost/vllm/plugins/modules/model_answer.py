#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: model_answer
short_description: Wait until a model answers a real prompt
description:
  - The only evidence that a model serves is an answer. vLLM's unit is C(active) from its first second, the port refuses connections until
    the load is over, and C(/health) says only that a process lives.
  - It is asked where its unit's own configuration says that it listens.
  - While waiting, the stage that the engine's log names, the memory that its processes hold, what they read, and what earlier loads of the
    model on this host say about the time left are shown. A load that was watched until its answer is added to these.
  - The answer is judged by rules. An incoherent one is a failure. One whose tokens all went into reasoning is not, and said in a warning.
  - The wait has no clock. It fails when the unit fails or is restarted by systemd, when the server rejects the prompt, or when neither
    log, memory nor reads have moved for O(stall) seconds.
options:
  model:
    description: Name of the model.
    type: str
    required: true
  engine:
    description: Name of its engine, to be remembered with the time that the load took.
    type: str
    default: ""
  stall:
    description: Seconds without any movement after which the load counts as stuck.
    type: int
    default: 900
  resume:
    description: What the previous call of one task returned. Set by the action plugin only.
    type: dict
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Asks nothing and waits for nothing.
"""

EXAMPLES = r"""
- name: Wait for the first answer
  modelhost.vllm.model_answer:
    model: kimi-k25-int4
    engine: vllm-0.33.0
"""

RETURN = r"""
answer:
  description: What the model said.
  type: str
  returned: success
verdict:
  description: V(coherent), or V(budget) where all tokens went into reasoning.
  type: str
  returned: success
seconds:
  description: Time from the start of the unit's process to the answer, in seconds.
  type: float
  returned: success
journal:
  description: The decisive lines of the unit's journal.
  type: list
  elements: str
  returned: failure
"""

import datetime
import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import coherence, models, switch_record, systemd, vllm_log
from ansible_collections.modelhost.vllm.plugins.module_utils.endpoint import Endpoint

PROMPT = "What is the capital of France?"
MAX_TOKENS = 256  # room for a model that reasons first
SLICE = 4.0  # seconds that one call waits at most
MEBIBYTE = 1024 * 1024


def movement(control_group: str) -> tuple[int, int]:
    """Memory held and bytes read by the processes of a unit, in MiB."""
    memory = read = 0
    try:
        with open(f"/sys/fs/cgroup{control_group}/cgroup.procs", encoding="ascii") as stream:
            pids = stream.read().split()
    except OSError:
        return 0, 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", encoding="ascii") as stream:
                memory += int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            with open(f"/proc/{pid}/io", encoding="ascii") as stream:
                read += int(stream.read().split()[1])  # rchar
        except (OSError, IndexError):
            continue  # it has ended meanwhile
    return memory // MEBIBYTE, read // MEBIBYTE


class Wait:
    """One call: a few seconds of a wait that the action plugin continues."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.model = module.params["model"]
        address = models.address(self.model, models.read_applied())
        self.endpoint = Endpoint(*address, models.running_path(f"{self.model}.secret.env"))
        self.resume = module.params["resume"] or {}

    def unit(self) -> dict[str, str]:
        return models.show([self.model])[self.model]

    def fail(self, reason: str, lines: list[str]) -> None:
        decisive = vllm_log.decisive(lines)
        unit = models.unit_name(self.model)
        self.module.fail_json(
            msg="{0}: {1}. Its journal's decisive lines:\n{2}\nAll of it: journalctl -u {3}".format(
                self.model, reason, "\n".join(decisive) or "(none)", unit), journal=decisive)

    def fail_if_dead(self, unit: dict[str, str]) -> None:
        restarts = int(unit["NRestarts"])
        restarted = restarts > self.resume.setdefault("restarts", restarts)
        if unit["ActiveState"] in ("active", "activating") and unit["SubState"] != "auto-restart" and not restarted:
            return
        # The journal of the run that ended, which systemd may have replaced by another meanwhile
        lines = systemd.journal(models.unit_name(self.model), self.resume.get("invocation", ""), 200)
        self.fail("the unit ended ({ActiveState}/{SubState}, result {Result}, status {ExecMainStatus})".format(**unit), lines)

    def answered(self, unit: dict[str, str]) -> None:
        """Ask once the server listens; end the wait with its answer."""
        names = self.endpoint.served_names()
        if not names:
            self.resume["loading"] = True
            return
        name = names[0] if models.is_foreign(self.model) and self.model not in names else self.model
        asked, stall = time.time(), self.module.params["stall"]
        try:
            status, body = self.endpoint.generate(name, PROMPT, MAX_TOKENS, timeout=stall)
        except OSError as error:
            self.fail(f"the server listens but did not answer within {time.time() - asked:.0f} s ({error})", self.lines(unit))
        judged = coherence.judge(status, body, ["Paris"])
        if judged["verdict"] in ("incoherent", "rejected"):
            self.fail("{verdict}: asked {0!r}, it says {answer!r}: {reason}".format(PROMPT, **judged), self.lines(unit))
        if judged["verdict"] == "budget":
            self.module.warn(f"{self.model}: {MAX_TOKENS} tokens were not enough for its reasoning, so its answer is not judged.")
        seconds = round(models.running_for(unit), 1)
        if self.resume.get("loading"):
            try:
                models.add_load(self.model, {
                    "engine": self.module.params["engine"], "seconds": seconds,
                    "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")})
            except OSError as error:  # a full disk takes nothing away from the answer
                self.module.warn(f"{self.model}: how long its load took is not kept: {error}")
        self.module.exit_json(
            changed=False, finished=True, answer=judged["answer"], verdict=judged["verdict"], seconds=seconds)

    def lines(self, unit: dict[str, str]) -> list[str]:
        return systemd.journal(models.unit_name(self.model), unit["InvocationID"], 200)

    def note(self) -> None:
        """A sign of life; an answer may take as long as the load may stand still."""
        switch_record.note(self.module.params["stall"] + switch_record.SILENCE, step="wait", progress=self.resume.get("progress", ""))

    def run(self) -> None:
        deadline = time.monotonic() + SLICE
        self.note()
        while True:
            unit = self.unit()
            self.fail_if_dead(unit)
            self.resume["invocation"] = unit["InvocationID"]
            self.answered(unit)
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)  # each look takes processor time from the load
        lines = self.lines(unit)
        memory, read = movement(unit["ControlGroup"])
        moved = [lines[-1] if lines else "", memory // 64, read // 64]
        if moved != self.resume.get("moved"):
            self.resume.update(moved=moved, moved_at=time.time())
        still, limit = time.time() - self.resume["moved_at"], self.module.params["stall"]
        if still > limit:
            self.fail(f"nothing has moved for {still:.0f} s while {vllm_log.stage(lines)}; the limit is {limit} s", lines)
        self.resume["progress"] = vllm_log.progress(lines, models.read_loads(self.model), models.running_for(unit))
        self.note()
        self.module.exit_json(
            changed=False, finished=False, resume=self.resume,
            progress=f"{self.resume['progress']}  ({memory / 1024:.1f} GiB held, {read / 1024:.1f} GiB read)")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "engine": {"type": "str", "default": ""},
            "stall": {"type": "int", "default": 900},
            "resume": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, finished=True)
    Wait(module).run()


if __name__ == "__main__":
    main()
