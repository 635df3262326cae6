"""Read weights into the page cache, in the order in which the engine will, as far as memory is available. Changes nothing.

    warm_weights.py '{"name": MODEL, "files": [PATH, ...]}'

At most 90 % of what is available (MemAvailable) is filled, all page cache of these files counted: the bound within which vLLM itself
prefetches (0.33, weight_utils.py, ram_threshold_pct). What is available has no part in what processes hold, so none has to give way.
"""

from __future__ import annotations

import concurrent.futures
import json
import sys
import time
from pathlib import Path

from store import Progress, fail, gigabytes

SHARE = 0.9
THREADS, BLOCK = 8, 16 * 2**20  # as vLLM prefetches


def available() -> int:
    with open("/proc/meminfo", encoding="utf-8") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("MemAvailable:"))


def fitting(files: list[Path], budget: int) -> list[tuple[Path, int]]:
    """The first of the files, each with the bytes that are read of it, as far as the budget goes."""
    chosen = []
    for path in files:
        size = min(path.stat().st_size, budget)
        if size:
            chosen.append((path, size))
        budget -= size
    return chosen


class Reading:
    def __init__(self) -> None:
        self.bytes = 0

    def read(self, item: tuple[Path, int]) -> None:
        path, left = item
        buffer = memoryview(bytearray(BLOCK))
        with open(path, "rb", buffering=0) as stream:
            while left and (count := stream.readinto(buffer[:min(left, BLOCK)])):
                left -= count
                self.bytes += count


def main() -> None:
    job = json.loads(sys.argv[1])
    files = [Path(name) for name in job["files"]]
    begun = time.monotonic()
    try:
        whole = sum(path.stat().st_size for path in files)
        limit = int(available() * SHARE)
        chosen = fitting(files, limit)
        total = sum(size for _path, size in chosen)
        reading = Reading()
        with Progress("warming", total, lambda: reading.bytes), concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(reading.read, chosen))
    except OSError as error:
        fail(f"modelhost_models.{job['name']}.weights: {error.filename or job['files'][0]} cannot be read: {error.strerror}. Look at the "
             "disk (journalctl -k)")
    bound = "" if total == whole else f", as much as 90 % of the available memory, {gigabytes(limit)}, hold"
    print(f"read {gigabytes(total)} of {gigabytes(whole)} into memory in {time.monotonic() - begun:.0f} s{bound}", flush=True)


if __name__ == "__main__":
    main()
