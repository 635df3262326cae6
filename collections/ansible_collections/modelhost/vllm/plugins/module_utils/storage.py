# GNU General Public License v3.0+ (see LICENSE)
"""What a folder is on, how fast its files can be read, and what of them is in memory. Reads only."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import threading
import time

# fastsafetensors 0.5.0, common.py, _NETWORK_FS; vLLM 0.33 itself knows nfs, nfs4 and lustre (weight_utils.py, is_net_fs).
NETWORK = {
    "9p", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "sshfs", "virtiofs",
}
# As vLLM's own prefetch: weight_utils.py, DEFAULT_SAFETENSORS_PREFETCH_NUM_THREADS and _BLOCK_SIZE.
THREADS, BLOCK = 8, 16 * 2**20
# These loaders of vLLM 0.33 read past the page cache: fastsafetensors with O_DIRECT, except on a network file system (0.5.0, common.py,
# is_odirect_enabled), instanttensor likewise by io_uring or libaio (0.2.2, _impl.py, "Default backend").
DIRECT = {"fastsafetensors", "instanttensor"}
PAGE = mmap.PAGESIZE


def mount_of(path: str, mounts: str = "/proc/self/mounts") -> dict[str, str]:
    """The mount that a path is on, or will be on: its mount point, device and file system."""
    real, best = os.path.realpath(path), {"mount": "", "device": "", "filesystem": ""}
    with open(mounts, encoding="utf-8") as stream:
        for line in stream:
            # proc(5), /proc/pid/mounts, as fstab(5): blanks, tabs, line ends and backslashes are octal there
            device, mount, kind = (re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word) for word in line.split()[:3])
            # Of two mounts at one place the later one is seen.
            if (real + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= len(best["mount"]):
                best = {"mount": mount, "device": device, "filesystem": kind}
    return best


def remote(filesystem: str) -> str:
    """What makes a file system slower than a disk of the host; empty for one that is none."""
    if filesystem in NETWORK or filesystem.split(".")[-1] in NETWORK:
        return "a network file system"
    return "a file system of a user's process" if filesystem.startswith("fuse") else ""


def resident_bytes(path: str) -> int:
    """The bytes of a file that are in the page cache (mincore(2))."""
    size = os.path.getsize(path)
    if not size:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    pages = ctypes.create_string_buffer((size + PAGE - 1) // PAGE)
    failed = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages)
    number = ctypes.get_errno()
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    if failed:
        raise OSError(number, os.strerror(number), path)
    return min(size, pages.raw.count(b"\1") * PAGE)


def read_block(path: str, offset: int, buffer: mmap.mmap) -> int:
    """Read a block, not from the page cache: with O_DIRECT (open(2)), or where the file system has none, after the cache gave it up."""
    for direct in (os.O_DIRECT, 0):
        try:
            descriptor = os.open(path, os.O_RDONLY | direct)
            try:
                if not direct:
                    os.posix_fadvise(descriptor, offset, BLOCK, os.POSIX_FADV_DONTNEED)
                return os.preadv(descriptor, [buffer], offset)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not direct or error.errno != errno.EINVAL:
                raise
    return 0


def read_speed(files: list[str], seconds: float = 3.0, limit: int = 4 * 10**9) -> float:
    """Bytes a second that the files can be read with, not from the page cache: at most `seconds` and `limit` bytes of them. 0 for no files.

    Eight threads with a block of 16 MiB each, as vLLM prefetches.
    """
    blocks = [(path, offset) for path in files for offset in range(0, os.path.getsize(path), BLOCK)][: max(1, limit // BLOCK)]
    lock, done, begun = threading.Lock(), [0], time.monotonic()

    def read(first: int) -> None:
        with mmap.mmap(-1, BLOCK) as buffer:  # O_DIRECT needs memory that is aligned
            for path, offset in blocks[first::THREADS]:
                if time.monotonic() - begun > seconds:
                    return
                count = read_block(path, offset, buffer)
                with lock:
                    done[0] += count

    threads = [threading.Thread(target=read, args=[first]) for first in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done[0] / (time.monotonic() - begun) if done[0] else 0.0
