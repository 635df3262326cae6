"""The report in all its forms, from literal documents: hosts that serve, load, have failed and speak evil, and are away.

The forms of the screen and of Markdown are the files beside the documents. After a change read the difference, then write them anew with

    MODELHOST_GOLDEN=write .venv/bin/pytest tests/test_report_page.py

The page is opened in a real Chromium; MODELHOST_GOLDEN=write makes the picture of the README, too.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Iterator

import browser
import jsonschema
import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import report_words
from ansible_collections.modelhost.vllm.plugins.plugin_utils import report_pages

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "tests/reports"
FILES = ROOT / "roles/host_report/files"
PICTURE = ROOT / "docs/pictures/report.png"
WRITE = os.environ.get("MODELHOST_GOLDEN") == "write"
NAMES = ("healthy", "loading", "failed", "unreachable")
HOSTILE = '<script>document.title="taken"</script>'
PHONE = 390
ACTS = "document.querySelectorAll('script, img, iframe, object, embed, form, [style], [onerror], [onload], [onclick]').length"


def document(name: str) -> dict[str, Any]:
    return json.loads((REPORTS / f"{name}.json").read_text())


def page(*names: str) -> str:
    return report_pages.html([document(name) for name in names], str(FILES / "report.html.j2"))


def golden(path: Path, text: str) -> None:
    if WRITE:
        path.write_text(text)
    assert text == path.read_text()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    if not browser.PROGRAM:
        pytest.skip("no Chromium is installed here: tools/programs, which `make unit` runs, says why")
    running = browser.Browser(tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture
def show(chromium: browser.Browser, tmp_path: Path):
    """Open a page; the browser, and the address of the page."""
    def act(text: str, width: int = 1000, **options: bool) -> tuple[browser.Browser, str]:
        path = tmp_path / "report.html"
        path.write_text(text)
        chromium.open(path, width, **options)
        return chromium, path.as_uri()

    return act


@pytest.mark.parametrize("name", NAMES)
def test_a_document_keeps_to_its_schema(name: str) -> None:
    schema = json.loads((ROOT / "docs/status-report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document(name), schema)


@pytest.mark.parametrize("name", NAMES)
def test_the_screen(name: str) -> None:
    lines = report_words.screen(document(name))
    golden(REPORTS / f"{name}.txt", "\n".join(lines) + "\n")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", NAMES)
def test_markdown(name: str) -> None:
    golden(REPORTS / f"{name}.md", report_pages.markdown(document(name), str(FILES / "report.md.j2")))


def test_what_a_host_says_is_inert_in_markdown() -> None:
    text = (REPORTS / "failed.md").read_text()
    assert "<" not in text
    assert f"`{HOSTILE}" not in text and "&lt;script>" in text
    said = {**document("loading"), "summary": "[a](http://b) *c* | `d`\n# e"}
    assert "\\[a\\](http://b) \\*c\\* \\| \\`d\\` \\# e. Asked on" in report_pages.markdown(said, str(FILES / "report.md.j2"))


@pytest.mark.parametrize(("name", "state", "plots"), [("healthy", "serving", 4), ("loading", "loading", 0), ("failed", "failed", 0)])
def test_a_page_is_quiet_and_asks_for_nothing(show, name: str, state: str, plots: int) -> None:
    chromium, address = show(page(name))
    assert chromium.value("document.querySelector('h2 .state').innerText") == state
    # history of two profiles, ladder, all-reduce
    assert chromium.value("document.querySelectorAll('svg[role=img][aria-label]').length") == plots
    assert chromium.requests() == [address]
    assert chromium.complaints() == []


def test_all_hosts_in_one_page_on_a_phone_in_the_dark(show) -> None:
    chromium, address = show(page(*NAMES), PHONE, dark=True)
    assert chromium.value("[...document.querySelectorAll('nav li')].map(each => each.querySelector('.state').innerText).join()") == (
        "serving,loading,failed,unreachable")
    assert chromium.value("[...document.querySelectorAll('nav a')].every(each => document.querySelector(each.hash))") is True
    assert chromium.value("document.documentElement.scrollWidth") == PHONE
    assert (chromium.requests(), chromium.complaints()) == ([address], [])


def test_what_a_host_says_is_inert(show) -> None:
    chromium, _ = show(page(*NAMES))
    assert HOSTILE in chromium.value("document.body.innerText")
    assert chromium.value("document.title") == f"modelhost: kimi-1, kimi-2, kimi-3{HOSTILE}, kimi-4"
    assert chromium.value(ACTS) == 0


def test_the_browser_tells_of_a_page_that_is_neither_quiet_nor_narrow(show) -> None:
    """What the tests above look for can be seen; and the page's own policy would stop it."""
    evil = f'<img src="http://127.0.0.1:9/x.png"><div style="width: 900px">wide</div>{HOSTILE}</main>'
    bad = page("healthy").replace("</main>", evil)
    chromium, _ = show(bad, PHONE)
    assert chromium.value("document.title") == "modelhost: kimi-1"
    assert any("Content Security Policy" in each for each in chromium.complaints())
    chromium, address = show(bad.replace("Content-Security-Policy", "no-policy"), PHONE)
    assert (chromium.value("document.title"), chromium.value(ACTS)) == ("taken", 3)
    assert chromium.requests() == [address, "http://127.0.0.1:9/x.png"]
    assert chromium.value("document.documentElement.scrollWidth") > PHONE


def test_the_picture_of_the_readme(show) -> None:
    if WRITE:
        chromium, _ = show(page("healthy", "loading"), 960)
        chromium.picture(PICTURE, chromium.value("document.querySelector('figure').getBoundingClientRect().bottom + 12"))
    assert PICTURE.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert PICTURE.stat().st_size < 200_000


def test_the_readme_shows_the_screen_of_a_host_that_serves() -> None:
    assert f"```text\n{(REPORTS / 'healthy.txt').read_text()}```" in (ROOT / "README.md").read_text()
