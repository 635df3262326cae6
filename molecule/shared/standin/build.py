#!/usr/bin/env python3
"""Build the wheel of the stand-in engine, the same bytes on every machine, and print its lock or its manifest.

    build.py FOLDER > vllm-standin-1.0.0.txt
    build.py FOLDER --manifest > vllm-standin-1.0.0.json
"""

import base64
import hashlib
import pathlib
import sys
import zipfile

from vllm_standin import __version__

DIST_INFO = f"vllm_standin-{__version__}.dist-info"
METADATA = f"""\
Metadata-Version: 2.1
Name: vllm-standin
Version: {__version__}
Summary: A stand-in for vLLM on small test hosts
Requires-Python: >=3.9
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: modelhost
Root-Is-Purelib: true
Tag: py3-none-any
"""


def contents():
    """Return the files of the wheel by name, RECORD last."""
    top = pathlib.Path(__file__).parent
    paths = sorted(path for package in ("vllm", "vllm_standin") for path in (top / package).rglob("*.py"))
    files = {path.relative_to(top).as_posix(): path.read_bytes() for path in paths}
    files |= {f"{DIST_INFO}/METADATA": METADATA.encode(), f"{DIST_INFO}/WHEEL": WHEEL.encode()}
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{DIST_INFO}/RECORD"] = f"{record}{DIST_INFO}/RECORD,,\n".encode()
    return files


def build(folder):
    """Write the wheel, uncompressed (zlib's output differs between its versions), and return its path."""
    wheel = pathlib.Path(folder) / f"vllm_standin-{__version__}-py3-none-any.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for name, data in contents().items():
            entry = zipfile.ZipInfo(name)  # dated 1980-01-01
            entry.create_system = 3  # Unix, for the mode that follows
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return wheel


def manifest(wheel, lock):
    """Return the manifest of the wheel, for the Python of the test hosts."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))
    from manifest import manifest_text, read_wheels

    return manifest_text(read_wheels([wheel], "3.13"), lock, "3.13")


if __name__ == "__main__":
    wheel = build(sys.argv[1])
    lock = f"vllm-standin=={__version__} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    sys.stdout.write(manifest(wheel, lock) if sys.argv[2:] == ["--manifest"] else lock)
