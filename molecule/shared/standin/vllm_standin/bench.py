"""The benchmark: python -m vllm_standin.bench, with the options and the result file of `vllm bench serve`.

Like the real one it exits 0 even when every request failed.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import datetime
import http.client
import json
import math
import os
import pathlib
import random
import statistics
import time
import urllib.parse

WORDS = ("model", "host", "answer", "token", "cache", "layer", "switch", "measure")


@dataclasses.dataclass
class Outcome:
    """What came of one request; times in seconds."""

    queued: float
    started: float
    success: bool = False
    error: str = ""
    ttft: float = 0.0
    itl: list = dataclasses.field(default_factory=list)
    latency: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0


def parser():
    result = argparse.ArgumentParser(prog="vllm bench serve")
    result.add_argument("--backend", choices=["openai-chat"], required=True)
    result.add_argument("--dataset-name", choices=["random"], default="random")
    for name in ("base-url", "endpoint", "model"):
        result.add_argument(f"--{name}", required=True)
    for name in ("tokenizer", "result-filename"):
        result.add_argument(f"--{name}")
    result.add_argument("--result-dir", default=".")
    result.add_argument("--percentile-metrics", default="ttft,tpot,itl")
    result.add_argument("--metric-percentiles", default="99")
    result.add_argument("--max-concurrency", type=int)
    result.add_argument("--temperature", type=float)
    numbers = {"random-input-len": 1024, "random-output-len": 128, "num-prompts": 1000, "num-warmups": 0, "seed": 0}
    for name, default in {**numbers, "ready-check-timeout-sec": 0}.items():
        result.add_argument(f"--{name}", type=int, default=default)
    for name in ("ignore-eos", "save-result"):
        result.add_argument(f"--{name}", action="store_true")
    return result


def send(args, prompt, queued):
    """Send one streamed chat completion and time its tokens."""
    outcome = Outcome(queued, time.perf_counter())
    body = {"model": args.model, "messages": [{"role": "user", "content": [{"type": "text", "text": prompt}]}]}
    body.update(max_completion_tokens=args.random_output_len, stream=True, stream_options={"include_usage": True})
    body.update(ignore_eos=args.ignore_eos, temperature=args.temperature)
    headers = {"Content-Type": "application/json"}
    if os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
    try:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(args.base_url).netloc)
        connection.request("POST", args.endpoint, json.dumps(body), headers)
        response = connection.getresponse()
        outcome.error = "" if response.status == 200 else response.reason
        read_stream(response if response.status == 200 else [], outcome)
    except (OSError, http.client.HTTPException, ValueError) as error:
        outcome.success, outcome.error = False, repr(error)
    return outcome


def read_stream(lines, outcome):
    """Fill the outcome from the events of a stream."""
    last = outcome.started
    for line in lines:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[len(b"data: ") :])
        if event["choices"]:
            now = time.perf_counter()
            if outcome.success:
                outcome.itl.append(now - last)
            else:
                outcome.success, outcome.ttft = True, now - outcome.started
            last = now
        elif event.get("usage"):
            outcome.prompt_tokens, outcome.output_tokens = event["usage"]["prompt_tokens"], event["usage"]["completion_tokens"]
    outcome.latency = last - outcome.started


def percentile(values, percent):
    """Interpolate linearly between the closest ranks."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def statistics_of(name, seconds, percentiles):
    """Return the keys of one metric in milliseconds; without values all are 0."""
    values = [1000 * value for value in seconds] or [0.0]
    result = {"mean": statistics.fmean(values), "median": statistics.median(values), "std": statistics.pstdev(values)}
    result.update({f"p{percent:g}": percentile(values, percent) for percent in percentiles})
    return {f"{key}_{name}_ms": value for key, value in result.items()}


def peaks(done):
    """Return the most tokens and the most requests in one second of the run."""
    begin = min((outcome.started for outcome in done), default=0)
    tokens, requests = collections.Counter(), collections.Counter()
    for outcome in done:
        at = outcome.started - begin + outcome.ttft
        tokens[int(at)] += 1
        for gap in outcome.itl:
            at += gap
            tokens[int(at)] += 1
        requests.update(range(int(outcome.started - begin), int(outcome.started - begin + outcome.latency) + 1))
    return float(max(tokens.values(), default=0)), max(requests.values(), default=0)


def summary(args, outcomes, duration):
    """Return the result with vLLM's keys, in its order."""
    done = [outcome for outcome in outcomes if outcome.success]
    given, got = sum(outcome.prompt_tokens for outcome in done), sum(outcome.output_tokens for outcome in done)
    most_tokens, most_requests = peaks(done)
    result = {
        "date": datetime.datetime.now().strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": args.backend,
        "backend": args.backend,
        "label": None,
        "model_id": args.model,
        "tokenizer_id": args.tokenizer or args.model,
        "num_prompts": args.num_prompts,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": args.max_concurrency,
        "duration": duration,
        "completed": len(done),
        "failed": len(outcomes) - len(done),
        "total_input_tokens": given,
        "total_output_tokens": got,
        "request_throughput": len(done) / duration,
        "request_goodput": None,
        "output_throughput": got / duration,
        "total_token_throughput": (given + got) / duration,
        "latencies": [outcome.latency for outcome in outcomes],
        "queue_times": [outcome.started - outcome.queued for outcome in outcomes],
        "max_output_tokens_per_s": most_tokens,
        "max_concurrent_requests": most_requests,
        "rtfx": 0.0,
    }
    seconds = {
        "ttft": [outcome.ttft for outcome in done],
        "tpot": [(each.latency - each.ttft) / (each.output_tokens - 1) for each in done if each.output_tokens > 1],
        "itl": [gap for outcome in done for gap in outcome.itl],
        "e2el": [outcome.latency for outcome in done],
    }
    percentiles = [float(percent) for percent in args.metric_percentiles.split(",")]
    wanted = args.percentile_metrics.split(",")
    for name, values in seconds.items():
        result.update(statistics_of(name, values, percentiles) if name in wanted else {})
    return result


def main():
    args = parser().parse_args()
    chance = random.Random(args.seed)
    prompts = [" ".join(chance.choices(WORDS, k=args.random_input_len)) for _ in range(args.num_prompts)]

    def run(chosen):
        with concurrent.futures.ThreadPoolExecutor(args.max_concurrency or args.num_prompts) as pool:
            queued = time.perf_counter()
            return list(pool.map(lambda prompt: send(args, prompt, queued), chosen))

    if args.ready_check_timeout_sec > 0 and not (test := run(prompts[:1])[0]).success:
        raise ValueError(f"Initial test run failed - Please make sure benchmark arguments are correctly specified. Error: {test.error}")
    run(prompts[:1] * args.num_warmups)
    started = time.perf_counter()
    outcomes = run(prompts)
    result = summary(args, outcomes, time.perf_counter() - started)
    for number, outcome in enumerate([each for each in outcomes if not each.success][:10]):
        print(f"Error {number}: {outcome.error}")
    print(" Serving Benchmark Result ".center(50, "="))
    print("{:<40} {:<10}".format("Successful requests:", result["completed"]))
    print("{:<40} {:<10}".format("Failed requests:", result["failed"]))
    if args.save_result:
        name = args.result_filename or f"openai-chat-infqps-{args.model.split('/')[-1]}-{result['date']}.json"
        pathlib.Path(args.result_dir).mkdir(parents=True, exist_ok=True)
        pathlib.Path(args.result_dir, name).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
