"""Fetch a tar or zip archive of known sha256 and unpack it. A download that was cut goes on where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from store import BLOCK, Job, Progress, fail


def download(job: Job, url: str) -> Path:
    path = job.work / "archive"
    have = path.stat().st_size if path.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to fetch
            return path
        fail(f"{job.variable}.url: {url}: {error}")
    except urllib.error.URLError as error:
        fail(f"{job.variable}.url: {url}: {error.reason}")
    with answer:
        resumed = answer.status == 206
        left = int(answer.headers.get("Content-Length") or 0)
        job.need(left)
        total = left + (have if resumed else 0)
        with open(path, "ab" if resumed else "wb") as stream, Progress("downloading", total, lambda: path.stat().st_size):
            with contextlib.suppress(ConnectionError, TimeoutError):  # what is missing is said below
                shutil.copyfileobj(answer, stream, BLOCK)
    if path.stat().st_size < total:
        fail(f"{job.variable}.url: {url} was cut after {path.stat().st_size} of {total} bytes; run this again to go on from there")
    return path


def digest(path: Path) -> str:
    found, size = hashlib.sha256(), path.stat().st_size
    with open(path, "rb") as stream, Progress("verifying", size, stream.tell):
        while block := stream.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def members(path: Path) -> Iterator[tuple[str, BinaryIO]]:
    """Name and content of every file. Links and devices are no weights."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    yield entry.filename, archive.open(entry)
    else:
        with tarfile.open(path) as archive:
            for entry in archive:
                if entry.isfile():
                    yield entry.name, archive.extractfile(entry)
                elif not entry.isdir():
                    raise tarfile.TarError(f"{entry.name} is neither a file nor a directory")


def unpack(path: Path, into: Path) -> None:
    for name, content in members(path):
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise tarfile.TarError(f"{name} leads out of the archive")
        print(f"unpacking {name}", flush=True)
        out = into / relative
        out.parent.mkdir(parents=True, exist_ok=True)
        with content, open(out, "wb") as stream:
            shutil.copyfileobj(content, stream, BLOCK)


def main() -> None:
    job = Job(sys.argv[1])
    url, sha256 = job.weights["url"], job.weights["sha256"]
    job.open()
    local = url[len("file://"):] if url.startswith("file://") else url
    archive = Path(local) if local.startswith("/") else download(job, url)
    if not archive.is_file():
        fail(f"{job.variable}.url: {archive} is no file on this host")
    found = digest(archive)
    if found != sha256:
        (job.work / "archive").unlink(missing_ok=True)
        fail(f"{job.variable}.sha256 is {sha256}, but {url} has {found}. Nothing was kept: check the address, then the digest "
             "that its publisher gives")

    unpacked = job.work / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    try:
        unpack(archive, unpacked)
    except (tarfile.TarError, zipfile.BadZipFile) as error:
        fail(f"{job.variable}.url: {url} cannot be unpacked: {error}")
    # One directory that holds everything is the archive's packaging, not part of the model.
    entries = list(unpacked.iterdir())
    top = entries[0] if len(entries) == 1 and entries[0].is_dir() else unpacked
    for path in job.files().values():
        path.unlink()
    for entry in top.iterdir():
        if (job.partial / entry.name).is_dir():
            shutil.rmtree(job.partial / entry.name)
        os.replace(entry, job.partial / entry.name)
    job.seal()


if __name__ == "__main__":
    main()
