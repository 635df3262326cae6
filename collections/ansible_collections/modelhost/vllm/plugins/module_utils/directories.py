# Copyright: modelhost contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Directories: what is declared, compared with what is there."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from typing import Any, Callable, Dict, List, Optional, Tuple

State = Dict[str, str]
Seen = Dict[str, Optional[State]]


def look(path: str) -> Optional[State]:
    """Owner, group and mode of a path; None where there is nothing. A link to a directory counts as that directory."""
    try:
        status = os.stat(path)
    except OSError:
        return {"kind": "dangling link"} if os.path.islink(path) else None
    return {
        "kind": "directory" if stat.S_ISDIR(status.st_mode) else "file",
        "owner": name_of(pwd.getpwuid, status.st_uid),
        "group": name_of(grp.getgrgid, status.st_gid),
        "mode": "%04o" % stat.S_IMODE(status.st_mode),
    }


def name_of(database: Callable[[int], Any], number: int) -> str:
    try:
        return database(number)[0]
    except KeyError:
        return str(number)


def problems(wanted: List[Dict[str, str]], seen: Seen) -> List[str]:
    """Everything that forbids to begin."""
    found = []
    for index, entry in enumerate(wanted):
        name, path, mode = "directories[%d]" % index, entry["path"], entry["mode"]
        if path in [earlier["path"] for earlier in wanted[:index]]:
            found.append("%s.path: %s is declared twice" % (name, path))
        if not os.path.isabs(path):
            found.append("%s.path: %r is not absolute" % (name, path))
        if not re.fullmatch("[0-7]{4}", mode):
            found.append("%s.mode: %r is not four octal digits in quotes, such as '0755'" % (name, mode))
        there = seen.get(path)
        if there and there["kind"] != "directory":
            found.append("%s.path: %s is a %s: move it away" % (name, path, there["kind"]))
    return found


def strangers(wanted: List[Dict[str, str]]) -> List[str]:
    """Owners and groups that the host does not know."""
    found = []
    for index, entry in enumerate(wanted):
        for kind, database in (("owner", pwd.getpwnam), ("group", grp.getgrnam)):
            try:
                database(entry[kind])
            except KeyError:
                found.append("directories[%d].%s: %r is not known on this host: create it first" % (index, kind, entry[kind]))
    return found


def differences(wanted: List[Dict[str, str]], seen: Seen) -> List[Tuple[Dict[str, str], Optional[State]]]:
    """The entries that differ from what is there, parents first, each with what is there."""
    ordered = sorted(wanted, key=lambda entry: entry["path"])
    return [(entry, seen[entry["path"]]) for entry in ordered if aspects(entry) != aspects(seen[entry["path"]])]


def aspects(state: Optional[State]) -> str:
    """What is kept of a directory, as it is compared and shown: "root:root 0755"."""
    return "%(owner)s:%(group)s %(mode)s" % state if state else "absent"


def removable(paths: List[str], children: Dict[str, List[str]]) -> Tuple[List[str], List[str]]:
    """Of the directories that are there (path -> names in it): those that are empty once the deeper ones are gone, and the others."""
    gone: List[str] = []
    for path in sorted((path for path in paths if path in children), key=lambda path: path.count("/"), reverse=True):
        if all(os.path.join(path, name) in gone for name in children[path]):
            gone.append(path)
    return gone, sorted(path for path in paths if path in children and path not in gone)


def apply(entry: Dict[str, str]) -> None:
    """Make one directory what it should be. Parents that nobody declared belong to root and are readable."""
    missing = []
    path = entry["path"]
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        os.mkdir(path)
        os.chmod(path, 0o755)
    os.chown(entry["path"], pwd.getpwnam(entry["owner"]).pw_uid, grp.getgrnam(entry["group"]).gr_gid)
    os.chmod(entry["path"], int(entry["mode"], 8))
