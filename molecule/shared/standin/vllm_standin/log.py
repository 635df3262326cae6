"""Log lines in vLLM's format."""

import os
import time


def log(process, source, message, level="INFO"):
    """Write a line as the process named ("APIServer" or "EngineCore"); source is the file:line that the real line comes from."""
    now = time.strftime("%m-%d %H:%M:%S")
    for line in message.splitlines():
        print(f"({process} pid={os.getpid()}) {level} {now} [{source}] {line}", flush=True)
