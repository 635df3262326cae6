"""What systemd reads is what was meant: quoting, against a reader written from its manual pages; and what its programs print."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.filter.systemd_environment import systemd_environment
from ansible_collections.modelhost.vllm.plugins.filter.systemd_exec import systemd_exec
from ansible_collections.modelhost.vllm.plugins.filter.systemd_value import systemd_value
from ansible_collections.modelhost.vllm.plugins.module_utils import systemd
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(("value", "line"), [
    ("plain", 'A="plain"\n'),
    ("", 'A=""\n'),
    (8, 'A="8"\n'),
    (0.5, 'A="0.5"\n'),
    ("two words", 'A="two words"\n'),
    ("# no comment", 'A="# no comment"\n'),
    ('say "yes"', 'A="say \\"yes\\""\n'),
    ("C:\\new", 'A="C:\\\\new"\n'),
    ("$HOME and `id`", 'A="\\$HOME and \\`id\\`"\n'),
    ("50%", 'A="50%"\n'),
    ("it's", 'A="it\'s"\n'),
    ("two\nlines\tand a tab", 'A="two\nlines\tand a tab"\n'),
    ("schön", 'A="schön"\n'),
])
def test_environment(value: object, line: str) -> None:
    assert systemd.quote_environment({"A": value}) == line


def test_environment_of_several_variables_keeps_their_order() -> None:
    assert systemd.quote_environment({"B": 1, "A_2": "x"}) == 'B="1"\nA_2="x"\n'
    assert systemd.quote_environment({}) == ""


@pytest.mark.parametrize(("values", "message"), [
    ({"A-B": "x"}, "'A-B' is not the name of an environment variable: use letters, digits and _, not a digit first"),
    ({"2A": "x"}, "'2A' is not the name of an environment variable: use letters, digits and _, not a digit first"),
    ({"A\n": "x"}, "'A\\n' is not the name of an environment variable: use letters, digits and _, not a digit first"),
    ({"A": True}, "A: True has no spelling of its own in an environment; write the text that the program expects, in quotes"),
    ({"A": None}, "A: None has no spelling of its own in an environment; write the text that the program expects, in quotes"),
    ({"A": "bell\x07"}, "A: the value has a control character, which systemd drops together with the variable: remove it"),
    ({"A": "line\r\n"}, "A: the value has a control character, which systemd drops together with the variable: remove it"),
])
def test_environment_that_systemd_would_drop(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        systemd.quote_environment(values)
    assert str(refused.value) == message
    with pytest.raises(AnsibleFilterError) as shown:
        systemd_environment(values)
    assert message in str(shown.value)


@pytest.mark.parametrize(("argv", "line"), [
    (["/bin/vllm", "serve", "--config", "/etc/m.yaml"], "/bin/vllm serve --config /etc/m.yaml"),
    (["/bin/x", ""], '/bin/x ""'),
    (["/bin/x", "two words"], '/bin/x "two words"'),
    (["/bin/x", 8], "/bin/x 8"),
    (["/bin/x", "100%"], '/bin/x "100%%"'),
    (["/bin/x", "$HOME"], '/bin/x "$$HOME"'),
    (["/bin/x", ";"], '/bin/x ";"'),
    (["/bin/x", 'a"b\\c'], '/bin/x "a\\"b\\\\c"'),
    (["/bin/x", "import x\n\tprint()\r"], '/bin/x "import x\\n\\tprint()\\r"'),
    (["/bin/x", '{"mode": "PIECEWISE"}'], '/bin/x "{\\"mode\\": \\"PIECEWISE\\"}"'),
])
def test_command_line(argv: list[object], line: str) -> None:
    assert systemd.quote_exec(argv) == line
    assert systemd_exec(argv) == line


def test_a_word_that_no_process_can_get() -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        systemd_exec(["/bin/x", "a\x00b"])
    assert "'a\\x00b' cannot be a word of a command line" in str(refused.value)


@pytest.mark.parametrize(("value", "text"), [("strict", "strict"), (90, "90"), ("", ""), ("100%", "100%%"), ("%h/$x", "%%h/$x")])
def test_value(value: object, text: str) -> None:
    assert systemd.quote_value(value) == text


@pytest.mark.parametrize("value", ["a\nExecStart=/bin/sh", "a\rb", "a\x00b", "a\\"])
def test_a_value_of_more_than_one_line(value: str) -> None:
    with pytest.raises(AnsibleFilterError, match="would run into the next line of a unit file"):
        systemd_value(value)


def read_environment(text: str) -> dict[str, str]:
    """systemd.exec(5), EnvironmentFile=: assignments whose values stand in double quotes."""
    values, rest = {}, text
    while rest:
        name, rest = rest.split('="', 1)
        value = ""
        while not rest.startswith('"'):
            if rest[0] == "\\" and rest[1] in '"\\`$':
                rest = rest[1:]
            value, rest = value + rest[0], rest[1:]
        values[name] = value
        assert rest.startswith('"\n')
        rest = rest[2:]
    return values


def read_command_line(line: str) -> list[str]:
    """systemd.service(5), "Command lines" and "Quoting": words, C escapes in quotes, then specifiers and variables."""
    words, rest = [], line
    while rest:
        word = ""
        if rest.startswith('"'):
            rest = rest[1:]
            while not rest.startswith('"'):
                if rest[0] == "\\":
                    word, rest = word + {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}[rest[1]], rest[2:]
                else:
                    word, rest = word + rest[0], rest[1:]
            rest = rest[1:]
        else:
            while rest and not rest.startswith(" "):
                assert rest[0] not in "\"'\\;"
                word, rest = word + rest[0], rest[1:]
        assert not rest or rest.startswith(" ")
        rest = rest[1:]
        for mark in "%$":
            assert word.count(mark) == 2 * word.count(mark * 2)
            word = word.replace(mark * 2, mark)
        words.append(word)
    return words


CHARACTERS = st.one_of(st.sampled_from("\"'\\`$%;#{}= \t\n"), st.characters(exclude_categories=["Cs", "Cc"]))


@given(st.dictionaries(st.from_regex("[A-Z_][A-Z0-9_]*", fullmatch=True), st.text(CHARACTERS)))
def test_every_environment_reaches_the_process(values: dict[str, str]) -> None:
    assert read_environment(systemd.quote_environment(values)) == values


@given(st.lists(st.text(st.one_of(CHARACTERS, st.just("\r"))), min_size=1))
def test_every_word_reaches_the_process(words: list[str]) -> None:
    line = systemd.quote_exec(words)
    assert not set("\n\r\x00") & set(line)
    assert read_command_line(line) == words


def test_units_are_shown_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(argv: list[str]) -> str:
        asked.append(argv)
        return (
            "Id=vllm-a.service\nActiveState=active\nExecStart={ path=/bin/vllm ; argv[]=/bin/vllm --config=/etc/a.yaml }\n\n"
            "Id=vllm-b.service\nActiveState=inactive\nExecStart=\n")

    monkeypatch.setattr(systemd, "run", run)
    assert systemd.show(["vllm-a.service", "vllm-b.service"], ["ActiveState", "ExecStart"]) == {
        "vllm-a.service": {
            "Id": "vllm-a.service", "ActiveState": "active", "ExecStart": "{ path=/bin/vllm ; argv[]=/bin/vllm --config=/etc/a.yaml }"},
        "vllm-b.service": {"Id": "vllm-b.service", "ActiveState": "inactive", "ExecStart": ""},
    }
    assert asked == [["systemctl", "show", "--all", "--property=Id,ActiveState,ExecStart", "--", "vllm-a.service", "vllm-b.service"]]


def test_what_systemd_does_not_print_is_an_empty_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd 252 and 257 leave EnvironmentFiles out where a unit has none, with --all too."""
    monkeypatch.setattr(systemd, "run", lambda argv: "Id=vllm-a.service\nActiveState=active\n")
    assert systemd.show("vllm-*.service", ["ActiveState", "EnvironmentFiles"]) == {
        "vllm-a.service": {"Id": "vllm-a.service", "ActiveState": "active", "EnvironmentFiles": ""}}



def test_no_unit_is_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "run", lambda argv: pytest.fail("systemctl show without a unit shows the manager"))
    assert systemd.show([], ["ActiveState"]) == {}


def test_a_pattern_without_a_loaded_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "run", lambda argv: "")
    assert systemd.show("vllm-*.service", ["ActiveState"]) == {}


@pytest.mark.parametrize(("invocation", "match"), [("0a1b", "_SYSTEMD_INVOCATION_ID=0a1b"), ("", "_SYSTEMD_UNIT=vllm-a.service")])
def test_journal_of_one_run(monkeypatch: pytest.MonkeyPatch, invocation: str, match: str) -> None:
    asked = []

    def run(argv: list[str]) -> str:
        asked.append(argv)
        return "Starting\n\n  0%|    | 0/2\r 50%|    | 1/2\rdone \n"

    monkeypatch.setattr(systemd, "run", run)
    assert systemd.journal("vllm-a.service", invocation, 200) == ["Starting", "0%|    | 0/2", "50%|    | 1/2", "done"]
    assert asked == [["journalctl", "--quiet", "--no-pager", "--output=cat", "--lines=200", match]]
