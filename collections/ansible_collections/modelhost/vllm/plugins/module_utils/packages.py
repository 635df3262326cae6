# GNU General Public License v3.0+ (see LICENSE)
"""Packages that were added to a host, so that exactly these can be taken away again."""

from __future__ import annotations

import re
from typing import Any, Iterable

Record = dict[str, list[str]]

# apt counts what is only recommended as needed, and what is held too. A package that came with ours is not needed because an older one
# recommends it, nor because we held it.
ONLY_DEPENDS = [
    "-o", "APT::AutoRemove::RecommendsImportant=false", "-o", "APT::AutoRemove::SuggestsImportant=false", "-o", "APT::Ignore-Hold=true"]


def parse_installed(text: str) -> list[str]:
    """Names in `dpkg-query --show --showformat='${Package} ${db:Status-Status}\\n'` of what is unpacked on the host, in order, once each."""
    rows = (line.split() for line in text.splitlines())
    return sorted({row[0] for row in rows if len(row) == 2 and row[1] not in ("not-installed", "config-files")})


def parse_simulation(text: str) -> list[str]:
    """Names that `apt-get --simulate` would remove or purge: its lines "Remv NAME [version]" and "Purg NAME [version]"."""
    return sorted(set(re.findall(r"^(?:Remv|Purg) (\S+)", text, re.MULTILINE)))


def remember(record: Record | None, wanted: Iterable[str], installed: Iterable[str]) -> Record:
    """The record after `wanted` are asked for. What the host had before the first time never changes."""
    asked = set(wanted) | set(record["asked"] if record else ())
    return {"asked": sorted(asked), "had": record["had"] if record else sorted(installed)}


def candidates(record: Record, installed: Iterable[str], others: Iterable[Record]) -> tuple[list[str], list[str]]:
    """What was asked for, and everything that may go: on the host now, not before us, and not asked for by another record."""
    kept = set(record["had"]).union(*(other["asked"] for other in others))
    added = set(installed) - kept
    return sorted(added & set(record["asked"])), sorted(added)


def show(record: Record | None) -> dict[str, Any]:
    """A record for a diff: what the host had is long, and never differs."""
    return {"asked": record["asked"]} if record else {}
