"""What is refused, with our sentence, before anything on the host is changed."""

import hashlib
import json

import pytest

MODEL = {"engine": "vllm-standin-1.0.0", "gpus": [], "port": 8000, "weights": {"source": "directory", "path": "/srv/weights/standin"}}
FINGERPRINT = (
    "find /etc/modelhost /etc/systemd/system /opt/modelhost /var/lib/modelhost -type f -printf '%p %m %U %s %T@\\n' | sort | sha256sum; "
    "systemctl show vllm-plain --property=MainPID --property=ActiveState; systemctl list-unit-files 'vllm-*' --no-pager")


@pytest.fixture(scope="module", autouse=True)
def plain_serves(controller):
    controller.plays("switch_model")


@pytest.fixture(autouse=True)
def host_is_unchanged(host):
    before = host.check_output(FINGERPRINT)
    yield
    assert host.check_output(FINGERPRINT) == before


@pytest.mark.parametrize("playbook", ["switch_model", "benchmark"])
def test_an_unknown_model(controller, playbook):
    failed = controller.play(playbook, "-e", "model=plane")
    assert failed.returncode != 0
    assert "model: 'plane' is not one of crashing, dying, garbage, hanging, hub, locked, nowhere, odd, orphan, patient, plain, refused, slow, stalling." in failed.said.replace("''", "'")
    assert "Did you mean 'plain'?" in failed.said.replace("''", "'")


@pytest.mark.case("W1")
def test_missing_weights(controller):
    failed = controller.play("switch_model", "-e", "model=nowhere")
    assert failed.returncode != 0
    assert "modelhost_models.nowhere.weights" in failed.said
    assert "/srv/weights/nowhere" in failed.said


@pytest.mark.case("A7")
@pytest.mark.parametrize(("playbook", "arguments"), [("switch_model", []), ("switch_model", ["--check"]), ("fetch_weights", [])])
def test_gguf_weights_that_the_engine_does_not_load(controller, overlay, playbook, arguments):
    """They are nowhere yet: neither their absence nor a fetch comes before the refusal."""
    weights = {"source": "huggingface", "repo": "tiny/glm", "revision": "0" * 40, "gguf": {"model_type": "glm_moe_dsa"}}
    changes = overlay(modelhost_models={"plain": MODEL, "glm": {**MODEL, "weights": weights}})
    failed = controller.play(playbook, "-e", "model=glm", *arguments, overlay=changes)
    assert failed.returncode != 0
    assert "modelhost_models.glm.engine: vllm-standin-1.0.0 does not load GGUF weights." in failed.said
    assert "It lacks a plug-in for GGUF: vllm-gguf-plugin is not among its packages." in failed.said
    assert "nothing is fetched yet" not in failed.said


@pytest.mark.parametrize(("playbook", "changes", "sentence"), [
    ("site", {"modelhost_models": {"plain": {**MODEL, "srve": {}}}}, "modelhost_models.plain.srve: 'srve' is not one of"),
    ("switch_model", {"modelhost_models": {"plain": {**MODEL, "environment": {"A": True}}}}, "modelhost_models.plain.environment.A: True has no"),
    ("switch_model", {"modelhost_served_model": "plian"}, "modelhost_served_model: 'plian' is not one of"),
    ("fetch_weights", {"modelhost_models": [MODEL]}, "modelhost_models: list given, a dict by name is needed"),
])
def test_a_broken_inventory(controller, overlay, playbook, changes, sentence):
    failed = controller.play(playbook, overlay=overlay(**changes))
    assert failed.returncode != 0
    assert sentence in failed.said.replace("''", "'")


# The whole entry, or what is added to a right one, and the variable that the refusal names
WRONG = [
    ("NaN", ""), ([], ""), ({"port": "8000"}, ".port"), ({"port": 0}, ".port"), ({"port": 70000}, ".port"), ({"gpus": "some"}, ".gpus"),
    ({"gpus": [0, 0]}, ".gpus"), ({"gpus": [-1]}, ".gpus"), ({"host": "a b"}, ".host"), ({"alias": 1}, ".alias"),
    ({"engine": "vllm-standin"}, ".engine"), ({"weights": {"source": "cloud"}}, ".weights.source"),
    ({"weights": {"source": "directory"}}, ".weights.path"), ({"serve": {"--port": 1}}, ".serve.--port"), ({"serve": {"port": 1}}, ".serve.port"),
    ({"serve": {"seed": None}}, ".serve.seed"), ({"environment": {"A B": "1"}}, ".environment"), ({"environment": {"A": "\x07"}}, ".environment.A"),
    ({"nccl": {"CUDA_HOME": "/usr"}}, ".nccl.CUDA_HOME"), ({"serv": {}}, ".serv"),
]


def test_twenty_entries_that_cannot_be(controller, overlay):
    """Types come before rules: whoever mends what is named meets the next refusals, three times at most."""
    left = {f"wrong{number:02}": pair for number, pair in enumerate(WRONG)}
    folder = overlay()
    for _ in range(3):
        entries = {name: {**MODEL, **entry} if isinstance(entry, dict) else entry for name, (entry, _variable) in left.items()}
        (folder / "group_vars/gpu_hosts/overlay.yml").write_text(
            json.dumps({"modelhost_api_keys": {}, "modelhost_models": {"plain": MODEL, **entries}}))
        failed = controller.play("switch_model", overlay=folder)
        assert failed.returncode != 0
        assert "Traceback" not in failed.said
        left = {name: (entry, variable) for name, (entry, variable) in left.items() if f"modelhost_models.{name}{variable}" not in failed.said}
        if not left:
            break
    assert left == {}


@pytest.mark.case("L11")
def test_a_directive_that_systemd_does_not_know(controller, overlay):
    failed = controller.play("site", overlay=overlay(model_unit_hardening={"ProtectSystm": "strict"}))
    assert failed.returncode != 0
    assert "systemd refuses its unit" in failed.said and "ProtectSystm" in failed.said


def test_an_engine_is_not_rebuilt_under_its_own_name(controller, overlay, tmp_path_factory):
    lock = tmp_path_factory.mktemp("lock") / "other.txt"
    lock.write_text("vllm-standin==1.0.0 --hash=sha256:" + "0" * 64 + "\n")
    lock.with_suffix(".json").write_text(json.dumps({"lock_sha256": hashlib.sha256(lock.read_bytes()).hexdigest()}))
    engine = {
        "distribution": "vllm-standin", "version": "1.0.0", "python": "3.13", "lock": str(lock),
        "serve_command": ["python", "-m", "vllm_standin.serve"], "bench_command": ["python", "-m", "vllm_standin.bench"]}
    failed = controller.play("provision", overlay=overlay(modelhost_engines={"vllm-standin-1.0.0": engine}))
    assert failed.returncode != 0
    assert "vllm-standin-1.0.0 is on the host, built from another lock or other patches than the declared ones" in failed.said
