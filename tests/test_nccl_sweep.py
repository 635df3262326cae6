"""The sweep over NCCL variables: the real role and module, with an engine that replays latencies by the variables that its ranks have."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Eight sizes: four small messages, three of many streams, and that of prefill. The tree is best for small ones, the ring hangs.
REPLAY = """#!/usr/bin/env python3
import json, os, sys
question = json.load(sys.stdin)
curves = {"": [40, 80], "allreduce:ring": [0, 0], "allreduce:tree": [20, 79]}
algo = os.environ.get("NCCL_ALGO", "")
with open(%r, "a") as stream:
    stream.write("%%s\\n" %% (algo or "-"))
rank = {"ended": "well", "stage": "end", "said": [], "result": {"latencies_us": [curves[algo][i // 4] for i in range(8)]}}
if algo == "allreduce:ring":
    rank.update(ended="killed", stage="14 bytes", result=None)
print("modelhost-all-reduce: " + json.dumps({"timed_out": rank["ended"] == "killed", "ranks": [rank] * question["world_size"]}))
"""
GRID = {"NCCL_ALGO": [None, "allreduce:ring", "allreduce:tree"]}


class Sweep:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str, **given: Any) -> tuple[int, str]:
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
            ["ansible-playbook", "-i", "here,", "-c", "local", self.folder / "play.json", *arguments],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout)
        return done.returncode, " ".join(done.stdout.split()).replace("''", "'")

    def asked(self) -> list[str]:
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def kept(self) -> list[dict[str, Any]]:
        documents = [json.loads(path.read_text()) for path in (self.folder / "sweeps").rglob("*.json")]
        return sorted(documents, key=lambda each: (bool(each["tried"]), each["name"]))


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


def test_a_sweep_that_is_cut_off_goes_on_keeps_every_point_and_ends_with_the_best_for_each_load(sweep: Sweep) -> None:
    # The time is over once a point was measured: each asks for it, not the loop before all of them.
    over = f"{{{{ 0 if query('ansible.builtin.fileglob', '{sweep.folder}/asked') else 9999999999 }}}}"
    status, said = sweep.run("-e", json.dumps({"nccl_sweep_until": over}))
    assert (status, sweep.asked()) == (0, ["-"])
    assert "2 points are left: run it again, and it goes on" in said

    status, said = sweep.run()
    assert status == 0
    assert sweep.asked() == ["-", "allreduce:ring", "allreduce:tree"]
    assert "for one stream (14 bytes): 20.0 us with NCCL_ALGO=allreduce:tree" in said
    assert "for many streams (896 bytes): nothing is better than what is declared" in said
    assert "for prefill (1792 bytes): nothing is better than what is declared" in said
    assert 'NCCL_ALGO: "allreduce:tree"' in said
    assert "hung NCCL_ALGO=allreduce:ring: 120 s passed with 2 of 2 ranks unfinished" in said
    assert [(each["name"], each["model"], each["verdict"], len(each["sizes"])) for each in sweep.kept()] == [
        ("as declared", "small", "ok", 8), ("NCCL_ALGO=allreduce:ring", "small", "hung", 0), ("NCCL_ALGO=allreduce:tree", "small", "ok", 8)]
    assert len({each["started"] for each in sweep.kept()}) == 1
    assert len(list((sweep.folder / "artifacts/here/nccl_sweeps/small").glob("*/*.json"))) == 3

    status, said = sweep.run()
    assert (status, len(sweep.asked())) == (0, 3)
    assert "changed=0" in said
    assert "20.0 us with NCCL_ALGO=allreduce:tree" in said


def test_a_grid_is_refused_with_all_that_is_wrong_before_anything_is_measured(sweep: Sweep) -> None:
    status, said = sweep.run(nccl_sweep_grid={**GRID, "NCCL_PROTO": ["LL", "foo"], "NCCL_NTHREADS": 512}, nccl_sweep_points=0)
    assert status != 0
    for sentence in (
            "nccl_sweep_grid: it has 1 points, and nccl_sweep_points allows 0: leave values out, or raise the limit",
            "nccl_sweep_grid.NCCL_PROTO: 'foo' is not one of LL, LL128, Simple",
            "nccl_sweep_grid.NCCL_NTHREADS: 512; it is no list of values: write [] around it"):
        assert sentence in said
    assert sweep.asked() == []
