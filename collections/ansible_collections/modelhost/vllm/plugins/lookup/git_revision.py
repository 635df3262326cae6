# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: git_revision
short_description: The git revision of folders on the controller
description:
  - Says which commit a folder is checked out from, and whether its files are those of that commit.
options:
  _terms:
    description: The folders.
    type: list
    elements: str
    required: true
author:
  - The modelhost authors
requirements:
  - git on the controller; without it no revision is known
"""

EXAMPLES = r"""
revision: "{{ lookup('modelhost.vllm.git_revision', inventory_dir) }}"
"""

RETURN = r"""
_raw:
  description:
    - For each folder C(revision), a commit, an empty text where no commit has the folder; and C(modified), whether files in it differ from
      that commit, or are new.
  type: list
  elements: dict
  sample: [{revision: 0123456789abcdef0123456789abcdef01234567, modified: false}]
"""

import subprocess
from typing import Any

from ansible.plugins.lookup import LookupBase


def git(folder: str, *arguments: str) -> str:
    """What git says of a folder; an empty text where it is no checkout, or git is not there."""
    # A checkout of another user, which a run with sudo meets, is one too (git-config(1), safe.directory).
    command = ["git", "-c", "safe.directory=*", "-C", folder, *arguments]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def revision(folder: str) -> dict[str, Any]:
    if not git(folder, "ls-tree", "HEAD", "."):
        return {"revision": "", "modified": False}
    return {"revision": git(folder, "rev-parse", "HEAD"), "modified": git(folder, "status", "--porcelain", ".") != ""}


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        return [revision(folder) for folder in terms]
