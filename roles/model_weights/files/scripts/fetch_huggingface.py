"""Fetch a repository of a Hugging Face hub at one commit. The hub and the token come from HF_ENDPOINT and HF_TOKEN.

A lost connection is resumed inside a file; a killed fetch is resumed with the files that it had not finished.
"""

from __future__ import annotations

import os
import sys

from store import Job, Progress, fail

HUB = os.environ["HF_ENDPOINT"]
job = Job(sys.argv[1])
os.environ.update(HF_HOME=str(job.work / "hub"), HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

from httpx2 import HTTPError  # noqa: E402 (the hub's library reads the environment when imported)
from huggingface_hub import HfApi, snapshot_download  # noqa: E402
from huggingface_hub.errors import HfHubHTTPError  # noqa: E402
from huggingface_hub.hf_api import RepoFile  # noqa: E402
from huggingface_hub.utils import filter_repo_objects  # noqa: E402


def promised(repo: str, revision: str, include: list[str] | None) -> dict[str, dict]:
    """The files of the commit, each with the size and the digest that the hub gives."""
    listing = [entry for entry in HfApi().list_repo_tree(repo, revision=revision, recursive=True) if isinstance(entry, RepoFile)]
    expected = {}
    for entry in filter_repo_objects(listing, allow_patterns=include, key=lambda file: file.path):
        digest = {"sha256": entry.lfs.sha256} if entry.lfs else {"git": entry.blob_id}
        expected[entry.path] = {"size": entry.size, **digest}
    if not expected:
        fail(f"{job.variable}.include: {include} matches none of the {len(listing)} files of {repo}")
    return expected


def fetch() -> None:
    repo, revision, include = job.weights["repo"], job.weights["revision"], job.weights.get("include") or None
    expected = promised(repo, revision, include)
    job.open()
    job.write_manifest({name: {"size": entry["size"]} for name, entry in expected.items()})
    total = sum(entry["size"] for entry in expected.values())

    # The library begins a file that was being fetched anew, and trusts one that it finished: what has another size now is not finished.
    for path in job.work.rglob("*.incomplete"):
        path.unlink()
    for name, path in job.files().items():
        if path.stat().st_size != expected.get(name, {}).get("size"):
            path.unlink()

    def done() -> int:
        present = sum(path.stat().st_size for path in job.files().values())
        return present + sum(path.stat().st_size for path in job.work.rglob("*.incomplete"))

    job.need(total - done())
    print(f"{len(expected)} files of {repo} at {revision}", flush=True)
    with Progress("downloading", total, done):
        snapshot_download(repo, revision=revision, allow_patterns=include, local_dir=job.partial)
    job.seal(expected)


try:
    fetch()
except HfHubHTTPError as error:
    fail(f"{job.variable}: the hub {HUB} refused {job.weights['repo']} at {job.weights['revision']}: {error}. "
         "Check repo and revision, and for a gated or private repository modelhost_hub_token")
except HTTPError as error:
    fail(f"{job.variable}: the hub {HUB} cannot be reached: {error}. Check modelhost_hub_url, the network and modelhost_ca_bundle; "
         "run again, this goes on where it stopped")
