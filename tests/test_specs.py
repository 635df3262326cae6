"""Argument specifications are the truth: equal to the defaults, complete for every entry point, and described to any depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ROLES = sorted(path.name for path in ROOT.glob("roles/*") if path.is_dir())
# Task files that playbooks enter by `tasks_from`; each has a specification of its own.
ENTRIES = (
    "main", "verify", "remove", "stop", "audit", "audit_path", "lock", "unlock", "plan", "check", "warm", "free", "points", "keep", "choose")


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def specs(role: str) -> dict[str, dict[str, Any]]:
    return read(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]


def options_below(where: str, options: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, option in options.items():
        yield f"{where}.{name}", option
        yield from options_below(f"{where}.{name}", option.get("options", {}))


@pytest.mark.parametrize("role", ROLES)
def test_the_options_of_all_entry_points_are_the_defaults(role: str) -> None:
    defaults = read(f"roles/{role}/defaults/main.yml") or {}
    options = {name: option for spec in specs(role).values() for name, option in spec.get("options", {}).items()}
    required = {name for name, option in options.items() if option.get("required")}
    assert set(options) - required == set(defaults)
    assert required & set(defaults) == set()


@pytest.mark.parametrize(("role", "entry"), [(role, entry) for role in ROLES for entry in specs(role)])
def test_each_default_says_the_same_in_both_places(role: str, entry: str) -> None:
    defaults = read(f"roles/{role}/defaults/main.yml") or {}
    specified = {name: option["default"] for name, option in specs(role)[entry].get("options", {}).items() if not option.get("required")}
    assert specified == {name: defaults[name] for name in specified}
    assert {name: type(value) for name, value in specified.items()} == {name: type(defaults[name]) for name in specified}


@pytest.mark.parametrize("role", ROLES)
def test_every_entry_point_is_described_and_has_its_tasks(role: str) -> None:
    files = {path.stem for path in (ROOT / f"roles/{role}/tasks").glob("*.yml")}
    assert set(specs(role)) <= files
    for spec in specs(role).values():
        assert spec["short_description"]


def tasks_in(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every task, those of blocks too."""
    for task in entries:
        yield task
        for section in ("block", "rescue", "always"):
            yield from tasks_in(task.get(section, []))


def entered() -> set[tuple[str, str]]:
    """Role and task file of each entry from a playbook."""
    found = set()
    for path in [*ROOT.glob("playbooks/*.yml"), *ROOT.glob("playbooks/tasks/*.yml")]:
        for entry in yaml.safe_load(path.read_text()):
            found |= {(each["role"], "main") for each in entry.get("roles", [])}
            for task in tasks_in([entry, *entry.get("tasks", [])]):
                call = task.get("ansible.builtin.import_role") or task.get("ansible.builtin.include_role")
                if call:
                    found.add((call["name"], call.get("tasks_from", "main")))
    return found


def test_playbooks_enter_roles_where_a_specification_checks_them() -> None:
    assert {(role, entry) for role, entry in entered() if entry not in specs(role)} == set()
    assert {entry for _role, entry in entered()} <= set(ENTRIES)


def test_each_entry_point_is_entered() -> None:
    assert {(role, entry) for role in ROLES for entry in specs(role)} - entered() == set()


@pytest.mark.parametrize("role", ROLES)
def test_every_option_is_described_and_typed(role: str) -> None:
    lacking = [
        f"{where}: no {key}"
        for entry, spec in specs(role).items()
        for where, option in options_below(entry, spec.get("options", {}))
        for key in ("description", "type") if not option.get(key)
    ]
    assert lacking == []
    lists = [where for entry, spec in specs(role).items() for where, option in options_below(entry, spec.get("options", {}))
             if option["type"] == "list" and "elements" not in option]
    assert lists == []


def test_the_catalogue_fills_in_what_the_specification_of_a_model_says() -> None:
    model = specs("model_unit")["main"]["options"]["model_unit_models"]["options"]
    defaults = {name: option["default"] for name, option in model.items() if "default" in option}
    assert read("playbooks/group_vars/all/catalogue.yml")["modelhost_model_defaults"] == defaults


def test_both_specifications_of_weights_take_the_same_keys() -> None:
    one = specs("model_unit")["main"]["options"]["model_unit_models"]["options"]["weights"]["options"]
    other = specs("model_weights")["main"]["options"]["model_weights_models"]["options"]["weights"]["options"]
    for key in ("type", "elements", "choices", "required"):
        assert {name: option.get(key) for name, option in one.items()} == {name: option.get(key) for name, option in other.items()}
