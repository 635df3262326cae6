#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: model_files
short_description: Write what the inventory declares for the models, without touching one that serves
description:
  - Writes the files of all models into C(/etc/modelhost/declared/MODEL/) and, for each model that is not protected, into their live places,
    C(/etc/modelhost/models/) and C(/etc/systemd/system/).
  - A model is protected while its unit is active, activating, deactivating or enabled for boot, or is what was applied last. Its live
    files stay as they are, and what differs is returned as RV(pending).
  - A unit file is checked with C(systemd-analyze verify --recursive-errors=no) before it is written anywhere, since without that flag a bad
    directive is only a warning (systemd 252). Before systemd 250, which lacks the flag, any line about the unit is a failure.
  - A live unit of the same name that modelhost did not write is left alone and makes the module fail, unless O(adopt) says that it may be
    taken over. Then it is copied, and protected like one that was applied, until a switch to its model has an answer from the successor.
options:
  files:
    description: The files of all models.
    type: list
    elements: dict
    required: true
    suboptions:
      model:
        description: Name of the model.
        type: str
        required: true
      name:
        description: Name of the file, without a folder.
        type: str
        required: true
      content:
        description: Its text.
        type: str
        required: true
  api_keys:
    description:
      - API keys by model, each written as C(VLLM_API_KEY) into C(MODEL.secret.env), readable by root only and never shown. A model of
        O(files) without one here loses the one it had, unless O(api_keys) is left out.
    type: dict
  programs:
    description: Programs that the units run, their texts by absolute path. They are written before the units are checked, with mode 0755.
    type: dict
    default: {}
  adopt:
    description: Whether units that modelhost did not write may be taken over.
    type: bool
    default: false
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Declare the NCCL environment of a model
  modelhost.vllm.model_files:
    files:
      - model: kimi-k25-int4
        name: kimi-k25-int4.nccl.env
        content: |
          NCCL_P2P_LEVEL="SYS"
"""

RETURN = r"""
pending:
  description: For each protected model whose declared files differ from the live ones, the files with their diffs.
  type: dict
  returned: always
  sample:
    kimi-k25-int4:
      - file: kimi-k25-int4.yaml
        diff: "-max-model-len: 65536"
"""

import hashlib
import os
import re
import shlex
import stat
import subprocess
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, systemd


def unit_error(name: str, text: str) -> str:
    """What systemd has against a unit file, or nothing. It cannot be judged while its programs are not there: check mode on an empty host."""
    commands = re.findall(r"^Exec(?:Condition|StartPre|Start)=\+?(/.*)$", text, re.MULTILINE)
    if not all(os.path.exists(shlex.split(command)[0]) for command in commands):
        return ""
    version = int(re.search(r"\d+", systemd.run(["systemctl", "--version"])).group())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        judged = subprocess.run(
            ["systemd-analyze", "verify", *(["--recursive-errors=no"] if version >= 250 else []), path],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    ours = "\n".join(line for line in judged.stdout.splitlines() if name in line)
    if judged.returncode:
        return ours or judged.stdout or f"systemd-analyze verify ended with {judged.returncode}"
    return ours if version < 250 else ""


def foreign_problem(path: str, adopt: bool) -> str:
    """What speaks against a live unit that modelhost did not write, or nothing."""
    drop_ins = path + ".d"
    if not adopt:
        return (
            f"{path} is there and modelhost did not write it: it stays as it is. To take it over, say -e adopt=true: it is copied to "
            f"{models.ADOPTED}, counts as what was applied before, and comes back if its successor does not answer. Or move it away, or give "
            "the model another name")
    if os.path.isdir(drop_ins) and os.listdir(drop_ins):
        return f"{drop_ins} changes a unit that shall be taken over, and would change its successor: move its settings into the inventory"
    return ""


def copy_of(path: str, text: str) -> str:
    """Where a foreign unit is kept: never over an earlier copy."""
    return os.path.join(models.ADOPTED, "{0}.{1}".format(os.path.basename(path), hashlib.sha256(text.encode()).hexdigest()[:12]))


def is_program(path: str, text: str) -> bool:
    return models.read(path) == text and stat.S_IMODE(os.stat(path).st_mode) == 0o755


def shown(path: str, before: str | None, after: str | None) -> dict[str, str]:
    """The change of a file, as Ansible shows it."""
    return {"before_header": path, "after_header": path, "before": before or "", "after": after or ""}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list", "elements": "dict", "required": True,
                "options": {
                    "model": {"type": "str", "required": True},
                    "name": {"type": "str", "required": True},
                    "content": {"type": "str", "required": True},
                },
            },
            "api_keys": {"type": "dict", "no_log": True},
            "programs": {"type": "dict", "default": {}},
            "adopt": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    by_model: dict[str, dict[str, str | None]] = {}
    for each in module.params["files"]:
        by_model.setdefault(each["model"], {})[each["name"]] = each["content"]
    if module.params["api_keys"] is not None:
        for model, files in by_model.items():
            key = module.params["api_keys"].get(model)
            files[f"{model}.secret.env"] = systemd.quote_environment({"VLLM_API_KEY": key}) if key else None
    units = models.show(list(by_model))
    applied = models.read_applied()

    problems, writes, removals, pending, diffs = [], [], [], {}, []
    programs = [(path, text) for path, text in module.params["programs"].items() if not is_program(path, text)]
    diffs += [shown(path, models.read(path), text) for path, text in programs]
    if not module.check_mode:
        models.write_all([(path, text, 0o755) for path, text in programs])
    for model, files in by_model.items():
        is_protected = models.protected(model, units[model], applied)
        for name, text in files.items():
            live = models.read(models.live_path(name))
            if name.endswith(".service"):
                if models.is_foreign(model):
                    problems += filter(None, [foreign_problem(models.live_path(name), module.params["adopt"])])
                    if models.read(copy_of(models.live_path(name), live)) is None:
                        writes.append((copy_of(models.live_path(name), live), name, live))
                error = unit_error(name, text) if text != models.read(models.declared_path(model, name)) else ""
                if error:
                    problems.append(f"modelhost_models.{model}: systemd refuses its unit:\n{error}")
            for path in [models.declared_path(model, name)] + ([] if is_protected else [models.live_path(name)]):
                before = models.read(path)
                if before == text:
                    continue
                (removals if text is None else writes).append((path, name, text))
                diffs.append(shown(path, *("(secret)\n", "(another secret)\n") if models.is_secret(name) else (before, text)))
        if is_protected and models.pending(files):
            pending[model] = models.pending(files)
    if problems:
        module.fail_json(msg="\n".join(problems))

    if not module.check_mode:
        for path, name, text in writes:
            kept = path.startswith(models.ADOPTED + "/")  # it may hold a key
            models.write(path, text, 0o600 if kept else models.mode_of(name), 0o700 if kept else 0o755)
        for path, name, text in removals:
            models.remove(path)
        if any(path.startswith(models.LIVE_UNITS) for path, name, text in writes + removals):
            systemd.run(["systemctl", "daemon-reload"])
    module.exit_json(changed=bool(programs or writes or removals), pending=pending, diff=diffs)


if __name__ == "__main__":
    main()
