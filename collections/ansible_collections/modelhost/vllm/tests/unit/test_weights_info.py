"""The module as it runs on a host: one call, all models, all findings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.modelhost.vllm.plugins.modules import weights_info


@pytest.fixture
def look(host, call):
    def ask(root: Path, models: list[dict], user: str = "nobody") -> dict:
        return call(weights_info, check_mode=True, root=str(root), models=models, user=user)

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
    assert found["jobs"] == [{"name": "a", "directory": target, "weights": hub, "tool": "hub"}]
    assert [finding.split(" ")[0] for finding in found["blockers"]] == [
        "modelhost_models.bad.weights.url", "modelhost_models.bad.weights.sha256", "modelhost_models.gone.weights:"]
    assert found["findings"][3:] == [
        f"modelhost_models.{name}.weights: {target} is absent: nothing is fetched yet. "
        f"Fetch: ansible-playbook playbooks/fetch_weights.yml -e model={name}" for name in ("a", "b")]
    assert found["free_bytes"] > 0
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
