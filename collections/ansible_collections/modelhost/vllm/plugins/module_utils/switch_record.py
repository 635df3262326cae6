# GNU General Public License v3.0+ (see LICENSE)
"""The record of the switch that is under way on a host: whose it is, since when, and how far.

It is a file that the run removes at its end, whatever the end is. One that is left was interrupted, and says at which step. The file's time
of change is the holder's sign of life: every step of the switch, and every look at a loading model, renews it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import Any, Iterator

from ansible_collections.modelhost.vllm.plugins.module_utils import models

RECORD = "/var/lib/modelhost/state/switch.json"
GUARD = "/run/modelhost/switch.lock"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Seconds that a step may be silent. A stop says more: systemd's own limit comes on top.
SILENCE = 120
GOING_BACK = "go back"
# What a damaged record says
UNKNOWN = {
    "owner": {"user": "unknown", "controller": "unknown", "pid": 0, "run": "unknown - 0 gone"}, "since": "unknown", "boot": "",
    "model": "unknown", "step": "unknown", "silence": SILENCE, "progress": ""}


def boot_id() -> str:
    return (models.read(BOOT_ID) or "").strip()


def read() -> dict[str, Any]:
    """The record with `age`, seconds since the last sign of life, and `interrupted`: a reboot, or too long a silence. {} without one.

    A record that is damaged counts as that of an unknown run that was interrupted: if it still runs, it finds out before it stops anything.
    """
    try:
        with open(RECORD, encoding="utf-8") as stream:
            record, changed = json.load(stream), os.fstat(stream.fileno()).st_mtime
    except FileNotFoundError:
        return {}
    except ValueError:
        record, changed = None, time.time()
    if not isinstance(record, dict) or not set(UNKNOWN) <= set(record):
        record = UNKNOWN
    age = max(0.0, time.time() - changed)
    return {**record, "age": round(age), "interrupted": record["boot"] != boot_id() or age > record["silence"]}


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """One process of the host at a time decides whose the record is."""
    os.makedirs(os.path.dirname(GUARD), exist_ok=True)
    with open(GUARD, "a", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def write(record: dict[str, Any]) -> None:
    models.write(RECORD, json.dumps({"schema": 1, **record}, indent=2, sort_keys=True) + "\n", 0o600)


def note(silence: int = SILENCE, **facts: str) -> None:
    """Renew the record with what has changed: the `step`, the `progress`. Nothing is noted where no switch is under way.

    A disk that is full ends no switch that could still serve: then the sign of life is missing.
    """
    if not os.path.exists(RECORD):
        return
    with contextlib.suppress(OSError), exclusive():
        record = {name: value for name, value in read().items() if name not in ("age", "interrupted")}
        if not record or record["step"] == UNKNOWN["step"]:
            return
        if record["step"] == GOING_BACK:  # start and wait are then those of the model before
            facts.pop("step", None)
        write({**record, "silence": silence, "progress": "", **facts})


def holder(record: dict[str, Any]) -> str:
    """Who switches, for people."""
    owner = record["owner"]
    return "{0}@{1} (process {2}), since {3}".format(owner["user"], owner["controller"], owner["pid"], record["since"])


def remove() -> None:
    """End the record. Its folders go too where nothing else is in them: a host that modelhost has left stays as it was."""
    models.remove(RECORD)
    with contextlib.suppress(OSError):
        os.removedirs(os.path.dirname(RECORD))
