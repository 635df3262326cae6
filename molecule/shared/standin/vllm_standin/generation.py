"""The endpoints that generate. A token is a word; only chat completions stream."""

import itertools
import json
import re
import threading
import time
import uuid

from vllm_standin import __version__

SECONDS_PER_TOKEN = 0.001
FINGERPRINT = f"vllm-{__version__}-standin"


def prompt_of(request, field):
    """Return the text asked: the prompt, or the last message, whose content may be a list of parts."""
    prompt = request[field] if field == "prompt" else request[field][-1]["content"]
    return prompt if isinstance(prompt, str) else " ".join(part["text"] for part in prompt)


def reply_to(prompt, limit, endless, garbage):
    """Return the tokens of the reply and why it ended."""
    known = "What is the capital of France?" in prompt
    tokens = ["!"] * 64 if garbage else re.findall(r"\s*\S+", "The capital of France is Paris." if known else f"You said: {prompt}")
    tokens = list(itertools.islice(itertools.cycle(tokens) if endless else tokens, limit))
    return tokens, "length" if len(tokens) == limit else "stop"


def endpoint(field, respond):
    """Make the endpoint that reads its prompt from a field of the request and answers by a function."""

    def generate(handler, body):
        try:
            request = json.loads(body)
            prompt = prompt_of(request, field)
        except (ValueError, LookupError, TypeError) as error:
            return handler.send_problem(400, "Bad Request", f"body.{field}", f"1 validation error: {error!r}")
        names = handler.server.names
        name = request.get("model") or names[0]
        if name not in names:
            message = f"The model `{name}` does not exist. Valid aliases: {', '.join(names)}."
            return handler.send_problem(404, "NotFoundError", "model", message)
        handler.server.count(1)
        try:
            if handler.server.fault == "die-at-first-request":
                handler.server.kill_engine()
            if handler.server.fault in ("refuse-generation", "die-at-first-request"):
                threading.Event().wait()
            limit = request.get("max_completion_tokens") or request.get("max_tokens") or handler.server.max_model_len
            tokens, reason = reply_to(prompt, limit, request.get("ignore_eos"), handler.server.fault == "garbage")
            asked = len(prompt.split())
            usage = {"prompt_tokens": asked, "total_tokens": asked + len(tokens), "completion_tokens": len(tokens)}
            return respond(handler, request, {"created": int(time.time()), "model": names[0]}, tokens, reason, usage)
        finally:
            handler.server.count(-1)

    return generate


def send_whole(handler, head, choice, usage, *nulls):
    """Send an answer in one piece; nulls are the keys of the real answer that stay null here."""
    time.sleep(SECONDS_PER_TOKEN * usage["completion_tokens"])
    choice = {"index": 0, "logprobs": None, "stop_reason": None, "token_ids": None, "routed_experts": None, **choice}
    usage = {**usage, "prompt_tokens_details": None, "completion_tokens_details": None}
    nulls += ("service_tier", "kv_transfer_params", "ec_transfer_params", "metrics")
    handler.send_json({**head, "choices": [choice], "usage": usage, "system_fingerprint": FINGERPRINT, **dict.fromkeys(nulls)})


def events(head, tokens, reason, usage, options):
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


def chat(handler, request, head, tokens, reason, usage):
    head = {"id": f"chatcmpl-{uuid.uuid4().hex[:16]}", "object": "chat.completion", **head}
    if request.get("stream"):
        head["object"] = "chat.completion.chunk"
        return handler.send_events(events(head, tokens, reason, usage, request.get("stream_options") or {}))
    nulls = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))
    choice = {"message": {"role": "assistant", "content": "".join(tokens), **nulls}, "finish_reason": reason}
    return send_whole(handler, head, choice, usage, "prompt_logprobs", "prompt_token_ids", "prompt_text")


def complete(handler, _request, head, tokens, reason, usage):
    head = {"id": f"cmpl-{uuid.uuid4().hex[:16]}", "object": "text_completion", **head}
    choice = {"text": "".join(tokens), "finish_reason": reason, "prompt_logprobs": None, "prompt_token_ids": None}
    send_whole(handler, head, choice, usage)


ROUTES = {
    "/v1/chat/completions": ("POST", endpoint("messages", chat)),
    "/v1/completions": ("POST", endpoint("prompt", complete)),
}
