"""What an engine reads, what of it is in memory, and how fast the rest comes: on the files of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import storage
from ansible_collections.modelhost.vllm.plugins.modules import weights_read_info

MOUNTS = """\
/dev/nvme0n1p2 / ext4 rw,relatime 0 0
nas:/models /data nfs4 rw,vers=4.2 0 0
/dev/md0 /data/local xfs rw 0 0
gluster /mnt/with\\040blank fuse.glusterfs rw 0 0
old /opt ext4 rw 0 0
new /opt btrfs rw 0 0
"""


@pytest.mark.parametrize(("path", "filesystem"), [
    ("/srv", "ext4"), ("/data/kimi", "nfs4"), ("/database", "ext4"), ("/data/local/kimi", "xfs"), ("/mnt/with blank/x", "fuse.glusterfs"),
    ("/opt/x", "btrfs"),
])
def test_what_a_path_is_on(tmp_path: Path, path: str, filesystem: str) -> None:
    (tmp_path / "mounts").write_text(MOUNTS)
    assert storage.mount_of(path, str(tmp_path / "mounts"))["filesystem"] == filesystem


@pytest.mark.parametrize(("filesystem", "kind"), [
    ("ext4", ""), ("xfs", ""), ("zfs", ""), ("nfs4", "a network file system"), ("fuse.glusterfs", "a network file system"),
    ("fuse.mergerfs", "a file system of a user's process"), ("fuseblk", "a file system of a user's process"),
])
def test_what_is_slower_than_a_disk_of_the_host(filesystem: str, kind: str) -> None:
    assert storage.remote(filesystem) == kind


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Weights of 20 MiB and a bit, written to the disk and not in memory."""
    (tmp_path / "model").mkdir()
    path = tmp_path / "model/model.safetensors"
    path.write_bytes(os.urandom(20 * 2**20 + 5))
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def fincore(path: Path) -> int:
    """What util-linux says of a file's bytes in the page cache."""
    asked = subprocess.run(["fincore", "--bytes", "--noheadings", "--output", "RES", path], capture_output=True, text=True, check=True)
    return int(asked.stdout)


def test_what_is_in_memory(shard: Path, tmp_path: Path) -> None:
    assert storage.resident_bytes(str(shard)) == fincore(shard) == 0
    with open(shard, "rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
        stream.seek(8 * 2**20)
        stream.read(4096)
    assert storage.resident_bytes(str(shard)) == fincore(shard) > 0
    shard.read_bytes()
    assert storage.resident_bytes(str(shard)) == 20 * 2**20 + 5
    (tmp_path / "empty").write_bytes(b"")
    assert storage.resident_bytes(str(tmp_path / "empty")) == 0


def test_a_measurement_neither_asks_the_page_cache_nor_fills_it(shard: Path) -> None:
    assert storage.read_speed([str(shard)]) > 0
    assert fincore(shard) == 0
    assert storage.read_speed([]) == 0


def test_a_measurement_is_bounded(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(storage, "read_block", lambda path, offset, buffer: read.append(offset) or 1)
    storage.read_speed([str(shard)] * 5, limit=3 * storage.BLOCK)
    assert sorted(read) == [0, 0, 16 * 2**20]
    read.clear()
    assert storage.read_speed([str(shard)] * 5, seconds=-1.0) == 0
    assert read == []


def test_a_file_system_without_direct_reads(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """open(2): EINVAL where the file system does not support O_DIRECT."""
    real, flags = os.open, []

    def refuse(path: str, given: int) -> int:
        flags.append(given)
        if given & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, given)

    monkeypatch.setattr(storage.os, "open", refuse)
    assert storage.read_speed([str(shard)]) > 0
    assert os.O_RDONLY in flags


@pytest.mark.parametrize(("load_format", "filesystem", "cold"), [
    ("auto", "ext4", True), ("safetensors", "ext4", True), ("fastsafetensors", "ext4", False), ("instanttensor", "ext4", False),
    ("fastsafetensors", "nfs4", True), ("instanttensor", "nfs4", False),
])
def test_loaders_that_read_past_the_page_cache(shard: Path, call, monkeypatch, load_format: str, filesystem: str, cold: bool) -> None:
    monkeypatch.setattr(storage, "mount_of", lambda path: {"mount": "/", "device": "disk", "filesystem": filesystem})
    found = call(weights_read_info, name="tiny", path=str(shard.parent), load_format=load_format)
    assert (found["page_cache"], found["cold"]) == (cold, cold)
    shard.read_bytes()
    assert not call(weights_read_info, name="tiny", path=str(shard.parent), load_format=load_format)["cold"]


def test_all_that_is_said(shard: Path, tmp_path: Path, call, monkeypatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(storage, "mount_of", lambda path: {"mount": "/", "device": "nas:/models", "filesystem": "nfs4"})
    monkeypatch.setattr(storage, "read_speed", lambda files: 4e6 if files else 0.0)
    monkeypatch.setattr(weights_read_info.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**12))
    warned: list[str] = []
    monkeypatch.setattr(weights_read_info.AnsibleModule, "warn", lambda self, text: warned.append(text))
    found = call(weights_read_info, check_mode=True, name="tiny", path=str(shard.parent), measure=True, roots=[
        str(tmp_path / "empty"), str(tmp_path / "not there"), str(tmp_path / "model")])
    assert found["files"] == [str(shard)]
    assert found["lines"] == [
        f"{tmp_path}/empty (nfs4, nas:/models): 1.0 TB free, nothing there to measure",
        f"{tmp_path}/model (nfs4, nas:/models): 1.0 TB free, reads 4.0 MB/s: a load of tiny reads 21.0 MB, 5 s at least",
        "tiny: 0 bytes of 21.0 MB are in memory"]
    assert warned == [
        f"{tmp_path}/{name} is on nfs4, a network file system: each load of weights there goes through it" for name in ("empty", "model")]
    # Weights that are used in place, below none of the roots.
    assert call(weights_read_info, name="tiny", path=str(shard.parent))["storage"][0]["folder"] == str(shard.parent)
