# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The offline directory: packages, wheels and weights for hosts without a network, and the manifest that names every file.

What is verified when: a target compares every file's size and the hash of apt's index with the manifest before it begins. The content is
verified by who uses it: a package by apt against the index, a wheel by pip and uv against the lock, weights against the manifest while
they are copied. For the manifest and apt's folder nothing else vouches, so that only root may be able to write there.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import stat

from ansible_collections.modelhost.vllm.plugins.module_utils import weights

MANIFEST = "manifest.json"
INDEX = "apt/Packages"
# A wheel, or a package with its architecture at the end: other files of these folders are apt's and pip's own
CARRIED = {"apt": re.compile(r".+_.+\.deb"), "wheels": re.compile(r".+\.whl")}
OWNERS = (0,)  # who may write to what root installs from
BLOCK = 8 * 2**20
BUILD = "Build it on a connected machine (ansible-playbook playbooks/build_offline.yml), and copy all of it to the same path"

Entry = dict  # {"size": bytes, "sha256": hexadecimal digits}


def system(os_release: dict[str, str], machine: str) -> str:
    """What packages and wheels are made for, in one word each: "debian 13 x86_64"."""
    return "%s %s %s" % (os_release.get("ID", ""), os_release.get("VERSION_ID", ""), machine)


def apt_configuration(top: str) -> dict[str, str]:
    """apt's own files in the directory. APT_CONFIG names the first; with it apt sees this directory and no other source.

    The host's lists stay as they are (List-Cleanup), and so does its cache of them (pkgcache). The next `apt-get update` without
    APT_CONFIG deletes the list of this directory.
    """
    return {
        "apt/apt.conf": "".join(
            '%s "%s";\n' % setting
            for setting in (
                ("Dir::Etc::SourceList", "%s/apt/sources.list" % top),
                ("Dir::Etc::SourceParts", "/dev/null"),
                ("Dir::Cache::pkgcache", ""),
                ("Dir::Cache::srcpkgcache", ""),
                ("APT::Get::List-Cleanup", "false"),
                ("Acquire::Languages", "none"),
            )
        ),
        # The manifest vouches for the index, which vouches for the packages: there is no key.
        "apt/sources.list": "deb [trusted=yes] file:%s/apt ./\n" % top,
    }


def stanza(control: str, name: str, entry: Entry) -> str:
    """A package's paragraph of the index: its own control fields, and where it is."""
    return "%s\nFilename: ./%s\nSize: %d\nSHA256: %s\n" % (control.strip(), name, entry["size"], entry["sha256"])


def carried(top: str) -> list[str]:
    """The packages and wheels in the directory, by their path below it."""
    found = []
    for folder, pattern in sorted(CARRIED.items()):
        path = os.path.join(top, folder)
        names = os.listdir(path) if os.path.isdir(path) else []
        found += ["%s/%s" % (folder, name) for name in sorted(names) if pattern.fullmatch(name)]
    return found


def measure(path: str) -> Entry:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
        return {"size": stream.tell(), "sha256": digest.hexdigest()}


def entry_of(text: str) -> Entry:
    content = text.encode()
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def measured(top: str, names: list[str]) -> dict[str, Entry]:
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(measure, [os.path.join(top, name) for name in names])))


def weights_entries(top: str) -> dict[str, Entry]:
    """The files of all weights that are complete, from the manifests that their fetch wrote after it had hashed them."""
    found = {}
    root = os.path.join(top, "weights")
    for folder in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        if not folder.endswith(weights.PARTIAL):
            files = weights.read_manifest(os.path.join(root, folder)) or {}
            found.update({"weights/%s/%s" % (folder, name): entry for name, entry in files.items()})
    return found


def manifest_text(top: str, made_for: str, files: dict[str, Entry]) -> str:
    return json.dumps({"path": top, "system": made_for, "files": files}, indent=1, sort_keys=True) + "\n"


def writable(top: str) -> list[str]:
    """Which of the manifest, apt's folder and the folders above them others than root may change, or put another in the place of."""
    apt = os.path.join(top, "apt")
    inside = [top, os.path.join(top, MANIFEST), apt, *(os.path.join(apt, name) for name in sorted(os.listdir(apt)))]
    above = [str(folder) for path in (top, os.path.realpath(top)) for folder in pathlib.Path(path).parents]
    found = []
    for path in dict.fromkeys(above + inside):
        status = os.stat(path)
        sticky = path in above and status.st_mode & stat.S_ISVTX  # what is another's stays there
        if status.st_uid not in OWNERS or (status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky):
            found.append(path)
    return found


def findings(top: str, here: str) -> list[str]:
    """Why the directory cannot be used on this system, each with the variable, what is seen and what to do. Reads sizes, no contents."""
    where = "modelhost_offline is %s" % top
    try:
        with open(os.path.join(top, MANIFEST), encoding="utf-8") as stream:
            manifest = json.load(stream)
        built, made_for, files = manifest["path"], manifest["system"], manifest["files"]
    except FileNotFoundError:
        return ["%s, and there is no %s in it. %s" % (where, MANIFEST, BUILD)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return ["%s, and its %s cannot be read: %r. %s" % (where, MANIFEST, error, BUILD)]
    found = []
    if made_for != here:
        found.append("%s, made for %s, and this host is %s: build one on a machine of the host's own release" % (where, made_for, here))
    if built != top:
        found.append(
            "%s, built as %s, and apt's configuration in it names that path: put it there, or build it under this path" % (where, built)
        )
    missing, other = [], []
    for name, entry in files.items():
        try:
            size = os.stat(os.path.join(top, name)).st_size
        except OSError:
            missing.append(name)
            continue
        if size != entry["size"]:
            other.append("%s (%d of %d bytes)" % (name, size, entry["size"]))
        elif name in (INDEX, *apt_configuration(top)) and measure(os.path.join(top, name)) != entry:
            other.append("%s (other content)" % name)
    if missing or other:
        found.append(
            "%s and not what its %s says. Missing: %s; damaged: %s. Copy it again from where it was built"
            % (where, MANIFEST, weights.shortened(missing) or "none", weights.shortened(other) or "none")
        )
    others_may = writable(top) if os.path.isdir(os.path.join(top, "apt")) else []
    if others_may:
        found.append(
            "%s, root installs from it, and others than root may write to %s: chown -R root:root and chmod -R go-w the directory; without "
            "-R what is above it" % (where, weights.shortened(others_may))
        )
    return found
