# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

from ansible_collections.modelhost.vllm.plugins.module_utils import nccl_sweep

POINTS = [{"key": "a"}, {"key": "b"}]


def test_the_newest_sweep_that_has_one_of_the_points_goes_on():
    # The newest of all is one with other inputs, such as the served model.
    files = ["/s/m/20260101T000000Z/a.json", "/s/m/20260102T000000Z/b.json", "/s/m/20260103T000000Z/c.json"]
    assert nccl_sweep.folder(POINTS, files, False) == {"started": "20260102T000000Z", "left": [{"key": "a"}]}
    assert nccl_sweep.folder(POINTS, files, True) == {"started": "", "left": POINTS}
    assert nccl_sweep.folder(POINTS, files[2:], False) == {"started": "", "left": POINTS}


def result(tried: dict[str, str], tpots: list[float], verdict: str = "ok", reason: str = ""):
    results = [{"mean_tpot_ms": each, "output_throughput": 900 / each, "mean_ttft_ms": 1} for each in tpots]
    name = " ".join("=".join(each) for each in tried.items()) or "as declared"
    return {"model": "m", "name": name, "tried": tried, "nccl": tried, "verdict": verdict, "reason": reason,
            "points": [{"name": "concurrency 1", "results": results}] if verdict == "ok" else []}


def test_a_rate_is_the_median_and_counts_from_five_percent_on():
    # Of a model with max-num-seqs 1 there is one step, and one load.
    results = [result({}, [10, 10, 10]), result({"NCCL_ALGO": "tree"}, [2, 9.6, 9.6])]
    assert nccl_sweep.lines(results, 0) == [
        "    one stream  tok/s",
        "         100.0  as declared",
        "         104.2  NCCL_ALGO=tree",
        "for one stream (concurrency 1): nothing is better than what is declared"]
    assert nccl_sweep.lines([result({}, [10]), result({"NCCL_ALGO": "tree"}, [9])], 1)[3:] == [
        "for one stream (concurrency 1): 111.1 tok/s with NCCL_ALGO=tree",
        "  modelhost_models:", "    m:", "      nccl:", '        NCCL_ALGO: "tree"',
        "1 points are left: run it again, and it goes on"]


def test_why_a_point_failed_is_one_line():
    reason = "m: the unit ended (failed). Its journal's decisive lines:\nRuntimeError\nAll of it: journalctl"
    assert nccl_sweep.lines([result({"NCCL_ALGO": "nvls"}, [], "failed", reason)], 0) == [
        "        failed  NCCL_ALGO=nvls: m: the unit ended (failed)"]
