"""Each Molecule scenario, from its creation to its destruction, is one test here. Run by tools/molecule."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCENARIOS = sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario):
    subprocess.run(["molecule", "reset", "--scenario-name", scenario], cwd=ROOT, check=True)
    assert subprocess.run(["molecule", "test", "--scenario-name", scenario], cwd=ROOT).returncode == 0
