"""The column "held by" of docs/known-failures.md says what the tests' marks say."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = sorted(
    path for pattern in ("tests", "molecule/*/tests", "collections/ansible_collections/modelhost/vllm/tests/unit")
    for path in ROOT.glob(f"{pattern}/*.py"))
TABLE = (ROOT / "docs/known-failures.md").read_text()

# id -> the column "held by"
HELD_BY = {row[1]: row[2] for row in re.finditer(r"^\| ([A-Z]\d+) \|.*\| ([^|]+) \|$", TABLE, re.MULTILINE)}
# id -> the files with a test that is marked with it, as the table links to them
MARKED: dict[str, set[str]] = {}
for _path in TESTS:
    for _case in re.findall(r'mark\.case\("(\w+)"\)', _path.read_text()):
        MARKED.setdefault(_case, set()).add(f"[{_path.name}](../{_path.relative_to(ROOT)})")


def test_each_row_has_an_id_of_its_own() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \|", TABLE, re.MULTILINE)
    assert rows == list(HELD_BY)
    assert rows


def test_each_mark_has_a_row() -> None:
    assert set(MARKED) - set(HELD_BY) == set()


def test_each_row_names_the_files_that_mark_it() -> None:
    said = {case: set(re.findall(r"\[[^]]*\]\([^)]*\)", column)) for case, column in HELD_BY.items()}
    assert said == {case: MARKED.get(case, set()) for case in HELD_BY}


def test_a_row_is_held_in_words_or_not_yet() -> None:
    link = r"\[test_\w+\.py\]\(\S+\)"
    for case, column in HELD_BY.items():
        assert re.fullmatch(rf"not yet|(in part: )?{link}(, {link})*", column), f"{case}: {column}"
