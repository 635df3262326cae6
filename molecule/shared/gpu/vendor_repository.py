#!/usr/bin/env python3
"""Build a small, signed stand-in for NVIDIA's apt repository for Debian: the vendor's names, versions, dependencies and layout.

    vendor_repository.py FOLDER SYSTEM...        such as debian13

FOLDER then holds SYSTEM/ARCHITECTURE/{*.deb, Packages, Release, InRelease, KEY.pub}, SYSTEM.tar with the same, and
`fingerprint`, that of the key. The key is made once and kept in FOLDER/.key. Needs dpkg-deb and gpg.

What the packages bring is as little as the tests look at: a kernel module that modinfo reads and replay.py "loads" (installed for the
running kernel after installation, as dkms does), an nvidia-smi that replays the recorded machine, a persistence daemon, toolkits whose nvcc
runs /srv/gpu/nvcc. One package stands for another archive: the headers of the running kernel, which a test host's distribution
does not have.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator

# Newest last. apt-get dist-upgrade wants that one, the inventory pins another.
DRIVERS = ("570.211.01", "580.105.08", "580.126.09", "590.48.01")
TOOLKITS = ("12-8", "13-0")
KEYS = {"debian12": "3bf863cc.pub", "debian13": "8793F200.pub"}
RELEASE = os.uname().release

Package = tuple[dict[str, str], dict[str, str]]  # fields of the control file; files by path, executable below bin/ and DEBIAN/

BUILD = """#!/bin/sh
set -e
folder=/lib/modules/$(uname -r)/updates/dkms
mkdir -p "$folder"
cp /usr/src/nvidia-{version}/nvidia.ko "$folder/"
depmod
"""
UNBUILD = """#!/bin/sh
set -e
rm -f "/lib/modules/$(uname -r)/updates/dkms/nvidia.ko"
rmdir --ignore-fail-on-non-empty -p "/lib/modules/$(uname -r)/updates/dkms" 2>/dev/null || true
[ ! -d "/lib/modules/$(uname -r)/updates" ] && rm -rf "/lib/modules/$(uname -r)" && rmdir --ignore-fail-on-non-empty /lib/modules || depmod
"""
SMI = "#!/bin/sh\nGPU_USERSPACE={version} exec /srv/gpu/nvidia-smi \"$@\"\n"
PERSISTENCED = """[Unit]
Description=NVIDIA Persistence Daemon
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/nvidia-smi -pm 1
[Install]
WantedBy=multi-user.target
"""
# What debhelper makes of a unit
RELOAD = "[ ! -d /run/systemd/system ] || systemctl daemon-reload\n"
ENABLE = "#!/bin/sh\nset -e\ndeb-systemd-helper enable nvidia-persistenced.service >/dev/null\n" + RELOAD
DISABLE = "#!/bin/sh\nset -e\n[ \"$1\" != purge ] || deb-systemd-helper purge nvidia-persistenced.service >/dev/null\n" + RELOAD


def kernel_module(fields: dict[str, str]) -> bytes:
    """An ELF object with a section .modinfo, which is all that modinfo reads."""
    info = b"".join(f"{name}={value}\0".encode() for name, value in fields.items())
    names = b"\0.modinfo\0.shstrtab\0"
    start = 64 + len(info) + len(names)
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, start, 0, 64, 0, 0, 64, 3, 2)

    def section(name: int, kind: int, offset: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 1, 0)

    return header + info + names + bytes(64) + section(1, 1, 64, len(info)) + section(10, 3, 64 + len(info), len(names))


def control(name: str, version: str, architecture: str = "amd64", **fields: str) -> dict[str, str]:
    return {
        "Package": name, "Version": version, "Architecture": architecture, "Section": "NVIDIA", "Priority": "optional",
        "Maintainer": "modelhost tests <nobody@localhost>", "Description": f"Stand-in for {name}", **fields}


def driver(version: str) -> Iterator[Package]:
    """Debian's side of the repository, compute only. What is loosely versioned there is so here: apt would take the newest."""
    package, equal = f"{version}-1", f"(= {version}-1)"
    for flavour, other, licence in (("open-dkms", "dkms", "Dual MIT/GPL"), ("dkms", "open-dkms", "NVIDIA")):
        module = kernel_module({"version": version, "license": licence, "name": "nvidia", "vermagic": f"{RELEASE} SMP mod_unload "})
        yield control(
            f"nvidia-kernel-{flavour}", package, Depends=f"kmod, firmware-nvidia-gsp {equal}", Conflicts=f"nvidia-kernel-{other}",
            Provides=f"nvidia-kernel-{version}"), {
            f"usr/src/nvidia-{version}/nvidia.ko": module.decode("latin-1"), "DEBIAN/postinst": BUILD.format(version=version),
            "DEBIAN/prerm": UNBUILD}
    yield control(
        "nvidia-driver-cuda", package,
        Depends=f"libcuda1 {equal}, libnvidia-ml1 {equal}, nvidia-modprobe (>= {version}), nvidia-persistenced"), {
        "usr/bin/nvidia-smi": SMI.format(version=version)}
    yield control("libcuda1", package, Depends=f"libnvidia-ptxjitcompiler1 {equal}"), {}
    for name in ("libnvidia-ml1", "libnvidia-ptxjitcompiler1", "libnvidia-cfg1", "firmware-nvidia-gsp", "nvidia-modprobe"):
        yield control(name, package), {}
    yield control("nvidia-persistenced", package, Depends="libnvidia-cfg1"), {
        "usr/lib/systemd/system/nvidia-persistenced.service": PERSISTENCED, "DEBIAN/postinst": ENABLE, "DEBIAN/postrm": DISABLE}
    yield control("nvidia-fabricmanager", package), {}
    yield control("nvidia-open", package, Depends=f"nvidia-driver-cuda {equal}, nvidia-kernel-open-dkms {equal}"), {}
    yield control("cuda-drivers", package, Depends=f"nvidia-driver-cuda {equal}, nvidia-kernel-dkms {equal}"), {}


def toolkit(version: str) -> Iterator[Package]:
    """Two builds of each version; apt wants the newer one. What NVIDIA's toolkits share is shared."""
    dotted = version.replace("-", ".")
    libraries = {f"usr/local/cuda-{dotted}/lib64/lib{name}.so": "/* GNU ld script */\n" for name in ("cudart", "cublas", "cublasLt", "nvrtc")}
    for build in ("1", "2"):
        yield control(
            f"cuda-toolkit-{version}", f"{dotted}.{build}-1",
            Depends=f"cuda-nvcc-{version} (>= {dotted}.{build}), cuda-cudart-dev-{version} (>= {dotted}.{build})"), {}
        yield control(f"cuda-nvcc-{version}", f"{dotted}.{build}-1", Depends="cuda-toolkit-config-common"), {
            f"usr/local/cuda-{dotted}/bin/nvcc": f"#!/bin/sh\nCUDA_VERSION={dotted} exec /srv/gpu/nvcc \"$@\"\n"}
        yield control(f"cuda-cudart-dev-{version}", f"{dotted}.{build}-1", Depends="cuda-toolkit-config-common"), libraries
    yield control("cuda-toolkit-config-common", f"{dotted}.96-1"), {}


def build(package: Package, folder: Path) -> Path:
    """One .deb, uncompressed."""
    fields, files = package
    target = folder / "{Package}_{Version}_{Architecture}.deb".format_map(fields)
    with tempfile.TemporaryDirectory() as work:
        text = "".join(f"{name}: {value}\n" for name, value in fields.items())
        for name, content in {"DEBIAN/control": text, **files}.items():
            path = Path(work, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode("latin-1"))
            path.chmod(0o755 if content.startswith("#!") else 0o644)
        Path(work).chmod(0o755)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", work, target], check=True, stdout=subprocess.DEVNULL)
    return target


def index(folder: Path) -> None:
    """Packages, Packages.gz and Release of a flat repository, with the origin and the label of NVIDIA's."""
    stanzas = []
    for deb in sorted(folder.glob("*.deb")):
        fields = subprocess.run(["dpkg-deb", "--field", deb], check=True, capture_output=True, text=True).stdout
        content = deb.read_bytes()
        stanzas.append(f"{fields}Filename: ./{deb.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n")
    packages = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(packages)
    (folder / "Packages.gz").write_bytes(gzip.compress(packages, mtime=0))
    sums = "".join(
        f" {hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_size} {path.name}\n" for path in sorted(folder.glob("Packages*")))
    (folder / "Release").write_text(
        f"Origin: NVIDIA\nLabel: NVIDIA CUDA\nDate: Mon, 03 Nov 2025 09:00:00 UTC\nSHA256:\n{sums}")


class Key:
    def __init__(self, home: Path) -> None:
        self.gpg = ["gpg", "--homedir", str(home), "--batch", "--yes", "--quiet"]
        if not home.is_dir():
            home.mkdir(mode=0o700, parents=True)
            self.run("--passphrase", "", "--quick-generate-key", "NVIDIA stand-in <nobody@localhost>", "rsa3072", "sign", "never")
        listed = self.run("--with-colons", "--list-keys").decode().splitlines()
        self.fingerprint = next(line.split(":")[9] for line in listed if line.startswith("fpr:"))

    def run(self, *arguments: str) -> bytes:
        return subprocess.run([*self.gpg, *arguments], check=True, capture_output=True).stdout

    def sign(self, folder: Path, public: str) -> None:
        self.run("--clearsign", "--output", str(folder / "InRelease"), str(folder / "Release"))
        (folder / public).write_bytes(self.run("--armor", "--export"))


def main(root: Path, systems: list[str]) -> None:
    key = Key(root / ".key")
    for system in systems:
        folder = root / system / "x86_64"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for version in DRIVERS:
            for package in driver(version):
                build(package, folder)
        for version in TOOLKITS:
            for package in toolkit(version):
                build(package, folder)
        build((control(f"linux-headers-{RELEASE}", "1"), {}), folder)
        index(folder)
        key.sign(folder, KEYS[system])
        shutil.make_archive(str(root / system), "tar", root, system)
    (root / "fingerprint").write_text(key.fingerprint + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
