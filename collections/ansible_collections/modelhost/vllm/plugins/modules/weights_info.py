#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_info
short_description: Whether the weights of models are complete on this host
description:
  - Looks at the weights of all given models in one call and changes nothing.
  - Fetched weights carry a manifest, C(.modelhost.json), with the size and sha256 that each file had when it was fetched and verified.
    Every call compares the files that are there, and their sizes, with it.
  - Content is not read here. What was hashed once is recorded with the size, time of change and inode of the file, in C(.verified) below
    the first of O(roots), and holds as long as these three stay. Files that have a sha256 to be held against, from a manifest or from the
    name of a hub cache's blob, and that were not hashed since they changed, are returned as RV(unverified). What was hashed and has another
    sha256 is damaged.
  - Fetched weights lie below one of O(roots). Units look below the first, so one that lies elsewhere has a link there.
  - Whatever the source, the weights themselves are asked too. Every shard that a C(*.safetensors.index.json) names and every part of a
    split GGUF must be there. A C(.safetensors) file that no manifest vouches for must have the size that its own header gives
    (U(https://huggingface.co/docs/safetensors/index#format)).
  - Weights from which a unit runs, and which are not complete, are a blocker: repairing them would take them away below the model.
  - Readability is asked as the service user, where that user exists and the module runs as root.
options:
  models:
    description: The models to look at.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the model in C(modelhost_models).
        type: str
        required: true
      weights:
        description: Source of the weights, as described by the role C(model_weights). What is wrong with it is a finding, not an error.
        type: dict
        required: true
  roots:
    description: The directories under which fetched weights lie. What is not there yet goes to the first with room. They need not exist.
    type: list
    elements: path
    required: true
  hidden:
    description: Folders that the units do not see, whatever is in them.
    type: list
    elements: path
    default: []
  user:
    description: The user that the models run as.
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
- name: Look at the weights of a model
  modelhost.vllm.weights_info:
    roots: [/var/lib/modelhost/weights, /data/weights]
    models:
      - name: smollm2
        weights:
          source: directory
          path: /srv/smollm2
  register: weights
"""

RETURN = r"""
models:
  description: One entry for each model whose source is well declared.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name of the model., type: str}
    source: {description: Kind of the source., type: str}
    state: {description: "V(complete), V(incomplete) or V(absent).", type: str}
    directory: {description: Where the weights lie or will lie., type: str}
    entry: {description: "Where units look for them: RV(ignore:directory), or a link that leads there.", type: str}
    record: {description: The file that keeps what was hashed of them., type: str}
    path: {description: What the engine is told to load., type: str}
    gguf: {description: "Whether they are GGUF, as declared or as the files that are there say.", type: bool}
    missing: {description: Files that are named by the manifest or by the weights and are not there., type: list, elements: str}
    truncated:
      description: Files of the wrong size, with RV(ignore:bytes) and RV(ignore:expected_bytes).
      type: list
      elements: dict
    damaged: {description: Files whose content has another sha256 than was promised., type: list, elements: str}
    unverified: {description: Files with a promised sha256 that were not hashed since they changed., type: list, elements: str}
    unpromised: {description: Weights of which nobody said a sha256., type: list, elements: str}
    bytes: {description: What lies there., type: int}
    unreadable: {description: Paths that the service user cannot read., type: list, elements: str}
    remaining_bytes: {description: Bytes still to be fetched as far as known (declared size or manifest) else 0., type: int}
free_bytes:
  description: Bytes free on the file system of each of O(roots), in their order.
  returned: always
  type: list
  elements: int
blockers:
  description: What fetching cannot cure. Bad declarations, too small a disk, damaged directories that are used in place, unreadable files.
  returned: always
  type: list
  elements: str
findings:
  description: All reasons why a model could not be served, the blockers first. Each names the variable and the fix.
  returned: always
  type: list
  elements: str
jobs:
  description: What has to be fetched, once for each directory.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name of the first model that wants it., type: str}
    directory: {description: Where it goes., type: str}
    weights: {description: The source., type: dict}
    tool: {description: "What fetches it: the environments V(hub) or V(gguf), or V(host), the host's Python.", type: str}
    record: {description: The file that will keep what was hashed., type: str}
    damaged: {description: Files below it that are fetched anew., type: list, elements: str}
    remains: {description: "What is still to be fetched, in words.", type: str}
unverified:
  description: What has to be hashed, once for each directory.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name of the first model that wants it., type: str}
    directory: {description: Where it lies., type: str}
    record: {description: The file that will keep what was hashed., type: str}
    files: {description: The files below it., type: list, elements: str}
    bytes: {description: Their size., type: int}
lines:
  description: How far the weights that are complete are verified, a sentence each.
  returned: always
  type: list
  elements: str
links:
  description: Links below the first of O(roots) that do not lead to where the weights lie or will lie.
  returned: always
  type: list
  elements: dict
  contains:
    entry: {description: The link., type: str}
    directory: {description: Where it shall lead., type: str}
"""

import json
import os
import pwd
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import models, systemd
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import (
    below,
    declaration_findings,
    files_below,
    in_words,
    inspect,
    is_gguf,
    linked,
    place,
    shortened,
    state_finding,
    tool,
    verified_line,
)


def unreadable_for(user: str, paths: list[str]) -> set[str]:
    """Those of `paths` that the user cannot read; none where the user does not exist or we cannot become it."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return set()
    if os.geteuid() != 0 or not paths:
        return set()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
        with open(writer, "w", encoding="utf-8") as stream:
            json.dump([path for path in paths if not os.access(path, os.R_OK)], stream)
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as stream:
        refused = json.load(stream)
    os.waitpid(child, 0)
    return set(refused)


def in_use() -> dict[str, str]:
    """The weights that running units read, each with its unit. Links are followed."""
    found = {}
    for unit, each in systemd.show("vllm-*.service", ["ActiveState"]).items():
        if each["ActiveState"] not in ("inactive", "failed"):
            config = models.read(models.running_path(unit[len("vllm-"):-len(".service")] + ".yaml")) or ""
            found.update({os.path.realpath(line[len("model: "):]): unit for line in config.splitlines() if line.startswith("model: ")})
    return found


def free_of(path: str) -> tuple[int, int]:
    """The device that a path is on, or will be on, and the bytes free there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return os.stat(path).st_dev, shutil.disk_usage(path).free


def hidden_finding(name: str, paths: list[str], hidden: list[str]) -> list[str]:
    unseen = [path for path in paths if below(path, hidden)]
    if not unseen:
        return []
    return [
        "modelhost_models.%s.weights: the unit does not see what lies below %s, and that is where %s is: move the weights, or mount their "
        "folder elsewhere, such as below /srv" % (name, below(unseen[0], hidden), shortened(unseen, 1))
    ]


def remains(state: dict) -> str:
    return "%s remain" % in_words(state["remaining_bytes"]) if state["remaining_bytes"] else "of unknown size"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "models": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {"name": {"type": "str", "required": True}, "weights": {"type": "dict", "required": True}},
            },
            "roots": {"type": "list", "elements": "path", "required": True},
            "hidden": {"type": "list", "elements": "path", "default": []},
            "user": {"type": "str", "default": "modelhost"},
        },
        supports_check_mode=True,
    )
    roots, user = module.params["roots"], module.params["user"]
    blockers: list[str] = []
    sources: dict[str, dict] = {}
    for model in module.params["models"]:
        found = declaration_findings(model["name"], model["weights"])
        blockers += found
        if not found:
            sources[model["name"]] = model["weights"]
    states = {name: inspect(weights, roots) for name, weights in sources.items()}
    free = {root: free_of(root) for root in roots}
    full = place(states, sources, roots, free)

    complete = {name: state for name, state in states.items() if state["state"] == "complete"}
    files = {name: [os.path.join(state["directory"], file) for file in files_below(state["directory"])] for name, state in complete.items()}
    refused = unreadable_for(user, [path for paths in files.values() for path in paths])
    for name, state in states.items():
        real = [os.path.realpath(path) for path in [state["directory"], *files.get(name, [])]]
        blockers += hidden_finding(name, real, module.params["hidden"])
        state["unreadable"] = sorted(refused.intersection(files.get(name, [])))
        if state["unreadable"]:
            blockers.append(
                "modelhost_models.%s.weights: the service user %s cannot read %s. Give it read access to these files, and search access to "
                "every directory above them" % (name, user, shortened(state["unreadable"]))
            )

    curable = []
    users = in_use()
    for name, state in states.items():
        if state["state"] == "complete" and linked(state):
            continue
        finding = state_finding(name, state)
        loaded = os.path.realpath(os.path.join(state["directory"], os.path.relpath(state["path"], state["entry"])))
        reader = users.get(loaded, "") if state["state"] != "complete" else ""
        if reader:
            finding += " It stays as it is while %s runs from it: switch to another model first." % reader
        (blockers if state["source"] == "directory" or reader else curable).append(finding)

    jobs, unverified, links = {}, {}, {}
    for name, state in states.items():
        target = state["directory"]
        common = {"name": name, "directory": target, "record": state["record"]}
        if state["unverified"]:
            size = sum(os.path.getsize(os.path.join(target, file)) for file in state["unverified"])
            unverified.setdefault(target, {**common, "files": state["unverified"], "bytes": size})
        if state["state"] != "complete" and state["source"] != "directory":
            how = {"weights": sources[name], "tool": tool(sources[name])}
            jobs.setdefault(target, {**common, **how, "damaged": state["damaged"], "remains": remains(state)})
        if not linked(state):
            links[state["entry"]] = {"entry": state["entry"], "directory": target}
    blockers += full
    module.exit_json(
        changed=False,
        models=[{"name": name, "gguf": is_gguf(sources[name], state["directory"]), **state} for name, state in states.items()],
        free_bytes=[free[root][1] for root in roots],
        blockers=blockers,
        findings=blockers + curable,
        jobs=list(jobs.values()),
        unverified=list(unverified.values()),
        links=list(links.values()),
        lines=[verified_line(name, state) for name, state in complete.items()],
    )


if __name__ == "__main__":
    main()
