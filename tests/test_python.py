"""All Python that runs on a host is Python 3.9's, with nothing but its standard library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[1] / "collections/ansible_collections/modelhost/vllm/plugins"
ON_HOSTS = sorted([*PLUGINS.glob("modules/*.py"), *PLUGINS.glob("module_utils/*.py")])
NEWER_THAN_3_9 = {"tomllib", "annotationlib", "compression"}


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
    return names


@pytest.mark.parametrize("path", ON_HOSTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_python_of_hosts(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    # Annotations such as `str | None` are 3.10's, unless they are never evaluated
    assert "from __future__ import annotations\n" in path.read_text()
    assert imported(tree) - set(sys.stdlib_module_names) - {"ansible", "ansible_collections"} == set()
    assert imported(tree) & NEWER_THAN_3_9 == set()
