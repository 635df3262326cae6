"""The parser, where vLLM has it, for those who ask an engine about its options."""

import argparse
import types

from vllm_standin import options

yaml = types.SimpleNamespace(safe_load=options.read_yaml)


class FlexibleArgumentParser(argparse.ArgumentParser):
    def load_config_file(self, path):
        with open(path, encoding="utf-8") as file:
            return options.arguments(options.read_yaml(file.read()), self._option_string_actions)
