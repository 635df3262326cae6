#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: apt_keyring
short_description: Fetch the key of an apt repository, if it is the one that is expected
description:
  - Fetches an armoured OpenPGP key and writes its packets to a file for C(Signed-By) (sources.list(5)), which holds exactly the key with
    this fingerprint.
  - The fingerprint is calculated from the bytes that are written, before anything is written, so that a key that does not match never lies
    where apt trusts it. gpg is not needed.
  - Where the file holds that key already, nothing is fetched.
options:
  url:
    description: Where the key is. Proxy and certificates come from the environment of the task.
    type: str
    required: true
  fingerprint:
    description: The full fingerprint of the primary key, 40 hexadecimal digits. Blanks do not count.
    type: str
    required: true
  path:
    description: The file, such as V(/etc/apt/keyrings/nvidia.gpg).
    type: path
    required: true
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Fetches and judges the key, and writes nothing.
  diff_mode:
    support: full
    description: Shows the fingerprints in the file before and after.
"""

EXAMPLES = r"""
- name: Trust NVIDIA's key for NVIDIA's repository
  modelhost.vllm.apt_keyring:
    url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub
    fingerprint: EB69 3B30 35CD 5710 E231  E123 A4B4 6996 3BF8 63CC
    path: /etc/apt/keyrings/nvidia.gpg
"""

RETURN = r"""
fingerprints:
  description: Fingerprints of the primary keys in the file.
  type: list
  elements: str
  returned: always
  sample: [EB693B3035CD5710E231E123A4B469963BF863CC]
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url
from ansible_collections.modelhost.vllm.plugins.module_utils import openpgp


def held(path: str) -> list[str]:
    """Fingerprints in the file; none where there is no file, or something else in it."""
    try:
        with open(path, "rb") as stream:
            return openpgp.fingerprints(stream.read())
    except (FileNotFoundError, ValueError):
        return []


def fetch(module: AnsibleModule, url: str) -> bytes:
    response, info = fetch_url(module, url, timeout=30)
    if response is None or info["status"] not in (200, None):
        module.fail_json(msg="The key was not fetched from %s: %s" % (url, info["msg"]))
    return response.read()


def write(module: AnsibleModule, path: str, packets: bytes) -> None:
    made = os.path.join(module.tmpdir, "keyring")
    with open(made, "wb") as stream:
        stream.write(packets)
    os.chmod(made, 0o644)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    module.atomic_move(made, path)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "fingerprint": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    url, path = module.params["url"], module.params["path"]
    wanted = [module.params["fingerprint"].replace(" ", "").upper()]
    before = held(path)
    if before != wanted:
        try:
            packets = openpgp.dearmor(fetch(module, url))
            found = openpgp.fingerprints(packets)
        except ValueError as error:
            module.fail_json(msg="%s is no OpenPGP key: %s" % (url, error))
        if found != wanted:
            module.fail_json(msg="%s holds %s, and %s is expected. Nothing was written." % (url, ", ".join(found) or "no key", wanted[0]))
        if not module.check_mode:
            write(module, path, packets)
    show = [{"fingerprints": each} for each in (before, wanted)]
    module.exit_json(changed=before != wanted, fingerprints=wanted, diff={"before": show[0], "after": show[1]})


if __name__ == "__main__":
    main()
