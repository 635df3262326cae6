# GNU General Public License v3.0+ (see LICENSE)
"""Whether an answer makes sense, judged by rules. Sources: docs/coherence.md.

Verdicts, the worst first:

rejected    the server refuses the question
hung        it takes the question and generates nothing, for nobody
incoherent  one token again and again, a phrase in a loop, text that no language is, a wrong answer, or none
timed out   it was not done in time, and generates, for this question or for others
budget      all tokens went into reasoning, so there is no content to judge: no fault of the model
coherent    it says what is expected
"""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from typing import Any, Iterable

VERDICTS = ("rejected", "hung", "incoherent", "timed out", "budget", "coherent")
# Of these a model is not to be used.
FAULTS = ("rejected", "hung", "incoherent")

# The same word, or the same few characters, this often in a row is no language; lines and dots are drawn that way.
_RUN = re.compile(r"(?P<token>[^\s=*_#.|~-]\S*?)(?:\s*(?P=token)){7,}")
# A phrase of three words or more that comes back at once; three times in a row it is a fault even in an answer that is right otherwise
_LOOP = re.compile(r"(?P<phrase>\b\w+(?:\W+\w+){2,}?)\W+(?P=phrase)\b", re.IGNORECASE)
_ENDLESS = re.compile(r"(?P<phrase>\b\w+(?:\W+\w+){2,}?)(?:\W+(?P=phrase)\b){2,}", re.IGNORECASE)
# Tokens by which a template marks turns; a server takes them out of what it answers.
_MARK = re.compile(r"<\|[a-zA-Z_]+\|>|</?s>|\[/?INST\]|\]<\]\w+\[>\[")
_THOUGHTS = re.compile(r"^\s*<think>(?P<reasoning>.*?)(?:</think>|\Z)", re.DOTALL)
# Prose has about half of its words once; below this share of different words, and this share of its size when packed, it goes in circles.
_WORDS, _DIFFERENT = 60, 0.25
_PACKED_FROM, _PACKED = 600, 0.15
_FOREIGN = 0.3  # share of letters of another script


def judge(status: int, body: Any, expect: list[str], scripts: Iterable[str] = ("LATIN",)) -> dict[str, str]:
    """Verdict, reason and text of a chat completion whose content should have one of the texts of `expect`; any content where it is empty.

    The reasoning is in `reasoning` since vLLM 0.17, in `reasoning_content` before, and in the content where no parser is set.
    scripts: those of the answer's letters, by the names of Unicode.
    """
    if status != 200 or not isinstance(body, dict) or not body.get("choices"):
        return {"verdict": "rejected", "reason": f"HTTP {status} {body}", "answer": ""}
    choice = body["choices"][0]
    content, reasoning = said(choice["message"])
    if not content and reasoning and choice.get("finish_reason") == "length":
        return {"verdict": "budget", "answer": reasoning, "reason": "all of max_tokens went into reasoning: ask with more"}
    if not content:
        return {"verdict": "incoherent", "answer": "", "reason": f"an empty answer (finish_reason {choice.get('finish_reason')})"}
    named = [each for each in expect if _has(content, each)]
    form = _never(content) or fault(content) or _circles(content) or _foreign(content, tuple(scripts))
    # What repeats itself once may still be right: the answer comes first (finish_reason and style say nothing).
    if named and not _never(content) and not _ENDLESS.search(content):
        return {"verdict": "coherent", "reason": f"it names {named[0]}", "answer": content}
    if form:
        return {"verdict": "incoherent", "reason": form, "answer": content}
    if expect:
        return {"verdict": "incoherent", "reason": f"it does not name {' or '.join(expect)}", "answer": content}
    return {"verdict": "coherent", "reason": "it is language", "answer": content}


def said(message: dict[str, Any]) -> tuple[str, str]:
    """Content and reasoning of a message."""
    content = message.get("content") or ""
    reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
    thoughts = _THOUGHTS.match(content)
    if thoughts:
        content, reasoning = content[thoughts.end():], reasoning or thoughts["reasoning"]
    return content.strip(), reasoning.strip()


def fault(text: str) -> str:
    """What is wrong with the form of a text, or an empty text."""
    run = _RUN.search(text)
    if run:
        return f"one token again and again: {run.group('token')!r}"
    loop = _LOOP.search(text)
    return f"a phrase in a loop: {loop.group('phrase')!r}" if loop else ""


def judge_tool(status: int, body: Any, name: str, arguments: dict[str, str]) -> dict[str, str]:
    """Verdict on a chat completion that should call one function with these arguments."""
    calls = _calls(body) if status == 200 else []
    if not calls:
        judged = judge(status, body, [])
        return {**judged, "verdict": "incoherent", "reason": f"it does not call {name}"} if judged["verdict"] == "coherent" else judged
    called = "{name}({arguments})".format(**calls[0])
    try:
        given = json.loads(calls[0]["arguments"])
    except ValueError:
        return {"verdict": "incoherent", "reason": "the arguments of its call are no JSON", "answer": called}
    wrong = [key for key, value in arguments.items() if not isinstance(given, dict) or not _has(str(given.get(key, "")), value)]
    if calls[0]["name"] != name or wrong:
        return {"verdict": "incoherent", "reason": f"it should call {name} with {json.dumps(arguments)}", "answer": called}
    return {"verdict": "coherent", "reason": f"it calls {name}", "answer": called}


def judge_logprobs(status: int, body: Any) -> dict[str, str]:
    """Verdict on the log probabilities of a completion: NaN is no JSON, so that a server that has one answers with HTTP 500."""
    judged = judge(status, body, [])
    if judged["verdict"] == "rejected":
        return judged
    tokens = ((body["choices"][0].get("logprobs") or {}).get("content")) or []
    values = [each.get("logprob") for each in tokens]
    if not values:
        return {**judged, "verdict": "incoherent", "reason": "it gives no logprobs"}
    if any(not isinstance(each, (int, float)) or each != each or each > 0 for each in values):
        return {**judged, "verdict": "incoherent", "reason": f"logprobs that are none: {values[:8]}"}
    if len(values) > 3 and len(set(values)) == 1:
        return {**judged, "verdict": "incoherent", "reason": f"every token has the logprob {values[0]}"}
    return {**judged, "verdict": "coherent", "reason": f"{len(values)} logprobs from {min(values):.2f} to {max(values):.2f}"}


def summary(results: list[dict[str, Any]], binds: list[str]) -> dict[str, Any]:
    """Verdict on a model: the worst of the answers that bind, which are all where `binds` is empty.

    results: those of coherence_info over the battery, each with its `item`. Returns verdict, reason, notes and items.
    """
    asked = [each for each in results if "verdict" in each]
    items = [{
        "name": each["item"]["name"], "kind": _kind(each["item"]), **{key: each[key] for key in ("verdict", "reason", "answer", "seconds")},
        # What is refused or hangs ends the battery, whether it binds or not.
        "binding": not binds or each["item"]["name"] in binds or each["verdict"] in ("rejected", "hung")} for each in asked]
    notes = [f"{len(results) - len(asked)} questions were not asked any more"] if len(asked) < len(results) else []
    answers: dict[str, str] = {}
    for each in asked:
        if _kind(each["item"]) == "question" and isinstance(each["item"]["ask"], str):
            before = answers.setdefault(each["item"]["ask"], each["answer"])
            if before != each["answer"]:
                notes.append(f"{each['item']['name']}: the same question got another answer at temperature 0, which is no fault by itself")
    for verdict in VERDICTS[:-1]:
        named = [each["name"] for each in items if each["binding"] and each["verdict"] == verdict]
        if named:
            return {"verdict": verdict, "reason": ", ".join(named), "notes": notes, "items": items}
    coherent = sum(each["verdict"] == "coherent" for each in items)
    return {"verdict": "coherent", "reason": f"{coherent} of {len(items)} answers", "notes": notes, "items": items}


def lines(document: dict[str, Any]) -> list[str]:
    """A stored check for people."""
    table = ["{model} on {host}, engine {engine[name]}, {started}: {verdict} ({reason})".format(**document)]
    for each in document["items"]:
        verdict = each["verdict"] if each["binding"] else f"({each['verdict']})"
        line = f"{each['name']:<22}{verdict:<14}{each['seconds']:>7.1f} s  {each['reason']}"
        table.append(line if each["verdict"] == "coherent" or not each["answer"] else f"{line}: {_short(each['answer'])!r}")
    return [*table, *document["notes"]]


def _kind(item: dict[str, Any]) -> str:
    return next((kind for kind in ("needle", "tool", "logprobs", "sampled") if kind in item), "question")


def _short(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= 100 else folded[:97] + "..."


def _calls(body: Any) -> list[dict[str, str]]:
    choices = body.get("choices") if isinstance(body, dict) else None
    return [call["function"] for call in (choices[0]["message"].get("tool_calls") or [])] if choices else []


def _has(text: str, word: str) -> bool:
    """Whether a text has a word as a whole, whatever its case: 42 is not in 142, and Rom not in from. Not every script parts its words."""
    pattern = re.escape(word.casefold())
    return bool(re.search(rf"(?<!\w){pattern}(?!\w)" if word.isascii() else pattern, text.casefold()))


def _never(text: str) -> str:
    """What no answer has, right or wrong."""
    run, mark = _RUN.search(text), _MARK.search(text)
    if run:
        return f"one token again and again: {run.group('token')!r}"
    if mark:
        return f"a mark of the chat template in the answer: {mark.group()!r}"
    return "characters that are none" if "\ufffd" in text or any(unicodedata.category(each) == "Co" for each in text) else ""


def _circles(text: str) -> str:
    words = re.findall(r"\w+", text.casefold())
    if len(words) >= _WORDS and len(set(words)) < _DIFFERENT * len(words):
        return f"{len(set(words))} different words among {len(words)}"
    data = text.encode()
    if len(data) >= _PACKED_FROM and len(zlib.compress(data)) < _PACKED * len(data):
        return f"{len(data)} bytes that say as much as {len(zlib.compress(data))}"
    return ""


def _foreign(text: str, scripts: tuple[str, ...]) -> str:
    letters = [each for each in text if each.isalpha()]
    foreign = [each for each in letters if not unicodedata.name(each, "").startswith(scripts)]
    return f"letters that are not {' or '.join(scripts)}: {''.join(foreign[:12])!r}" if len(foreign) > _FOREIGN * len(letters) else ""
