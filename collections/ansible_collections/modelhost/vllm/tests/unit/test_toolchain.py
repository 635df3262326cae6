"""The proof that a service can compile, with tools of our own on its PATH; molecule has the real ones."""

from __future__ import annotations

import getpass
import os

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import toolchain
from ansible_collections.modelhost.vllm.plugins.modules import toolchain_info

# nvcc 13.0.88 --list-gpu-arch
ARCHITECTURES = "\n".join(f"compute_{number}" for number in (75, 80, 86, 87, 88, 89, 90, 100, 110, 103, 120, 121)) + "\n"
# nvcc 13.0.88 --version
VERSION = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""
NVCC = f"""case "$*" in
--version) printf '%s' '{VERSION}' ;;
--list-gpu-arch) printf '%s' '{ARCHITECTURES}' ;;
*) printf '%s\\n' "$*" > cuda.o ;;
esac"""


@pytest.mark.parametrize(("capability", "expected"), [
    ("12.0", ""), ("7.5", ""), ("10.3", ""),
    ("7.0", "it compiles for compute capabilities 7.5, 8.0, 8.6, 8.7, 8.8, 8.9, 9.0, 10.0, 11.0, 10.3, 12.0, 12.1, not for 7.0"),
    ("2.0", "it compiles for compute capabilities 7.5, 8.0, 8.6, 8.7, 8.8, 8.9, 9.0, 10.0, 11.0, 10.3, 12.0, 12.1, not for 2.0"),
])
def test_what_an_nvcc_compiles_for(capability, expected):
    assert toolchain.cannot_compile(ARCHITECTURES, capability) == expected


def test_an_nvcc_that_says_nothing():
    assert toolchain.cannot_compile("", "12.0") == "it compiles for compute capabilities (none), not for 12.0"


def test_the_release_of_nvcc():
    assert toolchain.release(VERSION) == "13.0"
    assert toolchain.release("nvcc: command not found") == ""


@pytest.mark.parametrize(("output", "expected"), [
    (["python.c:1:10: fatal error: Python.h: No such file or directory", "    1 | #include <Python.h>", "compilation terminated."],
     "python.c:1:10: fatal error: Python.h: No such file or directory"),
    (["nvcc fatal   : Unsupported gpu architecture 'compute_120'"], "nvcc fatal   : Unsupported gpu architecture 'compute_120'"),
    (["/usr/bin/ld: cannot find -lcudart: No such file or directory", "collect2: error: ld returned 1 exit status"],
     "/usr/bin/ld: cannot find -lcudart: No such file or directory"),
    (["one", "", "two", " "], "two"),
    ([], "it failed without a word"),
])
def test_the_line_that_says_why(output, expected):
    assert toolchain.decisive(output) == expected


@pytest.fixture
def tools(tmp_path):
    """A PATH, and a way to put a program on it. All that a host needs is there."""
    folder = tmp_path / "bin"

    def put(name, script="exit 0", where=folder):
        where.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(f"#!/bin/sh\n{script}\n")
        (where / name).chmod(0o755)

    for name in ("gcc", "g++", "ninja"):
        put(name)
    put("python3", "echo /usr/include/python3.13")
    put.path, put.folder, put.cuda = f"{folder}:/usr/bin:/bin", folder, tmp_path / "cuda"
    put.home = str(put.cuda)
    return put


@pytest.fixture
def tried(call, tools):
    def run(**params):
        return call(toolchain_info, user=getpass.getuser(), path=str(tools.folder), **params)
    return run


def test_everything_compiles(tried):
    assert tried() == {"changed": False, "findings": [], "cuda_version": ""}


@pytest.mark.case("A6")
def test_all_that_is_missing_is_said_at_once(tried, tools):
    for name in ("g++", "ninja"):
        (tools.folder / name).unlink()
    tools("gcc", 'case "$*" in *python.c*) echo "python.c:1:10: fatal error: Python.h: No such file or directory" >&2; exit 1 ;; esac')
    assert tried()["findings"] == [
        {"what": "Python.h", "why": "python.c:1:10: fatal error: Python.h: No such file or directory",
         "fix": "install the package python3-dev"},
        {"what": "g++", "why": f"g++ is not on the PATH {tools.folder}", "fix": "install the package g++"},
        {"what": "ninja", "why": f"ninja is not on the PATH {tools.folder}", "fix": "install the package ninja-build"},
    ]


@pytest.mark.case("A6")
def test_a_toolkit_that_works(tried, tools):
    tools("nvcc", NVCC, tools.cuda / "bin")
    tools("g++", f'[ "$1 $2" != "-shared -Wl,-z,defs" ] || cp /dev/stdin "{tools.cuda}/linked" < cuda.o')
    tools("cp", 'PATH=/usr/bin:/bin exec cp "$@"')
    assert tried(cuda_home=tools.home, compute_capability="12.0") == {"changed": False, "findings": [], "cuda_version": "13.0"}
    assert (tools.cuda / "linked").read_text() == (
        "-gencode=arch=compute_120,code=sm_120 -std=c++17 -Xcompiler -fPIC -c probe.cu -o cuda.o\n")


@pytest.mark.case("A6")
@pytest.mark.parametrize(("script", "capability", "what", "why"), [
    ("", "12.0", "nvcc", "nvcc is not on the PATH {0}/cuda/bin:{0}/bin"),
    (NVCC, "7.0", "nvcc", "it compiles for compute capabilities 7.5, 8.0, 8.6, 8.7, 8.8, 8.9, 9.0, 10.0, 11.0, 10.3, 12.0, 12.1, not for 7.0"),
    ('case "$*" in --list*) echo compute_120 ;; *) echo "probe.cu:6: fatal error: curand_kernel.h: No such file" >&2; exit 1 ;; esac', "12.0",
     "a kernel for sm_120", "probe.cu:6: fatal error: curand_kernel.h: No such file"),
])
def test_a_toolkit_that_does_not(tried, tools, tmp_path, script, capability, what, why):
    if script:
        tools("nvcc", script, tools.cuda / "bin")
    found = tried(cuda_home=tools.home, compute_capability=capability)["findings"]
    assert [(each["what"], each["why"]) for each in found] == [(what, why.format(tmp_path))]


def test_libraries_that_are_missing(tried, tools):
    tools("nvcc", NVCC, tools.cuda / "bin")
    tools("g++", '[ "$1 $2" != "-shared -Wl,-z,defs" ] || { echo "/usr/bin/ld: cannot find -lcudart" >&2; exit 1; }')
    assert tried(cuda_home=tools.home, compute_capability="12.0")["findings"] == [
        {"what": "linking with CUDA", "why": "/usr/bin/ld: cannot find -lcudart",
         "fix": f"{tools.home} must be a complete CUDA toolkit that works with this compiler"}]


def test_the_environment_is_the_units_and_nothing_else(tried, tools, monkeypatch):
    monkeypatch.setenv("CPATH", "/somewhere")
    tools("env", 'PATH=/usr/bin:/bin exec env "$@"')
    tools("ninja", f'env > "{tools.folder}/seen"')
    tried()
    seen = dict(line.split("=", 1) for line in (tools.folder / "seen").read_text().splitlines())
    assert set(seen) - {"PWD", "_", "SHLVL", "OLDPWD"} == {"PATH", "HOME", "TMPDIR", "LC_ALL"}
    assert seen["HOME"] == seen["TMPDIR"] and not os.path.exists(seen["HOME"])


def test_a_command_that_hangs(tried, tools):
    tools("ninja", "exec /bin/sleep 30")
    assert [each["why"] for each in tried(timeout=1)["findings"]] == ["ninja did not end within 1 s"]


def test_a_program_that_may_not_be_run(tried, tools):
    (tools.folder / "ninja").chmod(0o644)
    assert tried()["findings"][0]["what"] == "ninja"


def test_an_unknown_user(call, tools):
    result = call(toolchain_info, user="nobody-of-that-name", path=tools.path)
    assert result["msg"] == "user: 'nobody-of-that-name' is not known on this host: create it first"


def test_a_toolkit_without_a_compute_capability(tried, tools):
    assert "compute_capability" in tried(cuda_home=tools.home)["msg"]
