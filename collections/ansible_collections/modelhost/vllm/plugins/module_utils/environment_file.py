# GNU General Public License v3.0+ (see LICENSE)
"""Environment files as `systemd.quote_environment` writes them, read back."""

from __future__ import annotations

import re

_ASSIGNMENT = re.compile(r'^([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"$', re.MULTILINE | re.DOTALL)


def parse(text: str) -> dict[str, str]:
    """Values by name. A value may have several lines."""
    return {name: re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL) for name, value in _ASSIGNMENT.findall(text)}
