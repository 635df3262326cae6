"""The rules for declared NCCL variables, on literal values, against the names in a real library, and on anything that can be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.modelhost.vllm.plugins.filter.nccl_files import nccl_files
from ansible_collections.modelhost.vllm.plugins.module_utils.nccl import nccl_findings, read_integer, select
from ansible_collections.modelhost.vllm.plugins.module_utils.versions import numbers
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[6]
TABLE = yaml.safe_load((ROOT / "roles/nccl/files/parameters.yml").read_text())
LIBRARY = json.loads((Path(__file__).parent / "fixtures/nccl/nvidia-nccl-cu13-2.30.7.json").read_text())
ALGORITHMS = "Tree, Ring, CollNetDirect, CollNetChain, NVLS, NVLSTree, PAT"
UNDOCUMENTED = "NCCL's documentation does not know it, and another version may read it otherwise, or not at all"


def judged(declared: Any, pins: dict[str, dict[str, str]] | None = None, **model: Any) -> dict[str, list[str]]:
    return nccl_findings({"m": {"engine": "e", "nccl": declared, **model}}, TABLE, pins or {})


def findings(name: Any, value: Any) -> tuple[list[str], list[str]]:
    """The errors and warnings of one variable, without its path."""
    found = judged({name: value})
    prefix = f"modelhost_models.m.nccl.{name}: "
    assert all(each.startswith(prefix) for each in found["errors"] + found["warnings"])
    return [each[len(prefix):] for each in found["errors"]], [each[len(prefix):] for each in found["warnings"]]


@pytest.mark.parametrize(("name", "value"), [
    ("NCCL_P2P_LEVEL", "SYS"), ("NCCL_P2P_LEVEL", "NVB"), ("NCCL_NET_GDR_LEVEL", "PHB"), ("NCCL_P2P_DISABLE", 1), ("NCCL_P2P_DISABLE", "0"),
    ("NCCL_P2P_DISABLE", "0x1"), ("NCCL_BUFFSIZE", 33554432), ("NCCL_BUFFSIZE", "8388608"), ("NCCL_NTHREADS", 64), ("NCCL_NTHREADS", 512),
    ("NCCL_NTHREADS", 96), ("NCCL_MIN_CTAS", 64), ("NCCL_IB_GID_INDEX", -1), ("NCCL_IB_TC", "0xff"), ("NCCL_PROTO", "LL,Simple"),
    ("NCCL_PROTO", "^LL128;allreduce:ll"), ("NCCL_ALGO", "allreduce:tree"), ("NCCL_ALGO", "RING"), ("NCCL_ALGO", "Ring,Tree"),
    ("NCCL_ALGO",
     "ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring"), ("NCCL_ALGO", "allreduce:^tree"), ("NCCL_ALGO", "^PAT"),
    ("NCCL_DEBUG", "info"), ("NCCL_DEBUG", "VERSION"), ("NCCL_DEBUG_SUBSYS", "^INIT,net"), ("NCCL_DEBUG_SUBSYS", "INIT,ENV,GRAPH,TUNING"),
    ("NCCL_SOCKET_IFNAME", "^=docker0,lo"), ("NCCL_SOCKET_IFNAME", "=eth0"), ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"),
    ("NCCL_TOPO_FILE", "/etc/topo.xml"), ("NCCL_RAS_TIMEOUT_FACTOR", 1.5), ("NCCL_CTA_POLICY", "ZERO|EFFICIENCY"),
    ("NCCL_DEBUG_TIMESTAMP_FORMAT", ""), ("NCCL_DEBUG_TIMESTAMP_LEVELS", ""), ("NCCL_SOCKET_MAGIC", "0xffffffffffffffff"),
    ("NCCL_NET_PLUGIN", "none"), ("NCCL_LAUNCH_MODE", "PARALLEL"), ("NCCL_DEBUG_TIMESTAMP_FORMAT", "[%F %T] "),
])
def test_what_nccl_takes(name: str, value: object) -> None:
    assert findings(name, value) == ([], [])


@pytest.mark.parametrize(("name", "value", "error"), [
    pytest.param("NCCL_P2P_LEVEL", "sys", "'sys' is none of NCCL's names, whose case counts, and is ignored without a word: write SYS",
                 marks=pytest.mark.case("N1")),
    ("NCCL_P2P_LEVEL", "NODE",
     "'NODE' is none of NCCL's names, whose case counts, and is ignored without a word: write one of LOC, NVL, PIX, PXB, PHB, SYS"),
    ("NCCL_NET_GDR_LEVEL", "PHB ", "'PHB ' is none of NCCL's names, whose case counts, and is ignored without a word: write PHB"),
    pytest.param("NCCL_P2P_DISABLE", "true", "'true' is no whole number, NCCL reads 0: write 1", marks=pytest.mark.case("N2")),
    pytest.param("NCCL_P2P_DISABLE", True, "True has no spelling of its own in an environment: write 1", marks=pytest.mark.case("N2")),
    ("NCCL_SHM_DISABLE", "no", "'no' is no whole number, NCCL reads 0: write 0"),
    ("NCCL_P2P_DISABLE", 2, "2 is not allowed: write 0 or 1"),
    ("NCCL_P2P_LEVEL", False, "False has no spelling of its own in an environment: write one of LOC, NVL, PIX, PXB, PHB, SYS"),
    pytest.param("NCCL_BUFFSIZE", "32M", "'32M' is no whole number, NCCL reads 32: write 33554432", marks=pytest.mark.case("N3")),
    ("NCCL_BUFFSIZE", "4 MiB", "'4 MiB' is no whole number, NCCL reads 4: write 4194304"),
    ("NCCL_BUFFSIZE", "big", "'big' is no whole number, NCCL reads 0: write a whole number of 1 or more"),
    ("NCCL_BUFFSIZE", -1, "-1 is not allowed: write a whole number of 1 or more"),
    ("NCCL_BUFFSIZE", 1e6, "'1000000.0' is no whole number, NCCL reads 1000000: write a whole number of 1 or more"),
    ("NCCL_IB_TIMEOUT", "010", "'010' begins with 0 as octal numbers do, NCCL reads 8: write 10"),
    ("NCCL_IB_TIMEOUT", 32, "32 is not allowed: write a whole number from 0 to 31"),
    ("NCCL_SHM_DISABLE", " 1", "' 1' is no whole number, NCCL reads 1: write 1"),
    ("NCCL_NTHREADS", 100, "100 is not allowed: write a multiple of 32 from 64 to 512"),
    ("NCCL_IB_TC", "9" * 20, f"{'9' * 20} does not fit into 64 bits, NCCL takes its default: write a whole number"),
    pytest.param("NCCL_PROTO", "LL,foo", "'foo' is not one of LL, LL128, Simple, which ends NCCL's start: write one of these",
                 marks=pytest.mark.case("N4")),
    ("NCCL_PROTO", "Simpel", "'Simpel' is not one of LL, LL128, Simple, which ends NCCL's start: write Simple"),
    ("NCCL_PROTO", "^LL,LL128,Simple",
     "'^LL,LL128,Simple' leaves Broadcast, Reduce, AllGather, ReduceScatter and AllReduce without any, which ends the start: select "
     "one of LL, LL128, Simple"),
    ("NCCL_ALGO", "Ring, Tree", f"' Tree' is not one of {ALGORITHMS}, which ends NCCL's start: write Tree"),
    ("NCCL_ALGO", "reduceall:ring",
     "'reduceall' is not one of the functions Broadcast, Reduce, AllGather, ReduceScatter, AllReduce, which ends NCCL's start: write "
     "one of these"),
    ("NCCL_ALGO", "ring;tree", "'tree' says no function, which ends NCCL's start: write one in front, as before each list but the first"),
    ("NCCL_ALGO", "allgather:nvls,reducescatter:nvls",
     "'allgather:nvls,reducescatter:nvls' names more than one function, which ends NCCL's start: put ; between the lists of functions"),
    pytest.param("NCCL_ALGO", "Tree",
        "'Tree' leaves Broadcast, Reduce, AllGather and ReduceScatter without an algorithm, and since NCCL 2.24 none is taken in its "
        "place: write 'allreduce:tree', or add Ring", marks=pytest.mark.case("N8")),
    pytest.param("NCCL_ALGO", "NVLS",
        "'NVLS' leaves Broadcast and Reduce without an algorithm, and since NCCL 2.24 none is taken in its place: write "
        "'allreduce:nvls', or add Ring", marks=pytest.mark.case("N8")),
    pytest.param("NCCL_ALGO", "ring;reduce:tree",
        "'ring;reduce:tree' leaves Reduce without an algorithm, and since NCCL 2.24 none is taken in its place: add Ring",
        marks=pytest.mark.case("N8")),
    ("NCCL_DEBUG", "warning", "'warning' is not one of VERSION, WARN, INFO, ABORT, TRACE, and NCCL ignores the whole value: write WARN"),
    ("NCCL_DEBUG_TIMESTAMP_LEVELS", "WARN,XYZ",
     "'XYZ' is not one of VERSION, WARN, INFO, ABORT, TRACE, ALL, and NCCL ignores the whole value: write one of these"),
    ("NCCL_CHECK_MODE", "debug_local",
     "'debug_local' is not one of DEFAULT, DEBUG_LOCAL, DEBUG_GLOBAL, and NCCL ignores the whole value: write DEBUG_LOCAL"),
    ("NCCL_SOCKET_IFNAME", "eth0, eth1",
     "'eth0, eth1' is no list of names: write them with commas and without blanks, with ^ in front for all but these, = for exact names"),
    ("NCCL_TOPO_FILE", "~/topo.xml", "'~/topo.xml' is no absolute path, and NCCL expands nothing: write one from / on"),
    ("NCCL_RAS_TIMEOUT_FACTOR", "0", "'0' is no number above 0, and NCCL takes 1: write one"),
    ("NCCL_RAS_TIMEOUT_FACTOR", "nan", "'nan' is no number above 0, and NCCL takes 1: write one"),
    ("NCCL_NET", "", "it is empty: give it a value, or remove the line"),
    ("NCCL_NET", None, "None has no spelling of its own in an environment: write a text"),
    ("NCCL_ALGO", ["Ring"], f"['Ring'] has no spelling of its own in an environment: write one of {ALGORITHMS}"),
    ("NCCL_NET", "a\rb", "the value has a control character, which systemd drops together with the variable: remove it"),
    ("NCCL_NET", "x" * 1024, "it has 1024 characters, more than any value that NCCL reads: shorten it"),
    # Names
    pytest.param("NCCL_P2PLEVEL", "SYS", "NCCL knows no such variable and ignores it without a word: did you mean NCCL_P2P_LEVEL?",
                 marks=pytest.mark.case("N5")),
    ("NCCL_ZZQQ", "1", "NCCL knows no such variable and ignores it without a word: remove the line"),
    ("nccl_p2p_level", "SYS", "NCCL's variables begin with NCCL_; others belong into `environment`: did you mean NCCL_P2P_LEVEL?"),
    ("LD_PRELOAD", "x", "NCCL's variables begin with NCCL_; others belong into `environment`"),
    (7, "x", "NCCL's variables begin with NCCL_; others belong into `environment`"),
    ("NCCL_IB_CUDA_SUPPORT", 1, "no NCCL since 2.4.0 reads it: write NCCL_NET_GDR_LEVEL"),
    ("NCCL_SINGLE_RING_THRESHOLD", 1, "no NCCL since 2.3 reads it: remove the line"),
    ("NCCL_DEBUG_LEVELS", "ATTN",
     "NCCL 2.32 is the first that reads it, and the engine has 2.30.7: remove the line, or take an engine with a newer one"),
])
def test_what_is_refused(name: Any, value: object, error: str) -> None:
    assert findings(name, value) == ([error], [])


@pytest.mark.parametrize(("name", "value", "warning"), [
    ("NCCL_P2P_LEVEL", 4, "4 is a number of before NCCL 2.4 and means SYS; NCCL's documentation advises against numbers: write SYS"),
    ("NCCL_P2P_LEVEL", "0", "0 is a number of before NCCL 2.4 and means LOC; NCCL's documentation advises against numbers: write LOC"),
    ("NCCL_P2P_LEVEL", "99", "99 is a number of before NCCL 2.4 and means SYS; NCCL's documentation advises against numbers: write SYS"),
    ("NCCL_BUFFSIZE", 3000000, "3000000 is no power of 2, which NCCL's documentation recommends: write 2097152"),
    ("NCCL_PROTO", "allreduce:LL128",
     "LL128 where the links are not made for it, as over PCI Express, can corrupt data (NCCL's documentation): leave it to NCCL"),
    ("NCCL_ALGO", "ring;allreduce:nvls",
     "'ring;allreduce:nvls' leaves AllReduce only what needs NVSwitch or a network that reduces: add Ring where the machine has neither"),
    ("NCCL_GRAPH_FILE", "/etc/graph.xml", UNDOCUMENTED),
    ("NCCL_CHUNK_SIZE", 1024, UNDOCUMENTED),
])
def test_what_is_warned_about(name: str, value: object, warning: str) -> None:
    assert findings(name, value) == ([], [warning])


@pytest.mark.parametrize(("declared", "warnings"), [
    ({"NCCL_P2P_DISABLE": 1, "NCCL_P2P_LEVEL": "SYS"}, ["NCCL_P2P_LEVEL has no effect beside NCCL_P2P_DISABLE: remove one of them"]),
    ({"NCCL_P2P_DISABLE": 1, "NCCL_SHM_DISABLE": 1}, [
     "NCCL_P2P_DISABLE and NCCL_SHM_DISABLE together leave the GPUs only sockets: remove one of them"]),
    ({"NCCL_P2P_DISABLE": 0, "NCCL_P2P_LEVEL": "SYS", "NCCL_SHM_DISABLE": 1}, []),
    ({"NCCL_MIN_CTAS": 8, "NCCL_MAX_CTAS": 4}, ["NCCL_MIN_CTAS 8 is above NCCL_MAX_CTAS 4, and NCCL takes the former: write one range"]),
    ({"NCCL_MIN_NCHANNELS": 4, "NCCL_MAX_NCHANNELS": 8}, []),
])
def test_variables_that_contradict_each_other(declared: dict[str, object], warnings: list[str]) -> None:
    assert judged(declared) == {"errors": [], "warnings": [f"modelhost_models.m.nccl: {each}" for each in warnings]}


def test_the_nccl_of_the_engine_counts() -> None:
    newer = {"e": {"nvidia-nccl-cu13": "2.32.1"}}
    assert judged({"NCCL_DEBUG_LEVELS": "ATTN"}, newer) == {"errors": [], "warnings": []}
    assert judged({"NCCL_P2PLEVEL": "SYS", "NCCL_BRAND NEW": "1", "NCCL_ZZQQ": True}, newer) == {
        "errors": ["modelhost_models.m.nccl.NCCL_BRAND NEW: NCCL knows no such variable and ignores it without a word: remove the line",
                   "modelhost_models.m.nccl.NCCL_ZZQQ: True has no spelling of its own in an environment: write a text"],
        "warnings": [
            "modelhost_models.m.nccl.NCCL_P2PLEVEL: not among the variables of NCCL 2.30.7, and the engine has 2.32.1; did you mean "
            "NCCL_P2P_LEVEL?",
                     "modelhost_models.m.nccl.NCCL_ZZQQ: not among the variables of NCCL 2.30.7, and the engine has 2.32.1; remove the "
                     "line"]}
    assert judged({"NCCL_CHECK_MODE": "DEFAULT"}, {"e": {"nvidia-nccl-cu12": "2.27.5"}})["errors"] == [
        "modelhost_models.m.nccl.NCCL_CHECK_MODE: NCCL 2.29.7 is the first that reads it, and the engine has 2.27.5: remove the line, "
        "or take an engine with a newer one"]
    assert judged({"NCCL_P2P_LEVEL": "SYS"}, {"e": {"torch": "2.13.0+cpu"}}) == {
        "errors": [], "warnings": ["modelhost_models.m.nccl: e has no NCCL in its lock, so that nothing reads NCCL_P2P_LEVEL"]}


def test_they_are_said_in_one_place() -> None:
    assert judged({}, environment={"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": 8}) == {"warnings": [], "errors": [
        "modelhost_models.m.environment.NCCL_DEBUG: say it in modelhost_models.m.nccl, where NCCL's variables are held against NCCL's "
        "rules"]}


@pytest.mark.parametrize("models", [
    None, [], "x", {"m": None}, {"m": {}}, {"m": {"nccl": None}}, {"m": {"nccl": ["x"], "environment": "x"}}])
def test_what_is_no_catalogue_is_left_to_its_specification(models: object) -> None:
    assert nccl_findings(models, TABLE, {}) == {"errors": [], "warnings": []}


# What the library itself has

@pytest.mark.parametrize("name", [*TABLE["documented"], *TABLE["undocumented"]])
def test_the_table_has_names_of_the_real_library(name: str) -> None:
    since = (TABLE["documented"] | TABLE["undocumented"])[name].get("since", "0")
    assert (name in LIBRARY["names"]) == (numbers(since) <= numbers("2.30.7"))


def test_the_library_does_not_know_what_was_removed() -> None:
    assert TABLE["checked"] == LIBRARY["version"] == "2.30.7"
    assert set(TABLE["removed"]) & set(LIBRARY["names"]) == set()


def test_a_name_of_the_library_that_the_table_does_not_have_is_a_constant() -> None:
    constants = (
        "NCCL_PARAM_FLAG_", "NCCL_PARAM_TYPE_", "NCCL_LOG_", "NCCL_GIN_TYPE_", "NCCL_GIN_CONNECTION_", "NCCL_NET_DEVICE_", "NCCL_SIGNAL",
        "NCCL_NET_MERGE_POLICY_", "NCCL_IPC_")
    rest = set(LIBRARY["names"]) - set(TABLE["documented"]) - set(TABLE["undocumented"])
    assert {name for name in rest if not name.startswith(constants)} == {
        # Subsystems of the log (src/include/debug.h)
        "NCCL_INIT", "NCCL_COLL", "NCCL_P2P", "NCCL_SHM", "NCCL_GRAPH", "NCCL_TUNING", "NCCL_ENV", "NCCL_ALLOC", "NCCL_ALLOC_HOST",
        "NCCL_CALL", "NCCL_PROXY", "NCCL_NVLS", "NCCL_BOOTSTRAP", "NCCL_REG", "NCCL_PROFILE", "NCCL_RAS", "NCCL_DESTROY", "NCCL_ALL",
        # Names in messages, and constants
        "NCCL_COMM_PROPERTIES_INITIALIZER", "NCCL_CONFIG_INITIALIZER", "NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER",
        "NCCL_SIM_INFO_INITIALIZER",
        "NCCL_GIN_GDAKI_GPU_CONTEXT_MAX_SIZE", "NCCL_GIN_GDAKI_GPU_CONTEXT_VERSION", "NCCL_GIN_PROXY_GPU_CONTEXT_MAX_SIZE",
        "NCCL_GIN_PROXY_GPU_CONTEXT_VERSION", "NCCL_GIN_IB_ALLGATHER_TAG", "NCCL_GIN_IB_ALLTOALL_TAG", "NCCL_IB_MAX_DEVS_PER_NIC",
        "NCCL_IB_RECV_WR_ID_DUMMY", "NCCL_IB_RESILIENCY_PORT_RECOVERY_ACK_MSG_ID", "NCCL_IB_SL_DEFAULT", "NCCL_IB_TC_DEFAULT",
        "NCCL_SYM_KERNEL"}


def test_each_rule_of_the_table_is_one() -> None:
    keys = {"kind", "words", "joined", "any_case", "values", "min", "max", "multiple", "power_of_two", "empty", "default", "since"}
    for name, rule in (TABLE["documented"] | TABLE["undocumented"]).items():
        assert set(rule) <= keys, name
        assert all(isinstance(rule.get(key, ""), str) for key in ("default", "since")), name
        assert ("words" in rule) == (rule.get("kind") in ("word", "set", "selection")), name
        assert rule.get("kind") != "set" or [word.upper() for word in rule["words"]] == rule["words"], name


# What can be written at all

TEXTS = st.text(max_size=40) | st.from_regex(r"[\^]?[a-zA-Z0-9,;:^ ]{0,20}", fullmatch=True)
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.lists(st.integers(), max_size=2) | st.just("9" * 6000)
NAMES = st.sampled_from([*TABLE["documented"], *TABLE["undocumented"], *TABLE["removed"]]) | st.text(max_size=30) | st.integers()


@settings(deadline=None)  # the nearest of 250 names takes its time on a busy machine
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_names_and_values_give_sentences_that_name_the_variable(declared: dict[Any, Any]) -> None:
    found = judged(declared)
    for each in found["errors"] + found["warnings"]:
        assert each.startswith("modelhost_models.m.nccl")
        assert any(str(name) in each for name in declared)


@settings(deadline=None)  # the nearest of 250 names takes its time on a busy machine
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_not_refused_can_be_written_into_the_file(declared: dict[Any, Any]) -> None:
    if not judged(declared)["errors"]:
        assert len(nccl_files([{"name": "m", "nccl": declared}], "")) == 1


@given(st.integers(-2 ** 63, 2 ** 63 - 1))
def test_an_integer_is_read_as_c_reads_it(number: int) -> None:
    assert [read_integer(text) for text in (str(number), f" {number}", f"{number}M", f"{number:#x}")] == [number] * 4


@pytest.mark.parametrize(("text", "number"), [
    ("", 0), ("x1", 0), ("0x", 0), ("0xg", 0), ("089", 0), ("017", 15), ("-0x10", -16), ("+3e5", 3)])
def test_what_else_c_makes_of_a_text(text: str, number: int) -> None:
    assert read_integer(text) == number


def test_what_a_list_selects() -> None:
    chosen, forced = select(["LL", "LL128", "Simple"], "^LL128;AllReduce:LL128,simple")
    assert chosen == {
        "Broadcast": {"LL", "Simple"}, "Reduce": {"LL", "Simple"}, "AllGather": {"LL", "Simple"}, "ReduceScatter": {"LL", "Simple"},
        "AllReduce": {"LL128", "Simple"}}
    assert forced == {"LL128", "Simple"}


# Files

def test_the_files_of_the_models() -> None:
    models = [{"name": "kimi", "nccl": {"NCCL_P2P_LEVEL": "SYS", "NCCL_NTHREADS": 512}}, {"name": "small"}, {"name": "other", "nccl": {}}]
    assert nccl_files(models, "#\n# Ansible managed\n#\n") == [
        {"model": "kimi", "name": "kimi.nccl.env",
         "content": '#\n# Ansible managed\n#\nNCCL_P2P_LEVEL="SYS"\nNCCL_NTHREADS="512"\n'},
        {"model": "small", "name": "small.nccl.env", "content": "#\n# Ansible managed\n#\n"},
        {"model": "other", "name": "other.nccl.env", "content": "#\n# Ansible managed\n#\n"}]


def test_a_file_that_systemd_would_drop_a_line_of() -> None:
    with pytest.raises(AnsibleFilterError, match="NCCL_NET: True has no spelling"):
        nccl_files([{"name": "kimi", "nccl": {"NCCL_NET": True}}], "")
