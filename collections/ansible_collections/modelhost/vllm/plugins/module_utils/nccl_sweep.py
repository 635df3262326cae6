# GNU General Public License v3.0+ (see LICENSE)
"""The points of a sweep over NCCL variables, and which of them is best for which load."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import statistics
from typing import Any, Dict, List

from ansible_collections.modelhost.vllm.plugins.module_utils import benchmark, nccl

CLOSE = 0.05  # a time that is not lower by this share is none to change anything for
DECLARED = "as declared"


def plan(
    grid: Dict[str, List[Any]], inputs: Dict[str, Any], limit: int, table: Dict[str, Any], pins: Dict[str, Dict[str, str]],
) -> Dict[str, Any]:  # fmt: skip
    """errors and warnings, each one sentence, and points in the order in which they are measured: name, tried, nccl and key.

    grid: values by variable; null leaves the variable as it is declared. inputs: what else a measurement depends on, with engine and nccl,
    the variables that the model has. limit: how many points there may be. table and pins: as nccl_findings takes them.
    """
    errors, warnings = _findings(grid, inputs["engine"], table, pins)
    tried = [{}] + [
        {name: str(value) for name, value in zip(grid, values) if value is not None}
        for values in itertools.product(*(each if isinstance(each, list) else [] for each in grid.values()))]
    points = []
    for each in tried:
        point = _point(each, inputs)
        points += [point] if point["key"] not in [other["key"] for other in points] else []
    if len(points) > limit:
        errors.append(
            f"nccl_sweep_grid: it has {len(points)} points, and nccl_sweep_points allows {limit}: leave values out, or raise the limit")
    return {"errors": errors, "warnings": warnings, "points": points}


def _findings(
    grid: Dict[str, List[Any]], engine: str, table: Dict[str, Any], pins: Dict[str, Dict[str, str]],
) -> "tuple[list[str], list[str]]":  # fmt: skip
    """What NCCL's rules say of each value by itself."""
    errors: List[str] = []
    warnings: List[str] = []
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            errors.append(f"nccl_sweep_grid.{name}: {values}; it is no list of values: write [] around it")
            continue
        for value in values:
            if value is None:
                continue
            found = nccl.nccl_findings({"grid": {"engine": engine, "nccl": {name: value}}}, table, pins)
            errors += [re.sub(r"^modelhost_models\.grid\.nccl", "nccl_sweep_grid", each) for each in found["errors"]]
            warnings += [re.sub(r"^modelhost_models\.grid\.nccl", "nccl_sweep_grid", each) for each in found["warnings"]]
    return list(dict.fromkeys(errors)), list(dict.fromkeys(warnings))


def _point(tried: Dict[str, str], inputs: Dict[str, Any]) -> Dict[str, Any]:
    """A point, with a key over all that its measurement depends on."""
    variables = {**inputs["nccl"], **tried}
    text = json.dumps({**inputs, "nccl": variables}, sort_keys=True)
    return {
        "name": " ".join(f"{name}={value}" for name, value in tried.items()) or DECLARED, "tried": tried, "nccl": variables,
        "key": hashlib.sha256(text.encode()).hexdigest()[:16]}


def folder(points: List[Dict[str, Any]], files: List[str], again: bool) -> Dict[str, Any]:
    """started, the folder of an earlier sweep that goes on, or an empty text for a new one; and what is left of the points.

    files: paths of the results of this model, .../STARTED/KEY.json. The newest sweep that has a point of this one goes on.
    """
    by_sweep: Dict[str, List[str]] = {}
    for path in files:
        started, name = path.split("/")[-2:]
        by_sweep.setdefault(started, []).append(name[:-len(".json")])
    keys = [point["key"] for point in points]
    newest = max((started for started, measured in by_sweep.items() if set(measured) & set(keys)), default="")
    if again or not newest:
        return {"started": "", "left": points}
    return {"started": newest, "left": [point for point in points if point["key"] not in by_sweep[newest]]}


def loads(result: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """What a result says of each load: where it was measured, its number, the number's unit, and a time, of which less is better."""
    if "points" in result:
        first, last = result["points"][0], result["points"][-1]
        found = {"one stream": _rate(first, "decode_tok_s")}
        return {**found, "many streams": _rate(last, "output_throughput_tok_s")} if first is not last else found
    sizes = result["sizes"]
    chosen = {"one stream": sizes[0], "many streams": sizes[-2] if len(sizes) > 1 else sizes[0], "prefill": sizes[-1]}
    return {
        load: {"at": f"{each['bytes']} bytes", "number": each["latency_us"], "unit": "us", "time": each["latency_us"]}
        for load, each in chosen.items()}


def _rate(point: Dict[str, Any], name: str) -> Dict[str, Any]:
    """The median over the repetitions of a point."""
    rate = statistics.median(benchmark.values(result)[name] for result in point["results"])
    return {"at": point["name"], "number": rate, "unit": "tok/s", "time": 1 / rate}


def best(results: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """For each load its name, the result that is best there, what it says, and whether it is worth a change."""
    fine = [(each, loads(each)) for each in results if each["verdict"] == "ok"]
    found = []
    for load in fine[0][1] if fine else ():
        first, said = min(fine, key=lambda each: each[1][load]["time"])
        declared = [each[load]["time"] for result, each in fine if not result["tried"]]
        better = not declared or said[load]["time"] < declared[0] * (1 - CLOSE)
        found.append({"load": load, "result": first, **said[load], "better": better})
    return found


def lines(results: List[Dict[str, Any]], left: int) -> List[str]:
    """A table of all points, the best for each load, and the lines of YAML to paste. left: how many points were not measured."""
    chosen = best(results)
    rows = ["".join(f"{each['load']:>14}" for each in chosen) + f"  {chosen[0]['unit']}"] if chosen else []
    for each in sorted(results, key=lambda each: (each["verdict"] != "ok", bool(each["tried"]), each["name"])):
        if each["verdict"] == "ok":
            rows.append("".join(f"{said['number']:>14.1f}" for said in loads(each).values()) + f"  {each['name']}")
        else:
            rows.append(f"{each['verdict']:>{14 * (len(chosen) or 1)}}  {each['name']}: {_first_line(each['reason'])}")
    if any(each.get("backend") == "gloo" for each in results):
        rows.append("These ranks are on the processors, where NCCL's variables have no effect")
    for each in chosen:
        where = f"for {each['load']} ({each['at']})"
        said = f"{where}: {each['number']:.1f} {each['unit']} with {each['result']['name']}"
        rows.append(said if each["better"] else f"{where}: nothing is better than what is declared")
        rows += _paste(each["result"]) if each["better"] and each["result"]["tried"] else []
    if left:
        rows.append(f"{left} points are left: run it again, and it goes on")
    return rows


def _first_line(reason: str) -> str:
    """Without the words that lead over to lines of a journal."""
    return re.sub(r"\. [^.]*:$", "", reason.splitlines()[0])


def _paste(result: Dict[str, Any]) -> List[str]:
    return [
        "  modelhost_models:", f"    {result['model']}:", "      nccl:",
        *(f"        {name}: {json.dumps(value)}" for name, value in result["nccl"].items())]
