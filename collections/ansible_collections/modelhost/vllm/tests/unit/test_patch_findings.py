"""What is said about declared patches before anything is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.modelhost.vllm.plugins.filter.patch_findings import patch_findings

ROOT = Path(__file__).resolve().parents[6]
OPTIONS = yaml.safe_load(
    (ROOT / "roles/vllm/meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]["vllm_engines"]["options"]
PATCH = {
    "id": "tools-error", "upstream": "https://example.org/pull/1", "reason": "a request with tools fails", "drop_when": "vllm>=0.34.0",
    "file": "vllm/envs.py", "sha256_before": "a" * 64, "sha256_after": "b" * 64, "patch": "tools-error.patch"}
PINS = {"e": {"vllm": "0.33.0", "torch": "2.14.0+cpu"}}
WHERE = "modelhost_engines.e.patches.tools-error"


@pytest.fixture
def found(tmp_path):
    """What is found in patches of one engine."""
    (tmp_path / "tools-error.patch").write_text("--- a\n")

    def find(*patches, pins=PINS):
        return patch_findings({"e": {"patches": list(patches)}}, pins, str(tmp_path), OPTIONS)

    return find


def test_a_sound_patch(found, tmp_path):
    assert found(PATCH) == {"errors": [], "warnings": []}
    assert found({**PATCH, "patch": str(tmp_path / "tools-error.patch")}) == {"errors": [], "warnings": []}


@pytest.mark.parametrize(("change", "expected"), [
    ({"upstream": "vllm#41211"},
     ["upstream: 'vllm#41211' is no address: write that of the change, beginning with https:// or http://"]),
    ({"reason": " "}, ["reason: '' says nothing: write what goes wrong without the patch"]),
    *(({"file": file}, [f"file: {file!r} is no plain path below site-packages: write one such as vllm/envs.py"])
      for file in ("", "/etc/passwd", "../x.py", "vllm/../../x.py", "vllm//envs.py", "./vllm/envs.py", "vllm/a b.py", "vllm\\envs.py")),
    *(({"sha256_before": digest},
       [f"sha256_before: {digest!r} is no sha256: write the 64 lower-case hexadecimal digits that sha256sum prints"])
      for digest in ("", "sha256:" + "a" * 64, "A" * 64, "a" * 63)),
    ({"sha256_after": "x"}, ["sha256_after: 'x' is no sha256: write the 64 lower-case hexadecimal digits that sha256sum prints"]),
    ({"sha256_after": "a" * 64},
     ["sha256_after: it equals sha256_before, so that the patch would change nothing: write the digest of the patched file"]),
    ({"patch": "fix.patch"},
     ["patch: 'fix.patch' is not there: put it into roles/vllm/files/patches, or write its absolute path on the controller"]),
    *(({"drop_when": text}, [f"drop_when: {text!r} is no distribution with versions: write one such as 'vllm>=0.34.0'"])
      for text in ("", "0.34.0", "vllm", "vllm => 0.34", "vllm[audio]>=0.34", "vllm>=0.34; python_version > '3'", "vllm @ https://x/y.whl")),
    ({"drop_when": "vlm>=0.34.0"},
     ["drop_when: 'vlm>=0.34.0': the lock pins no vlm, so that this is never met: name the distribution that brings the file. Did you mean "
      "'vllm'?"]),
    ({"drop_when": "vllm-gguf-plugin>=0.0.6"},
     ["drop_when: 'vllm-gguf-plugin>=0.0.6': the lock pins no vllm-gguf-plugin, so that this is never met: name the distribution that "
      "brings the file"]),
])
def test_what_is_wrong(found, change, expected):
    assert found({**PATCH, **change}) == {"errors": [f"{WHERE}.{sentence}" for sentence in expected], "warnings": []}


def test_names(found):
    assert found({**PATCH, "id": "Fix 41211"})["errors"] == [
        "modelhost_engines.e.patches[0].id: 'Fix 41211' cannot name a file: use lower-case letters, digits, '.', '_' and '-', a letter or "
        "digit first and last"]
    assert found(PATCH, PATCH)["errors"] == [
        "modelhost_engines.e.patches[1].id: 'tools-error' names an earlier patch of this engine: give each its own"]


@pytest.mark.parametrize(("drop_when", "pin", "due"), [
    ("vllm>=0.34.0", "0.33.0", False),
    ("vllm>=0.34.0", "0.34.0", True),
    ("vllm>=0.34.0", "0.34.0+cpu", True),
    ("vllm>=0.34.0", "0.34.0rc1", False),
    ("vllm>=0.34.0rc1", "0.34.0rc2", True),
    ("VLLM >= 0.34, < 1", "0.35.1", True),
    ("vllm>=0.34, <0.35", "0.35.1", False),
])
def test_a_patch_that_can_go(found, drop_when, pin, due):
    said = found({**PATCH, "drop_when": drop_when}, pins={"e": {"vllm": pin}})
    assert said == {"errors": [], "warnings": [
        f"{WHERE}.drop_when: the lock has vllm {pin}, which meets {drop_when!r}: declare the engine without the patch, under a new name"
    ] if due else []}


def test_without_a_readable_lock_the_condition_is_not_judged(found):
    assert found({**PATCH, "drop_when": "vlm>=0.34.0"}, pins={}) == {"errors": [], "warnings": []}


@pytest.mark.parametrize("engines", [
    None, ["e"], {"e": None}, {"e": {}}, {"e": {"patches": None}}, {"e": {"patches": "x"}}, {"e": {"patches": [{"id": 1}]}},
])
def test_what_the_specification_refuses_is_left_to_it(engines):
    assert patch_findings(engines, {}, "/nowhere", OPTIONS) == {"errors": [], "warnings": []}
