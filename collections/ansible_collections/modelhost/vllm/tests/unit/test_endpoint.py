"""What an endpoint says, asked over real HTTP."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils.endpoint import Endpoint

MODELS = (200, '{"object": "list", "data": [{"id": "smollm2-chat"}, {"id": "default"}]}')


class Server(ThreadingHTTPServer):
    """Answers with `reply` and remembers what it was asked."""

    reply = MODELS

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, self.headers["Authorization"], json.loads(body) if body else None))
        status, text = self.server.reply
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_POST = do_GET

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with Server() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


def endpoint(server, host="127.0.0.1", secret="/nowhere"):
    return Endpoint(host, server.server_port, str(secret))


@pytest.mark.parametrize(("host", "url"), [
    ("127.0.0.1", "http://127.0.0.1:8000"),
    ("0.0.0.0", "http://127.0.0.1:8000"),
    ("::", "http://127.0.0.1:8000"),
    ("10.0.0.7", "http://10.0.0.7:8000"),
    ("::1", "http://[::1]:8000"),
])
def test_where_the_host_asks_itself(host, url):
    assert Endpoint(host, 8000, "/nowhere").url == url


def test_served_names(server):
    assert endpoint(server, "0.0.0.0").served_names() == ["smollm2-chat", "default"]
    assert server.asked == [("GET", "/v1/models", None, None)]


@pytest.mark.parametrize("reply", [
    (401, '{"error": "Unauthorized"}'), (503, "starting"), (200, "a page"), (200, "[]"), (200, '{"data": null}'),
    (200, '{"data": [{"name": "x"}]}'),
])
def test_who_is_no_vllm_serves_nothing(server, reply):
    server.reply = reply
    assert endpoint(server).served_names() == []


def test_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert Endpoint("127.0.0.1", port, "/nowhere").served_names() == []
    with pytest.raises(OSError):
        Endpoint("127.0.0.1", port, "/nowhere").generate("x", "hi", 1, 1)


def test_something_listens_that_speaks_no_http():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def greet():
            connection, _peer = listener.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
            connection.recv(65536)
            connection.close()

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(OSError, match="no HTTP answer"):
            Endpoint("127.0.0.1", listener.getsockname()[1], "/nowhere").ask("/v1/models", None, 5)


@pytest.mark.parametrize(("text", "sent"), [
    ('VLLM_API_KEY="abc"\n', "Bearer abc"),
    ('VLLM_API_KEY="a\\"b\\\\c\\$d"\n', 'Bearer a"b\\c$d'),
    ('OTHER="abc"\n', None),
    ("", None),
])
def test_the_key_is_read_from_the_units_own_file(server, tmp_path, text, sent):
    (tmp_path / "secret.env").write_text(text)
    endpoint(server, secret=tmp_path / "secret.env").served_names()
    assert server.asked[0][2] == sent


def test_no_proxy_is_asked(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert endpoint(server).served_names() == ["smollm2-chat", "default"]


def test_a_generation(server):
    server.reply = (200, '{"choices": [{"message": {"content": "Paris."}}]}')
    status, body = endpoint(server).generate("smollm2-chat", "What is the capital of France?", 16, 5)
    assert (status, body) == (200, {"choices": [{"message": {"content": "Paris."}}]})
    assert server.asked == [("POST", "/v1/chat/completions", None, {
        "model": "smollm2-chat", "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 16, "temperature": 0,
    })]


@pytest.mark.parametrize(("reply", "expected"), [
    ((400, '{"error": {"message": "too long"}}'), (400, {"error": {"message": "too long"}})),
    ((500, "Internal Server Error"), (500, "Internal Server Error")),
])
def test_a_refusal_is_an_answer(server, reply, expected):
    server.reply = reply
    assert endpoint(server).generate("smollm2-chat", "hi", 1, 5) == expected


# As vLLM 0.32 writes its metrics, in the text format of Prometheus, version 0.0.4; the names and labels are those that
# molecule/shared/standin/recorded.json has. Two engines are two ranks of data parallelism.
METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="smollm2-chat"} 2.0
vllm:num_requests_running{engine="1",model_name="smollm2-chat"} 1.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="smollm2-chat"} 4.0
vllm:num_requests_waiting{engine="1",model_name="smollm2-chat"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm2-chat",reason="capacity"} 4.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="smollm2-chat"} 40.0
"""


def test_the_format_is_the_one_that_was_recorded():
    recorded = json.loads((Path(__file__).resolve().parents[6] / "molecule/shared/standin/recorded.json").read_text())["metrics"]
    assert recorded == {
        "status": 200, "body": ["vllm:num_requests_running{engine,model_name}", "vllm:num_requests_waiting{engine,model_name}"]}


@pytest.mark.parametrize(("metrics", "count"), [
    (METRICS, 7),
    (METRICS.replace(" 2.0", " 0.0").replace(" 1.0", " 0.0").replace("} 4.0", "} 0.0"), 0),
    ("vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n", 3),
    ('vllm:num_requests_running{model_name="a"} 1e+03\n', 1000),
])
def test_requests_in_flight(server, metrics, count):
    server.reply = (200, metrics)
    assert endpoint(server).in_flight() == count
    assert server.asked == [("GET", "/metrics", None, None)]


@pytest.mark.parametrize("reply", [
    (404, '{"detail": "Not Found"}'), (200, "a page"), (200, "process_cpu_seconds_total 3.0\n"), (503, METRICS), (200, "[]"),
    (200, "# TYPE vllm:num_requests_running gauge\n"),
])
def test_a_server_that_does_not_count_requests(server, reply):
    server.reply = reply
    with pytest.raises(OSError, match=f"http://127.0.0.1:{server.server_port}/metrics does not count requests: HTTP {reply[0]}"):
        endpoint(server).in_flight()
