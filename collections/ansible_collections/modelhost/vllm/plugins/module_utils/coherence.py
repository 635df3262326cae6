# GNU General Public License v3.0+ (see LICENSE)
"""Whether an answer makes sense, judged by rules.

Verdicts:

coherent    it says what is expected
incoherent  it does not: one token again and again, a phrase in a loop, or a wrong answer
budget      all tokens went into reasoning, so there is no content to judge: no fault of the model
rejected    the server refuses the question
"""

from __future__ import annotations

import re
from typing import Any

# The same word, or the same few characters, this often in a row is no language; lines and dots are drawn that way.
_RUN = re.compile(r"(?P<token>[^\s=*_#.|~-]\S*?)(?:\s*(?P=token)){7,}")
# A phrase of three words or more that comes back at once; three times in a row it is a fault even in an answer that is right otherwise
_LOOP = re.compile(r"(?P<phrase>\b\w+(?:\W+\w+){2,}?)\W+(?P=phrase)\b", re.IGNORECASE)
_ENDLESS = re.compile(r"(?P<phrase>\b\w+(?:\W+\w+){2,}?)(?:\W+(?P=phrase)\b){2,}", re.IGNORECASE)


def judge(status: int, body: Any, expected: str) -> dict[str, str]:
    """Verdict, reason and text of a chat completion whose content should name `expected`.

    The reasoning is in `reasoning` since vLLM 0.17, in `reasoning_content` before.
    """
    if status != 200 or not isinstance(body, dict) or not body.get("choices"):
        return {"verdict": "rejected", "reason": f"HTTP {status} {body}", "answer": ""}
    choice = body["choices"][0]
    message = choice["message"]
    content = (message.get("content") or "").strip()
    reasoning = (message.get("reasoning") or message.get("reasoning_content") or "").strip()
    if not content and reasoning and choice.get("finish_reason") == "length":
        return {"verdict": "budget", "answer": reasoning, "reason": "all of max_tokens went into reasoning: ask with more"}
    if not content:
        return {"verdict": "incoherent", "answer": "", "reason": f"an empty answer (finish_reason {choice.get('finish_reason')})"}
    if expected.casefold() in content.casefold() and not _RUN.search(content) and not _ENDLESS.search(content):
        return {"verdict": "coherent", "reason": f"it names {expected}", "answer": content}
    return {"verdict": "incoherent", "reason": fault(content) or f"it does not name {expected}", "answer": content}


def fault(text: str) -> str:
    """What is wrong with the form of a text, or an empty text."""
    run = _RUN.search(text)
    if run:
        return f"one token again and again: {run.group('token')!r}"
    loop = _LOOP.search(text)
    return f"a phrase in a loop: {loop.group('phrase')!r}" if loop else ""
