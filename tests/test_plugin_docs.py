"""`ansible-doc` documents every plugin and every role, and what it says about a module's options is what the module takes."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ROOT / "collections/ansible_collections/modelhost/vllm/plugins"
MODULES = sorted(path.stem for path in PLUGINS.glob("modules/*.py"))
LOOKUPS = sorted(path.stem for path in PLUGINS.glob("lookup/*.py"))
FILTERS = sorted(path.stem for path in PLUGINS.glob("filter/*.py"))
ROLES = sorted(path.name for path in ROOT.glob("roles/*") if path.is_dir())


def ansible_doc(*arguments: str) -> dict[str, Any]:
    result = subprocess.run(["ansible-doc", "--json", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def documented() -> dict[str, dict[str, Any]]:
    """Documentation by kind and name."""
    found = {}
    for kind, names in (("module", MODULES), ("filter", FILTERS), ("lookup", LOOKUPS)):
        shown = ansible_doc("-t", kind, *(f"modelhost.vllm.{name}" for name in names))
        found[kind] = {name.removeprefix("modelhost.vllm."): plugin for name, plugin in shown.items()}
    return found


def lacking(where: str, options: dict[str, Any], inner: str) -> list[str]:
    """What the documentation of options or of returned values leaves out, to any depth."""
    found = []
    for name, option in options.items():
        found += [f"{where}.{name}: no {key}" for key in ("description", "type") if not option.get(key)]
        found += lacking(f"{where}.{name}", option.get(inner) or {}, inner)
    return found


@pytest.mark.parametrize(("kind", "name"), [
    (kind, name) for kind, names in (("module", MODULES), ("filter", FILTERS), ("lookup", LOOKUPS)) for name in names])
def test_documentation_of_a_plugin(documented: dict, kind: str, name: str) -> None:
    plugin = documented[kind][name]
    doc = plugin["doc"]
    assert doc["short_description"] and doc["description"] and doc["author"] == ["The modelhost authors"]
    assert not doc["short_description"].endswith(".")
    assert lacking(name, doc["options"], "suboptions") == []
    assert plugin["return"]
    assert lacking(name, plugin["return"], "contains") == []


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_are_tasks_that_call_it(documented: dict, name: str) -> None:
    tasks = yaml.safe_load(documented["module"][name]["examples"])
    options = documented["module"][name]["doc"]["options"]
    assert tasks
    for task in tasks:
        assert task["name"]
        given = set(task[f"modelhost.vllm.{name}"] or {})  # a module without options is called with nothing
        assert given <= set(options)
        assert {option for option, each in options.items() if each.get("required")} <= given


@pytest.mark.parametrize(("kind", "name"), [*(("filter", name) for name in FILTERS), *(("lookup", name) for name in LOOKUPS)])
def test_examples_of_a_filter_or_a_lookup_call_it(documented: dict, kind: str, name: str) -> None:
    assert f"modelhost.vllm.{name}" in documented[kind][name]["examples"]


@pytest.mark.parametrize("name", FILTERS)
def test_a_file_has_the_filter_that_it_is_named_after(name: str) -> None:
    module = importlib.import_module(f"ansible_collections.modelhost.vllm.plugins.filter.{name}")
    assert list(module.FilterModule().filters()) == [name]


@pytest.mark.parametrize("name", MODULES)
def test_modules_support_check_mode_and_say_so(documented: dict, name: str) -> None:
    assert documented["module"][name]["doc"]["attributes"]["check_mode"]["support"] == "full"


class Asked(Exception):
    """A module has said what it takes."""


@pytest.mark.parametrize("name", MODULES)
def test_a_module_takes_what_its_documentation_says(documented: dict, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(f"ansible_collections.modelhost.vllm.plugins.modules.{name}")

    def ask(argument_spec: dict[str, Any], **_others: Any) -> None:
        raise Asked(argument_spec)

    monkeypatch.setattr(module, "AnsibleModule", ask)
    with pytest.raises(Asked) as asked:
        module.main()

    def compared(options: dict[str, Any], inner: str) -> dict[str, Any]:
        return {
            option: {**{key: each.get(key) for key in ("type", "elements", "choices", "default")}, "required": bool(each.get("required")),
                     "inner": compared(each.get(inner) or {}, inner)}
            for option, each in options.items()
        }

    assert compared(asked.value.args[0], "options") == compared(documented["module"][name]["doc"]["options"], "suboptions")


def test_roles_are_listed_with_what_each_entry_point_is_for() -> None:
    listed = ansible_doc("-t", "role", "-l", "--roles-path", "roles")
    assert [role for role in ROLES if not listed.get(role, {}).get("entry_points")] == []
    assert [(role, entry) for role in ROLES for entry, text in listed[role]["entry_points"].items() if not text or text.endswith(".")] == []
