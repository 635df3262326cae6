# GNU General Public License v3.0+ (see LICENSE)
"""What an engine's own packages say about GGUF weights. This file is run by the engine's Python, see gguf_support_info.

The names of a GGUF file's tensors, and the class that takes them, follow from the model's Hugging Face configuration. So vLLM and its
plug-in are asked with the configuration, without weights and without a GPU, by the calls that they make themselves before they load.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from types import SimpleNamespace
from typing import Any, Callable, Iterable

MARK = "modelhost-gguf: "  # in front of the answer, since packages print too
# Architectures whose query and key rows llama.cpp writes in another order than the Hugging Face model has them: `permute` of the class for
# LlamaForCausalLM in its conversion, undone by transformers' LlamaTensorProcessor (modeling_gguf_pytorch_utils.py, 5.19).
REORDERED = ("llama",)
# A package that does not have what is called, or takes it in another form, is another release than this file knows.
MOVED = (ImportError, AttributeError, TypeError)


def said(error: BaseException) -> str:
    """An error in one line that stays readable with the names of a thousand tensors in it."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= 240 else text[:240] + " ..."


class Asked:
    """What is known of a model so far, with the refusals of the packages and the questions that they could not be asked."""

    def __init__(self) -> None:
        self.refused: list[dict[str, str]] = []
        self.unasked: list[dict[str, str]] = []

    def step(self, what: str, call: Callable[[], Any]) -> Any:
        """What the call returns; None where it fails."""
        try:
            return call()
        except MOVED as error:
            self.unasked.append({"what": what, "said": said(error)})
        except Exception as error:  # whatever a package raises is its answer
            self.refused.append({"what": what, "said": said(error)})
        return None


def module(name: str) -> Any:
    return importlib.import_module(name)


def register() -> None:
    """Load the plug-ins as vLLM does at its start; then it must have a loader for GGUF."""
    found = module("importlib.metadata").entry_points(group="vllm.general_plugins")
    for each in found:
        try:
            each.load()()
        except Exception as error:
            raise RuntimeError(f"{each.value} fails with {said(error)}") from error
    loader()


def loader() -> Any:
    return module("vllm.model_executor.model_loader").get_model_loader(module("vllm.config.load").LoadConfig(load_format="gguf"))


def configuration(folder: str, model_type: str) -> Any:
    """The configuration as the plug-in reads it; without a folder, that of the model type with all its defaults."""
    parser = module("vllm.transformers_utils.config").get_config_parser("gguf")
    if folder:
        return parser.parse(folder, trust_remote_code=False)[1]
    with tempfile.TemporaryDirectory() as made:
        with open(os.path.join(made, "config.json"), "w", encoding="utf-8") as stream:
            json.dump({"model_type": model_type}, stream)
        return parser.parse(made, trust_remote_code=False)[1]


def tensor_names(adapter: Any, config: Any) -> tuple[dict[str, str], str]:
    """The plug-in's map from the names in a GGUF file to those of the model, and the architecture that it takes the file for."""
    gguf = module("gguf")
    original, architectures = gguf.get_tensor_name_map, []

    def listening(architecture: Any, *others: Any) -> Any:
        architectures.append(gguf.MODEL_ARCH_NAMES[architecture])
        return original(architecture, *others)

    gguf.get_tensor_name_map = listening
    try:
        names = adapter.build_name_map(SimpleNamespace(hf_config=config, trust_remote_code=False))
    finally:
        gguf.get_tensor_name_map = original
    return names, next(iter(architectures), "")


def reorders(adapter: Any, config: Any) -> bool:
    """Whether the plug-in changes the order of the rows of a query projection, plain or quantized, on their way to the model."""
    torch = module("torch")
    rows = torch.arange(float(config.num_attention_heads * config.head_dim)).reshape(-1, 1)
    weights = [(f"model.layers.0.self_attn.q_proj.{kind}", rows.clone()) for kind in ("weight", "qweight")]
    return any(not torch.equal(weight, rows) for _name, weight in adapter.map_weights(weights))


def read(files: Iterable[str]) -> tuple[str, list[str]]:
    """The architecture that the first file says, and the names of the tensors of all."""
    readers = [module("gguf").GGUFReader(path) for path in files]
    return readers[0].get_field("general.architecture").contents(), [tensor.name for reader in readers for tensor in reader.tensors]


def ask(model: dict[str, Any]) -> dict[str, Any]:
    """model: folder of the configuration ("" for none), model_type (used without a folder), files (none, or all parts of the weights)."""
    asked = Asked()
    found: dict[str, Any] = {
        "model_type": model["model_type"], "classes": [], "unknown": [], "architecture": "", "header": "", "reorders": None, "left_out": [],
        "refused": asked.refused, "unasked": asked.unasked}
    header, tensors = (asked.step("the file", lambda: read(model["files"])) if model["files"] else None) or ("", [])
    found["header"] = header
    config = asked.step("the configuration", lambda: configuration(model["folder"], model["model_type"]))
    if config is None:
        return found
    found["model_type"] = config.model_type
    found["classes"] = list(config.architectures or [])
    classes = asked.step("vLLM's registry", lambda: set(module("vllm.model_executor.models").ModelRegistry.get_supported_archs()))
    found["unknown"] = [name for name in found["classes"] if name not in classes] if classes else []
    adapter = asked.step("the plug-in", lambda: module(type(loader()).__module__).get_weights_adapter(config))
    if adapter is None:
        return found
    names = asked.step("the names of the tensors", lambda: tensor_names(adapter, config))
    if names is not None:
        found["architecture"] = names[1]
        found["left_out"] = sorted(set(tensors) - set(names[0]))
    if found["architecture"] in REORDERED:
        found["reorders"] = asked.step("the order of the rows", lambda: reorders(adapter, config))
    return found


def answers(models: dict[str, dict[str, Any]]) -> dict[str, Any]:
    registered = Asked()
    registered.step("the plug-in", register)
    if registered.refused or registered.unasked:
        return {"refused": registered.refused, "unasked": registered.unasked, "models": {}}
    return {"refused": [], "unasked": [], "models": {name: ask(model) for name, model in models.items()}}


if __name__ == "__main__":
    print(MARK + json.dumps(answers(json.load(sys.stdin))))
