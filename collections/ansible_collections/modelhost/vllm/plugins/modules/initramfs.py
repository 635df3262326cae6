#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: initramfs
short_description: Build the initramfs of every kernel anew
description:
  - A module of the kernel that is loaded from the initramfs is loaded before the files in C(/etc/modprobe.d) on the disk are read. So a
    change of these takes effect with the next initramfs only.
  - Builds with dracut where its package is installed, and else with C(update-initramfs). A host without an initramfs, such as a container,
    needs none.
options:
  older_than:
    description: Build only if the image of the running kernel is older than this file. If the file does not exist, nothing is built.
    type: path
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Says whether it would be built.
"""

EXAMPLES = r"""
- name: Build it anew after a change
  modelhost.vllm.initramfs:
    older_than: /etc/modprobe.d/modelhost-nouveau.conf
"""

RETURN = r"""
images:
  description: Images that were built, or would be.
  type: list
  elements: str
  returned: always
  sample: [/boot/initrd.img-6.12.48+deb13-amd64]
"""

import glob
import os

from ansible.module_utils.basic import AnsibleModule

IMAGE, MODULES = "/boot/initrd.img-", "/lib/modules/"


def wanted(newer: str | None) -> bool:
    running = IMAGE + os.uname().release
    if newer is None:
        return True
    return os.path.exists(newer) and os.path.exists(running) and os.path.getmtime(running) < os.path.getmtime(newer)


def commands(module: AnsibleModule, images: list[str]) -> list[list[str]]:
    status = module.run_command(["dpkg-query", "--show", "--showformat", "${db:Status-Status}", "dracut"])[1]
    if status == "installed":
        return [["dracut", "--force", image, image[len(IMAGE):]] for image in images]
    return [["update-initramfs", "-u", "-k", "all"]]


def main() -> None:
    module = AnsibleModule(argument_spec={"older_than": {"type": "path"}}, supports_check_mode=True)
    images = sorted(image for image in glob.glob(IMAGE + "*") if os.path.isdir(MODULES + image[len(IMAGE):]))
    if not wanted(module.params["older_than"]):
        images = []
    if images and not module.check_mode:
        for command in commands(module, images):
            module.run_command(command, check_rc=True)
    module.exit_json(changed=bool(images), images=images)


if __name__ == "__main__":
    main()
