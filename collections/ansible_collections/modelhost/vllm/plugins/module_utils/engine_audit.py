# GNU General Public License v3.0+ (see LICENSE)
"""What of a Python environment is not what its wheels say.

The reference is the manifest that was made from the locked wheels. Where it has no answer, a fresh installation of the one distribution
serves; where that cannot be had either, the RECORD that lies in the environment, which whoever changes a file can change with it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import stat
import subprocess
from typing import Any, Callable, Iterable, NamedTuple

from ansible_collections.modelhost.vllm.plugins.module_utils import byte_code, engine_tree, wheel_record
from ansible_collections.modelhost.vllm.plugins.module_utils.console_scripts import entry_points, is_script_of
from ansible_collections.modelhost.vllm.plugins.module_utils.engine_difference import added, instrumentation, text_of, unified
from ansible_collections.modelhost.vllm.plugins.module_utils.engine_tree import Entry, Layout, digest_of, digests, walk

# What `venv`, virtualenv, uv and the installation leave beside the packages: no interpreter imports and no unit runs any of it.
SKELETON = re.compile(
    r"(pyvenv\.cfg|CACHEDIR\.TAG|\.gitignore|\.lock|\.complete|%s"
    r"|bin/(activate(\.\w+|_this\.py)?|Activate\.ps1|deactivate\.bat|pydoc\.bat))\Z" % re.escape(byte_code.LIST))
SKELETON_LINK = re.compile(r"(lib64|bin/python[0-9.]*)\Z")
# Python's documentation, `site`: these two are imported at each start, and a .pth file can run code.
STARTUP_MODULE = re.compile(r"(sitecustomize|usercustomize)(\.|/|\Z)")
# vllm/plugins/__init__.py (0.33.0) loads the groups vllm.*; torch/__init__.py (2.14.0) loads torch.backends.
PLUG_IN_GROUP = re.compile(r"(vllm\..*|torch\.backends)\Z")


# The lines of a script that name its interpreter. A path with a space, or too long for the kernel, is told to a shell; so is that of an
# environment that can be moved (`uv venv --relocatable`).
_RELOCATABLE = rb"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python%s' "$0" "$@"
' '''
"""
_SHEBANG = re.compile(
    rb"""#!(?P<short>/[^\n]*)\n\Z|#!/bin/sh\n'''exec' (?P<quote>['"]?)(?P<long>/[^\n'"$`\\]*)(?P=quote) "\$0" "\$@"\n' '''\n\Z""")
_PROGRAM = re.compile(rb"python[0-9.]*\Z")

# uv makes it, empty, for everyone to lock.
LOCK_OF_UV = ".lock"


class Distribution(NamedTuple):
    """One .dist-info folder, with the rows of its RECORD by path below the environment."""

    name: str
    version: str
    folder: str
    files: dict[str, str]
    others: dict[str, str]
    record: str
    entry_points: dict[str, dict[str, str]]


class Reference(NamedTuple):
    """What is known of the wheels.

    `manifest` is that of the engine's lock, None for an environment that somebody else built; `shipped` are all that there are.
    `fetch` installs distributions anew and returns the folder of that environment, by name, for those that could be had.
    """

    manifest: dict[str, Any] | None
    shipped: list[dict[str, Any]]
    fetch: Callable[[list[Distribution]], dict[str, str]]
    patches: list[dict[str, Any]]


class Audit:
    """One environment held against its reference. `run` fills `findings`, `notes` and `sources`."""

    def __init__(self, layout: Layout, reference: Reference) -> None:
        self.layout, self.reference = layout, reference
        self.python = layout.site.split("/")[1][len("python"):]
        self.findings: list[dict[str, str]] = []
        self.notes: list[str] = []
        self.sources: dict[str, list[str]] = {"manifest": [], "wheel": [], "record": []}
        self.fetched: dict[str, str] = {}
        self.applied: list[str] = []
        self.entries: dict[str, Entry] = {}

    def found(self, kind: str, path: str, message: str, diff: str = "") -> None:
        self.findings.append({"kind": kind, "path": path, "message": message, "diff": diff})

    def path(self, relative: str) -> str:
        return os.path.join(self.layout.root, relative)

    def run(self) -> None:
        self.entries = entries = {entry.path: entry for entry in self.scope()}
        self.judge_modes(entries.values())
        regular = {path for path, entry in entries.items() if stat.S_ISREG(entry.mode)}
        distributions = self.distributions(entries)
        locked = self.locked(distributions)
        expected = {path: digests for path, digests in self.expected(locked).items() if self.layout.virtual or self.layout.of_site(path)}
        self.judge_files(expected, entries, regular, locked)
        known = set(expected)
        if not self.reference.manifest:
            # Rows without a trusted hash; a manifest knows the digests of such files, so that no row can make a file belong.
            known.update(path for each in locked if each.name not in self.sources["manifest"] for path in each.others
                         if not path.endswith(".pyc") and not path.startswith("bin/"))
        if self.layout.virtual:
            known |= self.judge_scripts(locked, regular, set(expected))
        self.judge_unowned(entries, known, distributions, locked)
        self.judge_byte_code(regular)
        self.findings.sort(key=lambda each: (each["kind"], each["path"]))

    def scope(self) -> Iterable[Entry]:
        """All of a virtual environment; of another one (conda's, the system's) its packages alone."""
        if self.layout.virtual:
            return walk(self.layout.root)
        if self.reference.manifest:
            self.found("missing", "pyvenv.cfg", "makes a virtual environment of the engine")
            return walk(self.layout.root)
        self.notes.append("%s is no virtual environment: only its packages in %s are judged" % (self.layout.root, self.layout.site))
        return walk(self.layout.root, self.layout.site)

    # Owners, modes and links

    def judge_modes(self, entries: Iterable[Entry]) -> None:
        top = os.lstat(self.layout.root)
        if self.reference.manifest:
            self.judge_parents()
        # An engine belongs to root, as which we run. Somebody else's environment belongs to whom it belongs.
        owner = os.geteuid() if self.reference.manifest else top.st_uid
        if top.st_uid != owner or top.st_mode & 0o022:
            self.found("permissions", ".", _mode(top.st_uid, top.st_mode))
        for entry in entries:
            kind = stat.S_IFMT(entry.mode)
            if kind == stat.S_IFLNK:
                if not (SKELETON_LINK.match(entry.path) and self.interpreter_link(entry.path)):
                    self.found("symlink", entry.path, "leads to %s; a wheel holds no links" % os.readlink(self.path(entry.path)))
            elif kind not in (stat.S_IFREG, stat.S_IFDIR):
                self.found("unowned", entry.path, "is neither a file nor a folder")
            elif (entry.uid != owner or entry.mode & 0o022) and entry.path != LOCK_OF_UV:
                self.found("permissions", entry.path, _mode(entry.uid, entry.mode))

    def judge_parents(self) -> None:
        """Who may replace a folder above the engine may replace the engine."""
        folder = os.path.dirname(self.layout.root)
        while folder != "/":
            status = os.stat(folder)
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
                self.found("permissions", folder, _mode(status.st_uid, status.st_mode))
            folder = os.path.dirname(folder)

    def interpreter_link(self, path: str) -> bool:
        """Whether a link of the skeleton leads where one of the skeleton may: lib, or an interpreter outside, of this Python."""
        target = os.readlink(self.path(path))
        if path == "lib64":
            return target in ("lib", self.path("lib"))
        real = os.path.realpath(self.path(path))
        status = os.stat(real) if os.path.exists(real) else None
        return (os.path.basename(real).startswith("python" + self.python) and not real.startswith(self.layout.root + "/")
                and status is not None and status.st_uid in self.trusted() and not status.st_mode & 0o022)

    def trusted(self) -> set[int]:
        """Who may own the interpreter: root, we, and for an environment that somebody else built, that one (uv's lie in a home)."""
        return {0, os.geteuid()} | (set() if self.reference.manifest else {os.lstat(self.layout.root).st_uid})

    # Distributions

    def distributions(self, entries: dict[str, Entry]) -> list[Distribution]:
        found = []
        for name in sorted(os.listdir(self.layout.site_path)):
            folder = self.layout.site + "/" + name
            if name.endswith(".dist-info") and stat.S_ISDIR(entries[folder].mode):
                record = folder + "/RECORD"
                if record not in entries or not stat.S_ISREG(entries[record].mode):
                    self.found("missing", record, "is the list of the files of %s" % name)
                    continue
                try:
                    each = self.read(self.layout.root, name)
                except csv.Error as error:
                    self.found("changed", record, "is no list of files: %s" % error)
                    continue
                found.append(each)
                working_copy = self.working_copy(folder)
                if working_copy:
                    self.found("foreign distribution", folder, "%s %s is an editable installation: what is imported lies in %s" % (
                        each.name, each.version, working_copy))
            elif name.endswith((".egg-info", ".egg-link", ".egg")):
                self.found("foreign distribution", folder, "was installed without a wheel, so that nothing says what it should be")
        return found

    def read(self, root: str, name: str) -> Distribution:
        """The distribution whose .dist-info has this name, in the environment at `root`."""
        folder = self.layout.site + "/" + name
        with open(os.path.join(root, folder, "RECORD"), encoding="utf-8", errors="surrogateescape", newline="") as stream:
            rows = wheel_record.rows(stream.read())
        files = wheel_record.normalised(rows, name, self.python)
        return Distribution(
            *wheel_record.distribution(name), folder, files, wheel_record.left_out(rows, name, self.python),
            wheel_record.digest(files, name, self.python), entry_points(text_of(os.path.join(root, folder, "entry_points.txt")) or ""))

    def working_copy(self, folder: str) -> str:
        """Where the code of an editable installation lies (PyPA "Recording the Direct URL Origin"), "" for another one."""
        try:
            origin = json.loads(text_of(self.path(folder + "/direct_url.json")) or "{}")
            return str(origin["url"]) if origin["dir_info"]["editable"] else ""
        except (ValueError, KeyError, TypeError):
            return ""

    def locked(self, distributions: list[Distribution]) -> list[Distribution]:
        """The distributions that belong here, each with the rows that count: RECORD's own where the reference confirms it."""
        manifest, belonging, doubtful = self.reference.manifest, [], []
        names = [each.name for each in distributions]
        for each in distributions:
            if manifest and each.name not in manifest["wheels"]:
                plug_ins = self.plug_ins(each)
                self.found("foreign distribution", each.folder, "%s %s is not in the lock%s" % (
                    each.name, each.version, ", and vLLM loads from it: " + ", ".join(plug_ins) if plug_ins else ""))
            elif manifest and manifest["wheels"][each.name]["version"] != each.version:
                self.found("foreign distribution", each.folder, "%s %s is in the lock with version %s" % (
                    each.name, each.version, manifest["wheels"][each.name]["version"]))
            elif not manifest and names.count(each.name) > 1:
                self.found("foreign distribution", each.folder, "%s is installed more than once" % each.name)
            elif self.confirmed(each):
                self.sources["manifest"].append(each.name)
                belonging.append(each)
            else:
                doubtful.append(each)
        for name in sorted(set(manifest["wheels"] if manifest else ()) - set(names)):
            self.found("missing", self.layout.site, "%s %s of the lock is not installed" % (name, manifest["wheels"][name]["version"]))
        return belonging + self.looked_up(doubtful)

    def confirmed(self, each: Distribution) -> bool:
        """Whether a manifest knows this RECORD."""
        manifests = [self.reference.manifest] if self.reference.manifest else self.reference.shipped
        wheels = [manifest["wheels"][each.name] for manifest in manifests if each.name in manifest["wheels"]]
        return any(wheel["version"] == each.version and wheel["record"] == each.record for wheel in wheels)

    def looked_up(self, doubtful: list[Distribution]) -> list[Distribution]:
        """The same distributions with the rows of a fresh installation, where that could be had; what was edited in RECORD is a finding."""
        self.fetch(doubtful)
        found = []
        for each in doubtful:
            fresh = self.fresh(each)
            if fresh and not self.reference.manifest and any(
                    fresh.files.get(fresh.folder + name) != each.files.get(each.folder + name) for name in ("/WHEEL", "/METADATA")):
                self.notes.append("%s %s is another build than the index has: RECORD decides" % (each.name, each.version))
                self.fetched[each.name], fresh = "", None
            self.sources["wheel" if fresh else "record"].append(each.name)
            # pip keeps a row whose file the wheel has not, and uv, which installed the other one, drops it.
            changed = sorted(
                path for path in set(fresh.files) | set(each.files) if fresh.files.get(path) != each.files.get(path)
                and (path in fresh.files or os.path.lexists(self.path(path)))) if fresh else []
            if changed:
                self.found("changed", each.folder + "/RECORD", "was edited: it differs from the wheel's in %s" % ", ".join(changed[:20]))
            elif self.reference.manifest and not (fresh and self.confirmed(fresh)):
                self.found("changed", each.folder + "/RECORD", "was edited: %s %s is locked with another one%s" % (
                    each.name, self.reference.manifest["wheels"][each.name]["version"],
                    "" if fresh else ". The wheel could not be had, so which of its lines are true is not known"))
            found.append(fresh or each)
        return found

    def fetch(self, wanted: list[Distribution]) -> None:
        missing = [each for each in wanted if each.name not in self.fetched]
        if missing:
            self.fetched.update(self.reference.fetch(missing))

    def fresh(self, each: Distribution) -> Distribution | None:
        root = self.fetched.get(each.name)
        if not root:
            return None
        site = os.path.join(root, self.layout.site)
        folder = next((name for name in os.listdir(site) if name.endswith(".dist-info")
                       and wheel_record.distribution(name)[0] == each.name), None)
        if folder is None:
            return None
        return self.read(root, folder)

    def plug_ins(self, each: Distribution) -> list[str]:
        return ["%s: %s" % (group, name) for group, objects in each.entry_points.items() if PLUG_IN_GROUP.match(group) for name in objects]

    # Contents

    def expected(self, locked: list[Distribution]) -> dict[str, set[str]]:
        """By path, the digests that a file may have: those of all its owners, or what the manifest says of a file that RECORD gets wrong."""
        expected: dict[str, set[str]] = {}
        others = {path for each in locked if each.name in self.sources["manifest"] for path in each.others}
        for each in locked:
            for path, digest in each.files.items():
                expected.setdefault(path, set()).add(digest)
        for manifest in [self.reference.manifest] if self.reference.manifest else self.reference.shipped:
            if manifest["python"] == self.python:
                for path, literal in manifest["files"].items():
                    if self.reference.manifest:
                        expected[path] = {"sha256:" + each for each in literal}
                        if not literal:
                            del expected[path]  # RECORD names it, and the wheel has not got it
                    elif path in expected or path in others:
                        expected.setdefault(path, set()).update("sha256:" + each for each in literal)
        for patch in self.reference.patches:
            path = self.layout.site + "/" + patch["file"]
            if "sha256:" + patch["sha256_before"] not in expected.get(path, ()):
                self.found("patch", path, "the patch %s was made for another text of it (sha256 %s)" % (patch["id"], patch["sha256_before"]))
            expected[path] = {"sha256:" + patch["sha256_after"]}
        return expected

    def judge_files(
            self, expected: dict[str, set[str]], entries: dict[str, Entry], regular: set[str], locked: list[Distribution]) -> None:
        owners = {path: each for each in locked for path in each.files}
        for path in sorted(set(expected) - regular):
            if path.startswith("../"):
                continue
            if path not in entries:
                self.found("missing", path, "is a file of %s" % owners[path].name if path in owners else "is in the manifest")
            elif not stat.S_ISLNK(entries[path].mode):
                self.found("changed", path, "is no regular file")
        present = [path for path in expected if path in regular]
        seen = digests(self.layout.root, present)
        patched = {self.layout.site + "/" + patch["file"]: patch for patch in self.reference.patches}
        changed = [path for path in present if not self.fits(path, seen[path], expected[path])]
        self.fetch([owners[path] for path in changed if path in owners and self.wants_wheel(path)])
        for path in sorted(changed):
            self.judge_changed(path, seen[path], owners.get(path), patched.get(path))
        changed_paths = {each["path"] for each in self.findings if each["kind"] in ("changed", "patch", "missing")}
        self.applied = [patch["id"] for path, patch in patched.items() if path not in changed_paths]

    def fits(self, path: str, seen: str, expected: set[str]) -> bool:
        for each in expected:
            algorithm, _colon, value = each.partition(":")
            if (seen if algorithm == "sha256" else digest_of(self.path(path), algorithm)) == value:
                return True
        return False

    def wants_wheel(self, path: str) -> bool:
        """Whether the wheel has to be had: for a diff, or where RECORD alone says that the file changed."""
        return not self.reference.manifest or text_of(self.path(path)) is not None

    def judge_changed(self, path: str, seen: str, owner: Distribution | None, patch: dict[str, Any] | None) -> None:
        original = os.path.join(self.fetched[owner.name], path) if owner and self.fetched.get(owner.name) else ""
        if original and os.path.isfile(original) and patch is None and digest_of(original) == seen:
            return  # the wheel's own RECORD is wrong about it
        before, after = text_of(original) if original else None, text_of(self.path(path))
        if patch and seen == patch["sha256_before"]:
            self.found("patch", path, "the declared patch %s is not applied" % patch["id"])
            return
        message = "is not what %s says" % ("the patch " + patch["id"] if patch else owner.name if owner else "the manifest")
        if after is None:
            self.found("changed", path, message)
            return
        lines = added(before, after) if before is not None else list(enumerate(after.splitlines(), 1))
        debugging = instrumentation(lines) if path.endswith(".py") else []
        if debugging:
            message += "; left from debugging? " + "; ".join(debugging)
        self.found("changed", path, message, unified(path, before, after) if before is not None else "")

    # What an installer makes

    def judge_scripts(self, locked: list[Distribution], regular: set[str], expected: set[str]) -> set[str]:
        """Judge what lies in bin/ and is not `expected` as it is; return what was judged."""
        targets: dict[str, list[str]] = {}
        bodies: dict[str, set[str]] = {}
        rows: dict[str, str] = {}
        for manifest in [self.reference.manifest] if self.reference.manifest else self.reference.shipped:
            for path, literal in manifest["scripts"].items():
                bodies.setdefault(path, set()).update(literal)
        wanted = set(bodies) if self.reference.manifest else set()
        for each in locked:
            own = {"bin/" + name: target for group in ("console_scripts", "gui_scripts")
                   for name, target in each.entry_points.get(group, {}).items()}
            listed = {path: digest for path, digest in each.others.items() if path.startswith("bin/") and path not in expected}
            if self.reference.manifest:
                wanted.update(own)
            elif each.name in self.sources["manifest"]:  # its rows in bin/ are not vouched for
                wanted.update(path for path in listed if path in own or path in bodies or path == "bin/pip" + self.python)
            else:
                wanted.update(listed)
                rows.update(listed)
            for path in set(own) | set(listed):
                # pip makes pip3.12 too, which it does not name.
                targets.setdefault(path, []).extend([own[path]] if path in own else own.values())
            fetched = self.fetched.get(each.name)
            for path in [path for path in listed if fetched and os.path.isfile(os.path.join(fetched, path))]:
                bodies.setdefault(path, set()).add(_sha256(wheel_record.script_body(_read(os.path.join(fetched, path)))))
        for path in sorted(wanted):
            if path not in regular:
                self.found("missing", path, "is a script of the engine")
                continue
            content = _read(self.path(path))
            body = wheel_record.script_body(content)
            head = content[:len(content) - len(body)]
            made = self.starts_here(head) and (
                _sha256(body) in bodies.get(path, ())
                or any(is_script_of(b"\n" * head.count(b"\n") + body, target) for target in targets.get(path, ())))
            if not made and rows.get(path) not in ("", "sha256:" + _sha256(content)):
                self.found("changed", path, "is not the script that its wheel asks for")
        return wanted

    def starts_here(self, head: bytes) -> bool:
        """Whether the first lines of a script say that the environment's own interpreter runs it."""
        match = _SHEBANG.match(head)
        if match is None:
            return head in [_RELOCATABLE % version for version in (b"", b"3", self.python.encode())]
        folder, program = os.path.split(match["short"] or match["long"])
        # Whoever made the environment may have gone there by a link.
        return _PROGRAM.match(program) is not None and os.path.realpath(folder) == os.fsencode(self.path("bin"))

    # What nobody brought

    def judge_unowned(
            self, entries: dict[str, Entry], known: set[str], distributions: list[Distribution], locked: list[Distribution]) -> None:
        belonging = {each.folder for each in locked}
        foreign = {path for each in distributions if each.folder not in belonging for path in (*each.files, *each.others)}
        installers = {each.folder + "/" + name for each in distributions for name in wheel_record.INSTALLER_FILES}
        owned = known | foreign | installers
        for path, entry in entries.items():
            if not stat.S_ISREG(entry.mode) or path in owned or SKELETON.match(path):
                continue
            if path.endswith(".pyc") and byte_code.source_of(path) is not None:
                continue
            if SKELETON_LINK.match(path) and not self.reference.manifest and engine_tree.is_program(self.path(path)):
                continue  # the copy of an interpreter
            text = text_of(self.path(path))
            debugging = instrumentation(list(enumerate(text.splitlines(), 1))) if text is not None and path.endswith(".py") else []
            self.found("unowned", path, "; ".join([self.nobodys(path, known, text)] + debugging))
        for each in locked if self.reference.manifest is None else []:
            if each.name not in ("vllm", "torch") and self.plug_ins(each):
                self.notes.append("%s %s plugs into the engine: %s" % (each.name, each.version, ", ".join(self.plug_ins(each))))

    def nobodys(self, path: str, known: set[str], text: str | None) -> str:
        """What a file that no wheel brought does."""
        folder, name = os.path.split(path)
        module = name.split(".")[0]
        if folder == self.layout.site and name.endswith(".pth"):
            return "is read at each start of Python: %s" % ((text or "").strip()[:160] or "empty")
        if path.startswith(self.layout.site + "/") and STARTUP_MODULE.match(path[len(self.layout.site) + 1:]):
            return "is imported at each start of Python"
        if name.endswith(".pyc"):
            return "is byte code without a source"
        if folder == "bin":
            return "lies on the PATH of the units"
        # importlib's FileFinder takes a package before a module, and an extension before a source.
        shadowed = [folder + "/" + module + ".py", folder + "/" + module + "/__init__.py"]
        if name == "__init__.py":
            shadowed = [folder + ".py"]
        hit = next((each for each in shadowed if each in known and each != path), None)
        if hit and name.endswith((".so", ".py")):
            return "is imported instead of %s" % hit
        return "belongs to no wheel"

    # Byte code

    def judge_byte_code(self, regular: set[str]) -> None:
        compiled = {path for path in regular if path.endswith(".pyc") and byte_code.source_of(path) is not None}
        text, listed = byte_code.recorded(self.layout.root) if self.reference.manifest else ("", {})
        if listed and "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest() != self.completed():
            self.found("changed", byte_code.LIST, "is not the list that the installation made")
            listed = {}
        seen = digests(self.layout.root, [path for path in compiled if path in listed])
        known = {path for path, digest in seen.items() if digest == listed[path]}
        named = {each["path"] for each in self.findings}
        doubtful = []
        for path in sorted(compiled - known):
            source = byte_code.source_of(path)
            if source not in regular:
                self.found("byte code", path, "has no source")
            elif source not in named:  # what was made of a source that is named already need not be
                doubtful.append(path)
        gone = set(listed) - compiled
        if gone:
            self.notes.append("%d files of byte code are gone, so each start compiles their sources: %s" % (len(gone), min(gone)))
        if doubtful and not self.layout.interpreter:
            self.notes.append("%d files of byte code were not judged: bin/python is no interpreter" % len(doubtful))
            return
        try:
            for path, reason in byte_code.differing(self.layout, doubtful).items():
                self.found("byte code", path, reason)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            # A file that makes the interpreter crash must not vouch for the others.
            self.found("byte code", self.layout.site, "%d files of byte code were not judged: %s ends with %s" % (
                len(doubtful), self.layout.interpreter, error))

    def completed(self) -> str:
        """The digest of that list, as the last step of the installation wrote it down."""
        try:
            with open(self.path(".complete"), encoding="utf-8") as stream:
                return "sha256:" + json.load(stream)["byte_code_sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    @property
    def verdict(self) -> str:
        if self.findings:
            return "dirty"
        return "patched-as-declared" if self.reference.patches else "pristine"


def _mode(uid: int, mode: int) -> str:
    return "belongs to user %d and has mode %04o: others than its owner could write it" % (uid, stat.S_IMODE(mode))


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
