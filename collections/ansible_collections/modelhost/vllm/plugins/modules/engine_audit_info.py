#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: engine_audit_info
short_description: Whether an engine is what its wheels say
description:
  - Holds every file of a Python environment against the wheels that it was installed from, and everything that runs from it against the
    environment. Changes nothing.
  - The reference is O(manifest), made from the locked wheels by C(make lock). RECORD, which lies in the environment and can be edited
    together with a file, is trusted where its digest is the manifest's. Where a distribution differs, that one is installed anew into a
    temporary folder, for the diff and for what only its wheel knows; where it cannot be had, RECORD decides and RV(reference) says so.
  - Byte code is known from the end of the installation. Any other, and all of an environment without a manifest, is compared with what the
    environment's own interpreter makes of its source.
options:
  path:
    description: Folder of the environment.
    type: path
    required: true
  manifest:
    description:
      - Manifest of the engine's lock. Without one, the environment was built by somebody else, and each distribution in it belongs there.
    type: dict
  lock:
    description: Text of the engine's lock, whose hashes a distribution that is installed for comparison must have.
    type: str
    default: ""
  patches:
    description: Patches that the engine declares.
    type: list
    elements: dict
    default: []
    suboptions:
      id: {description: Name of the patch., type: str, required: true}
      file: {description: Path of the patched file in site-packages., type: str, required: true}
      sha256_before: {description: Its sha256 in the wheel., type: str, required: true}
      sha256_after: {description: Its sha256 once patched., type: str, required: true}
  shipped:
    description: Further manifests, which say what distributions of an environment without a manifest of its own should be.
    type: list
    elements: dict
    default: []
  uv:
    description:
      - The uv that installs a distribution for comparison. Where it is not there, nothing is. Its index, mirror, proxy and certificates
        are the task's C(environment).
    type: path
    default: /opt/modelhost/tools/uv/bin/uv
  folders:
    description: Further folders from which a process may load compiled code, such as the engine's cache and CUDA's.
    type: list
    elements: path
    default: []
  remote_code:
    description: Folders of weights whose Python code the engine runs, since their models have C(trust-remote-code).
    type: list
    elements: path
    default: []
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Judge an environment that somebody else built
  modelhost.vllm.engine_audit_info:
    path: /srv/vllm/venv
"""

RETURN = r"""
verdict:
  description: V(pristine), V(patched-as-declared) or V(dirty).
  type: str
  returned: always
findings:
  description: What differs; there is none unless the verdict is V(dirty).
  type: list
  elements: dict
  returned: always
  contains:
    kind:
      description:
        - V(changed), V(missing), V(unowned), V(foreign distribution), V(byte code), V(permissions), V(symlink), V(patch), V(search path),
          V(environment), V(process) or V(remote code).
      type: str
    path: {description: "Path, below O(path) unless it is absolute.", type: str}
    message: {description: What is wrong with it., type: str}
    diff: {description: "Unified diff against the wheel's text, where that could be had.", type: str}
contaminated:
  description: Whether files of the environment differ, which an installation anew cures, and not only what runs from it.
  type: bool
  returned: always
notes:
  description: What could not be judged, and what is worth knowing.
  type: list
  elements: str
  returned: always
patches:
  description: Declared patches that are applied.
  type: list
  elements: str
  returned: always
reference:
  description: What said how each distribution should be, as names by V(manifest), V(wheel) and V(record).
  type: dict
  returned: always
remote_code:
  description: Python files in the weights of models that trust remote code, each with its sha256.
  type: dict
  returned: always
processes:
  description: Processes that run from the environment.
  type: list
  elements: int
  returned: always
files:
  description: Files, links and folders that the environment has.
  type: int
  returned: always
seconds:
  description: How long the audit took.
  type: float
  returned: always
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import engine_process, systemd, weights, wheel_fetch
from ansible_collections.modelhost.vllm.plugins.module_utils.engine_audit import LOCK_OF_UV, Audit, Distribution, Reference
from ansible_collections.modelhost.vllm.plugins.module_utils.engine_tree import Layout, digest_of, layout


class Fetch:
    """Installs distributions for comparison, once each, below one temporary folder."""

    def __init__(self, parameters: dict[str, Any], python: str, folder: str, notes: list[str]) -> None:
        self.parameters, self.python, self.folder, self.notes = parameters, python, folder, notes
        self.pins = wheel_fetch.pins(parameters["lock"])
        self.calls = 0

    def __call__(self, wanted: list[Distribution]) -> dict[str, str]:
        hashes = bool(self.parameters["lock"])
        requirements = {
            each.name: self.pins[each.name] if hashes else "%s==%s" % (each.name, each.version)
            for each in wanted if (each.name in self.pins if hashes else wheel_fetch.can_be_asked_for(each.name, each.version))}
        if not requirements:
            return {}
        for program in (self.parameters["uv"], self.python):
            if not os.access(program, os.X_OK):
                self.note(requirements, "there is no %s" % (program or "interpreter in it"))
                return {}
        status = os.stat(self.python)  # uv runs it, as us
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            self.note(requirements, "its interpreter %s can be written by others than root" % self.python)
            return {}
        self.calls += 1
        folder = os.path.join(self.folder, str(self.calls))
        try:
            had = wheel_fetch.install(self.parameters["uv"], self.python, folder, requirements, hashes)
        except (OSError, subprocess.SubprocessError) as error:
            self.note(requirements, str(error))
            return {}
        if set(requirements) - set(had):
            self.note(sorted(set(requirements) - set(had)), "the index has no such wheel, or does not answer")
        return {name: folder for name in had}

    def note(self, names: Any, reason: str) -> None:
        self.notes.append("no wheel to compare with for %s: %s" % (weights.shortened(sorted(names)), reason))


def assignments(text: str) -> dict[str, str]:
    """The variables that a text of systemd's sets, in quotes or without: what `systemctl show` prints, and files of others than us."""
    values = {}
    for line in text.splitlines():
        try:
            words = shlex.split(line)
        except ValueError:  # a quotation that goes on in the next line
            words = line.replace('"', "").split()
        if not line.lstrip().startswith(("#", ";")):
            values.update(word.partition("=")[::2] for word in words if "=" in word)
    return values


def unit_findings(root: str, folders: list[str]) -> list[dict[str, str]]:
    """What the units that start from this environment put into its processes."""
    found: list[dict[str, str]] = []
    if not os.path.isdir("/run/systemd/system"):
        return found
    for unit, each in systemd.show("vllm-*.service", ["ExecStart", "Environment", "EnvironmentFiles"]).items():
        if root + "/" not in each["ExecStart"]:
            continue
        values = assignments(each["Environment"])
        for path in re.findall(r"(/.*?) \(ignore_errors=(?:yes|no)\)", each["EnvironmentFiles"]):
            if os.path.isfile(path):
                with open(path, encoding="utf-8", errors="surrogateescape") as stream:
                    values.update(assignments(stream.read()))
        values.update(assignments(each["ExecStart"]))  # `env NAME=...` before the program
        allowed = [root, *engine_process.SYSTEM, *folders]
        found += [finding("environment", unit, message) for message in engine_process.environment_findings(values, allowed)]
    return found


def process_findings(audit: Audit, folders: list[str], notes: list[str]) -> tuple[list[int], list[dict[str, str]]]:
    """What the processes of this environment have loaded that is not its own, or that is not there any more."""
    root, found, seen, pids = audit.layout.root, [], set(), []
    # The time of a file's last change is nobody's to set back. Byte code that a process has written itself is judged by what it holds.
    latest = max((entry for entry in audit.entries.values() if not stat.S_ISDIR(entry.mode) and not entry.path.endswith(".pyc")
                   and entry.path != LOCK_OF_UV), key=lambda entry: entry.changed, default=None)
    for pid in engine_process.users(root):
        try:
            values, paths = engine_process.environment_of(pid), engine_process.mapped(pid)
            status, cwd = os.stat("%s/%d" % (engine_process.PROC, pid)), os.readlink("%s/%d/cwd" % (engine_process.PROC, pid))
            arguments = engine_process.arguments_of(pid)
            began = engine_process.started(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        except PermissionError:
            notes.append("process %d cannot be looked into: root lacks CAP_SYS_PTRACE here" % pid)
            continue
        pids.append(pid)
        try:
            path, base = engine_process.search_path(audit.layout, values, cwd, status.st_uid, status.st_gid)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            notes.append("the sys.path of process %d is not known: %s" % (pid, error))
            path, base = [], os.path.dirname(os.path.dirname(audit.layout.interpreter))
        if path and path[0] == "":
            path[0] = engine_process.main_folder(arguments, cwd)
        allowed = [root, base, *engine_process.SYSTEM, *folders]
        judged = [("environment", "", message) for message in engine_process.environment_findings(values, allowed)]
        judged += [("process", *each) for each in engine_process.map_findings(paths, root, allowed)]
        judged += [("search path", *each) for each in engine_process.path_findings(path, cwd, [root, base, *engine_process.SYSTEM])]
        if latest and latest.changed > began + 1:
            judged.append(("process", latest.path, "was changed after the process began: restart its unit"))
        for kind, place, message in judged:
            if (kind, place, message) not in seen:  # what several processes share is said once
                seen.add((kind, place, message))
                found.append(finding(kind, place or "process %d" % pid, "%s (process %d)" % (message, pid)))
    return pids, found


def system_findings() -> list[dict[str, str]]:
    """What the system loads into every process."""
    found = []
    if os.path.isfile("/etc/ld.so.preload"):
        with open("/etc/ld.so.preload", encoding="utf-8") as stream:
            preloaded = stream.read().split()
        if preloaded:
            found.append(finding("environment", "/etc/ld.so.preload", "loads %s into each process" % ", ".join(preloaded)))
    return found


def configuration_findings(place: Layout) -> list[dict[str, str]]:
    """What pyvenv.cfg brings into the environment (PEP 405)."""
    configuration = os.path.join(place.root, "pyvenv.cfg")
    if not os.path.isfile(configuration):
        return []
    with open(configuration, encoding="utf-8", errors="surrogateescape") as stream:
        pairs = [line.partition("=") for line in stream if "=" in line]
    settings = {name.strip().lower(): value.strip() for name, _equals, value in pairs}
    found = []
    # Lib/site.py takes it for on where it is left out, and for off where it is anything but "true".
    if settings.get("include-system-site-packages", "true").lower() == "true":
        found.append(finding("search path", "pyvenv.cfg", "include-system-site-packages is on: the system's packages are imported too"))
    if place.interpreter and not is_home(os.path.join(place.root, settings.get("home", "")), place):
        found.append(finding("search path", "pyvenv.cfg", "home is %s, which is not that of bin/python: another standard library is imported" % (
            settings.get("home", "missing"))))
    return found


def is_home(home: str, place: Layout) -> bool:
    """Whether the folder in which Python looks for the standard library (Modules/getpath.py) is that of the environment's interpreter."""
    name = place.site.split("/")[1]
    real = os.path.realpath(os.path.join(home, name))
    if not os.path.isfile(real) or real != place.interpreter and digest_of(real) != digest_of(place.interpreter):
        return False
    # A folder with a link to the interpreter, such as /usr/local/bin, is fine unless it has a library of its own.
    library = os.path.join(home, "..", "lib", name)
    return (os.path.realpath(home) == os.path.dirname(real) or not os.path.exists(library)
            or os.path.realpath(library) == os.path.realpath(os.path.join(os.path.dirname(real), "..", "lib", name)))


def remote_code(folders: list[str], notes: list[str]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The Python files among weights, and those that were not fetched as they are."""
    seen, found = {}, []
    for folder in folders:
        manifest = weights.read_manifest(folder)
        for name in sorted(weights.files_below(folder)):
            if not name.endswith(".py"):
                continue
            path = os.path.join(folder, name)
            seen[path] = digest_of(path)
            if manifest is None:
                notes.append("%s runs with the model, and nothing says what it should be: the weights were not fetched by modelhost" % path)
            elif name not in manifest:
                found.append(finding("remote code", path, "runs with the model, and was not fetched with its weights"))
            elif manifest[name].get("sha256") not in (None, seen[path]):
                found.append(finding("remote code", path, "runs with the model, and is not what was fetched"))
    return seen, found


def finding(kind: str, path: str, message: str) -> dict[str, str]:
    return {"kind": kind, "path": path, "message": message, "diff": ""}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "manifest": {"type": "dict"},
            "lock": {"type": "str", "default": ""},
            "patches": {"type": "list", "elements": "dict", "default": [], "options": {
                "id": {"type": "str", "required": True}, "file": {"type": "str", "required": True},
                "sha256_before": {"type": "str", "required": True}, "sha256_after": {"type": "str", "required": True}}},
            "shipped": {"type": "list", "elements": "dict", "default": []},
            "uv": {"type": "path", "default": "/opt/modelhost/tools/uv/bin/uv"},
            "folders": {"type": "list", "elements": "path", "default": []},
            "remote_code": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    began = time.monotonic()
    root = os.path.realpath(module.params["path"])
    try:
        place = layout(root)
    except (ValueError, OSError) as error:
        module.fail_json(msg="path: %s" % error)
    notes: list[str] = []
    temporary = tempfile.mkdtemp(prefix="modelhost-audit-", dir="/var/tmp")
    try:
        fetch = Fetch(module.params, place.interpreter, temporary, notes)
        audit = Audit(place, Reference(module.params["manifest"], module.params["shipped"], fetch, module.params["patches"]))
        audit.run()
    except OSError as error:
        module.fail_json(msg="path: %s, so it cannot be judged: run this as root, and again where something is being installed" % error)
    finally:
        shutil.rmtree(temporary)
    folders = module.params["folders"]
    audit.findings += configuration_findings(place)
    contaminated = bool(audit.findings)
    audit.findings += system_findings() + unit_findings(root, folders)
    pids, running = process_findings(audit, folders, notes)
    code, foreign = remote_code(module.params["remote_code"], notes)
    audit.findings += running + foreign
    module.exit_json(
        changed=False, verdict=audit.verdict, contaminated=contaminated, findings=audit.findings, notes=audit.notes + notes,
        patches=audit.applied,
        reference=audit.sources, remote_code=code, processes=pids, files=len(audit.entries), seconds=round(time.monotonic() - began, 2))


if __name__ == "__main__":
    main()
