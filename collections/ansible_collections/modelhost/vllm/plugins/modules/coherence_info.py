#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
module: coherence_info
short_description: Ask a served model one question, and judge its answer
description:
  - Asks where the model's unit listens, on the host itself, and judges the answer by rules, without another model (docs/coherence.md).
  - Where no answer comes in time, C(/health), the requests in flight and the tokens that the server has generated meanwhile tell a server that
    is busy from one that hangs.
options:
  model:
    description: Name of the model.
    type: str
    required: true
  item:
    description: The question, as roles/coherence_check/files/battery.yml describes it.
    type: dict
    required: true
  max_tokens:
    description: Tokens that each answer may have, the reasoning among them.
    type: int
    default: 1024
  long_context:
    description: Tokens that the text around a needle has at most, roughly. It is never longer than what the model takes.
    type: int
    default: 8192
  timeout:
    description: Seconds that each answer may take.
    type: int
    default: 120
author:
  - The modelhost authors
attributes:
  check_mode:
    support: full
    description: Asks nothing.
"""

EXAMPLES = r"""
- name: Ask for a fact
  modelhost.vllm.coherence_info:
    model: kimi-k25-int4
    item:
      name: fact
      ask: What is the capital of France?
      expect: [Paris]
"""

RETURN = r"""
verdict:
  description: V(coherent), V(budget), V(timed out), V(incoherent), V(hung) or V(rejected).
  type: str
  returned: outside of check mode
reason:
  description: Why, in a few words.
  type: str
  returned: outside of check mode
answer:
  description: What the model said, or its reasoning where there was nothing else.
  type: str
  returned: outside of check mode
seconds:
  description: Time to the last answer, in seconds.
  type: float
  returned: outside of check mode
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelhost.vllm.plugins.module_utils import coherence, models
from ansible_collections.modelhost.vllm.plugins.module_utils.endpoint import Endpoint

NEEDLE = "The access code of the archive is 7319."
# None is like another, so that no cache of a shorter one helps.
FILLER = "Entry {0}: on day {0} of the voyage the crew counted {1} birds, {2} crates of tea and {3} letters from home."
FILLER_TOKENS = 32  # at most, by the tokenizers of the catalogue's models
SAMPLED = 0.7  # temperature


def long_text(place: str, tokens: int) -> str:
    """About so many tokens, with the needle in its place."""
    entries = [FILLER.format(number, number * 37 % 101, number * 53 % 89, number * 71 % 97) for number in range(1, tokens // FILLER_TOKENS + 1)]
    entries.insert({"head": 1, "middle": len(entries) // 2, "tail": len(entries) - 1}[place], NEEDLE)
    return "\n".join(entries)


def tools(tool: dict[str, Any]) -> list[dict[str, Any]]:
    properties = {name: {"type": "string"} for name in tool["arguments"]}
    return [{"type": "function", "function": {
        "name": tool["name"], "description": tool["description"],
        "parameters": {"type": "object", "properties": properties, "required": list(properties)}}}]


class Question:
    """One item of the battery, asked of one endpoint."""

    def __init__(self, endpoint: Endpoint, name: str, params: dict[str, Any]) -> None:
        self.endpoint, self.name, self.params, self.item = endpoint, name, params, params["item"]
        self.max_tokens = params["max_tokens"]

    def ask(self) -> dict[str, str]:
        """The verdict on the last answer; where an earlier turn of a conversation is none, on that one."""
        questions = self.item["ask"] if isinstance(self.item["ask"], list) else [self.item["ask"]]
        messages: list[dict[str, str]] = []
        for number, question in enumerate(questions, 1):
            messages.append({"role": "user", "content": self.around(question)})
            before = self.endpoint.generated()
            try:
                status, body = self.endpoint.ask("/v1/chat/completions", self.body(messages), self.params["timeout"])
            except OSError as error:
                return self.silent(error, before)
            judged = self.judge(status, body) if number == len(questions) else coherence.judge(status, body, [])
            if judged["verdict"] == "budget":
                judged["reason"] = f"all {self.max_tokens} tokens went into reasoning: set coherence.max_tokens to {2 * self.max_tokens} or more"
            if number == len(questions) or judged["verdict"] != "coherent":
                return judged
            messages.append({"role": "assistant", "content": judged["answer"]})
        raise ValueError("an item asks something")

    def around(self, question: str) -> str:
        if "needle" not in self.item:
            return question
        limit = self.endpoint.max_model_len()
        room = min(self.params["long_context"], limit - self.max_tokens - 256) if limit else self.params["long_context"]
        if room < 512:  # a model that takes little is asked for a short answer
            self.max_tokens = 64
            room = max(limit - 320, 256)
        return f"{long_text(self.item['needle'], room)}\n\n{question}"

    def body(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        body = {"model": self.name, "messages": messages, "max_tokens": self.max_tokens,
                "temperature": SAMPLED if self.item.get("sampled") else 0}
        if "tool" in self.item:
            body["tools"] = tools(self.item["tool"])
        if self.item.get("logprobs"):
            body["logprobs"] = True
        return body

    def judge(self, status: int, body: Any) -> dict[str, str]:
        if "tool" in self.item:
            return coherence.judge_tool(status, body, self.item["tool"]["name"], self.item["tool"]["arguments"])
        if self.item.get("logprobs"):
            return coherence.judge_logprobs(status, body)
        return coherence.judge(status, body, self.item.get("expect", []), self.item.get("script", ["LATIN"]))

    def silent(self, error: OSError, before: float) -> dict[str, str]:
        """No answer: whether the server is busy, hangs, or is not there."""
        try:
            health = self.endpoint.ask("/health", None, timeout=10)[0]
        except OSError as gone:
            return {"verdict": "rejected", "reason": f"nothing answers at {self.endpoint.url}: {gone}", "answer": ""}
        generated = self.endpoint.generated() - before
        if generated > 0:
            return {"verdict": "timed out", "answer": "", "reason": (
                f"no answer within {self.params['timeout']} s, while the server generated {generated:.0f} tokens: it is busy, or "
                "coherence.timeout is too short")}
        return {"verdict": "hung", "answer": "", "reason": (
            f"no answer within {self.params['timeout']} s ({error}), /health says {health}, and the server generated no token for anybody")}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "item": {"type": "dict", "required": True},
            "max_tokens": {"type": "int", "default": 1024},
            "long_context": {"type": "int", "default": 8192},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False)
    model = module.params["model"]
    endpoint = Endpoint(*models.address(model, models.read_applied()), models.running_path(f"{model}.secret.env"))
    began = time.monotonic()
    judged = Question(endpoint, model, module.params).ask()
    module.exit_json(changed=False, seconds=round(time.monotonic() - began, 1), **judged)


if __name__ == "__main__":
    main()
