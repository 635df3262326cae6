"""A host for the modules: its files below a temporary folder, its systemd in a dict."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CalledProcessError
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils import _internal
from ansible.module_utils.common import warnings
from ansible.module_utils.testing import patch_module_args
from ansible_collections.modelhost.vllm.plugins.module_utils import models, switch_record, systemd
from hypothesis import configuration

configuration.set_hypothesis_home_dir(Path(__file__).resolve().parents[6] / ".cache/hypothesis")


class Host:
    """What the modules see of a host, and the commands that they ran on it."""

    STOPPED = {
        "LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "UnitFileState": "disabled", "MainPID": "0", "NRestarts": "0",
        "Result": "success", "ExecMainStatus": "0", "ExecMainStartTimestamp": "",
        "ExecMainStartTimestampMonotonic": "0", "InvocationID": "", "ControlGroup": "",
    }
    RUNNING = {
        **STOPPED, "ActiveState": "active", "SubState": "running", "UnitFileState": "enabled", "MainPID": "4711", "InvocationID": "0a1b",
        "ExecMainStartTimestamp": "Mon 2026-11-30 09:37:40 UTC", "ControlGroup": "/system.slice/vllm-small.service",
    }

    def __init__(self, root: Path) -> None:
        self.root = root
        self.units: dict[str, dict[str, str]] = {}
        self.journal = ""
        self.version = "systemd 252 (252.39-1~deb12u2)"
        self.ran: list[str] = []
        self.stubborn: list[str] = []  # units that a stop does not end
        self.refused: dict[str, str] = {}  # what systemd says to a command that fails

    def run(self, argv: list[str]) -> str:
        if argv[:2] == ["systemctl", "show"]:
            return "\n".join(self.shown(argv[argv.index("--") + 1:]))
        if argv == ["systemctl", "--version"]:
            return self.version
        self.ran.append(" ".join(argv))
        if self.ran[-1] in self.refused:
            raise CalledProcessError(1, argv, stderr=self.refused[self.ran[-1]])
        if argv[:2] == ["systemctl", "stop"]:
            self.units.update({name: self.STOPPED for name in argv[2:] if name not in self.stubborn and self.active(name)})
        return self.journal if argv[0] == "journalctl" else ""

    def active(self, name: str) -> bool:
        return self.units.get(name, self.STOPPED)["ActiveState"] not in ("inactive", "failed")

    def shown(self, names: list[str]) -> list[str]:
        if names == ["vllm-*.service"]:
            names = list(self.units)
        units = [{"Id": name, **self.units.get(name, {**self.STOPPED, "LoadState": "not-found", "UnitFileState": ""})} for name in names]
        return ["".join(f"{key}={value}\n" for key, value in unit.items()) for unit in units]

    def files(self, folder: str) -> dict[str, str]:
        top = self.root / folder
        return {path.relative_to(top).as_posix(): path.read_text() for path in sorted(top.rglob("*")) if path.is_file()}

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def mode(self, path: str) -> str:
        return f"{(self.root / path).stat().st_mode & 0o7777:04o}"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    for name, folder in {
        "DECLARED": "declared", "LIVE": "live", "LIVE_UNITS": "units", "TRIAL": "trial", "TRIAL_UNITS": "trial-units",
        "GENERATIONS": "generations", "APPLIED": "state/applied.json", "LOADS": "state/loads.json", "ADOPTED": "adopted",
    }.items():
        monkeypatch.setattr(models, name, str(tmp_path / folder))
    monkeypatch.setattr(switch_record, "RECORD", str(tmp_path / "state/switch.json"))
    monkeypatch.setattr(switch_record, "GUARD", str(tmp_path / "run/switch.lock"))
    monkeypatch.setattr(models, "MARK", f"Documentation=file:{tmp_path}/live/")
    made = Host(tmp_path)
    monkeypatch.setattr(systemd, "run", made.run)
    return made


@pytest.fixture
def fill_the_disk(monkeypatch: pytest.MonkeyPatch):
    """From its call on, no file of ours can be written."""
    def full(files, folder_mode=0o755):
        raise OSError(28, "No space left on device")

    return lambda: monkeypatch.setattr(models, "write_all", full)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run a module as Ansible would, in this process; its result, with its warnings as plain sentences."""
    # Where a test imports a plug-in of the controller, Ansible would show the warnings of a module instead of returning them.
    monkeypatch.setattr(_internal, "is_controller", False)

    def run(module: ModuleType, check_mode: bool = False, **params: Any) -> dict[str, Any]:
        with patch_module_args({**params, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
            module.main()
        result = json.loads(capsys.readouterr().out)
        if "warnings" in result:
            result["warnings"] = [each["event"]["msg"] for each in result["warnings"]]
        warnings._global_warnings.clear()  # those of a process, which Ansible starts anew for each module
        result.pop("invocation", None)
        return result

    return run
