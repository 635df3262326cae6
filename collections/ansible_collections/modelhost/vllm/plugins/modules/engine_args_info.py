#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: engine_args_info
short_description: What installed engines say about the arguments and variables of models
description:
  - Judges what the unit of a model will give to vLLM, C(/etc/modelhost/declared/MODEL/), by the packages of its engine, in one process of
    the engine's own Python for all its models. Nothing is started or loaded, and no GPU is used.
  - "Each option is parsed by itself and all together, by the parser of C(vllm serve) and without abbreviations; what the parser got is held
    against what was declared, since vLLM's C(--config) file drops a false that has no C(--no-) form, makes the text None of null, and
    cannot say a list for an option that appends (C(load_config_file) in utils/argparse_utils.py, 0.31 to 0.33). A unit that starts
    C(vllm serve) loses every false."
  - "Names are held against the registries: load formats, quantizations, attention backends, parsers of tool calls and reasoning. C(VLLM_)
    variables are held against C(vllm.envs)."
  - Where the model's C(config.json) is on the host, vLLM builds the engine's configuration (C(create_engine_config)), which holds the
    options against each other and against the model.
  - A build for CUDA is asked with C(VLLM_TARGET_DEVICE=cpu), below a model that serves. What platform code says then is no finding.
  - The engine's Python runs isolated (C(-I -B)), without the hub, as O(user), never as root, since C(trust-remote-code) runs code of the
    model.
  - An answer is kept in O(kept) under a digest of all that it depends on, so that the same question costs nothing. In check mode kept
    answers are read and none is written.
options:
  models:
    description: The models to judge.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the model.
        type: str
        required: true
      engine:
        description: Name of its engine.
        type: str
        required: true
  files:
    description: Files of models that are not written yet, as M(modelhost.vllm.model_files) takes them, for check mode. They go before
      those on the host.
    type: list
    elements: dict
    default: []
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
  engines_root:
    description: Folder of the engines.
    type: path
    default: /opt/modelhost/engines
  user:
    description: User that the packages run as. Where the module does not run as root, they run as the module does.
    type: str
    default: modelhost
  timeout:
    description: Seconds that one engine may take. Imports take most of them, once for the engine and once for each architecture.
    type: int
    default: 1800
  kept:
    description: Folder of the answers, root's own.
    type: path
    default: /var/lib/modelhost/state/arguments
attributes:
  check_mode:
    support: full
    description: The module only reads, apart from the answers that it keeps.
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- name: Ask the engine before anything is stopped
  modelhost.vllm.engine_args_info:
    models:
      - name: kimi-k25-int4
        engine: vllm-0.33.0
  register: arguments

- name: Judge what check mode has not written
  modelhost.vllm.engine_args_info:
    models:
      - name: kimi-k25-int4
        engine: vllm-0.33.0
    files:
      - model: kimi-k25-int4
        name: kimi-k25-int4.yaml
        content: |
          model: /srv/weights/kimi-k25
          tensor-parallel-size: 8
"""

RETURN = r"""
models:
  description: The judgement, by model.
  returned: always
  type: dict
  contains:
    engine:
      description: The engine that was asked.
      type: str
    findings:
      description: What the engine refuses, or would not get as it was declared.
      type: list
      elements: dict
      contains:
        option:
          description: Option of vLLM without dashes, or variable; empty where it is not known which.
          type: str
        value:
          description: What was declared.
          type: raw
        allowed:
          description: The values that the engine takes, where it lists them; of an abbreviation the options that it may stand for.
          type: list
          elements: str
        nearest:
          description: The nearest name or value that the engine takes, or an empty text.
          type: str
        sentence:
          description: The variable of the inventory, the value, the rule and the fix.
          type: str
          sample: "modelhost_models.m.serve.tensor-parallel-sise: vllm-0.33.0 has no such option: did you mean tensor-parallel-size?"
    unchecked:
      description: What could not be checked, and why. No reason to refuse.
      type: list
      elements: str
    arguments:
      description: The arguments that differ from vLLM's defaults, as it parsed them; of JSON options the fields that do. No secrets.
      type: dict
      sample: {max_model_len: 65536, tensor_parallel_size: 8}
asked:
  description: The models about which an engine was asked now. Of the others the answer was kept.
  returned: always
  type: list
  elements: str
"""

import inspect
import json
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import arguments, arguments_probe, engine_python, models


def ask(python: str, engine: str, questions: dict[str, Any], user: str, timeout: int) -> dict[str, dict[str, Any]]:
    """The judgement about each model that is asked about."""
    lines, ended = engine_python.ask(
        python, inspect.getsource(arguments_probe), arguments_probe.MARK, questions, user, timeout)
    answers = {line["model"]: line["answer"] for line in lines if "model" in line}
    lists: dict[str, Any] = {"cuda": ""}
    for line in lines:
        lists.update(line if "model" not in line else {})
    if "moved" in lists:
        return {name: arguments.unasked(name, engine, lists["moved"]) for name in questions}
    return {
        name: arguments.judge(name, engine, lists, answers[name]) if name in answers else
        arguments.silent(name, engine, ended or "it ended without a word") for name in questions}


def judge(engine: str, questions: dict[str, Any], params: dict[str, Any], write: bool) -> tuple[dict[str, Any], list[str]]:
    """The judgement about each model of one engine, and the models about which it was asked now."""
    folder = os.path.join(params["engines_root"], engine)
    mark = models.read(os.path.join(folder, ".complete"))
    if mark is None:
        why = "it is not installed; ansible-playbook playbooks/provision.yml installs it"
        return {name: arguments.unasked(name, engine, why) for name in questions}, []
    sources = [inspect.getsource(arguments_probe), inspect.getsource(arguments), engine]
    keys = {name: arguments.key(question, mark, sources) for name, question in questions.items()}
    found, asked = {}, {}
    for name, question in questions.items():
        kept = kept_answer(os.path.join(params["kept"], name + ".json"))
        if kept.get("key") == keys[name]:
            found[name] = kept["judgement"]
        else:
            asked[name] = question
    if asked and not engine_python.may_run(params["user"]):
        why = (
            f"the user {params['user']} does not exist, and an engine is not asked as root; ansible-playbook playbooks/provision.yml "
            "makes it")
        return {**found, **{name: arguments.unasked(name, engine, why) for name in asked}}, []
    if asked:
        found.update(ask(os.path.join(folder, "bin", "python"), engine, asked, params["user"], params["timeout"]))
    for name in asked if write else ():
        # What was not answered is asked again
        if found[name]["arguments"] or any(each["option"] for each in found[name]["findings"]):
            text = json.dumps({"key": keys[name], "judgement": found[name]})
            models.write(os.path.join(params["kept"], name + ".json"), text, 0o600, 0o700)
    return found, list(asked)


def kept_answer(path: str) -> dict[str, Any]:
    """The key and the judgement in a file of answers; {} where there is none that can be read: then the engine is asked again."""
    try:
        kept = json.loads(models.read(path) or "{}")
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) and isinstance(kept.get("judgement"), dict) else {}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "models": {
                "type": "list", "elements": "dict", "required": True,
                "options": {"name": {"type": "str", "required": True}, "engine": {"type": "str", "required": True}},
            },
            "files": {
                "type": "list", "elements": "dict", "default": [],
                "options": {
                    "model": {"type": "str", "required": True}, "name": {"type": "str", "required": True},
                    "content": {"type": "str", "required": True}},
            },
            "engines_root": {"type": "path", "default": "/opt/modelhost/engines"},
            "user": {"type": "str", "default": "modelhost"},
            "timeout": {"type": "int", "default": 1800},
            "kept": {"type": "path", "default": "/var/lib/modelhost/state/arguments"},
        },
        supports_check_mode=True,
    )
    params = module.params
    by_engine: dict[str, dict[str, Any]] = {}
    found: dict[str, Any] = {}
    for model in params["models"]:
        name = model["name"]
        written = {each["name"]: each["content"] for each in params["files"] if each["model"] == name}
        texts = {**models.declared(name), **written}
        if f"{name}.yaml" in texts:
            by_engine.setdefault(model["engine"], {})[name] = arguments.question(name, texts)
        else:
            found[name] = arguments.unasked(name, model["engine"], f"{models.declared_path(name, name + '.yaml')} is not there yet")
    asked = []
    for engine, questions in by_engine.items():
        judged, now = judge(engine, questions, params, not module.check_mode)
        found.update(judged)
        asked += now
    module.exit_json(changed=False, models=found, asked=asked)


if __name__ == "__main__":
    main()
