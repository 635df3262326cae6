#!/usr/bin/env python3
"""A small stand-in for a Hugging Face hub: what huggingface_hub asks for, over a folder of ORG/REPO/REVISION/files.

    hub.py FOLDER [--address ADDRESS] [--port PORT] [--token TOKEN] [--cut BYTES]

With a token, requests without it are refused. With --cut, the first answer longer than BYTES breaks off there, as a lost connection does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

LARGE = 1024  # bytes from which on a file counts as LFS and has a sha256


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path, address: str = "127.0.0.1", port: int = 0, token: str = "", cut: int = 0) -> None:
        super().__init__((address, port), Handler)
        self.folder, self.token, self.cut = folder, token, cut
        self.requests: list[tuple[str, str, str]] = []  # method, path, Range

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]}:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append((self.command, path, self.headers.get("Range", "")))
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self.refuse(401, "GatedRepo", "Access to this repository is restricted")
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
            self.send_tree(match[1], match[2], body)
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.send_file(match[1], match[2], match[3], body)
        else:
            self.refuse(404, "RepoNotFound", "Repository not found")

    def send_tree(self, repo: str, revision: str, body: bool) -> None:
        top = self.server.folder / repo / revision
        if not top.parent.is_dir():
            self.refuse(404, "RepoNotFound", "Repository not found")
        elif not top.is_dir():
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            listing = [describe(top, path) for path in sorted(top.rglob("*")) if path.is_file()]
            self.reply(200, {"Content-Type": "application/json"}, json.dumps(listing).encode(), body)

    def send_file(self, repo: str, revision: str, name: str, body: bool) -> None:
        top = self.server.folder / repo / revision
        if not (top / name).is_file():
            self.refuse(404, "EntryNotFound", "Entry not found")
            return
        content = (top / name).read_bytes()
        entry = describe(top, top / name)
        etag = entry.get("lfs", entry)["oid"]
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": revision, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted:
            first, last = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            self.reply(206, headers, content[first:last + 1], body)
        else:
            self.reply(200, headers, content, body)

    def refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self.reply(status, headers, json.dumps({"error": message}).encode(), self.command != "HEAD")

    def reply(self, status: int, headers: dict[str, str], content: bytes, body: bool) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if not body:
            return
        if 0 < self.server.cut < len(content):
            content, self.server.cut = content[:self.server.cut], 0
            self.close_connection = True
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def describe(top: Path, path: Path) -> dict:
    content = path.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry = {"type": "file", "path": path.relative_to(top).as_posix(), "size": len(content), "oid": blob}
    if len(content) >= LARGE:
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8480)
    parser.add_argument("--token", default="")
    parser.add_argument("--cut", type=int, default=0)
    options = parser.parse_args()
    with Hub(options.folder, options.address, options.port, options.token, options.cut) as hub:
        print(f"hub at {hub.url}", flush=True)
        hub.serve_forever()


if __name__ == "__main__":
    main()
