"""The HTTP server, and the endpoints that do not generate."""

import http.server
import itertools
import json
import socket
import socketserver
import threading
import time
import uuid

from vllm_standin import __version__


class Server(socketserver.ThreadingTCPServer):
    """Bound when it is made, so that a taken port shows at once; refuses connections until it is activated."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, options, routes, api_key, fault):
        self.address_family = socket.AF_INET6 if ":" in (options.host or "") else socket.AF_INET
        super().__init__((options.host or "", options.port), Handler, bind_and_activate=False)
        self.server_bind()
        self.names = options.served_model_name
        self.model = options.model
        self.max_model_len = options.max_model_len or 2048
        self.routes = {"/health": ("GET", health), "/version": ("GET", version), "/metrics": ("GET", metrics)}
        self.routes.update({"/v1/models": ("GET", models), **routes})
        self.api_key = api_key
        self.fault = fault
        self.running = 0
        self.lock = threading.Lock()

    def count(self, difference):
        """Count the requests that generate."""
        with self.lock:
            self.running += difference


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        method, endpoint = self.server.routes.get(path, (None, None))
        key = self.server.api_key
        if path.startswith("/v1") and key and self.headers.get("Authorization") != f"Bearer {key}":
            self.send_json({"error": "Unauthorized"}, 401)
        elif not endpoint:
            self.send_json({"detail": "Not Found"}, 404)
        elif method != self.command:
            self.send_json({"detail": "Method Not Allowed"}, 405)
        else:
            endpoint(self, body)

    do_GET = do_POST = answer

    def send(self, text, content_type, status=200):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def send_json(self, value, status=200):
        self.send(json.dumps(value), "application/json", status)

    def send_problem(self, status, kind, param, message):
        self.send_json({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)

    def send_events(self, events):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in itertools.chain(map(json.dumps, events), ["[DONE]"]):
            data = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def log_request(self, code="-", size="-"):
        client = "{}:{}".format(*self.client_address)
        print(f'INFO:     {client} - "{self.requestline}" {code} {http.HTTPStatus(code).phrase}', flush=True)


def health(handler, _body):
    handler.send("", "text/plain")


def version(handler, _body):
    handler.send_json({"version": __version__})


def metrics(handler, _body):
    labels = f'{{engine="0",model_name="{handler.server.names[0]}"}}'
    values = {"vllm:num_requests_running": handler.server.running, "vllm:num_requests_waiting": 0}
    lines = [f"# TYPE {name} gauge\n{name}{labels} {float(value)}\n" for name, value in values.items()]
    handler.send("".join(lines), "text/plain; version=0.0.4; charset=utf-8")


def models(handler, _body):
    now = int(time.time())
    permission = {"id": f"modelperm-{uuid.uuid4().hex[:16]}", "object": "model_permission", "created": now}
    permission.update(dict.fromkeys(("allow_sampling", "allow_logprobs", "allow_view"), True), organization="*", group=None)
    permission.update(dict.fromkeys(("allow_create_engine", "allow_search_indices", "allow_fine_tuning", "is_blocking"), False))
    card = {"object": "model", "created": now, "owned_by": "vllm", "root": handler.server.model, "parent": None}
    card.update(max_model_len=handler.server.max_model_len, permission=[permission])
    handler.send_json({"object": "list", "data": [{"id": name, **card} for name in handler.server.names]})
