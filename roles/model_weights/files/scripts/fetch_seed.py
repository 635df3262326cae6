"""Copy weights from an offline directory, whose manifest names each file with its size and sha256."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from store import Job, Progress, fail


class Copy(Job):
    def __init__(self, argument: str) -> None:
        super().__init__(argument)
        job = json.loads(argument)
        self.name, self.seed = job["name"], Path(job["seed"])
        self.again = f"The offline directory {self.seed} is damaged: copy it again from where it was built"

    def promised(self) -> dict[str, dict]:
        """The files of these weights, as the manifest of the offline directory names them."""
        try:
            files = json.loads((self.seed / "manifest.json").read_text())["files"]
        except (OSError, ValueError, KeyError) as error:
            fail(f"modelhost_offline is {self.seed}, whose manifest.json cannot be read: {error}")
        prefix = f"weights/{self.target.name}/"
        expected = {name[len(prefix):]: entry for name, entry in files.items() if name.startswith(prefix)}
        if not expected:
            fail(f"{self.variable}: the offline directory {self.seed} has no weights {self.target.name}. On the connected machine: "
                 f"ansible-playbook playbooks/build_offline.yml -e model={self.name}, then copy it again")
        return expected


def main() -> None:
    job = Copy(sys.argv[1])
    expected = job.promised()
    job.open()
    present = job.files()
    for name, path in present.items():
        if name not in expected:
            path.unlink()
    todo = [name for name, entry in expected.items() if name not in present or present[name].stat().st_size != entry["size"]]
    total = sum(expected[name]["size"] for name in todo)
    job.need(total)
    copied = 0
    with Progress("copying", total, lambda: copied):
        for name in todo:
            source, path = job.seed / "weights" / job.target.name / name, job.partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if source.is_file():  # what is missing is said by seal
                shutil.copyfile(source, path)
            copied += expected[name]["size"]
    job.seal(expected)


if __name__ == "__main__":
    main()
