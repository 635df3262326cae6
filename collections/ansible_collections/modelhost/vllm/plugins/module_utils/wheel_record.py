# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""RECORD of a wheel and of an installed distribution, in one form: equal for an untouched installation by uv or pip.

    dist_info = "vllm-0.33.0.dist-info"                     # folder that the RECORD lies in
    found = rows(text)                                      # what RECORD says: Row(path, hash, size)
    files = normalised(found, dist_info, "3.12")            # {"lib/python3.12/site-packages/vllm/envs.py": "sha256:e3b0c4..."}
    digest(files, dist_info, "3.12")                        # one sha256 for all of that, the same for each Python
    others = left_out(found, dist_info, "3.12")             # {"bin/vllm": "sha256:...", "lib/.../x.cpython-312.pyc": ""}

`files` are the files that an installer takes from the wheel as they are, below the environment. `others` are the rows that the digest does
not cover, since an installer adds or rewrites the file, or since there is no hash: RECORD itself and its neighbours (`INSTALLER_FILES`),
byte code, everything below bin/, rows without a hash that can be trusted. Whoever edits such a row leaves the digest as it is: a digest
vouches for what is in `files` and for nothing else. A manifest has the hashes of those others that are the wheel's ("files" and "scripts").
`script_body` is what a script of a wheel keeps when it is installed. `of_installer` are the places that no wheel vouches for.

A RECORD may name a file that its wheel has not. uv drops that row and pip keeps it: a manifest has the place with [] in "files", and its
digest is one without it, so that an installed RECORD is compared without these places too.

Sources: "Recording installed projects" (https://packaging.python.org/en/latest/specifications/recording-installed-packages/) for RECORD,
"Binary distribution format" (https://packaging.python.org/en/latest/specifications/binary-distribution-format/) for wheels and their .data,
and pip 23.2 and uv 0.13 for what they add and rewrite, and where headers go.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import json
import posixpath
import re
from typing import Dict, Iterable, List, NamedTuple, Set, Tuple

# In its .dist-info; RECORD.jws and RECORD.p7s are content of a wheel, without a hash in RECORD.
INSTALLER_FILES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "provenance_url.json", "uv_build.json", "uv_cache.json")
# RECORD takes "sha256 or better"; which these are of what hashlib always has
ALGORITHMS = ("sha256", "sha384", "sha512", "sha3_256", "sha3_384", "sha3_512", "blake2b", "blake2s")

# Where a script begins with the interpreter of an environment whose path is too long for the kernel
_LONG_SHEBANG = re.compile(rb"#!/bin/sh\n'''exec' [^\n]*\n' '''\n")


class Row(NamedTuple):
    """One row of RECORD, as it is there: path relative to site-packages, "sha256=..." in base64 or "", size in bytes or ""."""

    path: str
    hash: str
    size: str


def rows(text: str) -> List[Row]:
    """The rows of a RECORD: CSV with the defaults of Python's reader. Read the file as UTF-8 and with newline=""."""
    return [Row(*(row + ["", ""])[:3]) for row in csv.reader(io.StringIO(text, newline="")) if row]


def canonical_name(name: str) -> str:
    """A distribution's name in its normal form (PyPA "Names and normalization"): "my-pkg" of "My_Pkg"."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution(dist_info: str) -> Tuple[str, str]:
    """Normal name and version of the distribution whose .dist-info folder has this name."""
    name, _hyphen, version = dist_info[: -len(".dist-info")].partition("-")
    return canonical_name(name), version


def site_packages(python: str) -> str:
    """Where the modules of an environment lie below it, for its Python such as "3.12"."""
    return "lib/python%s/site-packages" % python


def place(path: str, dist_info: str, python: str) -> str:
    """Where the file of a row lies below the environment; it begins with "../" or "/" where that is outside.

    The row may be of a wheel, relative to its root, which becomes site-packages, or of an installed RECORD, relative to site-packages.
    Headers of a wheel go where uv puts them; pip writes the name as it was asked for ("My_Pkg" for "my-pkg").
    """
    data = dist_info[: -len(".dist-info")] + ".data"
    first, _slash, rest = path.partition("/")
    scheme, _slash, below = rest.partition("/")
    libraries = site_packages(python)
    folders = {
        "purelib": libraries, "platlib": libraries, "data": "", "scripts": "bin",
        "headers": "include/site/python%s/%s" % (python, distribution(dist_info)[0]),
    }  # fmt: skip
    if first == data and scheme in folders:
        found = posixpath.normpath(posixpath.join(folders[scheme], below))
    else:
        found = posixpath.normpath(posixpath.join(libraries, path))
    return found[:3] + found[5:] if found.startswith("lib64/") else found  # the same folder, by a link


def hexadecimal(record_hash: str) -> str:
    """A hash of RECORD as "sha256:e3b0c4...", or "" where there is none, or none that can be trusted or read."""
    algorithm, _equals, value = record_hash.partition("=")
    if algorithm not in ALGORITHMS:
        return ""
    value = value.rstrip("=")
    try:
        binary = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except (binascii.Error, ValueError):
        return ""
    return "%s:%s" % (algorithm, binary.hex()) if len(binary) == hashlib.new(algorithm).digest_size else ""


def of_installer(path: str, dist_info: str, python: str) -> bool:
    """Whether an installer writes this file whatever the wheel has: its notes in .dist-info, and byte code. By place."""
    folder, name = posixpath.split(path)
    return name.endswith(".pyc") or (folder == posixpath.join(site_packages(python), dist_info) and name in INSTALLER_FILES)


def _placed(found: Iterable[Row], dist_info: str, python: str) -> Dict[str, str]:
    """Hash by place. "" for what has none, and for what has two: RECORD then says nothing about it."""
    hashes: Dict[str, Set[str]] = {}
    for row in found:
        hashes.setdefault(place(row.path, dist_info, python), set()).add(hexadecimal(row.hash))
    return {path: max(values) if len(values - {""}) == 1 else "" for path, values in sorted(hashes.items())}


def _not_covered(path: str, dist_info: str, python: str) -> bool:
    return path.startswith("bin/") or of_installer(path, dist_info, python)


def normalised(found: Iterable[Row], dist_info: str, python: str) -> Dict[str, str]:
    """The files that are installed as they are in the wheel, by their place below the environment, each with its hash."""
    return {
        path: value
        for path, value in _placed(found, dist_info, python).items()
        if value and not _not_covered(path, dist_info, python)
    }


def left_out(found: Iterable[Row], dist_info: str, python: str) -> Dict[str, str]:
    """All other rows, by place, each with its hash or ""."""
    return {
        path: value
        for path, value in _placed(found, dist_info, python).items()
        if not value or _not_covered(path, dist_info, python)
    }


def digest(files: Dict[str, str], dist_info: str, python: str) -> str:
    """The sha256 of what `normalised` gave. It does not depend on Python's version, nor on how pip or uv spell the folder of headers."""
    common = {_common(path, dist_info, python): value for path, value in files.items()}
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()


def _common(path: str, dist_info: str, python: str) -> str:
    libraries, headers = site_packages(python) + "/", "include/site/python%s/" % python
    if path.startswith(libraries):
        return "site-packages/" + path[len(libraries):]
    if path.startswith(headers):
        name, slash, below = path[len(headers):].partition("/")
        own = canonical_name(name) == distribution(dist_info)[0]
        return "headers/" + (canonical_name(name) if own else name) + slash + below
    return "environment/" + path


def script(path: str, dist_info: str) -> bool:
    """Whether a file of a wheel is one of its scripts, by its path in the wheel."""
    return path.startswith(dist_info[: -len(".dist-info")] + ".data/scripts/")


def for_python(content: bytes) -> bool:
    """Whether an installer replaces the first line of a wheel's script by one that names the environment's interpreter."""
    return content.startswith(b"#!python")


def script_body(content: bytes) -> bytes:
    """A script without its line that names the interpreter: equal in the wheel and in each environment."""
    long = _LONG_SHEBANG.match(content)
    return content[long.end():] if long else content.partition(b"\n")[2]
