"""The source `archive`: fetched, resumed, refused. Standard library only, so any Python of a host will do."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "roles/model_weights/files/scripts/fetch_archive.py"
FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 400}


def tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return path


def fetch(tmp_path: Path, url: str, sha256: str) -> subprocess.CompletedProcess:
    weights = {"source": "archive", "url": url, "sha256": sha256}
    job = {"name": "tiny", "directory": str(tmp_path / "weights/tiny"), "weights": weights, "uv": "uv",
           "record": str(tmp_path / "record.json"), "damaged": []}
    return subprocess.run([sys.executable, SCRIPT, json.dumps(job)], capture_output=True, text=True, timeout=60, check=False)


def content(top: Path) -> dict[str, bytes]:
    found = {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if name != ".modelhost.json"}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_tar_on_the_host_without_its_top_directory(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar", {f"tiny-1.0/{name}": data for name, data in FILES.items()})
    result = fetch(tmp_path, str(archive), digest(archive))
    assert result.returncode == 0, result.stderr
    assert content(tmp_path / "weights/tiny") == FILES
    assert oct((tmp_path / "weights/tiny/model.safetensors").stat().st_mode & 0o777) == "0o644"


def test_zip_over_what_was_damaged(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    (tmp_path / "weights/tiny").mkdir(parents=True)
    (tmp_path / "weights/tiny/model.safetensors").write_bytes(b"short")
    assert fetch(tmp_path, f"file://{tmp_path}/a.zip", digest(tmp_path / "a.zip")).returncode == 0
    assert content(tmp_path / "weights/tiny") == FILES


@pytest.mark.parametrize(("name", "words"), [("../evil", "../evil leads out of the archive"), ("/evil", "/evil leads out of the archive")])
def test_a_member_that_leads_out(tmp_path: Path, name: str, words: str) -> None:
    archive = tar(tmp_path / "a.tar", {"config.json": b"{}", name: b"x"})
    result = fetch(tmp_path, str(archive), digest(archive))
    assert result.returncode == 1
    assert words in result.stderr
    assert not (tmp_path / "weights/tiny").exists()


def test_another_digest(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar", FILES)
    result = fetch(tmp_path, str(archive), "0" * 64)
    assert result.returncode == 1
    assert f"modelhost_models.tiny.weights.sha256 is {'0' * 64}, but {archive} has {digest(archive)}." in result.stderr


def test_a_cut_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar", FILES)
    whole, ranges = archive.read_bytes(), []

    class Mirror(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ranges.append(self.headers.get("Range"))
            first = int(ranges[-1][len("bytes="):-1]) if ranges[-1] else 0
            self.send_response(206 if first else 200)
            self.send_header("Content-Length", str(len(whole) - first))
            self.end_headers()
            self.wfile.write(whole[first:] if first else whole[:50_000])

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/a.tar"
        cut = fetch(tmp_path, url, digest(archive))
        again = fetch(tmp_path, url, digest(archive))
        server.shutdown()
    assert cut.returncode == 1
    assert f"was cut after 50000 of {len(whole)} bytes; run this again to go on from there" in cut.stderr
    assert (again.returncode, ranges) == (0, [None, "bytes=50000-"])
    assert content(tmp_path / "weights/tiny") == FILES
