# GNU General Public License v3.0+ (see LICENSE)
"""Packages that were added to a host, so that exactly these can be taken away again."""

from __future__ import annotations

import re
from typing import Any, Iterable

Record = dict[str, list[str]]

# apt counts what is only recommended as needed, and what is held too. A package that came with ours is not needed because another one
# recommends it, nor because we held it.
ONLY_DEPENDS = [
    "-o", "APT::AutoRemove::RecommendsImportant=false", "-o", "APT::AutoRemove::SuggestsImportant=false", "-o", "APT::Ignore-Hold=true"]


def parse_installed(text: str) -> dict[str, bool]:
    """What is unpacked on the host, by name whether it is held, from rows of ${Package} ${db:Status-Want} ${db:Status-Status}."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: row[1] == "hold" for row in rows if len(row) == 3 and row[2] not in ("not-installed", "config-files")}


def parse_simulation(text: str) -> list[str]:
    """Names that `apt-get --simulate` would remove or purge: its lines "Remv NAME [version]" and "Purg NAME [version]"."""
    return sorted(set(re.findall(r"^(?:Remv|Purg) (\S+)", text, re.MULTILINE)))


def remember(record: Record | None, wanted: Iterable[str], held: Iterable[str], installed: Iterable[str]) -> Record:
    """The record after `wanted` are asked for and `held` are held. What the host had before the first time never changes."""
    before = record or {"asked": [], "held": [], "had": sorted(installed)}
    return {"asked": sorted({*before["asked"], *wanted}), "held": sorted({*before["held"], *held}), "had": before["had"]}


def candidates(record: Record, installed: Iterable[str], others: Iterable[Record]) -> tuple[list[str], list[str]]:
    """What was asked for, and everything that may go: on the host now, not before us, and not asked for by another record."""
    kept = set(record["had"]).union(*(other["asked"] for other in others))
    added = set(installed) - kept
    return sorted(added & set(record["asked"])), sorted(added)


def show(record: Record | None) -> dict[str, Any]:
    """A record for a diff: what the host had is long, and never differs."""
    return {"asked": record["asked"], "held": record["held"]} if record else {}
