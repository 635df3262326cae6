"""The source `huggingface` with the real, locked huggingface_hub against a stand-in hub: what is fetched, resumed, refused."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROLE = ROOT / "roles/model_weights/files"
REPO, REVISION = "tiny/llama", "0123456789abcdef0123456789abcdef01234567"

spec = importlib.util.spec_from_file_location("hub", ROOT / "molecule/shared/hub.py")
hub_module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hub_module)


def safetensors(size: int) -> bytes:
    header = json.dumps({"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(range(256)) * (size // 256)


FILES = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
    "model.safetensors": safetensors(2**20),
    "original/consolidated.pth": b"x" * 4096,
}


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with exactly what the lock names."""
    environment = tmp_path_factory.mktemp("hub-env") / "env"
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    subprocess.run([uv, "pip", "sync", "--quiet", "--require-hashes", "--python", environment, ROLE / "locks/hub.lock"], check=True)
    return environment / "bin/python"


@pytest.fixture
def hub(tmp_path: Path):
    for name, content in FILES.items():
        path = tmp_path / "hub" / REPO / REVISION / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with hub_module.Hub(tmp_path / "hub") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def fetch(python: Path, hub, tmp_path: Path):
    def run(revision: str = REVISION, token: str = "", **weights: object) -> subprocess.CompletedProcess:
        source = {"source": "huggingface", "repo": REPO, "revision": revision, **weights}
        job = {"name": "tiny", "directory": str(tmp_path / "weights/tiny"), "weights": source, "uv": "uv"}
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_ENDPOINT": hub.url, "HF_TOKEN": token}
        argv = [python, ROLE / "scripts/fetch_huggingface.py", json.dumps(job)]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)

    return run


def names(top: Path) -> list[str]:
    return sorted(path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file())


def test_all_files_verified_and_readable_by_others(fetch, tmp_path: Path) -> None:
    result = fetch()
    assert result.returncode == 0, result.stderr
    top = tmp_path / "weights/tiny"
    assert names(top) == [".modelhost.json", "config.json", "model.safetensors", "original/consolidated.pth"]
    assert (top / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    manifest = json.loads((top / ".modelhost.json").read_text())
    assert manifest["files"]["original/consolidated.pth"] == {
        "size": 4096, "sha256": "a2e659dacb4691e887ac0139f8893d04764ee197d70fb73d3190d56113d18e3e"}
    assert {oct(path.stat().st_mode & 0o777) for path in top.rglob("*") if path.is_file()} == {"0o644"}
    assert {oct(path.stat().st_mode & 0o777) for path in [top, top / "original"]} == {"0o755"}


def test_include_leaves_the_rest_at_the_hub(fetch, hub, tmp_path: Path) -> None:
    assert fetch(include=["*.json", "*.safetensors"]).returncode == 0
    assert names(tmp_path / "weights/tiny") == [".modelhost.json", "config.json", "model.safetensors"]
    assert not [path for _method, path, _range in hub.requests if path.endswith(".pth")]


def test_include_that_matches_nothing(fetch, tmp_path: Path) -> None:
    result = fetch(include=["UD-Q4_K_XL/*"])
    assert result.returncode == 1
    assert "modelhost_models.tiny.weights.include: ['UD-Q4_K_XL/*'] matches none of the 3 files of tiny/llama" in result.stderr
    assert not (tmp_path / "weights").exists()


@pytest.mark.case("W1")
def test_a_cut_download_goes_on_where_it_stopped(fetch, hub, tmp_path: Path) -> None:
    top, partial = tmp_path / "weights/tiny", tmp_path / "weights/tiny.partial"
    hub.folder.joinpath(REPO, REVISION, "model.safetensors").write_bytes(safetensors(2**20))
    hub.cut = 300_000
    result = fetch()
    if result.returncode:  # the library may try again by itself
        assert partial.is_dir() and not top.exists()
        assert fetch().returncode == 0
    assert (top / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert ("GET", f"/{REPO}/resolve/{REVISION}/model.safetensors", "bytes=300000-") in hub.requests


@pytest.mark.case("W2")
def test_a_truncated_file_is_fetched_anew(fetch, hub, tmp_path: Path) -> None:
    assert fetch().returncode == 0
    top = tmp_path / "weights/tiny"
    (top / ".modelhost.json").unlink()
    (top / "model.safetensors").write_bytes(FILES["model.safetensors"][:1000])
    hub.requests.clear()
    assert fetch().returncode == 0
    assert (top / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_content_that_differs_from_the_hubs_digest(fetch, hub, tmp_path: Path) -> None:
    assert fetch().returncode == 0
    top = tmp_path / "weights/tiny"
    (top / ".modelhost.json").unlink()
    wrong = hub.folder.joinpath(REPO, REVISION, "config.json")
    wrong.write_bytes(wrong.read_bytes().replace(b"Llama", b"Camel"))
    # The library believes its own record of what it fetched; the digest does not.
    result = fetch()
    assert (result.returncode, (top / "config.json").read_bytes()) == (0, wrong.read_bytes())


def test_unknown_revision(fetch, tmp_path: Path) -> None:
    result = fetch(revision="f" * 40)
    assert result.returncode == 1
    assert "modelhost_models.tiny.weights: the hub http://127.0.0.1" in result.stderr
    assert f"refused tiny/llama at {'f' * 40}" in result.stderr
    assert not (tmp_path / "weights").exists()


def test_token(fetch, hub) -> None:
    hub.token = "hf_secret"
    refused = fetch()
    assert refused.returncode == 1
    assert "modelhost_hub_token" in refused.stderr
    accepted = fetch(token="hf_secret")
    assert accepted.returncode == 0
    assert "hf_secret" not in accepted.stdout + accepted.stderr + refused.stderr
