# GNU General Public License v3.0+ (see LICENSE)
"""What the libraries under vLLM compile while it serves, in small: each need is tried with the command that they would use."""

from __future__ import annotations

import re
from typing import Iterable, NamedTuple

# Headers and libraries of CUDA that FlashInfer's kernels include and link (flashinfer 0.7.2, data/ and jit/).
_HEADERS = ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda/std/cstdint", "curand_kernel.h", "cublasLt.h", "nvrtc.h")
_LIBRARIES = ("cudart", "cublas", "cublasLt", "nvrtc")

SOURCES = {
    "probe.c": "int probe(void) { return 0; }\n",
    "python.c": "#include <Python.h>\nPyObject *probe(void) { return PyLong_FromLong(0); }\n",
    "probe.cpp": "#include <vector>\nstd::vector<int> probe() { return {0}; }\n",
    "build.ninja": "rule copy\n  command = cp $in $out\nbuild probe.copy: copy probe.c\n",
    "probe.cu": "".join(f"#include <{name}>\n" for name in _HEADERS)
    + "__global__ void probe(float *values) { values[threadIdx.x] *= 2.0f; }\n",
}


class Probe(NamedTuple):
    """A need, the command that proves it, and what provides it."""
    what: str
    argv: list[str]
    fix: str


# Where the headers of the host's own Python are. Engines are made for that Python.
PYTHON = Probe("python3", ["python3", "-c", "import sysconfig; print(sysconfig.get_path('include'))"], "install the package python3")


def host_probes(python_include: str) -> list[Probe]:
    """What every engine needs."""
    shared = ["-shared", "-fPIC"]
    return [
        Probe("gcc", ["gcc", *shared, "probe.c", "-o", "c.so"], "install the package gcc"),
        Probe("Python.h", ["gcc", *shared, f"-I{python_include}", "python.c", "-o", "python.so"], "install the package python3-dev"),
        Probe("g++", ["g++", *shared, "-std=c++17", "probe.cpp", "-o", "cpp.so"], "install the package g++"),
        Probe("ninja", ["ninja"], "install the package ninja-build"),
    ]


def cuda_probes(cuda_home: str, compute_capability: str) -> list[Probe]:
    """What FlashInfer needs: kernels for this GPU are compiled, and linked with the toolkit's libraries. One builds on the other."""
    number = compute_capability.replace(".", "")
    complete = f"{cuda_home} must be a complete CUDA toolkit that works with this compiler"
    places = [f"-L{cuda_home}/lib64", f"-L{cuda_home}/lib64/stubs"]
    return [
        Probe("nvcc", ["nvcc", "--list-gpu-arch"], f"{cuda_home}/bin/nvcc must be there"),
        Probe(f"a kernel for sm_{number}", [
            "nvcc", f"-gencode=arch=compute_{number},code=sm_{number}", "-std=c++17", "-Xcompiler", "-fPIC", "-c", "probe.cu",
            "-o", "cuda.o"], complete),
        Probe("linking with CUDA", [
            "g++", "-shared", "-Wl,-z,defs", "cuda.o", *places, *(f"-l{name}" for name in _LIBRARIES), "-o", "cuda.so"], complete),
    ]


def cannot_compile(architectures: str, compute_capability: str) -> str:
    """What to say where the GPU is not among `nvcc --list-gpu-arch`; an empty text where it is."""
    capabilities = [".".join(found) for found in re.findall(r"^compute_(\d+)(\d)$", architectures, re.MULTILINE)]
    if compute_capability in capabilities:
        return ""
    return f"it compiles for compute capabilities {', '.join(capabilities) or '(none)'}, not for {compute_capability}"


def release(text: str) -> str:
    """The version in `nvcc --version`: "13.0"; an empty text where there is none."""
    found = re.search(r"\brelease (\d+\.\d+)", text)
    return found.group(1) if found else ""


def decisive(output: Iterable[str]) -> str:
    """The line of a failed command that says why: the first with an error in it, else the last one."""
    lines = [line.strip() for line in output if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b|\bfatal\b|cannot find|not found", line, re.IGNORECASE)]
    return (errors or lines[-1:] or ["it failed without a word"])[0]
