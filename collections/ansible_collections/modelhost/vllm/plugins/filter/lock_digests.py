# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: lock_digests
short_description: The engines, each with the digest of what it is built from
description:
  - Reads each engine's lock, manifest and patches on the controller and checks that the lock pins the version that the engine declares, and
    that the manifest was made with it.
  - The digest is the SHA-256 of the lock, followed by a line for each patch, with its SHA-256, those of its file before and after it, its id
    and its file. Without patches it is what C(sha256sum) says of the lock. Another text of O(_input[].patches[].reason) is no other engine.
positional: _input
options:
  _input:
    description: The engines, with C(name), C(distribution), C(version), C(lock) and, where there are any, C(patches).
    type: list
    elements: dict
    required: true
  folder:
    description: Folder with C(locks/) and C(patches/), for what is not given by an absolute path.
    type: path
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
locked: "{{ vllm_engines | modelhost.vllm.lock_digests(role_path ~ '/files') }}"
"""

RETURN = r"""
_value:
  description:
    - The engines, each with C(lock) and the C(patch) of its C(patches) as absolute paths, its C(digest), its C(manifest), and C(patch_words),
      the words that tell the installer about the patches, five for each.
  type: list
  elements: dict
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError


def lock_digests(engines: list[dict[str, Any]], folder: str) -> list[dict[str, Any]]:
    locked = []
    for engine in engines:
        path = Path(folder) / "locks" / engine["lock"]
        where = f"modelhost_engines.{engine['name']}"
        if not path.is_file():
            raise AnsibleFilterError(f"{where}.lock: {str(path)!r} is not a file: make it with `make lock ENGINE={engine['name']}`")
        text = path.read_text(encoding="utf-8")
        pin = f"{engine['distribution']}=={engine['version']} "
        if not any(line.startswith(pin) for line in text.splitlines()):
            raise AnsibleFilterError(
                f"{where}.version: its lock {path.name} does not pin {pin.strip()}: correct the version, or make the lock anew")
        manifest = _manifest(where, path, text)
        patches = [{**each, "patch": str(Path(folder) / "patches" / each["patch"])} for each in engine.get("patches", [])]
        lines = [_words(where, each) for each in patches]
        built_from = text + "".join(" ".join(words) + "\n" for words in lines)
        locked.append({
            **engine, "lock": str(path), "manifest": manifest, "patches": patches, "digest": hashlib.sha256(built_from.encode()).hexdigest(),
            "patch_words": [word for words in lines for word in words]})
    return locked


def _manifest(where: str, lock: Path, text: str) -> dict[str, Any]:
    path = lock.with_suffix(".json")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["lock_sha256"] == hashlib.sha256(text.encode()).hexdigest():
            return manifest
        reason = f"was not made with {lock.name}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"is no manifest ({error})"
    raise AnsibleFilterError(f"{where}.lock: {str(path)!r}, which says what the wheels hold, {reason}: make both with `make lock`")


def _words(where: str, patch: dict[str, Any]) -> list[str]:
    """What install-engine is told about a patch, in this order."""
    try:
        digest = hashlib.sha256(Path(patch["patch"]).read_bytes()).hexdigest()
    except OSError as error:
        raise AnsibleFilterError(f"{where}.patches: {patch['id']}: {error}") from error
    return [digest, patch["sha256_before"], patch["sha256_after"], patch["id"], patch["file"]]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"lock_digests": lock_digests}
