# GNU General Public License v3.0+ (see LICENSE)
from __future__ import annotations

DOCUMENTATION = r"""
name: option_words
short_description: Options by name, as words of a command line
description:
  - C(true) is the bare option, C(false) and null leave it out, a list gives the option several words, and a dict is handed over as JSON.
positional: _input
options:
  _input:
    description: Values by the option's name without dashes.
    type: dict
    required: true
author:
  - The modelhost authors
"""

EXAMPLES = r"""
# [--num-prompts, "4", --ignore-eos]
words: "{{ {'num-prompts': 4, 'ignore-eos': true, 'save-detailed': false} | modelhost.vllm.option_words }}"
"""

RETURN = r"""
_value:
  description: The words.
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"option_words": benchmark.option_words}
