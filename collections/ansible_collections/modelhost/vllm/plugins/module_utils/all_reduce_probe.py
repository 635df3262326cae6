# GNU General Public License v3.0+ (see LICENSE)
"""All-reduce between the ranks of a host. This file is run by the engine's Python, see all_reduce_info.

One process for each rank, as vLLM has it. A collective that hangs cannot be interrupted from inside, so the ranks are children that import
torch by themselves, and the parent, which never does, ends them at the time limit.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback
from typing import Any, Callable

MARK = "modelhost-all-reduce: "
GRACE = 5  # seconds that the other ranks have once one has failed, and that the kernel has to end what was killed
CHECKS = 3  # sums of each size that are held against the known one
SMALL = 262144  # bytes; what is larger takes long enough to be timed in fewer calls
LINES = 40  # last lines that are kept of each rank

Say = Callable[[str], None]
# What a rank does: its number and a function that notes the stage; what it returns is its result
Work = Callable[[int, Say], Any]


def supervise(world_size: int, seconds: float, work: Work) -> dict[str, Any]:
    """What became of each rank: the stage that it reached, its result, whether it ended well, and its last lines of output.

    A rank that failed leaves the others waiting for it: they are ended after a short grace, and their `ended` is "killed", as after the
    time limit.
    """
    folder = tempfile.mkdtemp()
    ranks = {_start(folder, rank, seconds, work): rank for rank in range(world_size)}
    ended: dict[int, str] = {}
    deadline, timed_out = time.monotonic() + seconds, False
    while len(ended) < world_size and not timed_out:
        for pid, rank in ranks.items():
            if rank in ended:
                continue
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                ended[rank] = "well" if status == 0 else "badly"
                if status or _read(folder, rank, "decisive"):
                    deadline = min(deadline, time.monotonic() + GRACE)
        timed_out = time.monotonic() > deadline
        time.sleep(0.02)
    failed = any(how == "badly" for how in ended.values())
    _kill([pid for pid, rank in ranks.items() if rank not in ended])
    return {
        "timed_out": timed_out and not failed,
        "ranks": [
            {
                "ended": ended.get(rank, "killed"), "stage": _read(folder, rank, "stage"),
                "result": json.loads(_read(folder, rank, "result") or "null"), "said": _read(folder, rank, "said").splitlines()[-LINES:],
            } for rank in range(world_size)],
    }


def _start(folder: str, rank: int, seconds: float, work: Work) -> int:
    """Start a rank; the number of its process. Should the parent be killed, its own alarm ends it."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(int(seconds + 2 * GRACE))
        said = os.open(_path(folder, rank, "said"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        result = work(rank, lambda stage: _write(folder, rank, "stage", stage))
        _write(folder, rank, "result", json.dumps(result))
        if isinstance(result, dict) and result.get("wrong"):
            _write(folder, rank, "decisive", "yes")
        status = 0
    except BaseException:  # whatever it is, the parent reads it
        os.write(2, traceback.format_exc().encode())
    finally:
        sys.stdout.flush()
        os._exit(status)


def _kill(pids: list[int]) -> None:
    """End ranks; those that the kernel holds are not waited for long."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + GRACE
    while pids and time.monotonic() < until:
        pids = [pid for pid in pids if not os.waitpid(pid, os.WNOHANG)[0]]
        time.sleep(0.02)


def _path(folder: str, rank: int, kind: str) -> str:
    return os.path.join(folder, "%d.%s" % (rank, kind))


def _write(folder: str, rank: int, kind: str, text: str) -> None:
    path = _path(folder, rank, kind)
    with open(path + ".new", "w", encoding="utf-8") as stream:
        stream.write(text)
    os.rename(path + ".new", path)


def _read(folder: str, rank: int, kind: str) -> str:
    try:
        with open(_path(folder, rank, kind), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def all_reduce(question: dict[str, Any], store: str) -> Work:
    """What each rank does: sums of every size, held against the known ones and timed."""
    world_size, cuda = question["world_size"], question["backend"] == "nccl"

    def work(rank: int, say: Say) -> dict[str, Any]:
        say("import torch")
        torch, dist = importlib.import_module("torch"), importlib.import_module("torch.distributed")
        if cuda:
            seen = torch.cuda.device_count()
            if seen < world_size:
                raise RuntimeError("torch sees %d GPUs, and %d ranks need one each" % (seen, world_size))
            torch.cuda.set_device(rank)
        else:
            torch.set_num_threads(1)
        device = torch.device("cuda", rank) if cuda else torch.device("cpu")
        say("connect")
        # torch's own limit only has to be longer than that of the parent
        limit = datetime.timedelta(seconds=2 * question["seconds"] + 60)
        dist.init_process_group(question["backend"], init_method="file://" + store, rank=rank, world_size=world_size, timeout=limit)
        latencies = []
        for size in question["sizes"]:
            say("%d bytes" % size)
            wrong = _wrong(torch, dist, rank, world_size, size, device)
            if wrong:
                return {"wrong": wrong}
            latencies.append(_latency(torch, dist, size, device))
        say("end")
        return {"latencies_us": latencies, "torch": torch.__version__}

    return work


def _wrong(torch: Any, dist: Any, rank: int, world_size: int, size: int, device: Any) -> dict[str, Any] | None:
    """The first value that is not the known sum. Rank r gives r + 1 + i % 4 as element i: whole numbers that bfloat16 has up to 256."""
    steps = torch.arange(4, dtype=torch.bfloat16, device=device).repeat(size // 8 + 1)[:size // 2]
    expected = steps * world_size + world_size * (world_size + 1) // 2
    for _attempt in range(CHECKS):
        tensor = steps + (rank + 1)
        dist.all_reduce(tensor)
        different = (tensor != expected).nonzero()
        if len(different):
            index = int(different[0])
            return {
                "bytes": size, "index": index, "count": len(different), "got": float(tensor[index]), "expected": float(expected[index])}
    return None


def _latency(torch: Any, dist: Any, size: int, device: Any) -> float:
    """The median time of one all-reduce in microseconds, over rounds of calls one after the other.

    On GPUs the calls of a round are one CUDA graph, as vLLM's decode has them: otherwise the time of Python would be measured.
    """
    rounds, calls = (20, 20) if device.type == "cuda" and size <= SMALL else (5, 5)
    tensor = torch.zeros(size // 2, dtype=torch.bfloat16, device=device)  # zeros stay zeros

    def call() -> None:
        for _call in range(calls):
            dist.all_reduce(tensor)

    call()  # warm-up
    replay, wait = call, (lambda: None)
    if device.type == "cuda":
        wait = torch.cuda.synchronize
        wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            call()
        replay = graph.replay
    times = []
    for index in range(rounds + 2):
        wait()
        start = time.perf_counter()
        replay()
        wait()
        times += [(time.perf_counter() - start) / calls * 1e6] if index >= 2 else []
    return statistics.median(times)


def main() -> None:
    question = json.load(sys.stdin)
    store = os.path.join(tempfile.mkdtemp(), "store")
    print(MARK + json.dumps(supervise(question["world_size"], question["seconds"], all_reduce(question, store))), flush=True)


if __name__ == "__main__":
    main()
