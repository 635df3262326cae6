# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: patch_findings
short_description: What is wrong with the patches that engines declare, and which of them can go
description:
  - Says what the argument specification of an engine cannot. An entry that it refuses is left out here.
  - Each finding is a sentence that names the variable, the value, the rule and the fix.
  - A patch whose C(drop_when) is met by what the engine's lock pins is a warning, never an error.
positional: _input
options:
  _input:
    description: The engines by name.
    type: dict
    required: true
  pins:
    description: What each engine's lock pins, from P(modelhost.vllm.lock_pins#filter).
    type: dict
    required: true
  folder:
    description: Folder of the patches that are not given by an absolute path.
    type: path
    required: true
  engine_options:
    description: The options of one engine in the argument specification of the role C(vllm).
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
findings: "{{ modelhost_engines | modelhost.vllm.patch_findings(modelhost_versions.pins, 'roles/vllm/files/patches', engine_options) }}"
"""

RETURN = r"""
_value:
  description: C(errors), what would end an installation; C(warnings), what can go. Both are lists of sentences.
  type: dict
  sample:
    errors: []
    warnings:
      - "modelhost_engines.vllm-0.34.0.patches.tools-error.drop_when: the lock has vllm 0.34.0, which meets 'vllm>=0.34.0': declare the engine
        without the patch, under a new name"
"""

import os
import re
from typing import Any, Iterator

from ansible_collections.modelhost.vllm.plugins.module_utils.findings import nearest, spec_findings
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_ID = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_URL = re.compile(r"https?://[^\s/]+\S*\Z")


def patch_findings(engines: Any, pins: dict[str, dict[str, str]], folder: str, engine_options: dict[str, Any]) -> dict[str, list[str]]:
    errors, warnings = [], []
    for name, engine in engines.items() if isinstance(engines, dict) else ():
        options = {"patches": engine_options["patches"]}
        declared = {"patches": engine["patches"]} if isinstance(engine, dict) and "patches" in engine else {}
        if not declared or spec_findings("", declared, options):
            continue
        seen: set[str] = set()
        for number, patch in enumerate(declared["patches"]):
            where = f"modelhost_engines.{name}.patches"
            if not _ID.match(patch["id"]):
                errors.append(
                    f"{where}[{number}].id: {patch['id']!r} cannot name a file: use lower-case letters, digits, '.', '_' and '-', a letter "
                    "or digit first and last")
            if patch["id"] in seen:
                errors.append(f"{where}[{number}].id: {patch['id']!r} names an earlier patch of this engine: give each its own")
            seen.add(patch["id"])
            where += f".{patch['id']}"
            errors += [f"{where}.{sentence}" for sentence in _judge(patch, folder)]
            wrong, due = _drop_when(patch["drop_when"], pins.get(name, {}))
            errors += [f"{where}.drop_when: {sentence}" for sentence in wrong]
            warnings += [f"{where}.drop_when: {sentence}" for sentence in due]
    return {"errors": errors, "warnings": warnings}


def _judge(patch: dict[str, str], folder: str) -> Iterator[str]:
    if not _URL.match(patch["upstream"]):
        yield f"upstream: {patch['upstream']!r} is no address: write that of the change, beginning with https:// or http://"
    if not patch["reason"].strip():
        yield "reason: '' says nothing: write what goes wrong without the patch"
    file = patch["file"]
    if {"", ".", ".."} & set(file.split("/")) or re.search(r"[\s\\]", file):
        yield f"file: {file!r} is no plain path below site-packages: write one such as vllm/envs.py"
    for key in ("sha256_before", "sha256_after"):
        if not _SHA256.match(patch[key]):
            yield f"{key}: {patch[key]!r} is no sha256: write the 64 lower-case hexadecimal digits that sha256sum prints"
    if patch["sha256_before"] == patch["sha256_after"]:
        yield "sha256_after: it equals sha256_before, so that the patch would change nothing: write the digest of the patched file"
    path = os.path.join(folder, patch["patch"])
    if not os.path.isfile(path):
        yield f"patch: {patch['patch']!r} is not there: put it into roles/vllm/files/patches, or write its absolute path on the controller"


def _drop_when(text: str, pins: dict[str, str]) -> tuple[list[str], list[str]]:
    """What is wrong with the condition, and what to do where the lock meets it. pins is empty where there is no readable lock."""
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        wanted = None
    if wanted is None or not wanted.specifier or wanted.extras or wanted.marker:
        return [f"{text!r} is no distribution with versions: write one such as 'vllm>=0.34.0'"], []
    distribution = canonicalize_name(wanted.name)
    if not pins:
        return [], []
    if distribution not in pins:
        guess = nearest(distribution, pins)
        hint = f". Did you mean {guess!r}?" if guess else ""
        return [f"{text!r}: the lock pins no {distribution}, so that this is never met: name the distribution that brings the file{hint}"], []
    if wanted.specifier.contains(pins[distribution], prereleases=True):
        return [], [
            f"the lock has {distribution} {pins[distribution]}, which meets {text!r}: declare the engine without the patch, under a new name"]
    return [], []


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"patch_findings": patch_findings}
