"""The rules of the repository's layout: one subject a file, one place a fact, pins that pin."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Iterator

import ansible_collections
import jinja2
import pytest
import yaml
from jinja2 import nodes

ROOT = Path(__file__).resolve().parents[1]
ROLES = sorted(path.name for path in ROOT.glob("roles/*") if path.is_dir())
TASK_FILES = sorted(ROOT.glob("roles/*/tasks/*.yml"))
PLAYBOOKS = sorted([*ROOT.glob("playbooks/*.yml"), *ROOT.glob("playbooks/tasks/*.yml")])
INVENTORIES = ("demo", "example")
# What Ansible itself provides. Facts are not among it: they are read from ansible_facts.
MAGIC = {
    "item", "lookup", "query", "now", "dict", "range", "omit", "undef", "inventory_hostname", "role_path", "ansible_facts",
    "ansible_check_mode", "ansible_diff_mode", "ansible_loop", "ansible_managed", "ansible_failed_task", "ansible_failed_result",
}
INCLUDES = {"ansible.builtin.import_tasks", "ansible.builtin.include_tasks"}
BARE_EXPRESSIONS = ("when", "failed_when", "changed_when", "until", "that")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def tracked() -> list[Path]:
    """The files of the repository, with those that are not committed yet."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def tasks_in(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every task, those of blocks too."""
    for task in entries:
        yield task
        for section in ("block", "rescue", "always"):
            yield from tasks_in(task.get(section, []))


def strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a document, with the key that it is said for."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from strings(each, str(name))
    elif isinstance(value, list):
        for each in value:
            yield from strings(each, key)
    elif isinstance(value, str):
        yield key, value


def variables(key: str, text: str) -> set[str]:
    """The variables that a text of a task or of a variable file reads."""
    source = "{{ " + text + " }}" if key in BARE_EXPRESSIONS and "{{" not in text else text
    tree = jinja2.Environment().parse(source.replace("\\", "\\\\"))
    names = list(tree.find_all(nodes.Name))
    own = {name.name for name in names if name.ctx != "load"} | {macro.name for macro in tree.find_all(nodes.Macro)}
    own |= {name for statement in tree.find_all(nodes.FromImport) for name in statement.names}
    return {name.name for name in names} - own


def names_set(task: dict[str, Any]) -> set[str]:
    """The variables that a task sets."""
    found = {*task.get("vars", {}), *task.get("ansible.builtin.set_fact", {})}
    found |= {task["register"]} if "register" in task else set()
    return found | {value for name, value in task.get("loop_control", {}).items() if name in ("loop_var", "index_var")}


@pytest.mark.parametrize("path", TASK_FILES, ids=relative)
def test_a_task_file_has_one_subject(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= (40 if path.name == "main.yml" else 80)


@pytest.mark.parametrize("path", [path for path in TASK_FILES if path.name == "main.yml"], ids=relative)
def test_main_is_a_table_of_contents(path: Path) -> None:
    modules = {key for task in load(path) for key in task if key.startswith("ansible.builtin.") or key.startswith("modelhost.")}
    assert modules <= INCLUDES


@pytest.mark.parametrize("path", [path for path in TASK_FILES if path.name != "main.yml"], ids=relative)
def test_the_name_of_a_task_says_where_it_is(path: Path) -> None:
    elsewhere = [
        task.get("name") for task in tasks_in(load(path))
        if not task.get("name", "").startswith(f"{path.stem} | ") and not INCLUDES & set(task)
    ]
    assert elsewhere == []


@pytest.mark.parametrize("role", ROLES)
def test_the_variables_of_a_role_carry_its_name(role: str) -> None:
    folder = ROOT / "roles" / role
    public = set(load(folder / "defaults/main.yml") or {})
    internal = set(load(folder / "vars/main.yml")) if (folder / "vars/main.yml").is_file() else set()
    for path in folder.glob("tasks/*.yml"):
        for task in tasks_in(load(path)):
            internal |= names_set(task)
    assert {name for name in public if not name.startswith(f"{role}_")} == set()
    # What a task file says that it puts out, for playbooks to read
    said = "".join(path.read_text() for path in folder.glob("tasks/*.yml"))
    output = {name for name in re.findall(r"^# Output: (\w+)", said, re.MULTILINE) if name.startswith(f"{role}_")}
    assert {name for name in internal - output if not name.startswith(f"__{role}")} == set()


@pytest.mark.parametrize("role", ROLES)
def test_a_role_reads_its_own_variables_only(role: str) -> None:
    folder = ROOT / "roles" / role
    read: set[str] = set()
    for path in [*folder.glob("tasks/*.yml"), *folder.glob("vars/*.yml"), *folder.glob("defaults/*.yml")]:
        read |= {name for key, text in strings(load(path)) for name in variables(key, text)}
    for path in folder.glob("templates/*.j2"):
        read |= variables("", path.read_text())
    assert {name for name in read - MAGIC if not name.startswith((f"{role}_", f"__{role}"))} == set()


@pytest.mark.parametrize("role", ROLES)
def test_a_role_knows_no_group_and_no_other_role(role: str) -> None:
    folder = ROOT / "roles" / role
    text = "\n".join(path.read_text() for path in folder.rglob("*.yml"))
    assert "gpu_hosts" not in text
    assert "import_role" not in text and "include_role" not in text
    meta = folder / "meta/main.yml"
    assert not meta.exists() or not load(meta).get("dependencies")


@pytest.mark.parametrize("path", [*TASK_FILES, *PLAYBOOKS], ids=relative)
def test_failures_are_never_hidden(path: Path) -> None:
    entries = load(path)
    tasks = [*tasks_in(entries), *(task for play in entries for task in tasks_in(play.get("tasks", [])))]
    hiding = [task for task in tasks if {"ignore_errors", "ignore_unreachable"} & set(task) or task.get("failed_when") is False]
    assert [task.get("name") for task in hiding] == []


def test_no_handler_touches_the_unit_of_a_model() -> None:
    assert [relative(path) for path in ROOT.glob("roles/*/handlers/*.yml") if "vllm-" in path.read_text()] == []


def yaml_files() -> list[Path]:
    folders = ("roles", "playbooks", "inventory", "molecule")
    return [path for path in tracked() if path.suffix == ".yml" and path.relative_to(ROOT).parts[0] in folders]


def test_latest_is_no_version() -> None:
    assert [relative(path) for path in yaml_files() for document in yaml.safe_load_all(path.read_text()) for _key, text in strings(document)
            if re.search(r"(^|[:=@])latest$", text)] == []


def test_facts_are_read_by_name_in_brackets() -> None:
    texts = {relative(path): path.read_text() for path in tracked() if path.suffix in (".yml", ".j2")}
    assert [path for path, text in texts.items() if "ansible_facts." in text] == []


def test_playbooks() -> None:
    assert {path.stem for path in ROOT.glob("playbooks/*.yml")} >= {
        "site", "validate", "provision", "fetch_weights", "switch_model", "benchmark", "status", "teardown"}
    assert [set(play) - {"name", "vars"} for play in load(ROOT / "playbooks/site.yml")] == [{"ansible.builtin.import_playbook"}] * 3


def test_only_these_playbooks_can_stop_a_model() -> None:
    """The role model_switch stops models: where it is entered."""
    stops = {
        path.stem for path in PLAYBOOKS for entry in load(path) for task in tasks_in([entry, *entry.get("tasks", [])])
        for role in [task.get("ansible.builtin.import_role") or task.get("ansible.builtin.include_role") or {}]
        if role.get("name") == "model_switch" and role.get("tasks_from") not in ("lock", "unlock")
    }
    assert stops == {"switch_model", "teardown", "tune_switch"}
    assert [relative(path) for path in PLAYBOOKS if "tune_served_model.yml" in path.read_text()] == ["playbooks/tune_nccl.yml"]


def test_a_variable_of_a_role_is_wired_in_its_own_file() -> None:
    for path in ROOT.glob("playbooks/group_vars/all/*.yml"):
        prefix = path.stem if path.stem in ROLES else "modelhost"
        assert [name for name in load(path) if not name.startswith((f"{prefix}_", "__modelhost_"))] == []


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_an_inventory_is_data(inventory: str) -> None:
    folder = ROOT / "inventory" / inventory
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".yml"}
    assert [path for path in files if path.parent == folder] == [folder / "hosts.yml"]
    assert set(load(folder / "hosts.yml")) == {"gpu_hosts"}
    for path in files:
        if path.name != "hosts.yml":
            assert path.parts[-3] == "group_vars"
            assert [name for name in load(path) if not name.startswith("modelhost_")] == []


def test_both_inventories_say_the_same_things() -> None:
    for name in ("group_vars/all/downloads.yml", "group_vars/all/versions.yml", "group_vars/gpu_hosts/machine.yml"):
        demo, example = (load(ROOT / "inventory" / inventory / name) for inventory in INVENTORIES)
        assert set(demo) == set(example)
    demo, example = (load(ROOT / "inventory" / inventory / "group_vars/all/versions.yml")["modelhost_uv"] for inventory in INVENTORIES)
    assert demo == example


def test_pins_are_exact() -> None:
    pins = load(ROOT / "inventory/example/group_vars/all/versions.yml")
    assert set(pins) == {"modelhost_driver", "modelhost_cuda", "modelhost_uv"}
    assert re.fullmatch(r"\d{3}(\.\d+){1,2}", pins["modelhost_driver"]["version"])
    assert pins["modelhost_cuda"]["versions"] and all(re.fullmatch(r"\d+\.\d+", each) for each in pins["modelhost_cuda"]["versions"])
    assert re.fullmatch(r"\d+(\.\d+)+", pins["modelhost_uv"]["version"])
    assert pins["modelhost_uv"]["sha256"] and all(re.fullmatch("[0-9a-f]{64}", digest) for digest in pins["modelhost_uv"]["sha256"])


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_every_engine_has_its_lock_with_hashes(inventory: str) -> None:
    for name, engine in load(ROOT / f"inventory/{inventory}/group_vars/gpu_hosts/engines.yml")["modelhost_engines"].items():
        lock = ROOT / "roles/vllm/files/locks" / engine["lock"]
        assert lock.name == f"{name}-py{engine['python'].replace('.', '')}.txt"
        text = re.sub(r"^ *#.*\n", "", lock.read_text(), flags=re.MULTILINE)
        packages = re.split(r"\n(?=\S)", text.strip())
        assert [package for package in packages if not re.match(r"\S+==\S+ (; .* )?\\\n +--hash=sha256:", package)] == []
        assert f"{engine['distribution']}=={engine['version']}" in [package.split(" ")[0] for package in packages]


def test_the_catalogue_of_the_example() -> None:
    data = load(ROOT / "inventory/example/group_vars/gpu_hosts/models.yml")
    assert data["modelhost_served_model"] == "kimi-k25-int4"
    models = data["modelhost_models"]
    assert {name: (model["weights"]["repo"], model["engine"], model["gpus"], model["port"]) for name, model in models.items()} == {
        "kimi-k25-int4": ("moonshotai/Kimi-K2.5", "vllm-0.33.0", "all", 8000),
        "kimi-k25-int4-dcp8": ("moonshotai/Kimi-K2.5", "vllm-0.33.0", "all", 8000),
        "kimi-k25-int4-ep": ("moonshotai/Kimi-K2.5", "vllm-0.33.0", "all", 8000),
        "kimi-k25-nvfp4": ("nvidia/Kimi-K2.5-NVFP4", "vllm-0.33.0", "all", 8000),
        "minimax-m25": ("MiniMaxAI/MiniMax-M2.5", "vllm-0.33.0", "all", 8000),
        "minimax-m25-dp8": ("MiniMaxAI/MiniMax-M2.5", "vllm-0.33.0", "all", 8000),
        "glm-5-gguf": ("unsloth/GLM-5-GGUF", "vllm-0.33.0-gguf", "all", 8000),
    }


def test_collections_have_the_versions_that_the_controller_bundles() -> None:
    bundled = Path(next(path for path in ansible_collections.__path__ if (Path(path) / "ansible/posix/MANIFEST.json").is_file()))
    for collection in load(ROOT / "requirements.yml")["collections"]:
        manifest = json.loads((bundled / collection["name"].replace(".", "/") / "MANIFEST.json").read_text())
        assert manifest["collection_info"]["version"] == collection["version"], collection["name"]


def test_every_collection_that_is_used_is_required() -> None:
    required = {collection["name"] for collection in load(ROOT / "requirements.yml")["collections"]} | {"ansible.builtin", "modelhost.vllm"}
    used = {
        key.rsplit(".", 1)[0]
        for path in yaml_files()
        for document in yaml.safe_load_all(path.read_text()) if isinstance(document, list)
        for entry in document for task in tasks_in([entry, *entry.get("tasks", [])])
        for key in task if re.fullmatch(r"[a-z_]+\.[a-z_]+\.[a-z_0-9]+", key)
    }
    assert used <= required


def test_no_address_of_a_package_registry() -> None:
    """Which registry a site uses is the site's own affair: its tools are configured for it."""
    names = ("pypi-org", "pythonhosted-org", "deb.debian-org", "archive.ubuntu-com", "registry.npmjs-org")
    hosts = [name.replace("-", ".").encode() for name in names]
    assert [(relative(path), host) for path in tracked() for host in hosts if host in path.read_bytes()] == []


def test_no_path_of_one_developers_machine() -> None:
    paths = re.compile(rb"(?<![\w./-])/(work|home/[a-z]+|opt/wheels|tmp/[a-z])/")
    assert [relative(path) for path in tracked() if paths.search(path.read_bytes())] == []
