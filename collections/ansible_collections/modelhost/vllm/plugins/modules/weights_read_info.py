#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_read_info
short_description: What an engine reads to load a model, what of it is in memory, and how fast the rest comes
description:
  - Names the files that vLLM reads, in its order, and how much of them is in the page cache.
  - Says on which file system these weights and the roots of all weights lie, and what is free there.
  - With O(measure), reads from each of these for at most 3 s and 4 GB, past the page cache, with eight threads as vLLM prefetches. What is
    read is the model's weights where they lie there, else the largest files below. Writes nothing.
options:
  name:
    description: Name of the model in C(modelhost_models).
    type: str
    required: true
  path:
    description: What the engine is told to load, a directory or a GGUF file, all of it there.
    type: path
    required: true
  load_format:
    description: The engine's option C(load-format).
    type: str
    default: auto
  roots:
    description: The directories under which fetched weights lie. They need not exist.
    type: list
    elements: path
    default: []
  measure:
    description: Whether to measure how fast they are read.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: The module only reads.
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- name: How long a load will read
  modelhost.vllm.weights_read_info:
    name: smollm2
    path: /srv/smollm2
    measure: true
  register: reading
"""

RETURN = r"""
files:
  description: What vLLM reads, in its order.
  returned: always
  type: list
  elements: path
bytes:
  description: The size of these files.
  returned: always
  type: int
resident_bytes:
  description: What of them is in the page cache.
  returned: always
  type: int
page_cache:
  description: Whether the loader reads through the page cache; C(fastsafetensors) on a disk of the host and C(instanttensor) do not.
  returned: always
  type: bool
cold:
  description: Whether reading the files into the page cache would help a load.
  returned: always
  type: bool
storage:
  description: The folder of the weights, where it is below none of the roots, and the roots that are there.
  returned: always
  type: list
  elements: dict
  contains:
    folder: {description: The folder., type: str}
    mount: {description: The mount point that it is on., type: str}
    device: {description: What is mounted there., type: str}
    filesystem: {description: Its kind., type: str}
    free_bytes: {description: Bytes free there., type: int}
    bytes_per_second: {description: "What was measured; 0 where nothing was, or where there is nothing to read.", type: float}
    holds: {description: Whether the weights lie there., type: bool}
lines:
  description: The same in sentences.
  returned: always
  type: list
  elements: str
warnings:
  description: File systems that are slower than a disk of the host.
  returned: when something was measured and there are some
  type: list
  elements: str
"""

import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import storage
from ansible_collections.modelhost.vllm.plugins.module_utils.weights import below, files_below, in_words, loaded_files


def largest(folder: str) -> list[str]:
    """The eight largest files below a folder."""
    files = files_below(folder)
    return [os.path.join(folder, name) for name in sorted(files, key=files.get, reverse=True)[:8]]


def look(folder: str, files: list[str], measure: bool) -> dict:
    """A folder's storage; `files` are the model's."""
    holds = bool(files) and bool(below(os.path.realpath(files[0]), [os.path.realpath(folder)]))
    return {
        "folder": folder,
        **storage.mount_of(folder),
        "free_bytes": shutil.disk_usage(folder).free,
        "bytes_per_second": storage.read_speed(files if holds else largest(folder)) if measure else 0.0,
        "holds": holds,
    }


def lines_of(name: str, size: int, resident: int, found: list[dict], measure: bool) -> list[str]:
    lines = []
    for each in found:
        line = "%(folder)s (%(filesystem)s, %(device)s): " % each + in_words(each["free_bytes"]) + " free"
        if measure:
            speed = each["bytes_per_second"]
            line += ", reads %s/s" % in_words(round(speed)) if speed else ", nothing there to measure"
            if speed and each["holds"]:
                line += ": a load of %s reads %s, %d s at least" % (name, in_words(size), max(1, round(size / speed)))
        lines.append(line)
    return lines + ["%s: %s of %s are in memory" % (name, in_words(resident), in_words(size))]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "load_format": {"type": "str", "default": "auto"},
            "roots": {"type": "list", "elements": "path", "default": []},
            "measure": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    name, path, measure = module.params["name"], module.params["path"], module.params["measure"]
    files = loaded_files(path, module.params["load_format"])
    folders = [root for root in module.params["roots"] if os.path.isdir(root)]
    if files and not below(os.path.realpath(files[0]), [os.path.realpath(folder) for folder in folders]):
        folders.insert(0, os.path.dirname(files[0]))
    found = [look(folder, files, measure) for folder in folders]
    size, resident = sum(os.path.getsize(file) for file in files), sum(storage.resident_bytes(file) for file in files)
    direct, kind = module.params["load_format"] in storage.DIRECT, storage.mount_of(path)["filesystem"]
    cached = not direct or (module.params["load_format"] == "fastsafetensors" and kind in storage.NETWORK)
    for each in found:
        kind = storage.remote(each["filesystem"])
        if kind and measure:
            module.warn("%(folder)s is on %(filesystem)s, " % each + "%s: each load of weights there goes through it" % kind)
    module.exit_json(
        changed=False,
        files=files,
        bytes=size,
        resident_bytes=resident,
        page_cache=cached,
        cold=cached and resident < size,
        storage=found,
        lines=lines_of(name, size, resident, found, measure),
    )


if __name__ == "__main__":
    main()
