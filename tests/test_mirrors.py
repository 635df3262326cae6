"""Everything that is downloaded has an address that a site can replace by its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("roles", "playbooks", "inventory")
URL = re.compile(r"https?://[^\s\"'<>)\]]+")
# Said about a fact of a data file, and never fetched
PROVENANCE = {"source", "sources"}


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a document, with the key that it is said for."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from texts(each, str(name))
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, key)
    elif isinstance(value, str):
        yield key, value


def urls_of_yaml(path: Path) -> Iterator[tuple[str, str]]:
    for key, text in texts(yaml.safe_load(path.read_text())):
        yield from ((key, url) for url in URL.findall(text) if key not in PROVENANCE | {"description"})


def urls_of_program(path: Path) -> list[str]:
    """What a program says outside its comments, and a Python program outside its documentation."""
    text = path.read_text()
    if path.suffix != ".py":
        return URL.findall(re.sub(r"(?m)(^|\s)#.*$", "", text))
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    told = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [url for value in constants if value not in told for url in URL.findall(value)]


def files() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def defaults() -> dict[str, str]:
    """The variables of roles whose default is an address."""
    found = {}
    for path in ROOT.glob("roles/*/defaults/main.yml"):
        found |= {name: value for name, value in (yaml.safe_load(path.read_text()) or {}).items() if URL.match(str(value))}
    return found


@pytest.mark.parametrize("path", [path for path in files() if path.suffix == ".yml"], ids=lambda path: str(path.relative_to(ROOT)))
def test_an_address_is_the_value_of_a_variable_that_a_site_can_set(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    here = list(urls_of_yaml(path))
    if re.fullmatch(r"roles/\w+/defaults/main\.yml", place):
        assert [url for key, url in here if not key.endswith("_url")] == []
    elif re.fullmatch(r"roles/\w+/meta/argument_specs\.yml", place):
        assert [url for key, url in here if key != "default" or url not in defaults().values()] == []
    elif re.fullmatch(r"inventory/\w+/group_vars/all/downloads\.yml", place):
        assert [url for key, url in here if not re.fullmatch(r"modelhost_\w+_url", key)] == []
    else:
        assert here == []


def test_programs_templates_and_locks_name_no_address() -> None:
    others = [path for path in files() if path.suffix != ".yml"]
    assert {str(path.relative_to(ROOT)): urls_of_program(path) for path in others if urls_of_program(path)} == {}


def test_the_address_in_a_role_is_replaced_by_the_inventorys() -> None:
    assert set(defaults()) == {"model_weights_hub_url", "model_weights_pytorch_url", "nvidia_repository_url"}
    for name in defaults():
        role = next(path.parts[-3] for path in ROOT.glob("roles/*/defaults/main.yml") if name in yaml.safe_load(path.read_text()))
        wired = yaml.safe_load((ROOT / f"playbooks/group_vars/all/{role}.yml").read_text())[name]
        assert re.fullmatch(r"\{\{ modelhost_\w+_url \}\}", wired), name


@pytest.mark.parametrize("inventory", ["demo", "example"])
def test_an_inventory_has_every_mirror(inventory: str) -> None:
    downloads = yaml.safe_load((ROOT / f"inventory/{inventory}/group_vars/all/downloads.yml").read_text())
    assert set(downloads) == {
        "modelhost_ca_bundle", "modelhost_pypi_url", "modelhost_pytorch_url", "modelhost_hub_url", "modelhost_nvidia_url",
        "modelhost_find_links", "modelhost_https_proxy", "modelhost_offline"}
    assert downloads["modelhost_offline"] == ""
