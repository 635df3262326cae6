# GNU General Public License v3.0+ (see LICENSE)
"""A Python environment as files: where things lie in it, what is there, and the digest of each."""

from __future__ import annotations

import concurrent.futures
import glob
import hashlib
import os
import stat
from typing import Any, Iterable, Iterator, NamedTuple

BLOCK = 1 << 20


class Entry(NamedTuple):
    """One file, link or folder below an environment.

    `changed` is the time of its last change, which nobody can set back; of its content for a file with several names, as uv makes of what
    is in its cache, since each further name is a change.
    """

    path: str
    mode: int
    uid: int
    changed: float


class Layout(NamedTuple):
    """Where an environment keeps what is audited; `site` is below `root`. `interpreter` is the program behind bin/python, "" for none."""

    root: str
    site: str
    virtual: bool
    interpreter: str

    def of_site(self, path: str) -> bool:
        return path.startswith(self.site + "/")

    @property
    def site_path(self) -> str:
        return os.path.join(self.root, self.site)

    @property
    def python(self) -> str:
        return os.path.join(self.root, "bin", "python")

    @property
    def owner(self) -> dict[str, Any]:
        """What subprocess.run needs to run a program as the owner of the environment, where we are root."""
        status = os.stat(self.root)
        return {} if os.geteuid() else {"user": status.st_uid, "group": status.st_gid, "extra_groups": []}


def layout(root: str) -> Layout:
    """The layout of the environment at `root`.

    Raises ValueError where `root` holds no Python environment.
    """
    sites = sorted(glob.glob(os.path.join(glob.escape(root), "lib", "python3*", "site-packages")))
    python = os.path.join(root, "bin", "python")
    if len(sites) != 1 or not os.path.lexists(python):
        found = "it has %d folders lib/python3*/site-packages" % len(sites) if len(sites) != 1 else "it has no bin/python"
        raise ValueError("%s is no Python environment: %s. Name the folder that `python -m venv`, uv or conda made" % (root, found))
    virtual = os.path.isfile(os.path.join(root, "pyvenv.cfg"))
    real = os.path.realpath(python)
    return Layout(root, os.path.relpath(sites[0], root), virtual, real if is_program(real) else "")


def is_program(path: str) -> bool:
    """Whether a file is a compiled program, and no script that runs something else."""
    try:
        with open(path, "rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except OSError:
        return False


def walk(root: str, below: str = "") -> Iterator[Entry]:
    """Everything below a folder of `root`, links not followed, with its path relative to `root`."""
    with os.scandir(os.path.join(root, below)) as entries:
        for entry in entries:
            path = below + "/" + entry.name if below else entry.name
            status = entry.stat(follow_symlinks=False)
            yield Entry(path, status.st_mode, status.st_uid, status.st_ctime if status.st_nlink == 1 else status.st_mtime)
            if stat.S_ISDIR(status.st_mode):
                yield from walk(root, path)


def digest_of(path: str, algorithm: str = "sha256") -> str:
    """The digest of a file's content, in hexadecimal digits."""
    digest = hashlib.new(algorithm)
    with open(path, "rb", buffering=0) as stream:
        block = stream.read(BLOCK)
        while block:
            digest.update(block)
            block = stream.read(BLOCK)
    return digest.hexdigest()


def digests(root: str, paths: Iterable[str]) -> dict[str, str]:
    """The sha256 of each of `paths` below `root`, computed by as many threads as there are processors (hashlib releases the lock)."""
    # Big files first and one by one, so that no thread is left alone with the last of them; small ones in bundles.
    sizes = sorted(((os.lstat(os.path.join(root, path)).st_size, path) for path in paths), reverse=True)
    big = [[path] for size, path in sizes if size >= BLOCK]
    small = [path for size, path in sizes if size < BLOCK]
    bundles = big + [small[start:start + 500] for start in range(0, len(small), 500)]

    def bundle(each: list[str]) -> list[tuple[str, str]]:
        return [(path, digest_of(os.path.join(root, path))) for path in each]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return {path: digest for result in pool.map(bundle, bundles) for path, digest in result}
