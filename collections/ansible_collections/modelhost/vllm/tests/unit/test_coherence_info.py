"""What a server without an answer is called: busy, hanging or gone; and how long a text is that hides a needle."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.modules import coherence_info


class Silent:
    """An endpoint that never answers a question. tokens: what it counts before and after; health: its status, or None where it is gone."""

    url = "http://127.0.0.1:8000"

    def __init__(self, tokens, health=200, max_model_len=4096):
        self.tokens, self.health, self.limit, self.asked = iter(tokens), health, max_model_len, []

    def generated(self):
        return float(next(self.tokens))

    def max_model_len(self):
        return self.limit

    def ask(self, path, body, timeout):
        if path == "/health" and self.health:
            return self.health, ""
        self.asked.append(body)
        raise OSError("timed out" if self.health else "Connection refused")


def verdict(endpoint, **item):
    params = {"item": {"name": "fact", "ask": "What?", **item}, "max_tokens": 1024, "long_context": 8192, "timeout": 120}
    return coherence_info.Question(endpoint, "small", params).ask()


@pytest.mark.case("C5")
def test_healthy_and_without_a_token_for_anybody_it_hangs():
    assert verdict(Silent([500, 500])) == {"verdict": "hung", "answer": "", "reason": (
        "no answer within 120 s (timed out), /health says 200, and the server generated no token for anybody")}


def test_one_that_generates_is_busy():
    assert verdict(Silent([500, 501])) == {"verdict": "timed out", "answer": "", "reason": (
        "no answer within 120 s, while the server generated 1 tokens: it is busy, or coherence.timeout is too short")}


def test_one_that_is_gone():
    assert verdict(Silent([0, 0], health=None)) == {
        "verdict": "rejected", "answer": "", "reason": "nothing answers at http://127.0.0.1:8000: Connection refused"}


@pytest.mark.parametrize(("limit", "entries", "max_tokens"), [
    (0, 256, 1024),  # a server that does not say
    (262144, 256, 1024), (4096, 88, 1024),
    (1024, 22, 64),  # room for neither the text nor a long answer
])
def test_a_needle_lies_in_a_text_that_the_model_takes(limit, entries, max_tokens):
    endpoint = Silent([0, 0], max_model_len=limit)
    verdict(endpoint, needle="tail")
    [body] = endpoint.asked
    text = body["messages"][0]["content"]
    assert (text.count("Entry "), body["max_tokens"]) == (entries, max_tokens)
    assert text.splitlines()[-4] == "The access code of the archive is 7319."


def test_check_mode_asks_nothing(call):
    assert call(coherence_info, check_mode=True, model="small", item={}) == {"changed": False}
