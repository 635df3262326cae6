# GNU General Public License v3.0+ (see LICENSE)
"""The scripts that an installer makes from entry_points.txt, which no RECORD of a wheel can know."""

from __future__ import annotations

import ast
import configparser

# After the line that names the interpreter. Two texts are the same script where they parse to the same tree.
_FORMS = (
    # uv 0.13
    """
import sys
from {module} import {name}
if __name__ == "__main__":
    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit({function}())
""",
    # pip 25.2 and later
    """
import sys
from {module} import {name}
if __name__ == "__main__":
    sys.argv[0] = sys.argv[0].removesuffix(".exe")
    sys.exit({function}())
""",
    # distlib in pip up to 23
    """
import re
import sys
from {module} import {name}
if __name__ == "__main__":
    sys.argv[0] = re.sub(r"(-script\\.pyw|\\.exe)?$", "", sys.argv[0])
    sys.exit({function}())
""",
    # distlib in pip 24 and 25
    """
import re
import sys
if __name__ == "__main__":
    from {module} import {name}
    sys.argv[0] = re.sub(r"(-script\\.pyw|\\.exe)?$", "", sys.argv[0])
    sys.exit({function}())
""",
)


def entry_points(text: str) -> dict[str, dict[str, str]]:
    """The groups of an entry_points.txt, each with its objects by name (PyPA "Entry points specification"); none where it is not one."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return {group: dict(parser[group]) for group in parser.sections()}


def is_script_of(text: bytes, target: str) -> bool:
    """Whether a script is what an installer makes for `target`, say `vllm.entrypoints.cli.main:main`.

    In `text` the lines that name the interpreter are empty: a comment in the second line can name an encoding, in which the rest reads
    otherwise (PEP 263), and Python finds it there alone.
    """
    module, _colon, function = target.partition("[")[0].strip().partition(":")
    names = {"module": module.strip(), "name": function.strip().split(".")[0], "function": function.strip()}
    try:
        tree = ast.dump(ast.parse(text))
        return any(tree == ast.dump(ast.parse(form.format(**names))) for form in _FORMS)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # as ast.parse has it; of the script, or of a target that is none
        return False
