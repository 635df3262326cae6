#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: toolchain_info
short_description: Whether a service can compile what it will have to compile
description:
  - Triton, torch.compile and FlashInfer compile while vLLM serves. What is missing shows at the first request, after the weights are loaded.
  - Compiles and links small sources with gcc, g++, ninja, the headers of Python and, with O(cuda_home), nvcc. This is done in a temporary
    folder, as the user of the service and with nothing in the environment but what is given here.
  - A need that is not met is a finding. The module never fails because of one, and leaves nothing behind.
options:
  user:
    description: User of the service.
    type: str
    required: true
  path:
    description: The C(PATH) of the service.
    type: str
    required: true
  cuda_home:
    description:
      - Folder of a CUDA toolkit, the C(CUDA_HOME) of the service. Its C(bin) goes before O(path).
      - Without it only what every host needs is tried.
    type: path
  compute_capability:
    description: NVIDIA's compute capability of the GPUs, such as V(12.0). Needed with O(cuda_home).
    type: str
  timeout:
    description: Seconds that one command may take.
    type: int
    default: 120
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Works the same in check mode.
"""

EXAMPLES = r"""
- name: Try to compile as the service
  modelhost.vllm.toolchain_info:
    user: modelhost
    path: /usr/local/bin:/usr/bin:/bin
    cuda_home: /usr/local/cuda-13.0
    compute_capability: "12.0"
  register: tried
"""

RETURN = r"""
findings:
  description: Needs that are not met; empty for a host on which everything compiled.
  returned: always
  type: list
  elements: dict
  contains:
    what:
      description: The need, such as V(ninja), V(Python.h) or V(a kernel for sm_120).
      type: str
    why:
      description: What the command said.
      type: str
    fix:
      description: What provides it.
      type: str
  sample:
    - what: Python.h
      why: "python.c:1:10: fatal error: Python.h: No such file or directory"
      fix: install the package python3-dev
cuda_version:
  description: Version that nvcc says it has; empty without O(cuda_home) or where it does not answer.
  returned: always
  type: str
  sample: "13.0"
"""

import os
import pwd
import shutil
import subprocess
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import toolchain as rules


class Service:
    """Runs commands as the service would: its user, its PATH, and a folder that is the user's own."""

    def __init__(self, account: pwd.struct_passwd, folder: str, path: str, cuda_home: str | None, timeout: int) -> None:
        self.path = f"{cuda_home}/bin:{path}" if cuda_home else path
        environment = {"PATH": self.path, "HOME": folder, "TMPDIR": folder, "LC_ALL": "C.UTF-8"}
        if cuda_home:
            environment["CUDA_HOME"] = cuda_home
        self.options = {
            "cwd": folder, "env": environment, "timeout": timeout, "universal_newlines": True, "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "check": False}
        if account.pw_uid != os.geteuid():
            self.options.update(user=account.pw_uid, group=account.pw_gid, extra_groups=[])
        for name, text in rules.SOURCES.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
                stream.write(text)
        os.chown(folder, account.pw_uid, account.pw_gid)

    def run(self, argv: list[str]) -> tuple[str, str]:
        """What a command wrote, and why it failed: an empty text where it did not."""
        try:
            done = subprocess.run(argv, **self.options)
        except FileNotFoundError:
            return "", f"{argv[0]} is not on the PATH {self.path}"
        except PermissionError as error:
            return "", str(error)
        except subprocess.TimeoutExpired:
            return "", f"{argv[0]} did not end within {self.options['timeout']} s"
        return done.stdout, rules.decisive(done.stdout.splitlines()) if done.returncode else ""


def finding(probe: rules.Probe, why: str) -> dict[str, str]:
    return {"what": probe.what, "why": why, "fix": probe.fix}


def host_findings(service: Service) -> list[dict[str, str]]:
    """All at once, since one does not need the other."""
    include, why = service.run(rules.PYTHON.argv)
    found = [finding(rules.PYTHON, why)] if why else []
    tried = [(probe, service.run(probe.argv)[1]) for probe in rules.host_probes(include.strip())]
    return found + [finding(probe, why) for probe, why in tried if why]


def cuda_findings(service: Service, cuda_home: str, compute_capability: str) -> list[dict[str, str]]:
    """The first step that fails."""
    for number, probe in enumerate(rules.cuda_probes(cuda_home, compute_capability)):
        said, why = service.run(probe.argv)
        why = why or (rules.cannot_compile(said, compute_capability) if number == 0 else "")
        if why:
            return [finding(probe, why)]
    return []


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "path": {"type": "str", "required": True},
            "cuda_home": {"type": "path"},
            "compute_capability": {"type": "str"},
            "timeout": {"type": "int", "default": 120},
        },
        required_by={"cuda_home": ["compute_capability"]},
        supports_check_mode=True,
    )
    user, cuda_home = module.params["user"], module.params["cuda_home"]
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        module.fail_json(msg=f"user: {user!r} is not known on this host: create it first")
    folder = tempfile.mkdtemp(prefix="toolchain-")
    try:
        service = Service(account, folder, module.params["path"], cuda_home, module.params["timeout"])
        found = host_findings(service)
        version = ""
        if cuda_home:
            found += cuda_findings(service, cuda_home, module.params["compute_capability"])
            version = rules.release(service.run(["nvcc", "--version"])[0])
    finally:
        shutil.rmtree(folder)
    module.exit_json(changed=False, findings=found, cuda_version=version)


if __name__ == "__main__":
    main()
