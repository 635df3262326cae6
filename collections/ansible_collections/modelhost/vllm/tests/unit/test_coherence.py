"""Verdicts on answers, on literal bodies of a chat completion."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import coherence
from hypothesis import given
from hypothesis import strategies as st


def body(content, reason="stop", **message):
    """As vLLM 0.33 answers, shortened to what is judged."""
    return {"object": "chat.completion", "choices": [{
        "index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": reason}]}


def judge(content, reason="stop", **message):
    judged = coherence.judge(200, body(content, reason, **message), ["Paris"])
    return judged["verdict"], judged["reason"], judged["answer"]


@pytest.mark.parametrize("content", ["Paris", " The capital of France is **Paris**.\n", "PARIS!", "It is paris."])
def test_it_names_the_fact(content):
    assert judge(content) == ("coherent", "it names Paris", content.strip())


@pytest.mark.case("C1")
@pytest.mark.parametrize(("content", "token"), [
    ("!!!!!!!!!!", "!"), ("! ! ! ! ! ! ! !", "!"), ("the the the the the the the the", "the"), ("啊啊啊啊啊啊啊啊啊", "啊"),
    ("Paris!!!!!!!!", "!"), ("Paris Paris Paris Paris Paris Paris Paris Paris", "Paris"), ("\ufffd" * 300, "\ufffd"),
    ("The capital is Paris. 0x0x0x0x0x0x0x0x", "0x"),
])
def test_one_token_again_and_again(content, token):
    assert judge(content) == ("incoherent", f"one token again and again: {token!r}", content)


@pytest.mark.case("C1")
def test_seven_times_are_an_exclamation():
    assert judge("Paris!!!!!!!")[0] == "coherent"


@pytest.mark.case("C2")
@pytest.mark.parametrize("content", [None, "", " \n"])
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_all_tokens_went_into_reasoning(content, field):
    assert judge(content, "length", **{field: "The user asks for the capital of"}) == (
        "budget", "all of max_tokens went into reasoning: ask with more", "The user asks for the capital of")


@pytest.mark.case("C2")
def test_the_reasoning_of_vllm_before_0_17_beside_todays_empty_field():
    assert judge(None, "length", reasoning=None, reasoning_content="The user")[0] == "budget"


@pytest.mark.parametrize(("content", "reason", "message", "why"), [
    (None, "stop", {}, "an empty answer (finish_reason stop)"),
    ("", "length", {"reasoning": None}, "an empty answer (finish_reason length)"),
    ("", "stop", {"reasoning": "The user asks"}, "an empty answer (finish_reason stop)"),
])
def test_nothing_was_said(content, reason, message, why):
    assert judge(content, reason, **message) == ("incoherent", why, "")


def test_the_reasoning_alone_is_no_answer():
    assert judge("It is Lyon.", reasoning="The capital is Paris") == ("incoherent", "it does not name Paris", "It is Lyon.")


@pytest.mark.case("C3")
@pytest.mark.parametrize(("content", "phrase"), [
    # What SmolLM2 said in bfloat16 with compilation, by a healthy server
    ("L'Etoile, la Marseillaise, la femme, la femme au martyre, la femme au martyre", "la femme au martyre"),
    ("I am a language model. I am a language model. I am", "I am a language model"),
    ("Je suis là, je suis là", "Je suis là"),
])
def test_a_phrase_in_a_loop(content, phrase):
    assert judge(content, "length") == ("incoherent", f"a phrase in a loop: {phrase!r}", content)


@pytest.mark.case("C4")
def test_a_wrong_fact():
    assert judge("The capital of France is Lyon.") == ("incoherent", "it does not name Paris", "The capital of France is Lyon.")


@pytest.mark.case("C6")
@pytest.mark.parametrize(("status", "answer", "reason"), [
    (400, {"error": {"message": "too long", "code": 400}}, "HTTP 400 {'error': {'message': 'too long', 'code': 400}}"),
    (401, {"error": "Unauthorized"}, "HTTP 401 {'error': 'Unauthorized'}"),
    (404, {"detail": "Not Found"}, "HTTP 404 {'detail': 'Not Found'}"),
    (500, "Internal Server Error", "HTTP 500 Internal Server Error"),
    (200, "<html>a proxy's page</html>", "HTTP 200 <html>a proxy's page</html>"),
    (200, ["Paris"], "HTTP 200 ['Paris']"),
    (200, {"object": "error", "message": "no such model"}, "HTTP 200 {'object': 'error', 'message': 'no such model'}"),
    (200, {"choices": []}, "HTTP 200 {'choices': []}"),
])
def test_the_question_is_refused(status, answer, reason):
    assert coherence.judge(status, answer, ["Paris"]) == {"verdict": "rejected", "reason": reason, "answer": ""}


TABLE = """\
| City | Country | Capital? | Inhabitants |
|------|---------|:--------:|------------:|
| Paris | France | yes | 2,100,000 |
| Lyon | France | no | 520,000 |
| Nice | France | no | 350,000 |
"""
CONTENTS = "1. Paris ................................ 3\n2. Lyon .................................. 9\n"
LONG = """\
The capital of France is Paris. It lies on the Seine, in the north of the country, and has been its capital since the tenth century.

Paris is also the largest city of the country: about 2.1 million people live in the city itself, and more than 12 million in its region. \
The government, the parliament and the highest courts are all there.

**Places that are known beyond France:**
- the Louvre, the most visited museum of the world
- the Eiffel Tower, built for the World's Fair of 1889
- Notre-Dame, rebuilt after the fire of 2019
- the Sorbonne, one of the oldest universities

1000000 or 10,000,000 people? It depends on whether the region is counted: the city, the city and its suburbs, or the whole of it.
"""


@pytest.mark.parametrize("content", [
    TABLE, CONTENTS, LONG, "Paris\n" + "=" * 72, "Paris\n\n* * * * * * * * * *\n", "~~~~~~~~~~~~\nParis\n~~~~~~~~~~~~", "# ######### Paris",
    "Paris. Oh yes, yes, yes, yes!", "Paris: 1 2 3 4 5 6 7 8 9 10", "Paris ____________",
], ids=lambda content: content[:12])
def test_no_false_alarm(content):
    assert judge(content)[0] == "coherent"
    assert "token" not in coherence.fault(content)


def test_a_table_is_no_loop():
    assert [coherence.fault(text) for text in (TABLE, CONTENTS, LONG)] == ["", "", ""]


# Each makes a backtracking search try as much as it can: near repeats, no repeat at all, words that split in many ways.
HOSTILE = {
    "one word": "a" * 1999 + "b", "no repeat": "".join(chr(0x4E00 + number) for number in range(2000)),
    "each seven times": "".join(chr(0x4E00 + number) * 7 for number in range(285)),
    "words": " ".join(f"w{number}" for number in range(400))[:2000],
    "letters": " ".join(chr(0x4E00 + number) for number in range(1000)), "blanks": "a" + " " * 1998 + "b",
    "signs": "a" + "!?" * 999 + "b", "wide blanks": (" " * 40).join(f"w{number}" for number in range(48)),
    "halves": "".join(f"{number:03d}" for number in range(333)) * 2,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_judged_in_time(text):
    """Processor time, not time: a search that explodes needs hours, one that does not some hundred milliseconds."""
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_CPU, (10, 10));"
        "from ansible_collections.modelhost.vllm.plugins.module_utils import coherence; coherence.fault(sys.stdin.read())")
    ended = subprocess.run(
        [sys.executable, "-c", program], input=text, text=True, encoding="utf-8", env={"PYTHONPATH": ":".join(sys.path), "PYTHONUTF8": "1"})
    assert ended.returncode == 0


@given(st.text(max_size=300), st.sampled_from(["stop", "length", None]))
def test_any_text_gets_a_verdict(text, reason):
    judged = coherence.judge(200, body(text, reason), ["Paris"])
    assert judged["verdict"] in ("coherent", "incoherent")
    assert judged["answer"] == text.strip()


@pytest.mark.case("C3")
def test_a_right_answer_that_ends_in_a_loop_is_not_coherent():
    text = "The capital of France is Paris, la femme au martyre" + ", la femme au martyre" * 3
    body = {"choices": [{"message": {"content": text}, "finish_reason": "length"}]}
    assert coherence.judge(200, body, ["Paris"]) == {
        "verdict": "incoherent", "reason": "a phrase in a loop: 'la femme au martyre'", "answer": text}


# What SmolLM2-135M-Instruct said in float32, by a healthy server: a small model that goes in circles outside of English
GERMAN = (
    "Die Hauptstadt von Italien ist ein großen und hebrisch als auch ausgeborenen Satz. Es ist ein großen und hebrisch als ausgeborenen Satz. "
    "Es ist ein großen und hebrisch als ausgeborenen Satz.")
JAPANESE = "どこですかっとはどこですが、日本語ではどこですが" + "どこですが" * 20
SUM = (
    "17 + 25 = 32\n\nThis is a classic example of a mathematical identity that is often misunderstood. In mathematics, identity refers to a "
    "property that is preserved under multiplication. In this case, 17 + 25 is simply 32, which is the result of multiplying 17 by 25.")


@pytest.mark.parametrize(("content", "expect", "scripts", "reason"), [
    (GERMAN, ["Rom"], ["LATIN"], "a phrase in a loop: 'ausgeborenen Satz. Es ist ein großen und hebrisch als'"),
    (JAPANESE, ["東京"], ["CJK", "HIRAGANA", "KATAKANA"], "one token again and again: 'どこですが'"),
    (SUM, ["42", "forty-two"], ["LATIN"], "it does not name 42 or forty-two"),
    ("It is 142.", ["42"], ["LATIN"], "it does not name 42"),
    ("Das kommt aus Roma und from.", ["Rom"], ["LATIN"], "it does not name Rom"),
    ("Tokyo is the capital.", ["東京"], ["CJK"], "letters that are not CJK: 'Tokyoistheca'"),
    ("The 首都 of 法国 is 巴黎, 巴黎市是法国的首都和最大城市", [], ["LATIN"], "letters that are not LATIN: '首都法国巴黎巴黎市是法国'"),
    ("Paris<|im_end|>", ["Paris"], ["LATIN"], "a mark of the chat template in the answer: '<|im_end|>'"),
    ("Paris ]<]minimax[>[ Paris", ["Paris"], ["LATIN"], "a mark of the chat template in the answer: ']<]minimax[>['"),
    ("Paris \ufffd\ufffd", ["Paris"], ["LATIN"], "characters that are none"),
])
def test_what_is_wrong_with_an_answer(content, expect, scripts, reason):
    assert coherence.judge(200, body(content), expect, scripts) == {"verdict": "incoherent", "reason": reason, "answer": content}


@pytest.mark.parametrize(("different", "circles"), [(14, True), (15, False)])
def test_few_words_again_and_again(different, circles):
    """60 words, in an order without a loop; a quarter of them may be different."""
    words = [f"w{number}" for number in range(different)]
    pairs = itertools.cycle(itertools.product(words, words))
    text = " ".join(itertools.islice((f"{a} {b}" for a, b in pairs if a != b), 30))
    reason = coherence.judge(200, body(text), [])["reason"]
    assert (reason == f"{different} different words among 60") == circles


def test_prose_code_and_lists_are_language():
    code = "```python\n" + "\n".join(f"def f{number}(x):\n    return x + {number}" for number in range(6)) + "\n```"
    for text in (LONG, TABLE, CONTENTS, code):
        assert coherence.judge(200, body(text), [])["verdict"] == "coherent"


@pytest.mark.case("C2")
@pytest.mark.parametrize(("content", "reason", "verdict", "answer"), [
    ("<think>The user asks for the capital of", "length", "budget", "The user asks for the capital of"),
    ("<think>France: Paris.</think>\n\nParis.", "stop", "coherent", "Paris."),
])
def test_reasoning_within_the_content(content, reason, verdict, answer):
    judged = coherence.judge(200, body(content, reason), ["Paris"])
    assert (judged["verdict"], judged["answer"]) == (verdict, answer)


def called(name, arguments):
    return body(None, "tool_calls", tool_calls=[{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}])


@pytest.mark.parametrize(("answer", "verdict", "reason"), [
    (called("get_weather", '{"city": "Oslo"}'), "coherent", "it calls get_weather"),
    (called("get_weather", '{"city": "Oslo, Norway"}'), "coherent", "it calls get_weather"),
    (called("get_weather", '{"city": "Bergen"}'), "incoherent", 'it should call get_weather with {"city": "Oslo"}'),
    (called("get_time", '{"city": "Oslo"}'), "incoherent", 'it should call get_weather with {"city": "Oslo"}'),
    (called("get_weather", '{"city": "Os'), "incoherent", "the arguments of its call are no JSON"),
    (called("get_weather", '["Oslo"]'), "incoherent", 'it should call get_weather with {"city": "Oslo"}'),
    (body("It is sunny in Oslo."), "incoherent", "it does not call get_weather"),
    (body("!!!!!!!!!!"), "incoherent", "one token again and again: '!'"),
    (body(None, "length", reasoning="The user asks"), "budget", "all of max_tokens went into reasoning: ask with more"),
])
def test_the_call_of_a_function(answer, verdict, reason):
    judged = coherence.judge_tool(200, answer, "get_weather", {"city": "Oslo"})
    assert (judged["verdict"], judged["reason"]) == (verdict, reason)


def with_logprobs(*values):
    answer = body("Il Coriobella, Italy.")
    answer["choices"][0]["logprobs"] = {"content": [{"token": "x", "logprob": value} for value in values]}
    return answer


@pytest.mark.parametrize(("answer", "verdict", "reason"), [
    (with_logprobs(-1.65, -1.39, -0.5, -0.01), "coherent", "4 logprobs from -1.65 to -0.01"),
    (with_logprobs(-9999.0, -0.5, -0.5, -0.5), "coherent", "4 logprobs from -9999.00 to -0.50"),
    (with_logprobs(0.0, 0.0, 0.0), "coherent", "3 logprobs from 0.00 to 0.00"),
    (with_logprobs(0.0, 0.0, 0.0, 0.0), "incoherent", "every token has the logprob 0.0"),
    (with_logprobs(-0.5, float("nan")), "incoherent", "logprobs that are none: [-0.5, nan]"),
    (with_logprobs(-0.5, None), "incoherent", "logprobs that are none: [-0.5, None]"),
    (body("Rome."), "incoherent", "it gives no logprobs"),
])
def test_log_probabilities(answer, verdict, reason):
    judged = coherence.judge_logprobs(200, answer)
    assert (judged["verdict"], judged["reason"]) == (verdict, reason)


def test_a_logit_that_is_no_number_is_http_500():
    assert coherence.judge_logprobs(500, {"error": {"message": "Out of range float values are not JSON compliant: nan"}})["verdict"] == "rejected"


def answers(*verdicts):
    return [{"item": {"name": f"q{number}", "ask": f"{number}?"}, "verdict": verdict, "reason": "", "answer": "", "seconds": 1.0}
            for number, verdict in enumerate(verdicts)]


@pytest.mark.parametrize(("verdicts", "binds", "verdict", "reason"), [
    (["coherent", "incoherent", "budget"], [], "incoherent", "q1"),
    (["coherent", "incoherent", "budget"], ["q0", "q2"], "budget", "q2"),
    (["coherent", "incoherent", "budget"], ["q0"], "coherent", "1 of 3 answers"),
    (["timed out", "budget"], [], "timed out", "q0"),
    (["coherent", "hung"], ["q0"], "hung", "q1"),
    (["incoherent", "rejected"], ["q0"], "rejected", "q1"),
    (["incoherent", "incoherent"], [], "incoherent", "q0, q1"),
])
def test_the_verdict_on_a_model(verdicts, binds, verdict, reason):
    summary = coherence.summary(answers(*verdicts), binds)
    assert (summary["verdict"], summary["reason"]) == (verdict, reason)
