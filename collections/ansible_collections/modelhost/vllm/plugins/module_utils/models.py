# GNU General Public License v3.0+ (see LICENSE)
"""The files and units of the models on a host.

declared  what the inventory says, written at each run: /etc/modelhost/declared/<model>/
live      what the unit reads: /etc/modelhost/models/ and /etc/systemd/system/. Follows the declared files, except while the model is
          protected
trial     what a model that is applied anew reads until it has answered. It lives in /run, so that a reboot forgets it and boots the live
          files
applied   the record of what serves, state/applied.json, and a copy of its files, generations/<model>/<digest>/

A unit of the same name that modelhost did not write is *foreign*. It is left alone, or adopted: then it counts as what was applied before.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tempfile
import time
from typing import Any, Iterable

from ansible_collections.modelhost.vllm.plugins.module_utils import systemd

DECLARED = "/etc/modelhost/declared"
LIVE = "/etc/modelhost/models"
LIVE_UNITS = "/etc/systemd/system"
TRIAL = "/run/modelhost/models"
# systemd.unit(5), "Unit File Load Path": the one folder that vanishes at a reboot and goes before /etc/systemd/system.
TRIAL_UNITS = "/run/systemd/system.control"
GENERATIONS = "/var/lib/modelhost/generations"
APPLIED = "/var/lib/modelhost/state/applied.json"
LOADS = "/var/lib/modelhost/state/loads.json"
ADOPTED = "/var/lib/modelhost/adopted"

# What every unit of modelhost says, and no other unit does
MARK = "Documentation=file:/etc/modelhost/models/"
UNIT_PROPERTIES = (
    "LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "Result", "ExecMainStatus", "ExecMainStartTimestamp",
    "ExecMainStartTimestampMonotonic", "InvocationID", "ControlGroup")


def unit_name(model: str) -> str:
    return f"vllm-{model}.service"


def declared_path(model: str, name: str) -> str:
    return os.path.join(DECLARED, model, name)


def live_path(name: str) -> str:
    return os.path.join(LIVE_UNITS if name.endswith(".service") else LIVE, name)


def trial_path(name: str) -> str:
    return os.path.join(TRIAL_UNITS if name.endswith(".service") else TRIAL, name)


def running_path(name: str) -> str:
    """What a running unit reads: the file on trial, else the live one."""
    return trial_path(name) if os.path.exists(trial_path(name)) else live_path(name)


def declared(model: str) -> dict[str, str | None]:
    """The declared files of a model, with their texts. The secret one is always among them: None where the model shall have no key.

    A hidden file is what a write that was killed has left.
    """
    folder = os.path.join(DECLARED, model)
    names = [name for name in os.listdir(folder) if not name.startswith(".")] if os.path.isdir(folder) else []
    return {name: read(declared_path(model, name)) for name in sorted({*names, f"{model}.secret.env"})}


def trial_text(text: str) -> str:
    """A declared file as it is written for a trial: its unit reads the trial's other files."""
    return text.replace(LIVE + "/", TRIAL + "/")


def names_of(model: str) -> list[str]:
    """The names of all files that a model may have."""
    return [unit_name(model), *(f"{model}.{kind}" for kind in ("yaml", "env", "nccl.env", "secret.env"))]


def tried(model: str) -> dict[str, str | None]:
    """The files of a trial as they will be live, by name; None for a file that the trial does without. Empty where there is no trial."""
    if not os.path.exists(trial_path(unit_name(model))):
        return {}
    texts = {name: read(trial_path(name)) for name in names_of(model)}
    return {name: None if text is None else text.replace(TRIAL + "/", LIVE + "/") for name, text in texts.items()}


def trial(model: str) -> str:
    """Whether the unit reads files that have not been applied: `declared` ones, `other` ones that were declared once, or an empty text."""
    files = tried(model)
    if not files:
        return ""
    return "declared" if all(files.get(name) == text for name, text in declared(model).items()) else "other"


def is_ours(model: str) -> bool:
    """Whether modelhost wrote the unit, live or on trial."""
    unit = unit_name(model)
    return any(MARK in (text or "") for text in (read(live_path(unit)), tried(model).get(unit)))


def is_foreign(model: str) -> bool:
    """Whether the live unit is one that modelhost did not write."""
    text = read(live_path(unit_name(model)))
    return text is not None and MARK not in text


def is_secret(name: str) -> bool:
    """Whether a file's content must never be shown or copied."""
    return name.endswith(".secret.env")


def mode_of(name: str) -> int:
    return 0o600 if is_secret(name) else 0o644


def read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def write(path: str, text: str, mode: int = 0o644, folder_mode: int = 0o755) -> None:
    """Replace a file in one step: whoever reads it sees the old text or the new one."""
    write_all([(path, text, mode)], folder_mode)


def write_all(files: Iterable[tuple[str, str, int]], folder_mode: int = 0o755) -> None:
    """Replace files, each given with its text and mode. Where the disk has no room for all of them, none is replaced."""
    ready: list[tuple[str, str]] = []
    try:
        for path, text, mode in files:
            folder = os.path.dirname(path)
            os.makedirs(folder, mode=folder_mode, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=".")
            ready.append((temporary, path))
            with open(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                os.fchmod(stream.fileno(), mode)
                stream.flush()
                os.fsync(stream.fileno())
    except BaseException:
        for temporary, _path in ready:
            os.remove(temporary)
        raise
    for temporary, path in ready:
        os.replace(temporary, path)


def remove(path: str) -> None:
    if os.path.lexists(path):
        os.remove(path)


def read_applied() -> dict[str, dict[str, Any]]:
    """What was applied, by model: port, host, wish, digest and so on. Empty on a host that never served.

    Raises ValueError for a record that cannot be read: to take it for an empty one would forget what is gone back to.
    """
    text = read(APPLIED)
    found = by_model(text, dict)
    if text and found is None:
        raise ValueError(
            f"{APPLIED}, the record of what was applied, cannot be read: put back a copy, or move it away; then the units that are enabled "
            "for boot stay as they are, and the next switch_model.yml writes it anew")
    return found or {}


def write_applied(applied: dict[str, dict[str, Any]]) -> None:
    write(APPLIED, json.dumps({"schema": 1, "models": applied}, indent=2, sort_keys=True) + "\n")


def by_model(text: str | None, kind: type) -> dict[str, Any] | None:
    """What a state file of ours has for each model, a dict or a list; None where it is not there, or damaged."""
    try:
        found = json.loads(text or "")["models"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, dict) and all(isinstance(each, kind) for each in found.values()) else None


def address(model: str, applied: dict[str, dict[str, Any]]) -> tuple[str, int]:
    """Where the unit of a model listens: what the configuration that it reads says, or the record, or, for a foreign unit, what is declared."""
    own = None if is_foreign(model) and not tried(model) else read(running_path(f"{model}.yaml"))
    text = own or ("" if model in applied else read(declared_path(model, f"{model}.yaml"))) or ""
    found = dict(line.split(": ", 1) for line in text.splitlines() if line.startswith(("host: ", "port: ")))
    record = applied.get(model, {})
    host = found.get("host", record.get("host", "127.0.0.1"))
    return str(host).strip("'\""), int(found.get("port", record.get("port", 8000)))


def running_for(unit: dict[str, str]) -> float:
    """Seconds since the unit's process began, by the clock that no operator can set; 0 before it has."""
    began = int(unit["ExecMainStartTimestampMonotonic"] or 0) / 1e6
    return time.clock_gettime(time.CLOCK_MONOTONIC) - began if began else 0.0


def read_loads(model: str) -> list[dict[str, Any]]:
    """The last loads of a model on this host, oldest first: `seconds` from the start of its process to its first answer, `engine`, `at`.

    They only help people to wait, so that a damaged file counts as none.
    """
    loads = (by_model(read(LOADS), list) or {}).get(model, [])
    return [each for each in loads if isinstance(each, dict) and isinstance(each.get("seconds"), (int, float))]


def add_load(model: str, load: dict[str, Any], most: int = 10) -> None:
    loads = by_model(read(LOADS), list) or {}
    loads[model] = [*read_loads(model), load][-most:]
    write(LOADS, json.dumps({"schema": 1, "models": loads}, indent=2, sort_keys=True) + "\n")


def protected(model: str, unit: dict[str, str], applied: dict[str, Any]) -> bool:
    """Whether the live files of a model must stay: it runs, is loading or stopping, would run after a reboot, was applied, or is foreign."""
    idle = unit["ActiveState"] in ("inactive", "failed") and unit["UnitFileState"] != "enabled"
    return not idle or model in applied or is_foreign(model)


def difference(name: str, before: str | None, after: str | None) -> str:
    """A unified diff from the live file to the declared one; of a secret file, or a foreign unit, which may hold a key, only that it differs."""
    if is_secret(name):
        return f"{name}: differs (secret, not shown)\n"
    if before is not None and name.endswith(".service") and MARK not in before:
        return f"{name}: replaces one that modelhost did not write (not shown)\n"
    lines = difflib.unified_diff(
        (before or "").splitlines(keepends=True), (after or "").splitlines(keepends=True), f"{name} (live)", f"{name} (declared)", n=1)
    return "".join(lines)


def pending(declared: dict[str, str | None]) -> list[dict[str, str]]:
    """The files whose declared text differs from the live one, with their diffs."""
    live = {name: read(live_path(name)) for name in declared}
    return [{"file": name, "diff": difference(name, live[name], text)} for name, text in declared.items() if live[name] != text]


def digest(texts: dict[str, str]) -> str:
    """Name of a generation: one short digest over the names and texts of its files."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:12]


def show(models: list[str]) -> dict[str, dict[str, str]]:
    """systemd's view of the models' units, by model."""
    shown = systemd.show([unit_name(model) for model in models], UNIT_PROPERTIES)
    return {model: shown[unit_name(model)] for model in models}
