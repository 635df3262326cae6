#!/usr/bin/env python3
"""Make an engine's lock and manifest from its wheels.

    tools/manifest.py PYTHON GLIBC WHEELS LOCK < RESOLVED      (tools/lock calls it)

RESOLVED is a lock with the hashes of every file of each version, as uv makes it. LOCK is written with one hash a package, that of the wheel
in the folder WHEELS that an installer prefers on x86_64 with this Python and glibc; and beside LOCK its manifest, LOCK with .json for .txt:

    schema        1
    lock_sha256   of LOCK
    python        "3.12"
    wheels        by the distribution's normal name: version; wheel, its file name; sha256, of that file; record, the digest of its
                  RECORD (module_utils/wheel_record.py); files, how many it brings
    files         by path below the environment: sha256 of what may be there, one for each wheel that brings other content. Which paths:
                  those that a wheel's RECORD has no hash or a wrong one of, those below bin/, and those that two wheels bring with different
                  content, where the order of installation decides. [] is a file that a RECORD names and its wheel has not.
    scripts       by path below the environment: likewise, for scripts whose first line the installer writes; sha256 of the rest

Every file of every wheel is held by this, except byte code and what the installer writes into .dist-info: by the hash in RECORD, which
"record" holds, or by its entry in "files" or "scripts".
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "collections"))
from ansible_collections.modelhost.vllm.plugins.module_utils import wheel_record  # noqa: E402

BLOCK = 2**20
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Unusable(Exception):
    """Why no lock can be made."""


@dataclasses.dataclass
class Wheel:
    """What a manifest says of a wheel."""

    name: str
    version: str
    file: str
    sha256: str
    record: str = ""  # digest of its RECORD
    files: dict[str, str] = dataclasses.field(default_factory=dict)  # sha256 by place below the environment
    unrecorded: set[str] = dataclasses.field(default_factory=set)  # places that the digest of RECORD says nothing or something wrong about
    scripts: dict[str, str] = dataclasses.field(default_factory=dict)  # sha256 of the script's body by place


def digests(stream: Any, algorithms: Iterable[str]) -> dict[str, str]:
    """Digests of a stream, by algorithm."""
    found = {algorithm: hashlib.new(algorithm) for algorithm in algorithms}
    while block := stream.read(BLOCK):
        for each in found.values():
            each.update(block)
    return {algorithm: each.hexdigest() for algorithm, each in found.items()}


@functools.cache
def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return digests(stream, ["sha256"])["sha256"]


def dist_info_of(archive: zipfile.ZipFile, path: Path) -> str:
    """The .dist-info folder of a wheel: the one that is named like it (others may be inside packages)."""
    name, version = parse_wheel_filename(path.name)[:2]
    tops = {member.partition("/")[0] for member in archive.namelist()}
    for top in sorted(tops):
        if top.endswith(".dist-info") and wheel_record.distribution(top)[0] == canonicalize_name(name):
            return top
    raise Unusable(f"{path.name}: no .dist-info of {name} {version} in it")


def digests_of_members(archive: zipfile.ZipFile, path: Path, dist_info: str) -> dict[str, dict[str, str]]:
    """Digests of every file of a wheel, by algorithm and its path in the wheel; with "body" of a script that an installer rewrites.

    They are kept beside the wheel, since the engine's locks for other Pythons are largely of the same wheels.
    """
    kept = path.with_name(f"{path.name}.json")
    with contextlib.suppress(OSError, ValueError):
        sha256, found = json.loads(kept.read_text(encoding="utf-8"))
        if sha256 == sha256_of(path):
            return found
    rows = wheel_record.rows(archive.read(f"{dist_info}/RECORD").decode("utf-8"))
    algorithms = {row.path: wheel_record.hexadecimal(row.hash).partition(":")[0] for row in rows}
    found = {}
    for member in archive.infolist():
        if member.is_dir():
            continue
        with archive.open(member) as stream:
            found[member.filename] = digests(stream, {"sha256", algorithms.get(member.filename) or "sha256"})
        if wheel_record.script(member.filename, dist_info) and wheel_record.for_python(content := archive.read(member)):
            found[member.filename]["body"] = hashlib.sha256(wheel_record.script_body(content)).hexdigest()
    kept.write_text(json.dumps([sha256_of(path), found]), encoding="utf-8")
    return found


def read_wheel(path: Path, python: str) -> Wheel:
    """Compare every file of a wheel with the wheel's RECORD."""
    with zipfile.ZipFile(path) as archive:
        dist_info = dist_info_of(archive, path)
        rows = wheel_record.rows(archive.read(f"{dist_info}/RECORD").decode("utf-8"))
        members = digests_of_members(archive, path, dist_info)
    recorded = wheel_record.normalised(rows, dist_info, python)
    name, version = parse_wheel_filename(path.name)[:2]
    wheel = Wheel(name, str(version), path.name, sha256_of(path))
    for member, found in members.items():
        place = wheel_record.place(member, dist_info, python)
        if place.startswith(("../", "/")):
            raise Unusable(f"{path.name}: {member!r} leaves the environment")
        if wheel_record.of_installer(place, dist_info, python):
            continue
        if "body" in found:
            wheel.scripts[place] = found["body"]
            continue
        wheel.files[place] = found["sha256"]
        algorithm, _colon, expected = recorded.get(place, "sha256:").partition(":")
        if found.get(algorithm) != expected:
            wheel.unrecorded.add(place)
    wheel.unrecorded |= set(recorded) - set(wheel.files)
    wheel.record = wheel_record.digest({path: recorded[path] for path in recorded if path in wheel.files}, dist_info, python)
    return wheel


def contents(wheels: Iterable[Wheel]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The "files" and "scripts" of a manifest."""
    files: dict[str, set[str]] = {}
    scripts: dict[str, set[str]] = {}
    listed: set[str] = set()
    for wheel in wheels:
        listed |= wheel.unrecorded
        for found, brought in ((files, wheel.files), (scripts, wheel.scripts)):
            for place, sha256 in brought.items():
                found.setdefault(place, set()).add(sha256)
    listed |= {place for place, found in files.items() if len(found) > 1}
    return (
        {place: sorted(files.get(place, ())) for place in sorted(listed)},
        {place: sorted(found) for place, found in sorted(scripts.items())},
    )


def read_wheels(paths: Iterable[Path], python: str) -> list[Wheel]:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda path: read_wheel(path, python), paths))


def manifest_text(wheels: Iterable[Wheel], lock: str, python: str) -> str:
    """The manifest as JSON with one wheel, file or script a line, so that its diff reads like that of the lock."""
    wheels = sorted(wheels, key=lambda wheel: wheel.name)
    files, scripts = contents(wheels)
    sections = {
        "wheels": {
            wheel.name: {
                "version": wheel.version, "wheel": wheel.file, "sha256": wheel.sha256, "record": wheel.record,
                "files": len(wheel.files) + len(wheel.scripts),
            }
            for wheel in wheels
        },
        "files": files,
        "scripts": scripts,
    }  # fmt: skip
    head = {"schema": 1, "lock_sha256": hashlib.sha256(lock.encode()).hexdigest(), "python": python}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for key, section in sections.items():
        inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in section.items())
        lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}" if inner else f" {json.dumps(key)}: {{}}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def tag_ranks(python: str, glibc: str) -> dict[Tag, int]:
    """How much an installer prefers a wheel with this tag, the most first, on x86_64."""
    version = tuple(int(part) for part in python.split("."))
    newest = int(glibc.partition(".")[2])
    legacy = {17: ["manylinux2014_x86_64"], 12: ["manylinux2010_x86_64"], 5: ["manylinux1_x86_64"]}
    platforms = [each for minor in range(newest, 4, -1) for each in (f"manylinux_2_{minor}_x86_64", *legacy.get(minor, ()))]
    platforms.append("linux_x86_64")
    interpreter = "cp" + python.replace(".", "")
    tags = [*cpython_tags(version, [interpreter], platforms), *compatible_tags(version, interpreter, platforms)]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def entries(resolved: str) -> Iterator[tuple[str, list[str]]]:
    """The parts of a lock: a comment or an empty line, or a package's requirement with its hashes."""
    for part in re.split(r"\n(?=\S|$)", resolved.rstrip("\n")):
        yield re.split(r"\s*\\?\n?\s*--hash=", part, maxsplit=1)[0], HASH.findall(part)


def choose(name: str, version: str, hashes: list[str], available: dict[str, list[Path]], ranks: dict[Tag, int]) -> tuple[Path, str]:
    """The wheel of a package that an installer prefers, among those whose hash the lock has; with that hash."""
    found = []
    for path in available.get(f"{canonicalize_name(name)}=={version}", []):
        _name, _version, build, tags = parse_wheel_filename(path.name)
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None and (sha256 := sha256_of(path)) in hashes:
            found.append((-rank, build, path, sha256))
    if not found:
        raise Unusable(f"{name}=={version}: no wheel in the folder with a hash of the lock and a tag of this platform")
    return max(found)[2:]


def main(python: str, glibc: str, folder: str, lock: str) -> None:
    ranks = tag_ranks(python, glibc)
    available: dict[str, list[Path]] = {}
    for path in sorted(Path(folder).glob("*.whl")):
        name, version = parse_wheel_filename(path.name)[:2]
        available.setdefault(f"{name}=={version}", []).append(path)
    text, chosen = "", []
    for requirement, hashes in entries(sys.stdin.read()):
        if pin := PIN.match(requirement):
            path, sha256 = choose(pin[1], pin[2], hashes, available, ranks)
            chosen.append(path)
            text += f"{requirement} \\\n    --hash=sha256:{sha256}\n"
        else:
            text += f"{requirement}\n"
    manifest = manifest_text(read_wheels(chosen, python), text, python)
    Path(lock).write_text(text, encoding="utf-8")
    Path(lock).with_suffix(".json").write_text(manifest, encoding="utf-8")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Unusable as error:
        sys.exit(f"manifest: {error}")
