"""The engine's own process: it loads, tells the server so through a pipe, and lives until it is told to stop.

Usage: python -m vllm_standin.engine MODEL PIPE
"""

import os
import signal
import sys
import time
import traceback

from vllm_standin import __version__
from vllm_standin.log import log

SHARDS = 8


def say(source, message, level="INFO"):
    log("EngineCore", source, message, level)


def show_progress(done, started):
    """Write the bar as tqdm does for vLLM: a carriage return first, a line feed last."""
    took = time.monotonic() - started
    clock = time.strftime("%M:%S", time.gmtime(took))
    rest = "?, ?"
    if done:
        rest = time.strftime("%M:%S", time.gmtime(took / done * (SHARDS - done))) + f", {done / took:5.2f}"
    percent = 100 * done // SHARDS
    bar = f"Loading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{SHARDS} [{clock}<{rest}it/s]"
    print(f"\r{bar}", file=sys.stderr, flush=True)


def load(model, seconds, fault):
    say("core.py:133", f"Initializing a V1 LLM engine (v{__version__}) with config: model='{model}', load_format=auto")
    if fault == "crash-at-start":
        time.sleep(1)
        raise ValueError("Free memory on device (1.0/95.0 GiB) on startup is less than desired GPU memory utilization")
    if "nvls" in os.environ.get("NCCL_ALGO", "").lower():  # as without an NVSwitch
        raise RuntimeError("NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)")
    say("gpu_model_runner.py:4979", f"Starting to load model {model}...")
    started = time.monotonic()
    for done in range(SHARDS):
        show_progress(done, started)
        while fault == "stall" and done == SHARDS // 2:
            time.sleep(3600)
        time.sleep(seconds / SHARDS)
    show_progress(SHARDS, started)
    print(file=sys.stderr, flush=True)
    say("default_loader.py:501", f"Loading weights took {time.monotonic() - started:.2f} seconds")
    say("core.py:402", "init engine (profile, create kv cache, warmup model) took 0.01 s")


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as the real one while it loads
    model, pipe = sys.argv[1], int(sys.argv[2])
    try:
        load(model, float(os.environ.get("STANDIN_LOAD_SECONDS", "2")), os.environ.get("STANDIN_FAULT", ""))
    except (RuntimeError, ValueError):
        say("core.py:1510", "EngineCore failed to start.\n" + traceback.format_exc(), "ERROR")
        sys.exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.write(pipe, b"ready")
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
