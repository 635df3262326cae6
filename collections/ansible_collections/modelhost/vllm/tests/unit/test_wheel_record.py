"""RECORD in one form: of a wheel, and of what uv and pip install from it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import wheel_record

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
DIST_INFO = "My_Pkg.x-1.0.dist-info"
DATA = "My_Pkg.x-1.0.data"
ONE = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"  # of "1"
# Every file has the content "1", but scripts and what has to be read
CONTENT = {
    "my_pkg/__init__.py": b"1", "my_pkg/with, comma.txt": b"1", "my_pkg/with space.txt": b"1", "my_pkg/\u00fcber.txt": b"1",
    'my_pkg/"quoted".txt': b"1", "my_pkg/sha384.bin": b"1", "my_pkg/sha512.bin": b"1", "my_pkg/md5.bin": b"1",
    "my_pkg/no hash.txt": b"1", "my_pkg/no row.txt": b"1", "my_pkg/wrong.txt": b"1", "my_pkg/old.pyc": b"1",
    "my_pkg/vendored-1.dist-info/INSTALLER": b"1", f"{DATA}/data/etc/my.conf": b"1", f"{DATA}/data/bin/plain": b"1",
    f"{DATA}/data/share/man page": b"1", f"{DATA}/headers/sub/my.h": b"1", f"{DATA}/purelib/pure_module.py": b"1",
    f"{DATA}/platlib/plat_module.py": b"1", f"{DATA}/scripts/tool": b"#!python\nimport my_pkg\n",
    f"{DATA}/scripts/tool-with-options": b"#!python -E\r\nimport my_pkg\n", f"{DATA}/scripts/shell": b"#!/bin/sh\necho 1\n",
    f"{DIST_INFO}/METADATA": b"Metadata-Version: 2.1\nName: My_Pkg.x\nVersion: 1.0\n",
    f"{DIST_INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{DIST_INFO}/entry_points.txt": b"[console_scripts]\nmy-command = my_pkg:main\n",
}  # fmt: skip
LIBRARIES = f"lib/python{PYTHON}/site-packages"
NORMALISED = {
    "etc/my.conf": ONE,
    f"include/site/python{PYTHON}/my-pkg-x/sub/my.h": ONE,
    f"{LIBRARIES}/{DIST_INFO}/METADATA": "sha256:cf5657eb9bd8d1d749879fe8de7b6c3508f77dd046a81d5f5b6871b88f3bc630",
    f"{LIBRARIES}/{DIST_INFO}/WHEEL": "sha256:18e2567c62b2feced944cb66accc8916f207c73a3480b655846596c93a81eaea",
    f"{LIBRARIES}/{DIST_INFO}/entry_points.txt": "sha256:8cb87fbd9ab365f23e0f1c97c7a15134db9d7ffdcfe4a2385947746b9f22a97b",
    f'{LIBRARIES}/my_pkg/"quoted".txt': ONE,
    f"{LIBRARIES}/my_pkg/__init__.py": ONE,
    f"{LIBRARIES}/my_pkg/sha384.bin": (
        "sha384:47f05d367b0c32e438fb63e6cf4a5f35c2aa2f90dc7543f8a41a0f95ce8a40a313ab5cf36134a2068c4c969cb50db776"),
    f"{LIBRARIES}/my_pkg/sha512.bin": (
        "sha512:4dff4ea340f0a823f15d3f4f01ab62eae0e5da579ccb851f8db9dfe84c58b2b3"
        "7b89903a740e1ee172da793a6e79d560e5f7f9bd058a12a280433ed6fa46510a"),
    f"{LIBRARIES}/my_pkg/vendored-1.dist-info/INSTALLER": ONE,
    f"{LIBRARIES}/my_pkg/with space.txt": ONE,
    f"{LIBRARIES}/my_pkg/with, comma.txt": ONE,
    f"{LIBRARIES}/my_pkg/wrong.txt": "sha256:d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35",  # of "2"
    f"{LIBRARIES}/my_pkg/\u00fcber.txt": ONE,
    f"{LIBRARIES}/plat_module.py": ONE,
    f"{LIBRARIES}/pure_module.py": ONE,
    "share/man page": ONE,
}
LEFT_OUT = {
    "bin/plain": ONE,
    "bin/shell": "sha256:716269d16f6dab02eee206f253f49afa8ee4f36efcd38ef9f65310edd5a1c61f",
    "bin/tool": "sha256:b705efc11b90116faa7070fd1f41c70340bb97791795ea3e4f97e3811cd4affc",
    "bin/tool-with-options": "sha256:676dcf39443266c66f309bd69422d599428874910118c99be88fd0409efd9723",
    f"{LIBRARIES}/{DIST_INFO}/RECORD": "",
    f"{LIBRARIES}/my_pkg/md5.bin": "",
    f"{LIBRARIES}/my_pkg/no hash.txt": "",
    f"{LIBRARIES}/my_pkg/old.pyc": ONE,
}


def record_hash(path: str, content: bytes) -> str:
    if path.endswith("no hash.txt"):
        return ""
    algorithm = next((name for name in ("md5", "sha384", "sha512") if name in path), "sha256")
    digest = hashlib.new(algorithm, b"2" if path.endswith("wrong.txt") else content).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, content in CONTENT.items():
        if not path.endswith("no row.txt"):
            rows.writerow([path, record_hash(path, content), len(content)])
    rows.writerow([f"{DIST_INFO}/RECORD", "", ""])
    path = tmp_path_factory.mktemp("wheels") / "my_pkg_x-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in CONTENT.items():
            archive.writestr(name, content)
        archive.writestr(f"{DIST_INFO}/RECORD", record.getvalue())
    return path


@pytest.fixture(scope="module")
def of_wheel(wheel: Path) -> list[wheel_record.Row]:
    with zipfile.ZipFile(wheel) as archive:
        return wheel_record.rows(archive.read(f"{DIST_INFO}/RECORD").decode())


@pytest.fixture(scope="module")
def by_uv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    environment = tmp_path_factory.mktemp("uv") / "env"
    uv = shutil.which("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--no-cache", "--no-index", "--find-links", wheel.parent, "--compile-bytecode",
         "--python", environment / "bin/python", "my_pkg.X"],
        check=True)
    return environment


@pytest.fixture(scope="module")
def by_pip(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    environment = tmp_path_factory.mktemp("pip") / "env"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run(
        [environment / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
         "--find-links", wheel.parent, "my_pkg.X"],
        check=True)
    return environment


@pytest.fixture(params=["by_uv", "by_pip"])
def environment(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def installed(environment: Path) -> list[wheel_record.Row]:
    with (environment / LIBRARIES / DIST_INFO / "RECORD").open(encoding="utf-8", newline="") as stream:
        return wheel_record.rows(stream.read())


def digest(rows: list[wheel_record.Row]) -> str:
    return wheel_record.digest(wheel_record.normalised(rows, DIST_INFO, PYTHON), DIST_INFO, PYTHON)


def test_the_files_that_a_wheel_vouches_for(of_wheel: list[wheel_record.Row]) -> None:
    assert wheel_record.normalised(of_wheel, DIST_INFO, PYTHON) == NORMALISED
    assert wheel_record.left_out(of_wheel, DIST_INFO, PYTHON) == LEFT_OUT


def test_an_untouched_installation_has_the_digest_of_its_wheel(environment: Path, of_wheel: list[wheel_record.Row]) -> None:
    assert digest(installed(environment)) == digest(of_wheel)


def test_every_file_lies_where_its_row_says(environment: Path) -> None:
    rows = installed(environment)
    places = {**wheel_record.normalised(rows, DIST_INFO, PYTHON), **wheel_record.left_out(rows, DIST_INFO, PYTHON)}
    assert [path for path in places if not (environment / path).is_file()] == []
    # What the wheel says of its places is where they are; only the folder of headers is spelled as the installer likes.
    headers = f"include/site/python{PYTHON}/my-pkg-x/sub/my.h"
    assert [path for path in NORMALISED if not (environment / path).is_file()] in ([], [headers])


def test_what_installers_add_is_left_out(environment: Path) -> None:
    added = set(wheel_record.left_out(installed(environment), DIST_INFO, PYTHON)) - set(LEFT_OUT)
    assert {path for path in added if not path.endswith(".pyc")} - {f"{LIBRARIES}/{DIST_INFO}/uv_cache.json"} == {
        "bin/my-command", f"{LIBRARIES}/my_pkg/no row.txt", f"{LIBRARIES}/{DIST_INFO}/INSTALLER", f"{LIBRARIES}/{DIST_INFO}/REQUESTED"}


@pytest.mark.parametrize("name", ["tool", "tool-with-options"])
def test_a_script_keeps_its_body(environment: Path, name: str) -> None:
    content = (environment / "bin" / name).read_bytes()
    assert content.startswith(f"#!{environment}/bin/python".encode())
    assert wheel_record.script_body(content) == wheel_record.script_body(CONTENT[f"{DATA}/scripts/{name}"]) == b"import my_pkg\n"


def test_a_script_whose_interpreter_has_a_long_path() -> None:
    content = b"#!/bin/sh\n'''exec' '/srv/long path/bin/python' \"$0\" \"$@\"\n' '''\nimport my_pkg\n"
    assert wheel_record.script_body(content) == b"import my_pkg\n"


@pytest.mark.parametrize(
    ("content", "expected"), [(b"#!python\n", True), (b"#!pythonw\n", True), (b"#!/usr/bin/python3\n", False), (b"\x7fELF", False)])
def test_which_scripts_are_rewritten(content: bytes, expected: bool) -> None:
    assert wheel_record.for_python(content) is expected


def test_the_digest_is_the_same_for_each_python(of_wheel: list[wheel_record.Row]) -> None:
    found = {wheel_record.digest(wheel_record.normalised(of_wheel, DIST_INFO, python), DIST_INFO, python) for python in ("3.9", "3.13")}
    assert found == {digest(of_wheel)}


@pytest.mark.parametrize(
    "edited",
    [
        ("my_pkg/__init__.py", "sha256=1HNeOiZeFu7gP1lxi5tdAwGcB9i2xR-Q2jpmbuwTqzU", "1"),  # another hash
        ("my_pkg/__init__.py", "", ""),
        ("my_pkg/other.py", "sha256=a4ayc_80_OGda4BO_1o_V0etpOqiLx1JwB5S3beHW0s", "1"),  # another file
        ("../../../etc/other.conf", "sha256=a4ayc_80_OGda4BO_1o_V0etpOqiLx1JwB5S3beHW0s", "1"),
    ],
)
def test_an_edited_row_is_seen(of_wheel: list[wheel_record.Row], edited: tuple[str, str, str]) -> None:
    others = [row for row in of_wheel if row.path != edited[0]]
    assert digest([*others, wheel_record.Row(*edited)]) != digest(of_wheel)


def test_a_second_row_of_a_file_does_not_replace_the_first(of_wheel: list[wheel_record.Row]) -> None:
    other = wheel_record.Row("my_pkg/__init__.py", "sha256=1HNeOiZeFu7gP1lxi5tdAwGcB9i2xR-Q2jpmbuwTqzU", "1")
    assert wheel_record.left_out([*of_wheel, other], DIST_INFO, PYTHON)[f"{LIBRARIES}/my_pkg/__init__.py"] == ""
    assert digest([*of_wheel, other]) != digest(of_wheel)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("pkg/a.py", "lib/python3.12/site-packages/pkg/a.py"),
        ("./pkg//a.py", "lib/python3.12/site-packages/pkg/a.py"),
        ("../../../bin/tool", "bin/tool"),
        ("../../../lib64/python3.12/site-packages/pkg/a.py", "lib/python3.12/site-packages/pkg/a.py"),
        ("../../../../etc/passwd", "../etc/passwd"),
        ("/etc/passwd", "/etc/passwd"),
        ("my_pkg-1.0.data/data/../../etc/passwd", "../../etc/passwd"),
        ("my_pkg-1.0.data/unknown/a", "lib/python3.12/site-packages/my_pkg-1.0.data/unknown/a"),
        ("other-1.0.data/scripts/a", "lib/python3.12/site-packages/other-1.0.data/scripts/a"),
    ],
)
def test_places(path: str, place: str) -> None:
    assert wheel_record.place(path, "my_pkg-1.0.dist-info", "3.12") == place


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sha256=a4ayc_80_OGda4BO_1o_V0etpOqiLx1JwB5S3beHW0s", ONE),
        ("sha256=a4ayc_80_OGda4BO_1o_V0etpOqiLx1JwB5S3beHW0s=", ONE),
        ("md5=xMpCOKC5I4INzFCab3WEmw", ""),
        ("sha256=a4ayc", ""),
        ("sha256=6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b", ""),  # hexadecimal digits are no base64 of it
        ("sha256=", ""),
        ("sha256=\u00fc", ""),
        ("", ""),
    ],
)
def test_a_hash_in_hexadecimal_digits(text: str, expected: str) -> None:
    assert wheel_record.hexadecimal(text) == expected
