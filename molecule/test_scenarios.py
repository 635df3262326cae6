"""Each Molecule scenario, from its creation to its destruction, is one test here. Run by tools/molecule.

As many as this machine has processors run side by side; every line says whose it is, and what failed is said once more at the end.
"""

import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Of pytest: a test, its reason; of Ansible: a task; with colours in between
FAILURE = re.compile(r"FAILED|ERROR|fatal:|│\S* +E +\S|assert .*Error")
PLACES = threading.Semaphore(max(2, os.cpu_count() or 1))
# Those with the most tests first, so that no processor waits for the last one at the end
SCENARIOS = sorted(
    (path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")),
    key=lambda name: -sum(path.stat().st_size for path in ROOT.glob(f"molecule/{name}/tests/*.py")))


class Run(threading.Thread):
    def __init__(self, scenario):
        super().__init__()
        self.scenario, self.status, self.failures = scenario, None, []

    def run(self):
        with PLACES:
            self.molecule("reset", lines=False)
            self.status = self.molecule("test", lines=True)

    def molecule(self, command, lines):
        with subprocess.Popen(
                ["molecule", command, "--scenario-name", self.scenario], cwd=ROOT, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            for line in process.stdout:
                if lines:
                    print(f"{self.scenario:8} {line}", end="", flush=True)
                    self.failures += [line] * bool(FAILURE.search(line))
        return process.returncode


@pytest.fixture(scope="session")
def runs(request):
    chosen = [item.callspec.params["scenario"] for item in request.session.items]
    started = {scenario: Run(scenario) for scenario in chosen}
    for run in started.values():
        run.start()
    return started


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario, runs):
    runs[scenario].join()
    assert runs[scenario].status == 0, "".join(runs[scenario].failures[-40:])
