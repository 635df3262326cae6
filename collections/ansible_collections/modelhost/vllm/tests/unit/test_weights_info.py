"""The module as it runs on a host: one call, all models, all findings."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from ansible_collections.modelhost.vllm.plugins.modules import weights_info


@pytest.fixture
def look(host, call):
    def ask(root: Path, models: list[dict], user: str = "nobody", **more: object) -> dict:
        return call(weights_info, check_mode=True, roots=[str(root)], models=models, user=user, **more)

    return ask


def model(name: str, **weights: str) -> dict:
    return {"name": name, "weights": weights}


def test_all_findings_at_once_and_each_fetch_once(tmp_path: Path, look) -> None:
    hub = {"source": "huggingface", "repo": "tiny/llama", "revision": "0" * 40}
    found = look(tmp_path / "not/yet", [
        model("a", **hub), model("b", **hub), model("gone", source="directory", path="/nowhere"), model("bad", source="archive", url="x"),
    ])
    assert not found["changed"]
    assert [entry["name"] for entry in found["models"]] == ["a", "b", "gone"]
    target = str(tmp_path / "not/yet/tiny--llama--000000000000")
    record = f"tiny--llama--000000000000--{hashlib.sha256(target.encode()).hexdigest()[:8]}.json"
    assert found["jobs"] == [{"name": "a", "directory": target, "weights": hub, "tool": "hub", "damaged": [], "remains": "of unknown size",
                              "record": f"{tmp_path}/not/yet/.verified/{record}"}]
    assert [finding.split(" ")[0] for finding in found["blockers"]] == [
        "modelhost_models.bad.weights.url", "modelhost_models.bad.weights.sha256", "modelhost_models.gone.weights:"]
    assert found["findings"][3:] == [
        f"modelhost_models.{name}.weights: {target} is absent: nothing is fetched yet. "
        f"Fetch: ansible-playbook playbooks/fetch_weights.yml -e model={name}" for name in ("a", "b")]
    assert found["free_bytes"][0] > 0
    assert not (tmp_path / "not").exists()


@pytest.mark.case("W3")
def test_a_size_beyond_any_disk(tmp_path: Path, look) -> None:
    found = look(tmp_path, [model("a", source="huggingface", repo="tiny/llama", revision="0" * 40, size="900000TB")])
    assert "900000.0 TB (900000000000000000 bytes) are still to be fetched" in found["blockers"][0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_weights_that_the_service_user_cannot_read(tmp_path: Path, look) -> None:
    top = tmp_path / "kimi"
    top.mkdir()
    (top / "config.json").write_text("{}")
    (top / "model.gguf").write_bytes(b"GGUF")
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.stat().st_mode & 0o001 == 0:
            parent.chmod(0o755)
    assert look(tmp_path, [model("kimi", source="directory", path=str(top))])["findings"] == []
    (top / "model.gguf").chmod(0o600)
    found = look(tmp_path, [model("kimi", source="directory", path=str(top))])
    assert found["models"][0]["unreadable"] == [str(top / "model.gguf")]
    assert "modelhost_models.kimi.weights: the service user nobody cannot read" in found["blockers"][0]
    assert look(tmp_path, [model("kimi", source="directory", path=str(top))], user="nobody-of-this-name")["findings"] == []


def test_weights_from_which_a_unit_runs_are_left_alone(tmp_path: Path, host, look) -> None:
    """Repairing them would take them away below the model."""
    target = tmp_path / "weights/tiny--llama--000000000000"
    target.mkdir(parents=True)
    host.units["vllm-small.service"] = host.RUNNING
    host.write("live/small.yaml", f"model: {target}\nserved-model-name:\n- small\n")
    found = look(tmp_path / "weights", [model("small", source="huggingface", repo="tiny/llama", revision="0" * 40)])
    assert found["blockers"][0].endswith(
        "It stays as it is while vllm-small.service runs from it: switch to another model first.")
    host.units["vllm-small.service"] = host.STOPPED
    assert look(tmp_path / "weights", [model("small", source="huggingface", repo="tiny/llama", revision="0" * 40)])["blockers"] == []


def test_what_has_to_be_hashed_comes_once_for_each_directory(tmp_path: Path, look) -> None:
    top = tmp_path / "tiny--llama--000000000000"
    top.mkdir()
    for name in ("config.json", "model.gguf"):
        (top / name).write_text("{}")
    files = {name: {"size": 2, "sha256": "0" * 64} for name in ("config.json", "model.gguf")}
    (top / ".modelhost.json").write_text(json.dumps({"files": files}))
    hub = {"source": "huggingface", "repo": "tiny/llama", "revision": "0" * 40}
    found = look(tmp_path, [model("a", **hub), model("b", **hub)], user="nobody-of-this-name")
    assert found["findings"] == [] and found["jobs"] == []
    assert [(each["name"], each["directory"], each["files"], each["bytes"]) for each in found["unverified"]] == [
        ("a", str(top), ["config.json", "model.gguf"], 4)]


def test_weights_below_another_root_get_a_link(tmp_path: Path, host, look, call) -> None:
    hub = {"source": "huggingface", "repo": "tiny/llama", "revision": "0" * 40}
    name = "tiny--llama--000000000000"
    for folder in ("first", f"second/{name}"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("config.json", "model.gguf"):
        (tmp_path / "second" / name / file).write_text("{}")
    (tmp_path / "second" / name / ".modelhost.json").write_text('{"files": {}}')

    def both() -> dict:
        return call(weights_info, roots=[f"{tmp_path}/first", f"{tmp_path}/second"], models=[model("a", **hub)])

    found = both()
    assert found["links"] == [{"entry": f"{tmp_path}/first/{name}", "directory": f"{tmp_path}/second/{name}"}]
    assert found["blockers"] == [] and "does not lead there. Fetch:" in found["findings"][0]
    (tmp_path / "first" / name).symlink_to(tmp_path / "second" / name)
    assert (both()["links"], both()["findings"]) == ([], [])
    # What runs from the link runs from the weights.
    (tmp_path / "second" / name / "model.gguf").unlink()
    host.units["vllm-small.service"] = host.RUNNING
    host.write("live/small.yaml", f"model: {tmp_path}/first/{name}\n")
    assert "It stays as it is while vllm-small.service runs from it" in both()["blockers"][0]


def test_weights_that_units_do_not_see(tmp_path: Path, look) -> None:
    """Also where only a link leads there, as from a snapshot of a hub cache to its blobs."""
    (tmp_path / "home").mkdir()
    (tmp_path / "srv").mkdir()
    (tmp_path / "home/blob").write_bytes(b"GGUF")
    (tmp_path / "srv/model.gguf").symlink_to(tmp_path / "home/blob")
    here = [model("a", source="directory", path=f"{tmp_path}/srv")]
    assert look(tmp_path, here, user="nobody-of-this-name", hidden=[f"{tmp_path}/hom"])["blockers"] == []
    assert look(tmp_path, here, user="nobody-of-this-name", hidden=[f"{tmp_path}/home"])["blockers"] == [
        f"modelhost_models.a.weights: the unit does not see what lies below {tmp_path}/home, and that is where {tmp_path}/home/blob is: "
        "move the weights, or mount their folder elsewhere, such as below /srv"]
