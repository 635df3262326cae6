"""A small engine, made by the real uv from wheels that are made here, which have every oddity of the real ones."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"lib/python{PYTHON}/site-packages"
MODEL = """import torch


class DeepseekV2Model:
    def forward(self, hidden_states):
        return hidden_states
"""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def build(folder: Path, file: str, content: dict[str, bytes], recorded: dict[str, bytes] | None = None) -> str:
    """Write a wheel, whose RECORD says of some files what `recorded` says; its line in a lock."""
    name, version = file.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    content = {
        **content, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = ""
    for path, data in {**content, **(recorded or {})}.items():
        value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record += f"{path},sha256={value},{len(data)}\n"
    with zipfile.ZipFile(folder / file, "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return f"{name}=={version} \\\n    --hash=sha256:{sha256((folder / file).read_bytes())}\n"


class Engine:
    """The engine `vllm-1` in a folder of its own, with its lock, its manifest and the wheels that it is made from."""

    def __init__(self, folder: Path) -> None:
        self.wheels, self.root = folder / "wheels", folder / "engines/vllm-1"
        self.wheels.mkdir(parents=True)
        self.root.parent.mkdir()
        self.site = self.root / SITE
        lines = [
            build(self.wheels, "vllm-1-py3-none-any.whl", {
                "vllm/__init__.py": b"VALUE = 1\n", "vllm/envs.py": b"NAMES = []\n", "vllm/_C.abi3.so": b"\x7fELF" + bytes(5000),
                "vllm/models/__init__.py": b"", "vllm/models/deepseek_v2.py": MODEL.encode(), "vllm/models/gguf.py": b"READ = True\n",
                "vllm/kernels/rms.py": b"EPS = 1\n", "vllm-1.data/scripts/vllm-tool": b"#!python\nimport vllm\n",
                "vllm-1.data/scripts/ninja": b"\x7fELF\nbinary", "vllm-1.data/data/share/vllm/notes.txt": b"notes",
                "vllm-1.dist-info/entry_points.txt":
                    b"[console_scripts]\nvllm = vllm.main:main\n\n[vllm.general_plugins]\nresolver = vllm.envs:NAMES\n"}),
            build(self.wheels, "torch-2-py3-none-any.whl", {
                "torch/__init__.py": b"FLOAT = 32\n", "torch/lib/libtorch.so": b"\x7fELF" + bytes(2_000_000), "both/owned.py": b"torch\n",
                "torch/wrong.py": b"as packed\n"}, {"torch/wrong.py": b"as recorded\n"}),
            build(self.wheels, "other-3-py3-none-any.whl", {"other.py": b"OTHER = 1\n", "both/owned.py": b"other\n"})]
        self.foreign = build(self.wheels, "foreign-4-py3-none-any.whl", {
            "foreign.py": b"FOREIGN = 1\n", "foreign-4.data/scripts/foreign-tool": b"#!python\nimport foreign\n",
            "foreign-4.dist-info/entry_points.txt": b"[vllm.general_plugins]\nforeign = foreign:FOREIGN\n"}, {"ghost.py": b"not packed\n"})
        build(self.wheels, "torch-9-py3-none-any.whl", {"torch/__init__.py": b"FLOAT = 64\n"})
        lock = folder / "lock.txt"
        subprocess.run(
            [sys.executable, ROOT / "tools/manifest.py", PYTHON, "2.35", self.wheels, lock], check=True, text=True, input="".join(lines))
        self.lock, self.manifest = lock.read_text(), json.loads(lock.with_suffix(".json").read_text())
        self.root.with_suffix(".lock").write_text(self.lock)
        self.environment = {
            **os.environ, "UV_OFFLINE": "1", "UV_FIND_LINKS": str(self.wheels), "UV_CACHE_DIR": str(folder / "cache"),
            "PYTHONPATH": f"{ROOT}/collections:{Path(json.__file__).parents[1]}"}

    def install(self) -> None:
        """Build the engine, as the role does: for the first time, or to repair it."""
        command = [ROOT / "roles/vllm/files/install-engine", ROOT / ".venv/bin/uv", sys.executable, self.root, sha256(self.lock.encode())]
        subprocess.run(command, check=True, env=self.environment, stdout=subprocess.DEVNULL)

    def pip(self, *arguments: str) -> None:
        subprocess.run(
            [ROOT / ".venv/bin/uv", "pip", "install", "--quiet", "--no-deps", "--python", self.root / "bin/python", *arguments], check=True,
            env=self.environment)

    def audit(self, **arguments: Any) -> dict[str, Any]:
        """What the module answers, for the engine unless `path` names another environment."""
        own = {} if "path" in arguments else {"manifest": self.manifest, "lock": self.lock}
        given = {"path": str(self.root), "uv": str(ROOT / ".venv/bin/uv"), **own, **arguments}
        done = subprocess.run(
            [sys.executable, "-m", "ansible_collections.modelhost.vllm.plugins.modules.engine_audit_info"], text=True, env=self.environment,
            input=json.dumps({"ANSIBLE_MODULE_ARGS": given}), stdout=subprocess.PIPE)
        return json.loads(done.stdout)
