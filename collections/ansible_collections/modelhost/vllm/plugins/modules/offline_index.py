#!/usr/bin/python
# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: offline_index
short_description: Write what makes fetched files an offline directory
description:
  - Hashes every package in C(apt/) and every wheel in C(wheels/), and takes the hashes of the weights in C(weights/) from the manifests
    that their fetch wrote.
  - Writes C(apt/Packages), the index of a flat repository
    (U(https://wiki.debian.org/DebianRepository/Format#Flat_Repository_Format)), C(apt/sources.list) and C(apt/apt.conf), which the
    variable C(APT_CONFIG) makes apt's only source, and C(manifest.json) with the size and sha256 of every file.
  - Takes the time that hashing takes, some seconds for each 10 GB.
options:
  path:
    description: The directory, by the absolute path that it will have on the hosts too.
    type: path
    required: true
attributes:
  check_mode:
    support: full
    description: Reads and hashes, and writes nothing.
  diff_mode:
    support: full
    description: Shows the difference of the manifest.
author:
  - The modelhost authors
"""

EXAMPLES = r"""
- name: Write index and manifest
  modelhost.vllm.offline_index:
    path: /srv/offline
"""

RETURN = r"""
files:
  description: Number of files that the manifest names.
  returned: always
  type: int
bytes:
  description: Bytes of all of them.
  returned: always
  type: int
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import offline
from ansible_collections.modelhost.vllm.plugins.module_utils.host_findings import parse_os_release


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def write(path: str, text: str) -> None:
    with open(path + ".new", "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)


def main() -> None:
    module = AnsibleModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)
    top = module.params["path"]

    def control(name: str) -> str:
        return module.run_command(["dpkg-deb", "--field", os.path.join(top, name)], check_rc=True)[1]

    files = offline.measured(top, offline.carried(top))
    packages = [name for name in files if name.startswith("apt/")]
    texts = {
        **offline.apt_configuration(top),
        offline.INDEX: "\n".join(offline.stanza(control(name), os.path.basename(name), files[name]) for name in packages),
    }
    files.update(offline.weights_entries(top))
    files.update({name: offline.entry_of(text) for name, text in texts.items()})
    made_for = offline.system(parse_os_release(read("/etc/os-release")), os.uname().machine)
    texts[offline.MANIFEST] = offline.manifest_text(top, made_for, files)

    paths = {os.path.join(top, name): text for name, text in texts.items()}
    before = {path: read(path) for path in paths}
    if before != paths and not module.check_mode:
        for path, text in paths.items():
            write(path, text)
    manifest = os.path.join(top, offline.MANIFEST)
    module.exit_json(
        changed=before != paths,
        files=len(files),
        bytes=sum(entry["size"] for entry in files.values()),
        diff={"before_header": manifest, "after_header": manifest, "before": before[manifest], "after": paths[manifest]},
    )


if __name__ == "__main__":
    main()
