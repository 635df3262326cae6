#!/usr/bin/env python3
"""Record what a real vLLM answers: status, keys and types, never values.

Usage: VLLM_API_KEY=KEY record.py BASE_URL MODEL > recorded.json

The server has to be started with the same VLLM_API_KEY. tests/test_standin.py asks the stand-in engine the same
questions through `record()` and compares.
"""

import json
import os
import re
import sys
import urllib.error
import urllib.request

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the server is asked directly


def shape(value):
    """Reduce a JSON value to its keys and the names of its types; a list to the shape of its first element."""
    if isinstance(value, dict):
        return {key: shape(element) for key, element in value.items()}
    if isinstance(value, list):
        return [shape(element) for element in value[:1]]
    return type(value).__name__


def body_shape(content_type, text):
    """Reduce a body: JSON to its shape, a stream to the shapes of its events, metrics to the names that modelhost reads."""
    if content_type.startswith("application/json"):
        return shape(json.loads(text))
    if content_type.startswith("text/event-stream"):
        events = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
        return [event if event == "[DONE]" else shape(json.loads(event)) for event in events]
    # vllm:num_requests_running{engine="0",model_name="x"} 0.0 -> vllm:num_requests_running{engine,model_name}
    samples = re.findall(r"^(vllm:num_requests_(?:running|waiting){.*})", text, re.MULTILINE)
    return [re.sub(r'="[^"]*"', "", sample) for sample in samples]


def ask(base_url, path, body, api_key):
    """Send one request (POST where there is a body) and return its status and the shape of its answer."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = None if body is None else json.dumps(body).encode()
    try:
        response = OPENER.open(urllib.request.Request(base_url + path, data, headers), timeout=60)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        text = response.read().decode()
        return {"status": response.status, "body": body_shape(response.headers.get("Content-Type", ""), text)}


def record(base_url, model, api_key):
    """Ask everything that modelhost asks of a server, and what it may get wrong."""
    question = {"model": model, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    short = {**question, "max_tokens": 2}
    questions = {
        "health": ("/health", None, None),
        "version": ("/version", None, None),
        "metrics": ("/metrics", None, None),
        "unknown path": ("/nowhere", None, None),
        "wrong method": ("/v1/chat/completions", None, api_key),
        "no key": ("/v1/models", None, None),
        "models": ("/v1/models", None, api_key),
        "chat": ("/v1/chat/completions", {**question, "max_tokens": 20, "temperature": 0}, api_key),
        "chat stream": ("/v1/chat/completions", {**short, "stream": True, "stream_options": {"include_usage": True}}, api_key),
        "completion": ("/v1/completions", {"model": model, "prompt": "The capital of France is", "max_tokens": 2}, api_key),
        "unknown model": ("/v1/chat/completions", {**question, "model": "nowhere"}, api_key),
        "no messages": ("/v1/chat/completions", {"model": model}, api_key),
    }
    return {name: ask(base_url, *arguments) for name, arguments in questions.items()}


if __name__ == "__main__":
    json.dump(record(*sys.argv[1:3], os.environ["VLLM_API_KEY"]), sys.stdout, indent=1)
    print()
