"""All Python that runs on a host is Python 3.9's, with nothing but its standard library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[1] / "collections/ansible_collections/modelhost/vllm/plugins"
ROLES = Path(__file__).resolve().parents[1] / "roles"
# Programs that hosts run with the system's Python; those of model_weights ask for 3.11 or later (model_weights_python).
PROGRAMS = [path for path in ROLES.glob("*/files/**/*") if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/python3\n")]
ON_HOSTS = sorted([*PLUGINS.glob("modules/*.py"), *PLUGINS.glob("module_utils/*.py"), *PROGRAMS])
NEWER_THAN_3_9 = {"tomllib", "annotationlib", "compression"}


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
    return names


def test_the_programs_are_among_them() -> None:
    assert {path.name for path in PROGRAMS} >= {"check-gpus", "check-holders", "modelhost-tuning"}


@pytest.mark.parametrize("path", ON_HOSTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_python_of_hosts(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    # Annotations such as `str | None` are 3.10's, unless they are never evaluated
    assert "from __future__ import annotations\n" in path.read_text()
    assert imported(tree) - set(sys.stdlib_module_names) - {"ansible", "ansible_collections"} == set()
    assert imported(tree) & NEWER_THAN_3_9 == set()
