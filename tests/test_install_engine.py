"""install-engine, with the real uv, on wheels that are made here: an engine is complete at the end, or not an engine."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.filter.lock_digests import lock_digests
from ansible_collections.modelhost.vllm.plugins.modules.engine_info import state

ROOT = Path(__file__).resolve().parents[1]
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
HELLO = "".join(f"# line {number}\n" for number in range(8)) + "def word():\n    return 'plain'\n" + "# the end\n" * 4
PATCHED = HELLO.replace("plain", "patched")


def sha256(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


class Root:
    """A folder for engines, and one for wheels."""

    def __init__(self, folder: Path) -> None:
        self.engines, self.wheels, self.files = folder / "engines", folder / "wheels", folder / "files"
        self.engine = self.engines / "vllm-1"
        self.site = self.engine / SITE
        for each in (self.engines, self.wheels, self.files / "locks", self.files / "patches"):
            each.mkdir(parents=True)
        pins = [
            self.wheel("vllm", "1", {"vllm/__init__.py": "", "vllm/hello.py": HELLO, "vllm/kernel.so": "ELF" * 5000}),
            self.wheel("many", "2", {f"many/m{number}.py": f"VALUE = {number}\n" for number in range(300)})]
        self.lock("".join(pins))
        self.patches: list[dict[str, str]] = []

    def lock(self, text: str) -> None:
        (self.files / "locks/vllm-1.txt").write_text(text)
        (self.files / "locks/vllm-1.json").write_text(json.dumps({"lock_sha256": sha256(text)}))

    def wheel(self, name: str, version: str, files: dict[str, str]) -> str:
        """Make a wheel; its line in a lock."""
        info = f"{name}-{version}.dist-info"
        files = {
            **files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{name}-run = {name}:run\n"}
        path = self.wheels / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as made:
            for each, text in {**files, f"{info}/RECORD": "".join(f"{each},,\n" for each in [*files, f"{info}/RECORD"])}.items():
                entry = zipfile.ZipInfo(each)
                entry.external_attr = 0o100777 << 16  # a wheel may ask for anything
                made.writestr(entry, text)
        return f"{name}=={version} --hash=sha256:{sha256(path.read_bytes())}\n"

    def declare(self, patch: str, **changes: str) -> None:
        """Declare a patch of vllm/hello.py, and bring it to the host as the role does."""
        entry = {
            "id": "greeting", "file": "vllm/hello.py", "sha256_before": sha256(HELLO), "sha256_after": sha256(PATCHED), **changes}
        entry["patch"] = f"{entry['id']}.patch"
        (self.files / "patches" / entry["patch"]).write_text(patch)
        folder = self.engines / ".vllm-1.patches"
        folder.mkdir(exist_ok=True)
        (folder / f"{entry['id']}.patch").write_text(patch)
        self.patches.append(entry)

    def entry(self) -> dict[str, Any]:
        engine = {"name": "vllm-1", "distribution": "vllm", "version": "1", "lock": "vllm-1.txt", "patches": self.patches}
        (locked,) = lock_digests([engine], str(self.files))
        return locked

    def start(self, umask: int = 0o022) -> subprocess.Popen[str]:
        locked = self.entry()
        Path(f"{self.engine}.lock").write_text(Path(locked["lock"]).read_text())
        command = ["sh", ROOT / "roles/vllm/files/install-engine", Path(sys.executable).parent / "uv", sys.executable, self.engine]
        return subprocess.Popen(
            [*command, locked["digest"], *locked["patch_words"]], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, umask=umask,
            env={**os.environ, "UV_NO_CONFIG": "1", "UV_OFFLINE": "1", "UV_FIND_LINKS": str(self.wheels), "UV_CACHE_DIR": "/nowhere"})

    def install(self, **options: Any) -> tuple[int, str]:
        job = self.start(**options)
        said, _none = job.communicate()
        return job.returncode, said

    def state(self) -> str:
        return state(str(self.engine), self.entry()["digest"])

    def tree(self) -> dict[str, tuple[int, str]]:
        """Mode and content of everything. Byte code holds the time of its source."""
        found = {}
        for path in self.engine.rglob("*"):
            name, stat = path.relative_to(self.engine).as_posix(), path.lstat()
            content = os.readlink(path) if path.is_symlink() else ""
            if not content and path.is_file() and path.suffix != ".pyc" and name not in (".byte-code", ".complete"):
                content = sha256(path.read_bytes())
            found[name] = (stat.st_mode, content)
        return found


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def difference(before: str = HELLO, after: str = PATCHED) -> str:
    return "".join(difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), "a/hello.py", "b/hello.py"))


def said_by(root: Root, code: str) -> str:
    python = [root.engine / "bin/python", "-B", "-c", code]
    return subprocess.run(python, capture_output=True, text=True, check=True, cwd="/").stdout.strip()


def test_an_engine_is_complete_at_the_end(root: Root) -> None:
    status, said = root.install()
    assert status == 0, said
    assert root.state() == "complete"
    mark = json.loads((root.engine / ".complete").read_text())
    assert mark == {
        "digest": sha256((root.files / "locks/vllm-1.txt").read_text()), "python": sys.version.split()[0],
        "byte_code_sha256": sha256((root.engine / ".byte-code").read_text())}
    assert said_by(root, "from vllm import hello; print(hello.word())") == "plain"
    assert sorted(path.name for path in root.engines.iterdir()) == ["vllm-1", "vllm-1.lock"]


def test_all_byte_code_is_listed(root: Root) -> None:
    assert root.install()[0] == 0
    lines = (root.engine / ".byte-code").read_text().splitlines()
    made = sorted(path.relative_to(root.engine).as_posix() for path in root.engine.rglob("*.pyc"))
    assert [line.split("  ", 1)[1] for line in lines] == made
    assert len(made) == 302
    assert [line for line in lines if line.split()[0] != sha256((root.engine / line.split("  ", 1)[1]).read_bytes())] == []


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_the_owner_may_write_and_everybody_may_read(root: Root, umask: int) -> None:
    status, said = root.install(umask=umask)
    assert status == 0, said
    modes = {path: path.lstat().st_mode & 0o7777 for path in [root.engine, *root.engine.rglob("*")] if not path.is_symlink()}
    assert {path: oct(mode) for path, mode in modes.items() if mode not in (0o644, 0o755)} == {}
    assert {path for path, mode in modes.items() if path.is_dir() and mode != 0o755} == set()
    assert {path.lstat().st_uid for path in modes} == {os.geteuid()}


def test_no_file_is_one_with_a_file_elsewhere(root: Root) -> None:
    assert root.install()[0] == 0
    assert [path for path in root.engine.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_nlink != 1] == []


def test_nothing_is_there_that_no_wheel_brings_and_python_does_not_need(root: Root) -> None:
    assert root.install()[0] == 0
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert sorted(path.name for path in (root.engine / "bin").iterdir()) == [
        "many-run", "python", "python3", f"python{version}", "vllm-run"]
    assert sorted(path.name for path in root.engine.iterdir()) == [
        ".byte-code", ".complete", ".gitignore", "CACHEDIR.TAG", "bin", "lib", "lib64", "pyvenv.cfg"]
    assert sorted(path.name for path in root.site.iterdir()) == ["many", "many-2.dist-info", "vllm", "vllm-1.dist-info"]


def test_killed_at_any_moment_it_is_no_engine_and_the_next_run_makes_it_one(root: Root) -> None:
    root.declare(difference())
    assert root.install()[0] == 0
    reference = root.tree()
    began = time.monotonic()
    assert root.install()[0] == 0
    takes = time.monotonic() - began
    moments = random.Random(33)
    killed = 0
    while killed < 10:
        job = root.start()
        time.sleep(moments.uniform(0.0, takes))
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        if job.returncode == -signal.SIGKILL and root.state() != "complete":
            killed += 1
        else:  # between the mark and the end, or before the mark of the engine before was taken away: then it is whole
            assert root.tree() == reference
            takes *= 0.9  # a machine that was busy is so no longer
        status, said = root.install()
        assert (status, root.state()) == (0, "complete"), said
        assert root.tree() == reference
        assert sorted(path.name for path in root.engines.iterdir()) == [".vllm-1.patches", "vllm-1", "vllm-1.lock"]


def test_a_changed_lock_on_the_host_builds_nothing(root: Root) -> None:
    assert root.install()[0] == 0
    before = root.tree()
    root.lock((root.files / "locks/vllm-1.txt").read_text() + "# edited\n")
    assert root.state() == "changed"
    digest = root.entry()["digest"]
    Path(f"{root.engine}.lock").write_text("vllm==2 \\\n")
    result = subprocess.run(
        ["sh", ROOT / "roles/vllm/files/install-engine", "uv", "3", root.engine, digest], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == f"vllm-1: lock and patches on the host are not those of the digest {digest}: run this again\n"
    assert root.tree() == before


def test_a_declared_patch_is_applied_and_compiled(root: Root) -> None:
    root.declare(difference())
    status, said = root.install()
    assert status == 0, said
    assert root.state() == "complete"
    source = root.site / "vllm/hello.py"
    assert source.read_text() == PATCHED
    compiled = Path(importlib.util.cache_from_source(str(source)))
    assert compiled.read_bytes()[8:16] == b"".join(
        int(number).to_bytes(4, "little") for number in (source.stat().st_mtime, source.stat().st_size))
    assert f"{sha256(compiled.read_bytes())}  {compiled.relative_to(root.engine)}" in (root.engine / ".byte-code").read_text()
    assert said_by(root, "from vllm import hello; print(hello.word())") == "patched"
    assert sorted(path.name for path in source.parent.iterdir()) == ["__init__.py", "__pycache__", "hello.py", "kernel.so"]


def test_patches_are_applied_in_their_order(root: Root) -> None:
    twice = PATCHED.replace("patched", "patched twice")
    root.declare(difference())
    root.declare(difference(PATCHED, twice), id="second", sha256_before=sha256(PATCHED), sha256_after=sha256(twice))
    status, said = root.install()
    assert status == 0, said
    assert (root.site / "vllm/hello.py").read_text() == twice


OTHER = HELLO.replace("line 7", "another line")
REFUSED = {
    "another file before": (
        difference(OTHER, OTHER.replace("plain", "patched")), {"sha256_before": sha256(OTHER)},
        f"vllm/hello.py has the sha256 {sha256(HELLO)}, before the patch it shall have {sha256(OTHER)}"),
    "another file after": (
        difference(), {"sha256_after": sha256(OTHER)},
        f"vllm/hello.py has the sha256 {sha256(PATCHED)}, after the patch it shall have {sha256(OTHER)}"),
    "only with fuzz": (
        difference(HELLO.replace("line 6", "line six"), PATCHED.replace("line 6", "line six")), {}, "it does not apply to vllm/hello.py"),
    "no file": (difference(), {"file": "vllm/hullo.py"}, "vllm/hullo.py is not there"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_drift_is_refused(root: Root, case: str) -> None:
    patch, changes, reason = REFUSED[case]
    root.declare(patch, **changes)
    status, said = root.install()
    assert status == 1
    assert said.splitlines()[-1] == (
        f"vllm-1: patch greeting: {reason}, so nothing counts as installed: make the patch anew for the locked version, or drop it")
    assert root.state() == "partial"


def test_a_patch_that_changed_on_the_host_is_refused(root: Root) -> None:
    root.declare(difference())
    (root.engines / ".vllm-1.patches/greeting.patch").write_text(difference().replace("patched", "evil"))
    assert root.install()[1].splitlines()[-1].startswith("vllm-1: patch greeting: the patch on the host is not the declared one, so ")
    assert root.state() == "partial"
