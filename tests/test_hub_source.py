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
import time
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
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def start(python: Path, hub, tmp_path: Path):
    def run(revision: str = REVISION, token: str = "", damaged: tuple[str, ...] = (), **weights: object) -> subprocess.Popen:
        source = {"source": "huggingface", "repo": REPO, "revision": revision, **weights}
        job = {"name": "tiny", "directory": str(tmp_path / "weights/tiny"), "weights": source, "uv": "uv",
               "record": str(tmp_path / "record.json"), "damaged": list(damaged)}
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_ENDPOINT": hub.url, "HF_TOKEN": token}
        argv = [python, ROLE / "scripts/fetch_huggingface.py", json.dumps(job)]
        return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return run


@pytest.fixture
def fetch(start):
    def run(**options: object) -> subprocess.CompletedProcess:
        with start(**options) as process:
            stdout, stderr = process.communicate(timeout=60)
            return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

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


def test_a_lost_connection_is_resumed_inside_the_file(fetch, hub, tmp_path: Path) -> None:
    large = safetensors(24 * 2**20)
    hub.folder.joinpath(REPO, REVISION, "model.safetensors").write_bytes(large)
    hub.cut = 15_000_000
    assert fetch().returncode == 0
    assert (tmp_path / "weights/tiny/model.safetensors").read_bytes() == large
    # huggingface_hub writes blocks of 10 MiB.
    assert ("GET", f"/{REPO}/resolve/{REVISION}/model.safetensors", "bytes=10485760-") in hub.requests


@pytest.mark.case("W1")
def test_a_killed_fetch_is_resumed_and_a_file_damaged_meanwhile_is_found(start, fetch, hub, tmp_path: Path, monkeypatch) -> None:
    top, partial = tmp_path / "weights/tiny", tmp_path / "weights/tiny.partial"
    gate, send_file = threading.Event(), hub_module.Handler.send_file

    def held(self: object, repo: str, revision: str, name: str, body: bool) -> None:
        if body and name == "model.safetensors":
            gate.wait(30)
        send_file(self, repo, revision, name, body)

    monkeypatch.setattr(hub_module.Handler, "send_file", held)
    killed = start()
    while not ((partial / "config.json").exists() and (partial / "original/consolidated.pth").exists()):
        assert killed.poll() is None
        time.sleep(0.02)
    time.sleep(0.1)
    killed.kill()
    killed.communicate()
    gate.set()
    assert not top.exists()
    assert set(json.loads((partial / ".modelhost.json").read_text())["files"]) == set(FILES)

    (partial / "original/consolidated.pth").write_bytes(b"y" * 4096)
    os.utime(partial / "original/consolidated.pth", (0, 0))  # as a copy that keeps times: the library cannot know
    hub.requests.clear()
    result = fetch()
    assert result.returncode == 1
    assert "of another size or digest than the source promised, and removed: original/consolidated.pth" in result.stderr
    fetched = [path.rsplit("/")[-1] for method, path, _range in hub.requests if method == "GET" and "/resolve/" in path]
    assert fetched == ["model.safetensors"]
    assert fetch().returncode == 0
    assert {name: (top / name).read_bytes() for name in FILES} == FILES


@pytest.mark.case("W2")
def test_a_truncated_file_is_fetched_anew(fetch, hub, tmp_path: Path) -> None:
    assert fetch().returncode == 0
    top = tmp_path / "weights/tiny"
    (top / ".modelhost.json").unlink()
    (top / "model.safetensors").write_bytes(FILES["model.safetensors"][:1000])
    hub.requests.clear()
    assert fetch().returncode == 0
    assert (top / "model.safetensors").read_bytes() == FILES["model.safetensors"]


@pytest.mark.case("W2")
def test_a_file_of_another_content_is_fetched_anew_and_the_other_shards_stay(fetch, hub, tmp_path: Path) -> None:
    assert fetch().returncode == 0
    top = tmp_path / "weights/tiny"
    record = json.loads((tmp_path / "record.json").read_text())
    assert {name: entry["sha256"] for name, entry in record["files"].items()} == {
        name: entry["sha256"] for name, entry in json.loads((top / ".modelhost.json").read_text())["files"].items()}
    (top / ".modelhost.json").unlink()
    (top / "model.safetensors").write_bytes(b"x" * len(FILES["model.safetensors"]))
    hub.requests.clear()
    assert fetch(damaged=["model.safetensors"]).returncode == 0
    assert (top / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    fetched = [path.rsplit("/")[-1] for method, path, _range in hub.requests if method == "GET" and "/resolve/" in path]
    assert "model.safetensors" in fetched and "consolidated.pth" not in fetched


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
