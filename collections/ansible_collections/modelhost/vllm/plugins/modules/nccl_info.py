#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_info
short_description: The NCCL variables of models as their engines' libraries, their processes and NCCL itself know them
description:
  - Reads the names of variables out of an engine's own C(libnccl.so.2). A name that is not in it is certainly ignored by that NCCL. Only
    engines of models that declare variables are asked.
  - Reads the variables that the processes of a running unit have, and the files with which NCCL fills in what a process has not
    (C($NCCL_CONF_FILE), or C(.nccl.conf) in the user's home, and C(/etc/nccl.conf); the first that sets a variable counts).
  - Where the unit runs with C(NCCL_DEBUG) V(INFO) or V(WARN), reads from the first 20,000 lines of its journal which variables NCCL took,
    and of which it complained. It mentions a variable when it first needs it, and of most it says nothing with V(WARN).
options:
  models:
    description: The models, each with C(name), C(engine) and, if it has any, C(nccl). Other keys are not looked at.
    type: list
    elements: dict
    required: true
  engines_root:
    description: Folder of the engines.
    type: path
    default: /opt/modelhost/engines
  user:
    description: User that the models run as, in whose home NCCL looks for C(.nccl.conf).
    type: str
    default: modelhost
attributes:
  check_mode:
    support: full
    description: The module only reads.
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- name: Ask what NCCL has of the declared variables
  modelhost.vllm.nccl_info:
    models:
      - name: kimi-k25-int4
        engine: vllm-0.33.0
        nccl: {NCCL_P2P_LEVEL: SYS}
  register: nccl
"""

RETURN = r"""
engines:
  description: The NCCL library of each engine that was asked.
  returned: always
  type: dict
  contains:
    library:
      description: Path of the library, an empty text where the engine has none, or is not there.
      type: str
    version:
      description: Its version.
      type: str
      sample: 2.30.7
    names:
      description: The texts in it that may be the name of a variable.
      type: list
      elements: str
models:
  description: The variables by model.
  returned: always
  type: dict
  contains:
    running:
      description: Whether the unit has a main process.
      type: bool
    effective:
      description: Each variable that is set somewhere.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the variable.
          type: str
        value:
          description: Its value.
          type: str
        origin:
          description:
            - V(unit) for the environment of the unit; V(engine) where the engine has set it for a process of its own; a file and its line;
              V(default) where it is declared and the running processes have not got it.
          type: str
          sample: /etc/nccl.conf:3
        taken:
          description: V(yes), V(no), or V(unknown) where NCCL's log does not say.
          type: str
        said:
          description: The value as NCCL read it, or what it said against it.
          type: str
    lacking:
      description: The variables of the main process that another process of the unit lacks, by the number of the process.
      type: dict
    unreadable:
      description:
        - Processes whose environment cannot be read, since vLLM writes their titles over it (C(setproctitle)). NCCL's log tells what they
          have. Of a main process, the file counts that its unit was started with.
      type: list
      elements: int
findings:
  description: Variables that the library of the model's engine does not know.
  returned: always
  type: list
  elements: str
notes:
  description: What should be looked at, and is no reason to refuse.
  returned: always
  type: list
  elements: str
"""

import os
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, nccl_host, systemd

LINES = 20000
NOTHING = {"library": "", "version": "", "names": []}


def home_of(user: str) -> str:
    """Where NCCL looks: the home of the user database, whatever HOME says (userHomeDir(), src/misc/param.cc)."""
    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:
        return ""


def look(model: dict[str, Any], unit: dict[str, str], home: str) -> dict[str, Any]:
    """What is in effect for one model; where its unit does not run, what would be."""
    name, main = model["name"], int(unit["MainPID"])
    declared = {str(variable): str(value) for variable, value in (model.get("nccl") or {}).items()}
    if not main:
        files = nccl_host.file_settings(nccl_host.files_of(declared, home))
        return {"running": False, "effective": nccl_host.effective(declared, [], files, {}), "lacking": {}, "unreadable": []}
    read = {pid: nccl_host.nccl_variables(pid) for pid in [main, *nccl_host.processes_of(models.unit_name(name))]}
    own = read.pop(main)
    if own is None:  # the file that the unit was started with is the next best
        own = systemd.parse_environment(models.read(models.running_path(f"{name}.nccl.env")) or "")
        read[main] = None
    others = {pid: variables for pid, variables in read.items() if variables is not None}
    files = nccl_host.file_settings(nccl_host.files_of(own, home))
    level = own.get("NCCL_DEBUG", files.get("NCCL_DEBUG", {}).get("value", "")).upper()
    lines = systemd.journal_start(unit["InvocationID"], LINES) if level in ("WARN", "INFO", "TRACE") else []
    lacking = {str(pid): sorted(set(own) - set(variables)) for pid, variables in others.items()}
    return {
        "running": True,
        "effective": nccl_host.effective(declared, [own, *others.values()], files, nccl_host.said(lines, own)),
        "lacking": {pid: names for pid, names in lacking.items() if names},
        "unreadable": sorted(pid for pid, variables in read.items() if variables is None),
    }


def notes_of(name: str, found: dict[str, Any]) -> list[str]:
    """What should be looked at."""
    where = f"modelhost_models.{name}.nccl"
    notes = []
    for each in found["effective"]:
        variable = f"{each['name']}={each['value']}"
        if each["origin"].startswith("/"):
            notes.append(
                f"{each['origin']} sets {variable} for every model that does not declare it: declare it in modelhost_models.NAME.nccl, or "
                "remove that line")
        if each["taken"] == "no":
            notes.append(f"{where}.{each['name']}: NCCL did not take {variable}: {each['said']}")
    notes += [f"{where}: process {pid} lacks {', '.join(names)} of the unit" for pid, names in found["lacking"].items()]
    return notes


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "models": {"type": "list", "elements": "dict", "required": True},
            "engines_root": {"type": "path", "default": "/opt/modelhost/engines"},
            "user": {"type": "str", "default": "modelhost"},
        },
        supports_check_mode=True,
    )
    params = module.params
    home = home_of(params["user"])
    units = models.show([model["name"] for model in params["models"]])
    engines: dict[str, dict[str, Any]] = {}
    found: dict[str, dict[str, Any]] = {}
    findings, notes = [], []
    for model in params["models"]:
        name, engine = model["name"], model["engine"]
        found[name] = look(model, units[name], home)
        notes += notes_of(name, found[name])
        if not model.get("nccl"):
            continue
        folder = os.path.join(params["engines_root"], engine)
        if engine not in engines:
            path = nccl_host.library(folder)
            engines[engine] = nccl_host.library_facts(path) if path else NOTHING
        asked = engines[engine]
        if not asked["library"]:
            if os.path.isdir(folder):
                notes.append(f"modelhost_models.{name}.nccl: {engine} has no NCCL library, so that nothing reads it")
            continue
        findings += [
            f"modelhost_models.{name}.nccl.{variable}: NCCL {asked['version']} of {engine} has no such variable and would ignore it: "
            "remove the line, or take an engine whose NCCL has it"
            for variable in model["nccl"] if variable not in asked["names"]]
    module.exit_json(changed=False, engines=engines, models=found, findings=findings, notes=list(dict.fromkeys(notes)))


if __name__ == "__main__":
    main()
