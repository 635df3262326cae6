"""The engine on the host: audited, contaminated, refused, repaired, removed."""

import json

import pytest

ENGINE = "/opt/modelhost/engines/vllm-standin-1.0.0"
SITE = f"{ENGINE}/lib/python3.13/site-packages"


@pytest.fixture(scope="module", autouse=True)
def plain_serves(controller):
    controller.plays("switch_model")


@pytest.fixture
def contaminated(controller, host):
    """A `torch.save` block in the engine's code, a file that runs at each start, and a library with one other byte."""
    host.check_output(f"printf '\\nimport torch\\ntorch.save(1, \"/tmp/seen.pt\")\\n' >> {SITE}/vllm_standin/generation.py")
    host.check_output(f"echo 'import os' > {SITE}/left_over.pth")
    yield
    if host.run("test -e %s/left_over.pth", SITE).rc == 0:
        host.check_output("systemctl stop vllm-plain")
        controller.plays("audit_engine", "-e", "repair=true")


def test_the_engine_and_what_runs_from_it_are_pristine(controller, host):
    said = controller.plays("audit_engine").said
    assert "vllm-standin-1.0.0: pristine (" in said
    assert "changed=1" in said  # the verdict is kept
    kept = json.loads(host.file("/opt/modelhost/engines/.vllm-standin-1.0.0.audit.json").content_string)
    assert {key: kept[key] for key in ("schema", "engine", "verdict", "findings")} == {
        "schema": 1, "engine": "vllm-standin-1.0.0", "verdict": "pristine", "findings": []}
    assert "changed=0" in controller.plays("audit_engine", "--check").said


@pytest.mark.case("A8")
def test_a_dirty_engine(controller, contaminated, unit, endpoint, host):
    pid = unit("plain").pid
    found = controller.play("audit_engine")
    assert found.returncode != 0
    assert "vllm-standin-1.0.0: dirty (" in found.said
    assert "unowned: lib/python3.13/site-packages/left_over.pth is read at each start of Python: import os" in found.said
    assert "changed: lib/python3.13/site-packages/vllm_standin/generation.py is not what vllm-standin says" in found.said
    assert 'torch.save: torch.save(1, "/tmp/seen.pt")' in found.said.replace('\\"', '"')
    assert '+torch.save(1, "/tmp/seen.pt")' in found.said.replace('\\"', '"')
    assert "was changed after the process began: restart its unit" in found.said

    # Nothing is stopped for an engine like that, and nothing is built anew below a model.
    for playbook, arguments, sentence in (
            ("switch_model", ["-e", "model=odd"], "vllm-standin-1.0.0: not what the wheels say, see above."),
            ("audit_engine", ["-e", "repair=true"], "vllm-standin-1.0.0 is dirty, and vllm-plain.service runs from it")):
        refused = controller.play(playbook, *arguments)
        assert refused.returncode != 0
        assert sentence in refused.said
    assert unit("plain").pid == pid
    assert endpoint.capital_of_france("plain")[0] == "plain"

    host.check_output("systemctl stop vllm-plain")
    assert "changed=1" in controller.play("audit_engine", "-e", "repair=true", "--check").said
    assert host.file(f"{SITE}/left_over.pth").exists
    assert "vllm-standin-1.0.0: pristine (" in controller.plays("audit_engine", "-e", "repair=true").said
    assert not host.file(f"{SITE}/left_over.pth").exists
    controller.plays("switch_model")
    assert "vllm-standin-1.0.0: pristine (" in controller.plays("audit_engine").said


def test_what_a_unit_brings_into_the_engine(controller, host):
    host.check_output("mkdir -p /run/systemd/system/vllm-plain.service.d /srv/patched/vllm_standin")
    host.check_output("touch /srv/patched/vllm_standin/__init__.py")
    host.check_output("printf '[Service]\\nEnvironment=PYTHONPATH=/srv/patched\\n' > /run/systemd/system/vllm-plain.service.d/patched.conf")
    host.check_output("systemctl daemon-reload")
    try:
        found = controller.play("audit_engine")
        assert found.returncode != 0
        assert "environment: vllm-plain.service PYTHONPATH=/srv/patched makes it load from /srv/patched" in found.said
    finally:
        host.check_output("rm -r /run/systemd/system/vllm-plain.service.d /srv/patched; systemctl daemon-reload")


def test_an_environment_that_somebody_else_built(controller, host):
    """Three patched files, and two blocks that were left from debugging."""
    host.check_output("/opt/modelhost/tools/uv-*/bin/uv venv --quiet --clear --python 3.13 /srv/venv")
    host.check_output("cp -a %s/. /srv/venv/lib/python3.13/site-packages/", SITE)
    assert "/srv/venv: pristine (" in controller.plays("audit_engine", "-e", "path=/srv/venv").said
    package = "/srv/venv/lib/python3.13/site-packages/vllm_standin"
    for name, text in {
            "api": "PATCHED = True", "options": "PATCHED = True", "log": "PATCHED = True", "engine": "import torch; torch.save(1, '/tmp/a')",
            "generation": "import torch; torch.save(1, '/tmp/b')"}.items():
        host.check_output("echo %s >> %s", text, f"{package}/{name}.py")
    try:
        found = controller.play("audit_engine", "-e", "path=/srv/venv")
        assert found.returncode != 0
        for name in ("api", "options", "log", "engine", "generation"):
            assert f"changed: lib/python3.13/site-packages/vllm_standin/{name}.py is not what vllm-standin says" in found.said
        assert found.said.count("torch.save: import torch; torch.save(1, ") == 2
        assert "/srv/venv is dirty: 5 findings" in found.said
    finally:
        host.check_output("rm -r /srv/venv")


def test_an_engine_that_nothing_needs_is_removed_when_told(controller, overlay, host):
    other = "/opt/modelhost/engines/vllm-standin-old"
    host.check_output(f"cp -a {ENGINE} {other} && cp {ENGINE}.lock {other}.lock")
    controller.plays("provision")
    assert host.file(other).exists
    said = controller.plays("provision", "-e", "remove_unused_engines=true").said
    assert not host.file(other).exists
    assert host.file(ENGINE).exists
    assert "changed=1" in said
