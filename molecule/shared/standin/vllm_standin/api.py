"""The HTTP server: the endpoints of vLLM that modelhost asks, with the keys of its answers.

A token is a word. Only chat completions stream.
"""

import contextlib
import http.server
import itertools
import json
import re
import socket
import socketserver
import threading
import time
import uuid

from vllm_standin import __version__

SECONDS_PER_TOKEN = 0.001
FINGERPRINT = f"vllm-{__version__}-standin"


class Server(socketserver.ThreadingTCPServer):
    """Bound when it is made, so that a taken port shows at once; refuses connections until it is activated."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, options, api_key, hangs):
        self.address_family = socket.AF_INET6 if ":" in (options.host or "") else socket.AF_INET
        super().__init__((options.host or "", options.port), Handler, bind_and_activate=False)
        self.server_bind()
        self.names = options.served_model_name
        self.model = options.model
        self.max_model_len = options.max_model_len or 2048
        self.api_key = api_key
        self.hangs = hangs
        self.routes = ROUTES
        self.running = 0
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def counted(self):
        """Count a request among the running ones."""
        with self.lock:
            self.running += 1
        try:
            yield
        finally:
            with self.lock:
                self.running -= 1


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        method, endpoint = ROUTES.get(path, (None, None))
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
        self.send_header("Content-Length", str(len(text.encode())))
        if text:
            self.send_header("Content-Type", content_type)
        self.end_headers()
        self.wfile.write(text.encode())

    def send_json(self, value, status=200):
        self.send(json.dumps(value), "application/json", status)

    def send_error_body(self, status, kind, param, message):
        self.send_json({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)

    def send_events(self, events):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in (*map(json.dumps, events), "[DONE]"):
            data = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def log_request(self, code="-", size="-"):
        status = http.HTTPStatus(code)
        print(f'INFO:     {self.client_address[0]}:{self.client_address[1]} - "{self.requestline}" {code} {status.phrase}', flush=True)


def health(handler, _):
    handler.send("", "")


def version(handler, _):
    handler.send_json({"version": __version__})


def metrics(handler, _):
    labels = f'{{engine="0",model_name="{handler.server.names[0]}"}}'
    values = {"running": handler.server.running, "waiting": 0}
    text = "".join(f"vllm:num_requests_{name}{labels} {float(value)}\n" for name, value in values.items())
    handler.send(text, "text/plain; version=0.0.4; charset=utf-8")


def models(handler, _):
    allowed = ("allow_sampling", "allow_logprobs", "allow_view")
    refused = ("allow_create_engine", "allow_search_indices", "allow_fine_tuning", "is_blocking")
    now = int(time.time())
    permission = {"id": f"modelperm-{uuid.uuid4().hex[:16]}", "object": "model_permission", "created": now, "organization": "*", "group": None}
    permission.update(dict.fromkeys(allowed, True), **dict.fromkeys(refused, False))
    card = {"object": "model", "created": now, "owned_by": "vllm", "root": handler.server.model, "parent": None}
    card.update(max_model_len=handler.server.max_model_len, permission=[permission])
    handler.send_json({"object": "list", "data": [{"id": name, **card} for name in handler.server.names]})


def prompt_of(request, field):
    """Return the text asked: of a message it is the last one's, whose content may be a list of parts."""
    prompt = request[field] if field == "prompt" else request[field][-1]["content"]
    return prompt if isinstance(prompt, str) else " ".join(part["text"] for part in prompt)


def reply_to(prompt, limit, endless):
    """Return the tokens of the reply and why it ended."""
    right = "What is the capital of France?" in prompt
    tokens = re.findall(r"\s*\S+", "The capital of France is Paris." if right else f"You said: {prompt}")
    tokens = list(itertools.islice(itertools.cycle(tokens) if endless else tokens, limit))
    return tokens, "length" if len(tokens) == limit else "stop"


def generation(field, respond):
    """Return the endpoint that reads its prompt from a field of the request and answers by a function."""

    def endpoint(handler, body):
        try:
            request = json.loads(body)
            prompt = prompt_of(request, field)
        except (ValueError, LookupError, TypeError) as error:
            return handler.send_error_body(400, "Bad Request", f"body.{field}", f"1 validation error: {error!r}")
        names = handler.server.names
        name = request.get("model") or names[0]
        if name not in names:
            message = f"The model `{name}` does not exist. Valid aliases: {', '.join(names)}."
            return handler.send_error_body(404, "NotFoundError", "model", message)
        with handler.server.counted():
            if handler.server.hangs:
                threading.Event().wait()
            limit = request.get("max_completion_tokens") or request.get("max_tokens") or handler.server.max_model_len
            tokens, reason = reply_to(prompt, limit, request.get("ignore_eos"))
            usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(tokens)}
            usage["total_tokens"] = sum(usage.values())
            return respond(handler, request, {"created": int(time.time()), "model": name}, tokens, reason, usage)

    return endpoint


def whole(head, choice, usage, *nulls):
    """Complete an answer that is sent in one piece."""
    choice.update(index=0, logprobs=None, stop_reason=None, token_ids=None, routed_experts=None)
    details = {"prompt_tokens_details": None, "completion_tokens_details": None}
    nulls += ("service_tier", "kv_transfer_params", "ec_transfer_params", "metrics")
    return {**head, "choices": [choice], "usage": {**usage, **details}, "system_fingerprint": FINGERPRINT, **dict.fromkeys(nulls)}


def chat(handler, request, head, tokens, reason, usage):
    head = {"id": f"chatcmpl-{uuid.uuid4().hex[:16]}", "object": "chat.completion", **head}
    if request.get("stream"):
        head["object"] += ".chunk"
        return handler.send_events(chunks(head, tokens, reason, usage, request.get("stream_options") or {}))
    time.sleep(SECONDS_PER_TOKEN * len(tokens))
    message = {"role": "assistant", "content": "".join(tokens)}
    message.update(dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning")))
    choice = {"message": message, "finish_reason": reason}
    return handler.send_json(whole(head, choice, usage, "prompt_logprobs", "prompt_token_ids", "prompt_text"))


def chunks(head, tokens, reason, usage, options):
    """Yield the events of a streamed chat completion, one a token."""
    choice = {"index": 0, "logprobs": None, "finish_reason": None}
    first = {**choice, "delta": {"role": "assistant", "content": ""}}
    yield {**head, "choices": [first], "prompt_token_ids": None, "prompt_text": None}
    for number, token in enumerate(tokens, 1):
        time.sleep(SECONDS_PER_TOKEN)
        end = {"finish_reason": reason, "stop_reason": None} if number == len(tokens) else {}
        yield {**head, "choices": [{**choice, "delta": {"content": token}, "token_ids": None, **end}]}
    if options.get("include_usage"):
        yield {**head, "choices": [], "usage": usage, "system_fingerprint": FINGERPRINT}


def completion(handler, _request, head, tokens, reason, usage):
    time.sleep(SECONDS_PER_TOKEN * len(tokens))
    head = {"id": f"cmpl-{uuid.uuid4().hex[:16]}", "object": "text_completion", **head}
    choice = {"text": "".join(tokens), "finish_reason": reason, "prompt_logprobs": None, "prompt_token_ids": None}
    handler.send_json(whole(head, choice, usage))


ROUTES = {
    "/version": ("GET", version),
    "/health": ("GET", health),
    "/metrics": ("GET", metrics),
    "/v1/models": ("GET", models),
    "/v1/chat/completions": ("POST", generation("messages", chat)),
    "/v1/completions": ("POST", generation("prompt", completion)),
}
