"""Hash files of weights that are there, and keep what was found; whether it is what was promised, weights_info says. Changes no weights.

    hash_weights.py '{"name": MODEL, "directory": FOLDER, "record": FILE, "files": [FILE BELOW THE FOLDER, ...]}'
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from store import Hashing, Progress, fail, gigabytes, read_record, write_record


def main() -> None:
    job = json.loads(sys.argv[1])
    directory, record = Path(job["directory"]), Path(job["record"])
    files = {name: directory / name for name in job["files"]}
    begun = time.monotonic()
    known = read_record(record)
    try:
        total = sum(path.stat().st_size for path in files.values())
        hashing = Hashing(files)
        with Progress("verifying", total, lambda: hashing.bytes):
            for name, entry in hashing.run():
                known[name] = entry
                write_record(record, directory, known)  # a job that is killed has not to begin anew
    except OSError as error:
        fail(f"modelhost_models.{job['name']}.weights: {error.filename or directory} cannot be read: {error.strerror}. Look at the disk "
             "(journalctl -k), then fetch them again")
    print(f"hashed {len(files)} files, {gigabytes(total)}, in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
