# GNU General Public License v3.0+ (see LICENSE)
"""Rules about where downloads come from: the inventory's downloads.yml. Every broken rule is one sentence, as in findings.py."""

from __future__ import annotations

import os
import re
from typing import Any

# What each setting is, and whether it may be empty.
_URLS = {"modelhost_pypi_url": True, "modelhost_pytorch_url": False, "modelhost_hub_url": False, "modelhost_nvidia_url": False,
         "modelhost_https_proxy": True}
_PATHS = ("modelhost_ca_bundle", "modelhost_offline")
_FOLDERS = "modelhost_find_links"
NAMES = (*_URLS, *_PATHS, _FOLDERS)
_URL = re.compile(r"(https?://[^\s/]+\S*|file:///\S*)\Z")


def download_findings(settings: dict[str, Any]) -> list[str]:
    """Everything that is wrong with the settings, by variable name; None stands for one that is missing."""
    return [sentence for name in NAMES for sentence in _judge(name, settings.get(name))]


def _address_needed(name: str) -> str:
    return f"{name} is missing or empty: write the address that inventory/example has, or that of a mirror"


def _judge(name: str, value: Any) -> list[str]:
    if value is None:
        if name in _URLS and not _URLS[name]:
            return [_address_needed(name)]
        return [f"{name} is missing or empty: write {'[]' if name == _FOLDERS else repr('')} for none, as inventory/example does"]
    if name == _FOLDERS:
        sound = isinstance(value, (list, tuple)) and all(isinstance(each, str) and os.path.isabs(each) for each in value)
        return [] if sound else [f"{name}: {value!r} is no list of absolute paths: write [] or [/srv/wheels]"]
    if not isinstance(value, str):
        return [f"{name}: {value!r} is no text: put it in quotes"]
    if name in _PATHS:
        sound = value == "" or os.path.isabs(value)
        return [] if sound else [f"{name}: {value!r} is no absolute path: begin it with /, or write '' for none"]
    if value == "" and not _URLS[name]:
        return [_address_needed(name)]
    return [] if value == "" or _URL.match(value) else [f"{name}: {value!r} is no address: begin it with https:// or http://"]
