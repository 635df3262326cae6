"""What the tests of all scenarios share: they ask the running host, and show its journal when they fail."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


class Controller:
    """The operator's side: the project's own playbooks, run against the scenario's host."""

    def __init__(self, scenario):
        # Not among those of the operator, whose hosts may have the same names
        self.artifacts = ROOT / ".cache/testhost/artifacts" / scenario
        self.inventories = [ROOT / "inventory/demo", ROOT / "molecule" / scenario / "inventory"]
        # Molecule asks for colours, and a colour between two words hides a sentence.
        self.environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "false"}

    def command(self, playbook, *arguments, overlay=None):
        inventories = self.inventories + ([overlay] if overlay else [])
        return [
            "ansible-playbook", str(ROOT / "playbooks" / f"{playbook}.yml"), *(f"--inventory={path}" for path in inventories),
            "--extra-vars=" + " ".join(
                f"{role}_artifacts={self.artifacts}" for role in ("smoke_benchmark", "coherence_check", "host_report")), *arguments]

    def play(self, playbook, *arguments, overlay=None, kill_at=None):
        """Run a playbook; its output with line breaks and blanks folded, so that sentences can be looked for, and its exit status.

        kill_at names the task at whose beginning the controller is killed.
        """
        done = subprocess.run(
            self.command(playbook, *arguments, overlay=overlay), cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**self.environment, **({"MODELHOST_KILL_AT": kill_at} if kill_at else {})})
        done.said = " ".join(done.stdout.split())
        print(done.stdout)
        return done

    def begin(self, playbook, *arguments, overlay=None):
        """Start a playbook that is not waited for."""
        return subprocess.Popen(self.command(playbook, *arguments, overlay=overlay), cwd=ROOT, stdout=subprocess.DEVNULL)

    def inventory_variable(self, name):
        command = ["ansible-inventory", *(f"--inventory={path}" for path in self.inventories), "--host=demo"]
        return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)[name]

    def plays(self, playbook, *arguments, overlay=None):
        done = self.play(playbook, *arguments, overlay=overlay)
        assert done.returncode == 0
        return done


class Endpoint:
    """The model's endpoint, asked on the host itself."""

    CLIENT = """
import json, sys, urllib.request, urllib.error
path, body, key = sys.argv[1], sys.argv[2], sys.argv[3]
headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + key} if key else {})}
request = urllib.request.Request("http://127.0.0.1:8000" + path, body.encode() or None, headers)
try:
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""

    def __init__(self, host):
        self.host = host

    def ask(self, path, body=None, key=""):
        said = self.host.check_output("python3 -c %s %s %s %s", self.CLIENT, path, json.dumps(body) if body else "", key)
        status, _, text = said.partition(" ")
        return int(status), json.loads(text)

    def capital_of_france(self, asked):
        """The answer, and the name of the model that gives it, which is never an alias."""
        status, body = self.ask("/v1/chat/completions", {
            "model": asked, "temperature": 0, "max_tokens": 20,
            "messages": [{"role": "user", "content": "What is the capital of France?"}]})
        assert status == 200
        return body["model"], body["choices"][0]["message"]["content"]

    def names(self):
        return [each["id"] for each in self.ask("/v1/models")[1]["data"]]


class Unit:
    """A model's unit, as systemd and /proc see it."""

    def __init__(self, host, model):
        self.host, self.name = host, f"vllm-{model}.service"

    def show(self, *properties):
        text = self.host.check_output("systemctl show %s --property=%s", self.name, ",".join(properties))
        found = dict(line.partition("=")[::2] for line in text.splitlines())
        return {name: found.get(name) for name in properties}

    @property
    def pid(self):
        return int(self.show("MainPID")["MainPID"])

    @property
    def environment(self):
        text = self.host.check_output("tr '\\0' '\\n' < /proc/%s/environ", str(self.pid))
        return dict(line.partition("=")[::2] for line in text.splitlines())


@pytest.fixture(scope="session")
def controller():
    return Controller(os.environ["MOLECULE_SCENARIO_NAME"])


@pytest.fixture
def endpoint(host):
    return Endpoint(host)


@pytest.fixture
def unit(host):
    return lambda model: Unit(host, model)


@pytest.fixture
def overlay(tmp_path):
    """An inventory that lies over the others and changes a few variables."""

    def make(**variables):
        (tmp_path / "hosts.yml").write_text("gpu_hosts: {hosts: {demo: {}}}\n")
        folder = tmp_path / "group_vars/gpu_hosts"
        folder.mkdir(parents=True)
        # The keys of the scenario belong to models that an overlay's catalogue may not have.
        (folder / "overlay.yml").write_text(json.dumps({"modelhost_api_keys": {}, **variables}))
        return tmp_path

    return make


@pytest.fixture
def wait_for():
    """Until a condition holds; what it raises while the host or the endpoint is away does not count."""

    def wait(condition, seconds=90):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if condition():
                    return
            except (AssertionError, IndexError, KeyError, ValueError, OSError, RuntimeError):
                pass
            time.sleep(0.5)
        raise AssertionError(f"not within {seconds} s")

    return wait


@pytest.fixture
def reboot(host, wait_for):
    def act():
        booted = "systemctl show --property=UserspaceTimestamp --value"
        before = host.check_output(booted)
        try:
            host.run("systemctl reboot")
        except RuntimeError:
            pass  # the connection went with the host
        wait_for(lambda: host.check_output(booted) not in ("", before))

    return act


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed and "host" in item.funcargs:
        try:
            journal = item.funcargs["host"].run("journalctl --no-pager -n 60 -o short-monotonic -u 'vllm-*' -u 'modelhost-job-*'").stdout
        except RuntimeError as error:  # the host itself is away
            journal = str(error)
        report.sections.append(("journal of the host", journal))
