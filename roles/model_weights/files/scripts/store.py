"""A directory of weights: filled as `<directory>.partial`, verified, then renamed. Standard library only.

A job is one JSON argument: name (of the model), directory (where the weights go), weights (their source), record (the file that keeps what
was hashed), damaged (files below the directory that are not kept), uv (its path), seed (the offline directory that they are copied from,
or "").
What a killed fetch left in the partial directory is kept for the next one, and so is what lies in a directory without a manifest.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

MANIFEST = ".modelhost.json"
WORK = ".cache"  # downloads in progress, below the partial directory; not part of the weights
BLOCK = 8 * 2**20
RECORDED = ("size", "mtime_ns", "inode", "sha256")


class Job:
    again = "Run this again to fetch them"  # what helps where files are missing or damaged

    def __init__(self, argument: str) -> None:
        job = json.loads(argument)
        self.variable = f"modelhost_models.{job['name']}.weights"
        self.target = Path(job["directory"])
        self.weights = job["weights"]
        self.record = Path(job["record"])
        self.damaged = job["damaged"]
        self.uv = job["uv"]
        self.partial = Path(job["directory"] + ".partial")
        self.work = self.partial / WORK

    def open(self) -> None:
        """Make the partial directory, from what is there already."""
        os.umask(0o022)
        self.work.mkdir(parents=True, exist_ok=True)
        if self.target.is_symlink():  # to weights that are not there any more
            self.target.unlink()
        for name in self.damaged:
            (self.target / name).unlink(missing_ok=True)
            (self.partial / name).unlink(missing_ok=True)
        for path in [path for path in self.target.rglob("*") if path.is_file()]:
            into = self.partial / path.relative_to(self.target)
            into.parent.mkdir(parents=True, exist_ok=True)
            if not into.exists():
                path.rename(into)
        shutil.rmtree(self.target, ignore_errors=True)

    def files(self) -> dict[str, Path]:
        """The weights' own files by their path below the directory."""
        found = {}
        for path in sorted(self.partial.rglob("*")):
            name = path.relative_to(self.partial).as_posix()
            if path.is_file() and name != MANIFEST and not name.startswith(WORK + "/"):
                found[name] = path
        return found

    def write_manifest(self, files: dict[str, dict]) -> None:
        text = json.dumps({"source": self.weights, "files": files}, indent=1, sort_keys=True)
        path = self.partial / MANIFEST
        with open(path.with_suffix(".new"), "w", encoding="utf-8") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(path.with_suffix(".new"), path)

    def need(self, size: int) -> None:
        """Refuse when the disk cannot hold `size` bytes more."""
        free = shutil.disk_usage(self.partial).free
        if size > free:
            fail(f"{self.variable}: {size} bytes are still to be fetched into {self.target.parent}, whose file system has {free} bytes "
                 "free. Free the difference, or add a folder on a larger file system to modelhost_weights_roots and say "
                 f"{self.variable}.size")

    def seal(self, expected: dict[str, dict] | None = None) -> None:
        """Hash every file, compare with what the source promised, write the manifest, and give the directory its name."""
        expected = expected or {}
        files = self.files()
        total = sum(path.stat().st_size for path in files.values())
        hashed = Hashing(files, {name for name, entry in expected.items() if "git" in entry})
        with Progress("verifying", total, lambda: hashed.bytes):
            found = dict(hashed.run())
        missing = sorted(set(expected) - set(found))
        damaged = [name for name in found if any(found[name].get(key) != value for key, value in expected.get(name, {}).items())]
        for name in damaged:
            files[name].unlink()
        if missing or damaged:
            fail(f"{self.variable}: not fetched: {', '.join(missing) or 'none'}; of another size or digest than the source promised, "
                 f"and removed: {', '.join(damaged) or 'none'}. {self.again}")

        shutil.rmtree(self.work, ignore_errors=True)
        self.write_manifest({name: {"size": entry["size"], "sha256": entry["sha256"]} for name, entry in found.items()})
        for path in [self.partial, *self.partial.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        write_record(self.record, self.target, found)
        self.partial.rename(self.target)
        print(f"complete: {len(found)} files, {gigabytes(total)} in {self.target}", flush=True)


class Hashing:
    """The digests of files, read by several threads. `bytes` says how much was read."""

    def __init__(self, files: dict[str, Path], git: set[str] = frozenset()) -> None:
        self.files, self.git, self.bytes = files, git, 0

    def run(self) -> Iterator[tuple[str, dict]]:
        """Each file as it is done: size, mtime_ns and inode of what was read, sha256, and for those in `git` the digest that git gives."""
        with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            for done in concurrent.futures.as_completed([pool.submit(self.one, *item) for item in self.files.items()]):
                yield done.result()

    def one(self, name: str, path: Path) -> tuple[str, dict]:
        with open(path, "rb") as stream:
            status = os.fstat(stream.fileno())
            digests = {"sha256": hashlib.sha256()}
            if name in self.git:
                digests["git"] = hashlib.sha1(b"blob %d\0" % status.st_size)
            while block := stream.read(BLOCK):
                for digest in digests.values():
                    digest.update(block)
                self.bytes += len(block)
        of = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}
        return name, {**of, **{key: digest.hexdigest() for key, digest in digests.items()}}


def read_record(path: Path) -> dict[str, dict]:
    """What was hashed; what is damaged in it is not kept."""
    try:
        files = json.loads(path.read_text())["files"]
        return {name: entry for name, entry in files.items() if set(RECORDED) <= set(entry)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_record(path: Path, directory: Path, files: dict[str, dict]) -> None:
    """Keep what was hashed, so that it is not read again before it changes: plugins/module_utils/weights.py reads it."""
    kept = {name: {key: entry[key] for key in RECORDED} for name, entry in files.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"directory": str(directory), "files": kept}, indent=1, sort_keys=True) + "\n")
    os.replace(new, path)


class Progress:
    """A line every few seconds: how much of how much, how fast, how long still."""

    def __init__(self, what: str, total: int, done, every: float = 2.0) -> None:
        self.what, self.total, self.done, self.every = what, total, done, every
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        begun, first = time.monotonic(), self.done()
        while not self.over.wait(self.every):
            done = self.done()
            rate = (done - first) / (time.monotonic() - begun)
            left = f", about {(self.total - done) / rate / 60:.0f} min left" if rate > 0 and self.total > done else ""
            print(f"{self.what}: {gigabytes(done)} of {gigabytes(self.total)}, {rate / 1e6:.0f} MB/s{left}", flush=True)

    def __enter__(self) -> Progress:
        self.thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.over.set()
        self.thread.join()


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


def fail(message: str) -> None:
    sys.exit(message)
