#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: gguf_support_info
short_description: Whether installed engines load the GGUF weights of models
description:
  - vLLM loads GGUF by a plug-in since 0.24. Names and classes follow from the model's Hugging Face configuration, never from the GGUF file.
    So the packages of the engine are asked with the configuration, in one process of the engine's own Python, by the calls that they make
    before they load. Neither weights nor a GPU are needed.
  - Where the configuration is not on the host yet, C(weights.gguf.model_type) stands for it, with all defaults of that type. So weights
    that no engine loads are refused before they are fetched. Where the file is there, the architecture in its header has to fit too.
  - What the packages refuse is a finding. What they could not be asked, since a release has moved it, is a doubt.
  - The engine's Python runs isolated (C(-I -B)), as O(user), without the GPUs and without the hub.
options:
  models:
    description: The models with GGUF weights, as the catalogue has them.
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
      weights:
        description: Source of the weights.
        type: dict
        required: true
      serve:
        description: Options of vLLM. C(hf-config-path) or C(tokenizer) name the folder of the configuration, else it is that of the file.
        type: dict
        default: {}
  engines:
    description: Names of the declared engines, which are asked too where the model's own does not load it.
    type: list
    elements: str
    required: true
  engines_root:
    description: Folder of the engines.
    type: path
    default: /opt/modelhost/engines
  weights_root:
    description: Folder of the weights that modelhost fetched.
    type: path
    default: /var/lib/modelhost/weights
  user:
    description: User that the packages run as. Where it does not exist, or the module does not run as root, they run as the module does.
    type: str
    default: modelhost
  timeout:
    description: Seconds that one engine may take. Most of them go into imports.
    type: int
    default: 900
attributes:
  check_mode:
    support: full
    description: The module only reads.
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- name: Ask the engines before hundreds of gigabytes are fetched
  modelhost.vllm.gguf_support_info:
    models:
      - name: glm-5-gguf
        engine: vllm-0.33.0-gguf
        weights:
          source: huggingface
          repo: unsloth/GLM-5-GGUF
          revision: ff5c55c3470d73e038cc33301d66f197b679660e
          gguf: {model_type: glm_moe_dsa}
    engines: [vllm-0.33.0, vllm-0.33.0-gguf]
  register: support
"""

RETURN = r"""
models:
  description: The judgement by model, and in it by each engine that was asked.
  returned: always
  type: dict
  contains:
    missing:
      description: What the engine lacks, as dicts of C(what), C(why) and C(fix).
      type: list
      elements: dict
    unasked:
      description: What it could not be asked, and why.
      type: list
      elements: str
    left_out:
      description: Tensors of the file for which the plug-in has no name, so that it skips them.
      type: list
      elements: str
engines:
  description: State and versions of the engines that were asked.
  returned: always
  type: dict
  contains:
    state:
      description: V(asked); V(plain) without the plug-in; V(absent) where it is not installed; V(silent) where its process gave no answer.
      type: str
    versions:
      description: Version by package, of those that matter for GGUF.
      type: dict
findings:
  description: Why models cannot be served from their engine, each with what is missing, the engine that can, and the fix.
  returned: always
  type: list
  elements: str
doubts:
  description: What could not be asked, and tensors that would be left out. No reason to refuse.
  returned: always
  type: list
  elements: str
"""

import glob
import inspect
import os
from importlib import metadata
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import engine_python, gguf, gguf_probe
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import model_path


def installed(folder: str) -> tuple[dict[str, str], bool]:
    """The versions of the packages that matter, and whether the plug-in for GGUF announces itself to vLLM."""
    versions, announced = {}, False
    for each in metadata.distributions(path=glob.glob(os.path.join(folder, "lib", "python3.*", "site-packages"))):
        if each.metadata["Name"] in gguf.PACKAGES:
            versions[each.metadata["Name"]] = each.version
        announced |= any(
            point.group == "vllm.general_plugins" and point.value.startswith("vllm_gguf_plugin") for point in each.entry_points)
    return {name: versions[name] for name in gguf.PACKAGES if name in versions}, announced


def run(python: str, questions: dict[str, Any], user: str, timeout: int) -> tuple[Any, str]:
    """The answers of an engine's packages, or None and the reason."""
    answers, ended = engine_python.ask(python, inspect.getsource(gguf_probe), gguf_probe.MARK, questions, user, timeout)
    return (answers[0], "") if answers else (None, ended or "it ended without a word")


def ask(folder: str, questions: dict[str, Any], user: str, timeout: int) -> dict[str, Any]:
    if not os.path.exists(os.path.join(folder, ".complete")):
        said = "it is not installed; ansible-playbook playbooks/provision.yml installs it"
        return {"state": "absent", "said": said, "versions": {}}
    versions, announced = installed(folder)
    if not announced:
        return {"state": "plain", "said": "", "versions": versions}
    answers, said = run(os.path.join(folder, "bin", "python"), questions, user, timeout)
    return {"state": "silent" if answers is None else "asked", "said": said, "versions": versions, "answers": answers or {}}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "models": {
                "type": "list", "elements": "dict", "required": True,
                "options": {
                    "name": {"type": "str", "required": True}, "engine": {"type": "str", "required": True},
                    "weights": {"type": "dict", "required": True}, "serve": {"type": "dict", "default": {}}},
            },
            "engines": {"type": "list", "elements": "str", "required": True},
            "engines_root": {"type": "path", "default": "/opt/modelhost/engines"},
            "weights_root": {"type": "path", "default": "/var/lib/modelhost/weights"},
            "user": {"type": "str", "default": "modelhost"},
            "timeout": {"type": "int", "default": 900},
        },
        supports_check_mode=True,
    )
    params = module.params
    findings, doubts, questions = [], [], {}
    for model in params["models"]:
        path = model_path(model["weights"], params["weights_root"])
        question, wrong = gguf.question(model["name"], path, model["weights"], model["serve"])
        findings += wrong
        questions[model["name"]] = question
    # Without a configuration nothing but the plug-in itself can be asked for.
    asked = {name: question for name, question in questions.items() if question["folder"] or question["model_type"]}

    engines: dict[str, dict[str, Any]] = {}

    def judged(engine: str, name: str) -> dict[str, Any]:
        if engine not in engines:
            engines[engine] = ask(os.path.join(params["engines_root"], engine), asked, params["user"], params["timeout"])
        return gguf.judge(engines[engine], name)

    judgements = {}
    for model in params["models"]:
        name, engine = model["name"], model["engine"]
        judgements[name] = {engine: judged(engine, name)}
        doubts += gguf.doubts(name, engine, judgements[name][engine])
        if judgements[name][engine]["missing"]:
            judgements[name].update({other: judged(other, name) for other in params["engines"] if other != engine})
            findings.append(gguf.finding(name, engine, engines, judgements[name]))
    module.exit_json(
        changed=False, models=judgements, findings=findings, doubts=doubts,
        engines={name: {"state": each["state"], "versions": each["versions"]} for name, each in engines.items()})


if __name__ == "__main__":
    main()
