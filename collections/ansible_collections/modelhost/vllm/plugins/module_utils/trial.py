# GNU General Public License v3.0+ (see LICENSE)
"""The declared files of a model on trial: in places of /run that systemd prefers and a reboot forgets. The live files stay."""

from __future__ import annotations

import os

from ansible_collections.modelhost.vllm.plugins.module_utils import models, systemd


def begin(model: str) -> bool:
    """Make the unit read the declared files where they differ from the live ones, and say whether they do.

    It also clears the start counters of all models, so that earlier failures do not refuse a deliberate start (systemd.unit(5),
    StartLimitBurst=).
    """
    files = models.declared(model)
    changed = bool(models.pending(files))
    end(model)  # what an interrupted run has left
    if changed:
        for name, text in files.items():
            if text is not None:
                models.write(models.trial_path(name), models.trial_text(text), models.mode_of(name))
        systemd.run(["systemctl", "daemon-reload"])
    # Without --all a pattern finds no unit that is inactive, and the model to go back to may be one by then.
    systemd.run(["systemctl", "reset-failed", "--all", "--quiet", "vllm-*.service"])
    return changed


def left(model: str) -> list[str]:
    """Paths of the files on trial."""
    return [path for path in map(models.trial_path, models.names_of(model)) if os.path.exists(path)]


def end(model: str) -> None:
    """Forget the files on trial: the unit reads the live ones again."""
    paths = left(model)
    for path in paths:
        models.remove(path)
    if paths:
        systemd.run(["systemctl", "daemon-reload"])
