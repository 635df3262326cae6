"""The sweep over NCCL variables: the real role and module, with an engine that replays latencies by the variables that its ranks have."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Eight sizes: four small messages, three of many streams, and that of prefill. The tree is best for small ones.
REPLAY = """#!/usr/bin/env python3
import json, os, sys
question = json.load(sys.stdin)
curves = {"": [40, 80], "allreduce:ring": [50, 90], "allreduce:tree": [20, 79]}
algo = os.environ.get("NCCL_ALGO", "")
with open(%r, "a") as stream:
    stream.write("%%s %%s\\n" %% (algo or "-", os.environ.get("NCCL_PROTO", "-")))
rank = {"ended": "well", "stage": "end", "said": [], "result": {"latencies_us": [curves[algo][i // 4] for i in range(8)]}}
if os.environ.get("NCCL_PROTO") == "allreduce:LL":
    rank.update(ended="killed", stage="14 bytes", result=None)
print("modelhost-all-reduce: " + json.dumps({"timed_out": rank["ended"] == "killed", "ranks": [rank] * question["world_size"]}))
"""
GRID = {"NCCL_ALGO": [None, "allreduce:ring", "allreduce:tree"]}


class Sweep:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, **given: Any) -> tuple[int, str]:
        """Run the role on this machine; its status, and what it said with blanks folded."""
        (self.folder / "play.json").write_text(json.dumps([{
            "hosts": "all", "gather_facts": False,
            "vars": {
                "ansible_python_interpreter": "{{ ansible_playbook_python }}",
                "nccl_sweep_models": [{
                    "name": "small", "engine": "e", "gpus": [0, 1], "serve": {"max-num-batched-tokens": 128},
                    "weights": {"source": "directory", "path": f"{self.folder}/weights"}}],
                "nccl_sweep_engines": [{"name": "e", "distribution": "vllm", "version": "0.33.0"}],
                "nccl_sweep_model": "small", "nccl_sweep_grid": GRID, "nccl_sweep_gpu_count": 2, "nccl_sweep_user": "root",
                "nccl_sweep_parameters": f"{ROOT}/roles/nccl/files/parameters.yml", "nccl_sweep_root": f"{self.folder}/sweeps",
                "nccl_sweep_artifacts": f"{self.folder}/artifacts", "nccl_sweep_engines_root": f"{self.folder}/engines", **given},
            "tasks": [{"ansible.builtin.import_role": {"name": "nccl_sweep"}}]}]))
        done = subprocess.run(
            ["ansible-playbook", "-i", "here,", "-c", "local", self.folder / "play.json"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout)
        return done.returncode, " ".join(done.stdout.split()).replace("''", "'")

    def asked(self) -> list[str]:
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def kept(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self.folder / "sweeps").rglob("*.json"))]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    python = tmp_path / "engines/e/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(REPLAY % str(tmp_path / "asked"))
    python.chmod(0o755)
    (tmp_path / "engines/e/.complete").touch()
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/config.json").write_text(json.dumps({"hidden_size": 7, "num_hidden_layers": 2, "num_attention_heads": 1}))
    return Sweep(tmp_path)


def test_every_point_is_kept_and_each_load_has_its_best(sweep: Sweep) -> None:
    status, said = sweep.run()
    assert status == 0
    assert sweep.asked() == ["- -", "allreduce:ring -", "allreduce:tree -"]
    assert "for one stream (14 bytes): 20.0 us with NCCL_ALGO=allreduce:tree" in said
    assert "for many streams (896 bytes): nothing is better than what is declared" in said
    assert "for prefill (1792 bytes): nothing is better than what is declared" in said
    assert 'NCCL_ALGO: "allreduce:tree"' in said
    assert [(each["model"], each["verdict"], len(each["sizes"])) for each in sweep.kept()] == [("small", "ok", 8)] * 3
    assert len(list((sweep.folder / "artifacts/here/nccl_sweeps/small").glob("*/*.json"))) == 3

    status, said = sweep.run()
    assert status == 0
    assert len(sweep.asked()) == 3
    assert "changed=0" in said
    assert "20.0 us with NCCL_ALGO=allreduce:tree" in said

    sweep.run(nccl_sweep_again=True)
    assert len(sweep.asked()) == 6


def test_a_sweep_that_was_cut_off_goes_on(sweep: Sweep) -> None:
    status, said = sweep.run(nccl_sweep_seconds=0)
    assert (status, sweep.asked()) == (0, [])
    assert "3 points are left: run it again, and it goes on" in said
    sweep.run(nccl_sweep_grid={"NCCL_ALGO": ["allreduce:ring"]})
    assert sweep.asked() == ["- -", "allreduce:ring -"]
    sweep.run()
    assert sweep.asked() == ["- -", "allreduce:ring -", "allreduce:tree -"]
    assert len({each["started"] for each in sweep.kept()}) == 1


def test_a_point_that_hangs_is_kept_and_not_chosen(sweep: Sweep) -> None:
    status, said = sweep.run(nccl_sweep_grid={"NCCL_PROTO": ["allreduce:LL"]})
    assert status == 0
    assert "hung NCCL_PROTO=allreduce:LL: 120 s passed with 2 of 2 ranks unfinished" in said
    assert [each["verdict"] for each in sweep.kept()].count("hung") == 1
    assert "for one stream (14 bytes): nothing is better than what is declared" in said


def test_a_grid_is_refused_with_all_that_is_wrong_before_anything_is_measured(sweep: Sweep) -> None:
    status, said = sweep.run(nccl_sweep_grid={**GRID, "NCCL_PROTO": ["LL", "foo"], "NCCL_NTHREADS": 512}, nccl_sweep_points=0)
    assert status != 0
    for sentence in (
            "nccl_sweep_grid: it has 1 points, and nccl_sweep_points allows 0: leave values out, or raise the limit",
            "nccl_sweep_grid.NCCL_PROTO: 'foo' is not one of LL, LL128, Simple",
            "nccl_sweep_grid.NCCL_NTHREADS: 512; it is no list of values: write [] around it"):
        assert sentence in said
    assert sweep.asked() == []
