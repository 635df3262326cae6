"""An engine of 9 GB on the host: how long it takes to install and to audit."""

from __future__ import annotations

import hashlib
import json

from host import ROOT, ask, copy, downloads, on_host

NAME = "vllm-0.33.0"
LOCK = ROOT / f"roles/vllm/files/locks/{NAME}-py311.txt"
FOLDER = "/opt/bench"


def bench(rounds: int) -> dict[str, tuple[list[float], list[float], str, float | None]]:
    environment = downloads()
    uv = ask("ansible.builtin.debug", "var=vllm_uv")["vllm_uv"]
    on_host(f"rm -rf {FOLDER}")
    copy([LOCK, ROOT / "roles/vllm/files/install-engine"], FOLDER)
    on_host(f"mv {FOLDER}/{LOCK.name} {FOLDER}/{NAME}.lock")
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    bare_command = (f"{uv} venv --quiet --python 3.11 {FOLDER}/bare && "
                    f"{uv} pip sync --quiet --python {FOLDER}/bare/bin/python --require-hashes {{}} {FOLDER}/{NAME}.lock")
    install, compiled, plain = [], [], []
    for _ in range(rounds):
        for times, option in ((compiled, "--compile-bytecode"), (plain, "")):
            times.append(on_host(bare_command.format(option), **{**environment, "UV_CACHE_DIR": f"{FOLDER}/cache"}))
            on_host(f"rm -rf {FOLDER}/bare {FOLDER}/cache")
        on_host(f"rm -rf {FOLDER}/{NAME}")
        install.append(on_host(f"{FOLDER}/install-engine {uv} 3.11 {FOLDER}/{NAME} {digest}", **environment))

    audit, hashing = [], []
    everything = f"find {FOLDER}/{NAME} -type f -print0 | xargs -0 -n 500 -P $(nproc) sha256sum"
    on_host(everything)  # both sides find the files in memory, as far as they fit
    arguments = json.dumps({
        "path": f"{FOLDER}/{NAME}", "manifest": json.loads(LOCK.with_suffix(".json").read_text()), "lock": LOCK.read_text()})
    for _ in range(rounds):
        answer = ask("modelhost.vllm.engine_audit_info", arguments)
        if answer["verdict"] != "pristine":
            raise SystemExit(f"bench: the engine is not pristine: {answer['findings'][:5]}")
        audit.append(answer["seconds"])
        hashing.append(on_host(everything))
    on_host(f"rm -rf {FOLDER}")
    return {
        "install": (install, compiled, "uv pip sync --compile-bytecode", 1.1),
        "install_all": (install, plain, "uv pip sync, without byte code", None),
        "audit": (audit, hashing, "find | xargs -P$(nproc) sha256sum", 1.0)}
