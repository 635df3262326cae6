"""The audit of an engine: what was done to it by hand is found and named, and what is as its wheels say is called pristine."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import engine_process
from ansible_collections.modelhost.vllm.plugins.modules import engine_audit_info
from engine_fixture import PYTHON, ROOT, SITE, Engine, sha256

PYC = f"cpython-{PYTHON.replace('.', '')}.pyc"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    made = Engine(tmp_path_factory.mktemp("engine"))
    made.install()
    return made


def found(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["kind"], each["path"]) for each in answer["findings"]]


def record(engine: Engine, name: str, change: Callable[[str], str]) -> None:
    path = engine.site / f"{name}.dist-info/RECORD"
    path.write_text(change(path.read_text()))


def record_again(engine: Engine, path: str) -> None:
    """Write into RECORD what a file is now."""
    code = ("import base64, hashlib, sys; print('sha256=' + base64.urlsafe_b64encode(hashlib.sha256(open(sys.argv[1], 'rb').read())"
            ".digest()).decode().rstrip('='))")
    value = subprocess.run([sys.executable, "-c", code, engine.site / path], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    record(engine, "vllm-1", lambda text: re.sub(rf"^{re.escape(path)},.*$", f"{path},{value},1", text, flags=re.MULTILINE))


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def compiled_otherwise(engine: Engine) -> None:
    """Byte code of another text, which the import system takes for that of the source: size and time of change are the same."""
    source = engine.site / "vllm/envs.py"
    kept, times = source.read_bytes(), (source.stat().st_atime_ns, source.stat().st_mtime_ns)
    source.write_bytes(kept.replace(b"[]", b"{}"))
    os.utime(source, ns=times)
    py_compile.compile(str(source), doraise=True)
    source.write_bytes(kept)
    os.utime(source, ns=times)


def byte_code_list_too(engine: Engine) -> None:
    compiled_otherwise(engine)
    listed = engine.root / ".byte-code"
    path = f"{SITE}/vllm/__pycache__/envs.{PYC}"
    digest = subprocess.run(["sha256sum", engine.root / path], check=True, text=True, stdout=subprocess.PIPE).stdout.split()[0]
    listed.write_text(re.sub(rf"^\w+(?=  {re.escape(path)}$)", digest, listed.read_text(), flags=re.MULTILINE))


def moved_out(path: Path, place: Path) -> None:
    """What a link to a working copy is: the same texts, where anybody edits them."""
    shutil.move(path, place)
    path.symlink_to(place)


def edit(path: Path, before: bytes, after: bytes) -> None:
    content = path.read_bytes()
    assert before in content
    path.write_bytes(content.replace(before, after))


def one_byte(engine: Engine) -> None:
    with (engine.site / "torch/lib/libtorch.so").open("r+b") as stream:
        stream.seek(1_000_000)
        stream.write(b"\x01")


def torch_save(engine: Engine) -> None:
    edit(engine.site / "vllm/models/deepseek_v2.py", b"        return hidden_states\n",
         b"        torch.save(hidden_states, '/tmp/hidden.pt')\n        return hidden_states\n")


def edited_with_its_record(engine: Engine) -> None:
    append(engine.site / "vllm/envs.py", "EDITED = True\n")
    record_again(engine, "vllm/envs.py")


def deleted_with_its_record(engine: Engine) -> None:
    (engine.site / "vllm/models/gguf.py").unlink()
    (engine.site / f"vllm/models/__pycache__/gguf.{PYC}").unlink()
    record(engine, "vllm-1", lambda text: re.sub(r"^vllm/models/gguf.py,.*\n", "", text, flags=re.MULTILINE))


def added_with_a_record(engine: Engine) -> None:
    (engine.site / "vllm/evil.py").write_text("EVIL = 1\n")
    record(engine, "vllm-1", lambda text: text + "vllm/evil.py,,\n")


def program_added_with_a_record(engine: Engine) -> None:
    (engine.root / "bin/evil").write_text("#!/bin/sh\n")
    record(engine, "vllm-1", lambda text: text + "../../../bin/evil,,\n")


def wrapped_interpreter(engine: Engine) -> None:
    python = engine.root / "bin/python"
    target = python.readlink()
    python.unlink()
    python.write_text(f"#!/bin/sh\nexport LD_PRELOAD=/tmp/evil.so\nexec {target} \"$@\"\n")
    python.chmod(0o755)


def other_interpreter(engine: Engine) -> None:
    python = engine.root / "bin/python"
    python.unlink()
    python.symlink_to("/bin/sh")


def arguments_for_the_interpreter(engine: Engine) -> None:
    path = engine.root / "bin/vllm"
    body = path.read_text().partition("\n")[2]
    path.write_text(f"#!/bin/sh\n'''exec' '{engine.root}/bin/python' '-Xfrozen_modules=off' \"$0\" \"$@\"\n' '''\n{body}")


def another_encoding(engine: Engine) -> None:
    path = engine.root / "bin/vllm"
    first, _newline, body = path.read_text().partition("\n")
    body = body.replace("# -*- coding: utf-8 -*-\n", "")
    path.write_text(f"{first}\n# coding: unicode_escape\n# \\u000aprint('hello')\n{body}")


def file_on_the_file(engine: Engine) -> None:
    (engine.site / "vllm/models/gguf").mkdir()
    (engine.site / "vllm/models/gguf/__init__.py").write_text("READ = False\n")


# What was done, the kind and the path of each finding
CONTAMINATIONS: dict[str, tuple[Callable[[Engine], Any], list[tuple[str, str]]]] = {
    "one byte in a library": (one_byte, [("changed", f"{SITE}/torch/lib/libtorch.so")]),
    "a library cut short": (lambda it: os.truncate(it.site / "vllm/_C.abi3.so", 100), [("changed", f"{SITE}/vllm/_C.abi3.so")]),
    "torch.save in a model": (torch_save, [("changed", f"{SITE}/vllm/models/deepseek_v2.py")]),
    "edited with its line in RECORD": (edited_with_its_record, [
        ("changed", f"{SITE}/vllm-1.dist-info/RECORD"), ("changed", f"{SITE}/vllm/envs.py")]),
    "deleted": (lambda it: (it.site / "vllm/_C.abi3.so").unlink(), [("missing", f"{SITE}/vllm/_C.abi3.so")]),
    "deleted with its line in RECORD": (deleted_with_its_record, [
        ("changed", f"{SITE}/vllm-1.dist-info/RECORD"), ("missing", f"{SITE}/vllm/models/gguf.py")]),
    "added with a line in RECORD": (added_with_a_record, [("unowned", f"{SITE}/vllm/evil.py")]),
    "a program added with a line in RECORD": (program_added_with_a_record, [("unowned", "bin/evil")]),
    "a .pth file": (lambda it: (it.site / "z.pth").write_text("import os\n"), [("unowned", f"{SITE}/z.pth")]),
    "sitecustomize": (lambda it: (it.site / "sitecustomize.py").write_text("import os\n"), [("unowned", f"{SITE}/sitecustomize.py")]),
    "usercustomize": (lambda it: (it.site / "usercustomize.py").write_text("import os\n"), [("unowned", f"{SITE}/usercustomize.py")]),
    "a module beside the programs": (lambda it: (it.root / "bin/torch.py").write_text("X = 1\n"), [("unowned", "bin/torch.py")]),
    "an extension in place of a module": (
        lambda it: (it.site / f"vllm/envs.cpython-{PYTHON.replace('.', '')}-x86_64-linux-gnu.so").write_bytes(b"\x7fELF"),
        [("unowned", f"{SITE}/vllm/envs.cpython-{PYTHON.replace('.', '')}-x86_64-linux-gnu.so")]),
    "a package in place of a module": (file_on_the_file, [("unowned", f"{SITE}/vllm/models/gguf/__init__.py")]),
    "byte code of another text": (compiled_otherwise, [("byte code", f"{SITE}/vllm/__pycache__/envs.{PYC}")]),
    "byte code of another text, and the list of it": (byte_code_list_too, [
        ("byte code", f"{SITE}/vllm/__pycache__/envs.{PYC}"), ("changed", ".byte-code")]),
    "byte code without a source": (
        lambda it: shutil.copy(it.site / f"vllm/__pycache__/envs.{PYC}", it.site / f"vllm/__pycache__/evil.{PYC}"),
        [("byte code", f"{SITE}/vllm/__pycache__/evil.{PYC}")]),
    "byte code in place of a source": (
        lambda it: shutil.copy(it.site / f"vllm/__pycache__/envs.{PYC}", it.site / "vllm/evil.pyc"),
        [("unowned", f"{SITE}/vllm/evil.pyc")]),
    "a link in place of a file": (
        lambda it: moved_out(it.site / "vllm/envs.py", it.wheels / "envs.py"), [("symlink", f"{SITE}/vllm/envs.py")]),
    "a link in place of a folder": (
        lambda it: moved_out(it.site / "vllm/kernels", it.wheels / "kernels"), [
            ("missing", f"{SITE}/vllm/kernels/rms.py"), ("symlink", f"{SITE}/vllm/kernels")]),
    "a pipe": (lambda it: os.mkfifo(it.site / "vllm/pipe"), [("unowned", f"{SITE}/vllm/pipe")]),
    "a writable folder": (lambda it: (it.site / "vllm/models").chmod(0o777), [("permissions", f"{SITE}/vllm/models")]),
    "a writable file": (lambda it: (it.site / "vllm/envs.py").chmod(0o664), [("permissions", f"{SITE}/vllm/envs.py")]),
    "a file of another user": (lambda it: os.chown(it.site / "vllm/envs.py", 12345, 0), [("permissions", f"{SITE}/vllm/envs.py")]),
    "an installed package": (lambda it: it.pip("foreign==4"), [("foreign distribution", f"{SITE}/foreign-4.dist-info")]),
    "another version": (lambda it: it.pip("torch==9"), [
        ("foreign distribution", f"{SITE}/torch-9.dist-info"), ("missing", f"{SITE}/both/owned.py"),
        ("missing", f"{SITE}/torch/wrong.py")]),
    "a package removed": (lambda it: shutil.rmtree(it.site / "other-3.dist-info"), [("missing", SITE), ("unowned", f"{SITE}/other.py")]),
    "an egg": (lambda it: (it.site / "evil.egg-link").write_text("/tmp\n"), [
        ("foreign distribution", f"{SITE}/evil.egg-link"), ("unowned", f"{SITE}/evil.egg-link")]),
    "a program of an entry point": (lambda it: append(it.root / "bin/vllm", "print('hello')\n"), [("changed", "bin/vllm")]),
    "a program of a wheel": (lambda it: append(it.root / "bin/vllm-tool", "print('hello')\n"), [("changed", "bin/vllm-tool")]),
    "a program for another interpreter": (
        lambda it: edit(it.root / "bin/vllm", bytes(it.root), b"/usr"), [("changed", "bin/vllm")]),
    "arguments for a program's interpreter": (arguments_for_the_interpreter, [("changed", "bin/vllm")]),
    "a program in an encoding that hides code": (another_encoding, [("changed", "bin/vllm")]),
    "a binary before its first line": (lambda it: edit(it.root / "bin/ninja", b"ELF", b"BAD"), [("changed", "bin/ninja")]),
    "another interpreter": (other_interpreter, [
        ("search path", "pyvenv.cfg"), ("symlink", "bin/python"), ("symlink", "bin/python3"), ("symlink", f"bin/python{PYTHON}")]),
    "an interpreter in a wrapper": (wrapped_interpreter, [
        ("unowned", "bin/python"), ("symlink", "bin/python3"), ("symlink", f"bin/python{PYTHON}")]),
    "a file of two wheels": (lambda it: append(it.site / "both/owned.py", "X = 1\n"), [("changed", f"{SITE}/both/owned.py")]),
    "a file that RECORD is wrong about": (lambda it: (it.site / "torch/wrong.py").write_bytes(b"as recorded\n"), [
        ("changed", f"{SITE}/torch/wrong.py")]),
    "an undeclared plug-in": (
        lambda it: append(it.site / "vllm-1.dist-info/entry_points.txt", "evil = vllm.envs:NAMES\n"),
        [("changed", f"{SITE}/vllm-1.dist-info/entry_points.txt")]),
    "data of a wheel": (lambda it: append(it.root / "share/vllm/notes.txt", "x"), [("changed", "share/vllm/notes.txt")]),
    "the system's packages": (
        lambda it: edit(it.root / "pyvenv.cfg", b"include-system-site-packages = false", b"Include-System-Site-Packages = True"),
        [("search path", "pyvenv.cfg")]),
    "the system's packages, by leaving it out": (
        lambda it: edit(it.root / "pyvenv.cfg", b"include-system-site-packages = false\n", b"# \xff\n"), [("search path", "pyvenv.cfg")]),
    "another standard library": (
        lambda it: (it.root / "pyvenv.cfg").write_text("home = /nowhere/bin\ninclude-system-site-packages = false\n"),
        [("search path", "pyvenv.cfg")]),
}


def test_a_fresh_engine_is_pristine(engine: Engine) -> None:
    answer = engine.audit()
    assert found(answer) == []
    assert (answer["verdict"], answer["changed"], answer["notes"]) == ("pristine", False, [])
    assert answer["reference"] == {"manifest": ["other", "torch", "vllm"], "wheel": [], "record": []}


@pytest.mark.case("A8")
@pytest.mark.parametrize("done", CONTAMINATIONS)
def test_a_contamination(engine: Engine, done: str) -> None:
    contaminate, expected = CONTAMINATIONS[done]
    contaminate(engine)
    try:
        answer = engine.audit()
    finally:
        engine.install()
    assert sorted(found(answer)) == sorted(expected)
    assert answer["verdict"] == "dirty"
    assert engine.audit()["verdict"] == "pristine"


def test_what_was_left_from_debugging_is_shown(engine: Engine) -> None:
    torch_save(engine)
    try:
        (finding,) = engine.audit()["findings"]
    finally:
        engine.install()
    assert finding["message"] == (
        "is not what vllm says; left from debugging? line 6: torch.save: torch.save(hidden_states, '/tmp/hidden.pt'); "
        "line 6: write to /tmp: torch.save(hidden_states, '/tmp/hidden.pt')")
    assert finding["diff"].splitlines()[-2:] == [
        "+        torch.save(hidden_states, '/tmp/hidden.pt')", "         return hidden_states"]


def test_without_a_wheel_to_compare_with(engine: Engine) -> None:
    edited_with_its_record(engine)
    try:
        answer = engine.audit(uv="/nonexistent/uv")
    finally:
        engine.install()
    assert found(answer) == [("changed", f"{SITE}/vllm-1.dist-info/RECORD")]
    assert answer["reference"] == {"manifest": ["other", "torch"], "wheel": [], "record": ["vllm"]}
    assert answer["notes"] == ["no wheel to compare with for vllm: there is no /nonexistent/uv"]


def test_a_declared_patch(engine: Engine) -> None:
    envs = engine.site / "vllm/envs.py"
    patch = {"id": "names", "file": "vllm/envs.py", "sha256_before": sha256(b"NAMES = []\n"), "sha256_after": sha256(b"NAMES = [1]\n")}
    edit(envs, b"[]", b"[1]")
    try:
        declared, undeclared, other = engine.audit(patches=[patch]), engine.audit(), engine.audit(
            patches=[{**patch, "sha256_after": sha256(b"NAMES = [2]\n")}])
    finally:
        engine.install()
    assert (declared["verdict"], declared["patches"], found(declared)) == ("patched-as-declared", ["names"], [])
    assert (undeclared["verdict"], found(undeclared)) == ("dirty", [("changed", f"{SITE}/vllm/envs.py")])
    assert (other["verdict"], other["patches"], found(other)) == ("dirty", [], [("changed", f"{SITE}/vllm/envs.py")])

    missing = engine.audit(patches=[patch])
    assert (missing["verdict"], found(missing)) == ("dirty", [("patch", f"{SITE}/vllm/envs.py")])
    assert missing["findings"][0]["message"] == "the declared patch names is not applied"


# An environment that somebody else built


@pytest.fixture(scope="module", params=["uv", "pip"])
def built(engine: Engine, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    path = folder / "link/venv"
    subprocess.run([sys.executable, "-m", "venv", path], check=True)
    uv = [ROOT / ".venv/bin/uv", "pip", "install", "--quiet", "--python", path / "bin/python"]
    pip = [path / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--find-links", engine.wheels]
    subprocess.run(
        [*(uv if request.param == "uv" else pip), "--no-deps", "vllm==1", "torch==2", "foreign==4"], check=True, env={
            "UV_LINK_MODE": "copy",
            **{key: value for key, value in engine.environment.items() if key != "PYTHONPATH" and not key.startswith("PIP_")}})
    return path


@pytest.fixture
def foreign(built: Path) -> Iterator[Path]:
    kept = built.parent / "kept"
    shutil.copytree(built, kept, symlinks=True)
    yield built
    shutil.rmtree(built)
    kept.rename(built)


def test_a_foreign_environment_as_its_wheels_say(engine: Engine, foreign: Path) -> None:
    answer = engine.audit(path=str(foreign), shipped=[engine.manifest])
    assert (found(answer), answer["verdict"]) == ([], "pristine")
    assert answer["reference"] == {"manifest": ["torch", "vllm"], "wheel": ["foreign"], "record": ["pip"]}
    assert answer["notes"] == [
        "foreign 4 plugs into the engine: vllm.general_plugins: foreign",
        "no wheel to compare with for pip: the index has no such wheel, or does not answer"]


def test_a_foreign_environment_that_was_worked_on(engine: Engine, foreign: Path) -> None:
    site = foreign / SITE
    append(site / "vllm/models/gguf.py", "PATCHED = True\n")
    append(site / "vllm/envs.py", "PATCHED = True\n")
    append(site / "torch/__init__.py", "PATCHED = True\n")
    edit(site / "vllm/models/deepseek_v2.py", b"        return", b"        torch.save(hidden_states, '/tmp/a.pt')\n        return")
    append(site / "vllm/kernels/rms.py", "import torch\ntorch.save(EPS, '/tmp/b.pt')\n")
    answer = engine.audit(path=str(foreign), shipped=[engine.manifest])
    assert answer["verdict"] == "dirty"
    assert [each["path"] for each in answer["findings"] if each["kind"] == "changed"] == [f"{SITE}/{name}" for name in (
        "torch/__init__.py", "vllm/envs.py", "vllm/kernels/rms.py", "vllm/models/deepseek_v2.py", "vllm/models/gguf.py")]
    changed = [each for each in answer["findings"] if each["kind"] == "changed"]
    assert ["torch.save" in each["message"] for each in changed] == [False, False, True, True, False]
    assert all(each["diff"].startswith("--- wheel/") for each in changed)


def test_a_foreign_environment_whose_record_was_added_to(engine: Engine, foreign: Path) -> None:
    site = foreign / SITE
    (site / "vllm/evil.py").write_text("EVIL = 1\n")
    (foreign / "bin/evil").write_text("#!/bin/sh\n")
    append(site / "vllm-1.dist-info/RECORD", "vllm/evil.py,,\n../../../bin/evil,,\n")
    info = site / "working-1.dist-info"
    info.mkdir()
    (site / "working.pth").write_text("/src/working\n")
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///src/working", "dir_info": {"editable": True}}))
    (info / "RECORD").write_text("working.pth,,\nworking-1.dist-info/direct_url.json,,\nworking-1.dist-info/RECORD,,\n")
    answer = engine.audit(path=str(foreign), shipped=[engine.manifest])
    assert found(answer) == [
        ("foreign distribution", f"{SITE}/working-1.dist-info"), ("unowned", "bin/evil"), ("unowned", f"{SITE}/vllm/evil.py")]


def test_a_foreign_environment_with_odd_files(engine: Engine, foreign: Path) -> None:
    site, python = foreign / SITE, foreign / "bin/python"
    for name, text in {
            "large": "x" * 200_000 + ",,\n", "x\n--index-url y": "", "other": "other-1.dist-info/entry_points.txt,,\n"}.items():
        (site / f"{name}-1.dist-info").mkdir()
        (site / f"{name}-1.dist-info/RECORD").write_text(text)
    (site / "other-1.dist-info/entry_points.txt").write_text("no section\n")
    (site / "dangling-1.dist-info").mkdir()
    (site / "dangling-1.dist-info/RECORD").symlink_to("/nowhere")
    (site / "vllm/__pycache__").mkdir(exist_ok=True)
    (site / f"vllm/__pycache__/envs.cpython-{PYTHON.replace('.', '')}.opt-{9**30}.pyc").write_bytes(
        importlib.util.MAGIC_NUMBER + bytes(12) + b"\xe3")
    target = python.readlink()
    python.unlink()
    python.write_text(f"#!/bin/sh\nexec {target} \"$@\"\n")
    answer = engine.audit(path=str(foreign), shipped=[engine.manifest])
    assert {("changed", f"{SITE}/large-1.dist-info/RECORD"), ("missing", f"{SITE}/dangling-1.dist-info/RECORD"),
            ("unowned", "bin/python")} <= set(found(answer))
    python.unlink()
    python.symlink_to(target)
    answer = engine.audit(path=str(foreign), shipped=[engine.manifest])
    assert ("byte code", f"{SITE}/vllm/__pycache__/envs.cpython-{PYTHON.replace('.', '')}.opt-{9**30}.pyc") in found(answer)


def test_an_environment_that_is_no_virtual_one(engine: Engine, foreign: Path) -> None:
    (foreign / "pyvenv.cfg").unlink()
    answer = engine.audit(path=str(foreign), shipped=[engine.manifest])
    assert (found(answer), answer["verdict"]) == ([], "pristine")


def test_no_environment(engine: Engine, tmp_path: Path) -> None:
    answer = engine.audit(path=str(tmp_path))
    assert answer["failed"]
    assert answer["msg"] == (
        f"path: {tmp_path} is no Python environment: it has 0 folders lib/python3*/site-packages. Name the folder that `python -m venv`, "
        "uv or conda made")


# What runs from it


@contextlib.contextmanager
def running(engine: Engine, code: str, environment: dict[str, str], folder: Path) -> Iterator[int]:
    with subprocess.Popen(
            [engine.root / "bin/python", "-c", f"{code}\nprint(flush=True)\nimport time; time.sleep(600)"], cwd=folder, text=True,
            env={"PYTHONSAFEPATH": "1", **environment}, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def test_a_process_of_the_engine_alone(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    with running(engine, "import vllm, ssl", {}, tmp_path) as pid:
        answer = engine.audit()
    assert (answer["processes"], found(answer), answer["notes"]) == ([pid], [], [])


def test_a_process_with_foreign_code(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/vllm.py").write_text("")
    library = tmp_path / "libevil.so"
    shutil.copy(next(Path("/usr/lib").rglob("libz.so.1")).resolve(), library)
    with running(engine, f"import ctypes; ctypes.CDLL('{library}')", {
            "PYTHONSAFEPATH": "", "PYTHONPATH": str(tmp_path / "other"), "LD_PRELOAD": str(library),
            "LD_LIBRARY_PATH": "/usr/lib:/nowhere/lib", "VLLM_NCCL_SO_PATH": "/nowhere/libnccl.so.2"}, tmp_path) as pid:
        answer = engine.audit()
    assert answer["verdict"] == "dirty"
    assert [(each["kind"], each["path"], each["message"]) for each in answer["findings"]] == [
        ("environment", f"process {pid}", f"LD_PRELOAD={library} makes it load from {library} (process {pid})"),
        ("environment", f"process {pid}", f"LD_LIBRARY_PATH=/usr/lib:/nowhere/lib makes it load from /nowhere/lib (process {pid})"),
        ("environment", f"process {pid}", f"PYTHONPATH={tmp_path}/other makes it load from {tmp_path}/other (process {pid})"),
        ("environment", f"process {pid}",
         f"VLLM_NCCL_SO_PATH=/nowhere/libnccl.so.2 makes it load from /nowhere/libnccl.so.2 (process {pid})"),
        ("process", str(library), f"is loaded, and is no file of the engine (process {pid})"),
        ("search path", str(tmp_path), f"is on sys.path, with libevil.so, torch.py (process {pid})"),
        ("search path", f"{tmp_path}/other", f"is on sys.path, with vllm.py (process {pid})")]


def test_the_folder_of_a_program() -> None:
    assert engine_process.main_folder(["python", "/e/bin/vllm", "serve", "-c"], "/cwd") == "/e/bin"
    assert engine_process.main_folder(["python", "-W", "error", "-Xutf8", "-m", "vllm"], "/cwd") == "/cwd"
    assert engine_process.main_folder(["VLLM::EngineCore"], "/cwd") == "/"


def test_places_that_only_look_allowed() -> None:
    assert engine_process.environment_findings({"LD_PRELOAD": "/e/../tmp/evil.so"}, ["/e"])
    assert engine_process.environment_findings({"LD_PRELOAD": "/dev/shm/evil.so"}, engine_process.SYSTEM)
    assert engine_process.environment_findings({"PYTHONPATH": "here"}, engine_process.SYSTEM)
    assert not engine_process.environment_findings({"LD_PRELOAD": "/e/lib/x.so", "NCCL_NET_PLUGIN": "none"}, ["/e"])
    paths = ["/tmp/evil.so (deleted)", "/tmp/ffiB2 (deleted)", "/dev/shm/evil.so", "/dev/nvidia0", "/memfd:x (deleted)"]
    assert [path for path, _message in engine_process.map_findings(paths, "/e", engine_process.SYSTEM)] == [
        "/tmp/evil.so (deleted)", "/dev/shm/evil.so"]


def test_the_variables_of_a_unit() -> None:
    text = (
        "# LD_AUDIT=/x\nA=1 \"LD_PRELOAD=/tmp/a b.so\"\nPYTHONPATH='/tmp'\n"
        "{ path=/usr/bin/env ; argv[]=/usr/bin/env VLLM_NCCL_SO_PATH=/n it's }\n")
    values = engine_audit_info.assignments(text)
    assert {name: values.get(name) for name in ("LD_AUDIT", "A", "LD_PRELOAD", "PYTHONPATH", "VLLM_NCCL_SO_PATH")} == {
        "LD_AUDIT": None, "A": "1", "LD_PRELOAD": "/tmp/a b.so", "PYTHONPATH": "/tmp", "VLLM_NCCL_SO_PATH": "/n"}


def test_a_process_older_than_the_engine(engine: Engine, tmp_path: Path) -> None:
    with running(engine, "import vllm", {}, tmp_path) as pid:
        time.sleep(2)
        edit(engine.site / "vllm/envs.py", b"[]", b"[1]")
        edit(engine.site / "vllm/envs.py", b"[1]", b"[]")
        answer = engine.audit()
    assert [(each["kind"], each["path"], each["message"]) for each in answer["findings"]] == [
        ("process", f"{SITE}/vllm/envs.py", f"was changed after the process began: restart its unit (process {pid})")]


def test_the_code_among_the_weights(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "modeling.py").write_bytes(b"A = 1\n")
    (tmp_path / "tokenization.py").write_bytes(b"B = 2\n")
    (tmp_path / "added.py").write_bytes(b"C = 3\n")
    (tmp_path / ".modelhost.json").write_text(json.dumps({"files": {
        "modeling.py": {"size": 6, "sha256": sha256(b"A = 1\n")}, "tokenization.py": {"size": 6, "sha256": sha256(b"B = 1\n")}}}))
    answer = engine.audit(remote_code=[str(tmp_path)])
    assert answer["remote_code"] == {
        f"{tmp_path}/added.py": sha256(b"C = 3\n"), f"{tmp_path}/modeling.py": sha256(b"A = 1\n"),
        f"{tmp_path}/tokenization.py": sha256(b"B = 2\n")}
    assert found(answer) == [("remote code", f"{tmp_path}/added.py"), ("remote code", f"{tmp_path}/tokenization.py")]
