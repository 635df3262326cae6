#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: host_report_info
short_description: Everything that a report says of a host, in one task that does not fail
description:
  - Asks the modules of O(questions), one after the other, and then reads what is kept on the host of earlier runs; which reboots are asked
    for; and what the journal says of units that failed.
  - What cannot be learned is said in RV(unknown), and nothing fails. A host that cannot be reached is RV(reached) V(false), and the play
    goes on with it.
  - Of the journal, values of a model's secret file and tokens of a hub are replaced by V(***).
options:
  questions:
    description: Modules that only read, by the name under which the answer is returned. Each is a dict of C(module) and C(options).
    type: dict
    default: {}
  benchmarks:
    description: Folder of the benchmarks, with a folder for each model.
    type: path
    default: /var/lib/modelhost/benchmarks
  coherence:
    description: Folder of the coherence checks, with a folder for each model.
    type: path
    default: /var/lib/modelhost/coherence
  all_reduce:
    description: Folder of the measurements of all-reduce.
    type: path
    default: /var/lib/modelhost/all_reduce
  engines:
    description: Folder of the engines, beside which their audits are kept.
    type: path
    default: /opt/modelhost/engines
  markers:
    description: Folder of the markers that ask for a reboot.
    type: path
    default: /run/modelhost/reboot-required.d
  most:
    description: How many benchmarks of a profile are returned, the newest ones.
    type: int
    default: 30
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Ask for everything
  modelhost.vllm.host_report_info:
    questions:
      gpu:
        module: modelhost.vllm.gpu_info
      state:
        module: modelhost.vllm.model_state_info
        options:
          models: [kimi-k25-int4]
  register: looked
"""

RETURN = r"""
reached:
  description: Whether the host could be reached.
  type: bool
  returned: always
reason:
  description: Why it could not.
  type: str
  returned: always
unknown:
  description: Why a question has no answer, by its name.
  type: dict
  returned: always
  sample: {state: "No such file or directory: 'systemctl'"}
answers:
  description: What each module returned, by the name of the question; and what is kept on the host, as C(kept).
  type: dict
  returned: always
  contains:
    kept:
      description: What is kept of earlier runs.
      type: dict
      contains:
        benchmarks:
          description: By model and profile the runs, oldest first, with the median, lowest and highest of each number.
          type: dict
        coherence:
          description: By model the newest check, without the answers.
          type: dict
        all_reduce:
          description: The newest measurement, or an empty dict.
          type: dict
        audits:
          description: By engine the last audit, with C(started), C(verdict) and C(findings).
          type: dict
        unreadable:
          description: Files that are no such documents.
          type: list
          elements: str
        reboot:
          description: Why a reboot is needed, each with the role that asks for it.
          type: list
          elements: str
          sample: ["nvidia_driver: the driver 580.105.08 is installed and 575.57.08 is loaded"]
        failures:
          description: By model whose unit failed, the decisive lines of its journal.
          type: dict
"""

import glob
import json
import os
import re
import subprocess
from typing import Any, Callable, Dict, List

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, report_documents, systemd, vllm_log

_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}")


class Kept:
    """Reads documents, and remembers those that cannot be read."""

    def __init__(self) -> None:
        self.unreadable: List[str] = []

    def read(self, path: str, reduce: Callable[[Any], Dict[str, Any]]) -> Dict[str, Any]:
        try:
            with open(path, encoding="utf-8") as stream:
                return reduce(json.load(stream, parse_constant=lambda _name: None))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            self.unreadable.append(path)
            return {}

    def newest(self, folder: str, reduce: Callable[[Any], Dict[str, Any]]) -> Dict[str, Any]:
        paths = documents(folder)
        return self.read(paths[-1], reduce) if paths else {}

    def runs(self, folder: str, most: int) -> Dict[str, List[Dict[str, Any]]]:
        found: Dict[str, List[Dict[str, Any]]] = {}
        for path in documents(folder):
            run = self.read(path, report_documents.benchmark_run)
            if run:
                found.setdefault(run["profile"], []).append(run)
        return {profile: each[-most:] for profile, each in found.items()}


def documents(folder: str) -> List[str]:
    """The documents of a folder, oldest first: their names are the times of their starts."""
    return sorted(glob.glob(os.path.join(glob.escape(folder), "*.json")))


def folders(root: str) -> Dict[str, str]:
    return {os.path.basename(path): path for path in sorted(glob.glob(os.path.join(glob.escape(root), "*"))) if os.path.isdir(path)}


def reboot(markers: str) -> List[str]:
    return [
        "%s: %s" % (os.path.basename(path), line) for path in sorted(glob.glob(os.path.join(glob.escape(markers), "*")))
        for line in (models.read(path) or "").splitlines() if line.strip()]


def failures() -> Dict[str, List[str]]:
    """The decisive lines of the units that failed, or that systemd starts again and again."""
    found = {}
    for unit, each in systemd.show("vllm-*.service", models.UNIT_PROPERTIES).items():
        if each["ActiveState"] == "failed" or each["SubState"] == "auto-restart":
            model = unit[len("vllm-"):-len(".service")]
            lines = vllm_log.decisive(systemd.journal(unit, each["InvocationID"], 200))
            found[model] = [redacted(line, secrets_of(model)) for line in lines]
    return found


def secrets_of(model: str) -> List[str]:
    """What must not be shown, the longest first, as one may be a part of another."""
    text = models.read(models.running_path("%s.secret.env" % model)) or ""
    return sorted((value for value in systemd.parse_environment(text).values() if value), key=len, reverse=True)


def redacted(line: str, secrets: List[str]) -> str:
    for each in secrets:
        line = line.replace(each, "***")
    return _TOKEN.sub("***", line)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "questions": {"type": "dict", "default": {}},
            "benchmarks": {"type": "path", "default": "/var/lib/modelhost/benchmarks"},
            "coherence": {"type": "path", "default": "/var/lib/modelhost/coherence"},
            "all_reduce": {"type": "path", "default": "/var/lib/modelhost/all_reduce"},
            "engines": {"type": "path", "default": "/opt/modelhost/engines"},
            "markers": {"type": "path", "default": "/run/modelhost/reboot-required.d"},
            "most": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    params, kept = module.params, Kept()
    found = {
        "benchmarks": {model: kept.runs(path, params["most"]) for model, path in folders(params["benchmarks"]).items()},
        "coherence": {
            model: each for model, path in folders(params["coherence"]).items()
            for each in [kept.newest(path, report_documents.coherence)] if each},
        "all_reduce": kept.newest(params["all_reduce"], report_documents.all_reduce),
        "audits": {
            os.path.basename(path)[1:-len(".audit.json")]: each
            for path in sorted(glob.glob(os.path.join(glob.escape(params["engines"]), ".*.audit.json")))
            for each in [kept.read(path, report_documents.audit)] if each},
    }
    try:
        failed = failures()
    except (OSError, subprocess.SubprocessError):  # no systemd, which the question about the models' state says
        failed = {}
    module.exit_json(changed=False, **found, unreadable=kept.unreadable, reboot=reboot(params["markers"]), failures=failed)


if __name__ == "__main__":
    main()
