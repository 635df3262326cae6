"""NCCL on a host: what a library, files, processes and NCCL's log say, from real texts of NCCL 2.30.7 and from a host of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils import engine_process, host_report, nccl_host, report_words, systemd
from ansible_collections.modelhost.vllm.plugins.modules import nccl_info

LIBRARY = json.loads((Path(__file__).parent / "fixtures/nccl/nvidia-nccl-cu13-2.30.7.json").read_text())
UNKNOWN = {"taken": "unknown", "said": ""}
# A few of the real library's bytes in their manner: a name behind a NUL, one that is the end of another text, one inside a format
TEXT = (
    b"\x7fELF\0NCCL_P2P_LEVEL\0\0built 0:00.0NCCL_SOCKET_MAGIC\0NCCL_ALGO set by environment to %s\0NCCL version \0"
    b"NCCL version 2.30.7+cuda13.3\0NCCL_DEBUG\0ncclNCCL_lower\0NCCL_BUFFSIZE")


def said(*lines: str, **values: str) -> dict[str, tuple[str, str]]:
    return {name: (each["taken"], each["said"]) for name, each in nccl_host.said(lines, values).items()}


def shown(found: dict[str, Any]) -> list[str]:
    """What the state of the host says of it."""
    return report_words.nccl(host_report.nccl(found))


# The library

def test_the_names_in_a_library(tmp_path):
    path = tmp_path / "lib/python3.13/site-packages/nvidia/nccl/lib/libnccl.so.2"
    path.parent.mkdir(parents=True)
    path.write_bytes(TEXT)
    assert nccl_host.library(str(tmp_path)) == str(path)
    assert nccl_host.library_facts(str(path)) == {
        "library": str(path), "version": "2.30.7", "names": ["NCCL_DEBUG", "NCCL_P2P_LEVEL", "NCCL_SOCKET_MAGIC"]}


def test_an_engine_without_a_library(tmp_path):
    assert nccl_host.library(str(tmp_path)) == ""


# What NCCL says

def test_what_a_real_nccl_said_of_its_variables():
    assert [said(*run["said"], **run["environment"]) for run in LIBRARY["runs"]] == [
        {"NCCL_SOCKET_FAMILY": ("yes", "AF_INET"), "NCCL_SOCKET_IFNAME": ("yes", "lo")},
        {},  # NCCL_DEBUG=warning is none of its levels
        {"NCCL_SOCKET_IFNAME": ("yes", "lo")},
        {"NCCL_SOCKET_IFNAME": ("yes", '"lo"')}]


@pytest.mark.parametrize(("line", "values", "expected"), [
    ("(Worker_TP0 pid=4711) host:4711:4711 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to SYS", {}, {"NCCL_P2P_LEVEL": ("yes", "SYS")}),
    ("host:1:2 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 8388608.", {}, {"NCCL_BUFFSIZE": ("yes", "8388608")}),
    ("host:1:2 [0] NCCL INFO Comm config maxCTAs reset to NCCL_MAX_CTAS=16", {}, {"NCCL_MAX_CTAS": ("yes", "16")}),
    (
     "host:1:2 [0] NCCL INFO Comm config graphUsageMode reset to 2 by NCCL_GRAPH_MIXING_SUPPORT=1", {},
     {"NCCL_GRAPH_MIXING_SUPPORT": ("yes", "1")}),
    ("host:1:2 [0] NCCL INFO Invalid value 99999999999999999999 for NCCL_BUFFSIZE, using default -2.", {},
     {"NCCL_BUFFSIZE": ("no", "Invalid value 99999999999999999999 for NCCL_BUFFSIZE, using default -2.")}),
    ("host:1:2 [0] NCCL INFO Invalid NCCL_NTHREADS 100 (must be a multiple of 32)", {},
     {"NCCL_NTHREADS": ("no", "Invalid NCCL_NTHREADS 100 (must be a multiple of 32)")}),
    ('[2026-11-30 20:20:16] host:1:2 [0] graph/tuning.cc:119 (parseList) NCCL WARN Unrecognized element token "foo" when parsing "LL,foo"',
     {"NCCL_PROTO": "LL,foo", "NCCL_ALGO": "Ring"}, {"NCCL_PROTO": ("no", 'Unrecognized element token "foo" when parsing "LL,foo"')}),
    (
     "host:1:2 [0] enqueue.cc:2000 NCCL WARN Error : no algorithm/protocol available for function AllGather with datatype ncclInt8. "
     "NCCL_ALGO was set to Tree.", {}, {"NCCL_ALGO": ("no",
         "Error : no algorithm/protocol available for function AllGather with datatype ncclInt8. NCCL_ALGO was set to Tree.")}),
    ("INFO 11-30 vLLM is using nccl==2.30.7", {}, {}),
    ("NCCL_P2P_LEVEL set by environment to SYS", {}, {}),
    ("host:1:2 [0] NCCL INFO You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.", {}, {}),
])
def test_what_nccl_says(line, values, expected):
    assert said(line, **values) == expected


def test_what_it_reads_and_then_refuses_is_not_taken():
    lines = ["x NCCL INFO NCCL_MIN_CTAS set by environment to 0.", "x NCCL INFO NCCL_MIN_CTAS 0 is too low, leaving it set at 1",
             "x NCCL INFO NCCL_MIN_CTAS set by environment to 0."]
    assert said(*lines) == {"NCCL_MIN_CTAS": ("no", "NCCL_MIN_CTAS 0 is too low, leaving it set at 1")}


def test_each_text_of_the_library_about_a_variable_is_understood():
    """The formats in the library, filled in."""
    def filled(text):
        text = text.replace("%s set by", "NCCL_X set by").replace("for %s,", "for NCCL_X,")
        return text.replace("%lld", "7").replace("%d", "7").replace("%s", "x")

    missed = [text for text in LIBRARY["texts"] if not said(f"x NCCL INFO {filled(text)}", NCCL_ALGO="x")]
    assert missed == [
        " NCCL_ALGO was set to %s.", " NCCL_PROTO was set to %s.",  # the end of another message
        "NET/Socket : the total number of sockets is greater than the maximum allowed, setting NCCL_NSOCKS_PERTHREAD to %d"]


# Files

def test_a_file_is_read_as_nccl_reads_it(tmp_path):
    """Held against NCCL 2.30.7: with quotes, no interface has that name; a line that begins with a blank sets nothing."""
    own, system = tmp_path / ".nccl.conf", tmp_path / "nccl.conf"
    own.write_bytes(
        b'# NCCL_DEBUG=INFO\n NCCL_DEBUG=INFO\nNCCL_P2P_LEVEL="SYS"\r\nno equals\nexport NCCL_ALGO=Ring\nNCCL_P2P_LEVEL=PHB\nPATH=/x\n')
    system.write_text("NCCL_P2P_LEVEL=LOC\nNCCL_NET=a=b")
    assert nccl_host.file_settings([str(own), "/nowhere", str(system)]) == {
        "NCCL_P2P_LEVEL": {"value": '"SYS"', "origin": f"{own}:3"}, "NCCL_NET": {"value": "a=b", "origin": f"{system}:2"}}


@pytest.mark.parametrize(("environment", "home", "files"), [
    ({}, "/var/lib/modelhost/service", ["/var/lib/modelhost/service/.nccl.conf", "/etc/nccl.conf"]),
    ({"NCCL_CONF_FILE": "/srv/nccl.conf"}, "/home/x", ["/srv/nccl.conf", "/etc/nccl.conf"]),
    ({"NCCL_CONF_FILE": ""}, "", ["/etc/nccl.conf"]),
])
def test_which_files_nccl_reads(environment, home, files):
    assert nccl_host.files_of(environment, home) == files


# The module

class Machine:
    """A host with a running model, its processes, and an engine with a library."""

    def __init__(self, host, tmp_path, monkeypatch):
        self.host, self.proc, self.journal = host, tmp_path / "proc", []
        self.engines, self.home = tmp_path / "engines", tmp_path / "home"
        host.write("engines/e/lib/python3.13/site-packages/nvidia/nccl/lib/libnccl.so.2", TEXT.decode("latin-1").replace("\x7f", "x"))
        (self.engines / "cpu").mkdir()
        self.home.mkdir()
        self.proc.mkdir()
        host.units = {"vllm-small.service": host.RUNNING}
        monkeypatch.setattr(engine_process, "PROC", str(self.proc))
        monkeypatch.setattr(nccl_host, "SYSTEM_FILE", str(tmp_path / "nccl.conf"))
        monkeypatch.setattr(nccl_info, "home_of", lambda user: str(self.home))
        monkeypatch.setattr(systemd, "journal_start", lambda invocation, lines: self.read_journal(invocation))

    def read_journal(self, invocation):
        assert invocation == "0a1b"
        return self.journal

    def process(self, pid, cgroup="/system.slice/vllm-small.service", **environment):
        self.host.write(f"proc/{pid}/environ", "".join(f"{name}={value}\0" for name, value in environment.items()))
        self.host.write(f"proc/{pid}/cgroup", f"0::{cgroup}\n")

    def title(self, pid):
        """A process that has written its title over its environment."""
        self.process(pid)
        self.host.write(f"proc/{pid}/environ", "\0" * 40)


@pytest.fixture
def machine(host, tmp_path, monkeypatch):
    return Machine(host, tmp_path, monkeypatch)


def ask(call, machine, engine="e", check_mode=False, **nccl):
    result = call(nccl_info, check_mode, models=[{"name": "small", "engine": engine, "nccl": nccl}], engines_root=str(machine.engines))
    assert result.pop("changed") is False
    return result


@pytest.mark.case("N6")
def test_a_running_model_and_all_its_processes_have_what_was_declared(call, machine):
    machine.process(4711, PATH="/bin", NCCL_P2P_LEVEL="SYS", NCCL_DEBUG="INFO")
    machine.process(4712, NCCL_P2P_LEVEL="SYS", NCCL_DEBUG="INFO")
    machine.process(99, cgroup="/system.slice/ssh.service", NCCL_DEBUG="TRACE")
    machine.title(4713)
    machine.journal = ["x:4711:4711 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to SYS"]
    found = ask(call, machine, NCCL_P2P_LEVEL="SYS", NCCL_DEBUG="INFO")
    assert found["models"] == {"small": {
        "running": True, "lacking": {}, "unreadable": [4713],
        "effective": [
            {"name": "NCCL_DEBUG", "value": "INFO", "origin": "unit", **UNKNOWN},
            {"name": "NCCL_P2P_LEVEL", "value": "SYS", "origin": "unit", "taken": "yes", "said": "SYS"}]}}
    assert (found["findings"], found["notes"]) == ([], [])
    assert shown(found) == ["small: NCCL_DEBUG=INFO (unit)", "small: NCCL_P2P_LEVEL=SYS (unit; NCCL took it as SYS)"]


@pytest.mark.case("N6")
def test_a_process_without_them_and_one_that_the_engine_gave_others(call, machine):
    machine.process(4711, PATH="/bin", NCCL_P2P_LEVEL="SYS", NCCL_NET="IB")
    machine.process(4712, PATH="/bin", NCCL_CUMEM_ENABLE="0", NCCL_NET="Socket")
    found = ask(call, machine, NCCL_P2P_LEVEL="SYS", NCCL_BUFFSIZE="4194304")
    assert [(each["name"], each["value"], each["origin"]) for each in found["models"]["small"]["effective"]] == [
        ("NCCL_BUFFSIZE", "", "default"), ("NCCL_CUMEM_ENABLE", "0", "engine"), ("NCCL_NET", "Socket", "engine"),
        ("NCCL_P2P_LEVEL", "SYS", "unit")]
    assert found["models"]["small"]["lacking"] == {"4712": ["NCCL_P2P_LEVEL"]}
    assert found["notes"] == ["modelhost_models.small.nccl: process 4712 lacks NCCL_P2P_LEVEL of the unit"]
    assert shown(found) == [
        "small: NCCL_BUFFSIZE is declared, and the running processes have not got it: apply with switch_model.yml",
        "small: NCCL_CUMEM_ENABLE=0 (engine)", "small: NCCL_NET=Socket (engine)", "small: NCCL_P2P_LEVEL=SYS (unit)",
        "modelhost_models.small.nccl.NCCL_BUFFSIZE: NCCL 2.30.7 of e has no such variable and would ignore it: remove the line, or take an "
        "engine whose NCCL has it",
        "modelhost_models.small.nccl: process 4712 lacks NCCL_P2P_LEVEL of the unit"]


@pytest.mark.case("N9")
def test_what_forgotten_files_fill_in_is_reported_with_its_line(call, machine, tmp_path):
    (machine.home / ".nccl.conf").write_text("NCCL_P2P_LEVEL=LOC\nNCCL_IB_DISABLE=1\n")
    (tmp_path / "nccl.conf").write_text("# left over\nNCCL_IB_DISABLE=0\nNCCL_ALGO=Tree\n")
    machine.process(4711, PATH="/bin", NCCL_P2P_LEVEL="SYS")
    found = ask(call, machine, NCCL_P2P_LEVEL="SYS")
    assert shown(found) == [
        f"small: NCCL_ALGO=Tree ({tmp_path}/nccl.conf:3)",
        f"small: NCCL_IB_DISABLE=1 ({machine.home}/.nccl.conf:2)",
        "small: NCCL_P2P_LEVEL=SYS (unit)",
        f"{tmp_path}/nccl.conf:3 sets NCCL_ALGO=Tree for every model that does not declare it: declare it in "
        f"modelhost_models.NAME.nccl, or remove "
        "that line",
        f"{machine.home}/.nccl.conf:2 sets NCCL_IB_DISABLE=1 for every model that does not declare it: declare it in "
        f"modelhost_models.NAME.nccl, or "
        "remove that line"]


@pytest.mark.case("N9")
def test_a_file_of_the_environment_is_read_in_place_of_that_in_the_home(call, machine, tmp_path):
    (machine.home / ".nccl.conf").write_text("NCCL_P2P_LEVEL=LOC\n")
    (tmp_path / "own.conf").write_text("NCCL_DEBUG=warn\n")
    machine.process(4711, NCCL_CONF_FILE=str(tmp_path / "own.conf"))
    machine.journal = ['x NCCL WARN Unrecognized element token "foo" when parsing "LL,foo"']
    effective = ask(call, machine)["models"]["small"]["effective"]
    assert [(each["name"], each["origin"]) for each in effective] == [
        ("NCCL_CONF_FILE", "unit"), ("NCCL_DEBUG", f"{tmp_path}/own.conf:1")]


def test_what_nccl_refused_is_noted(call, machine):
    machine.process(4711, NCCL_NTHREADS="100", NCCL_DEBUG="INFO")
    machine.journal = [
        "x NCCL INFO NCCL_NTHREADS set by environment to 100.", "x NCCL INFO Invalid NCCL_NTHREADS 100 (must be a multiple of 32)"]
    found = ask(call, machine)
    assert found["notes"] == [
        "modelhost_models.small.nccl.NCCL_NTHREADS: NCCL did not take NCCL_NTHREADS=100: Invalid NCCL_NTHREADS 100 (must be a multiple "
        "of 32)"]
    assert shown(found)[1] == "small: NCCL_NTHREADS=100 (unit; NCCL did not take it)"


def test_without_debugging_the_journal_is_not_read(call, machine):
    machine.process(4711, NCCL_P2P_LEVEL="SYS", NCCL_DEBUG="VERSION")
    machine.journal = None
    assert ask(call, machine)["models"]["small"]["effective"][1] == {"name": "NCCL_P2P_LEVEL", "value": "SYS", "origin": "unit", **UNKNOWN}


@pytest.mark.case("N5")
def test_a_name_that_the_engines_library_does_not_have_is_refused(call, machine):
    machine.host.units = {}
    found = ask(call, machine, check_mode=True, NCCL_P2P_LEVEL="SYS", NCCL_BUFFSIZE="1", NCCL_SOCKET_MAGIC="1")
    assert found["engines"]["e"]["version"] == "2.30.7"
    assert found["findings"] == [
        "modelhost_models.small.nccl.NCCL_BUFFSIZE: NCCL 2.30.7 of e has no such variable and would ignore it: remove the line, or "
        "take an engine whose NCCL has it"]
    assert found["models"]["small"]["running"] is False


@pytest.mark.parametrize(("engine", "notes"), [
    ("cpu", ["modelhost_models.small.nccl: cpu has no NCCL library, so that nothing reads it"]), ("absent", [])])
def test_an_engine_that_has_no_nccl(call, machine, engine, notes):
    machine.host.units = {}
    found = ask(call, machine, engine=engine, NCCL_P2P_LEVEL="SYS")
    assert (found["findings"], found["notes"]) == ([], notes)
    assert found["engines"] == {engine: {"library": "", "version": "", "names": []}}


def test_a_model_without_variables_costs_no_look_into_its_library(call, machine):
    machine.host.units = {}
    assert ask(call, machine) == {
        "engines": {}, "findings": [], "notes": [],
        "models": {"small": {"running": False, "effective": [], "lacking": {}, "unreadable": []}}}


def test_a_main_process_that_hides_its_environment_has_that_of_its_file(call, machine):
    machine.title(4711)
    machine.host.write("live/small.nccl.env", 'NCCL_P2P_LEVEL="PHB"\n')
    effective = ask(call, machine, NCCL_P2P_LEVEL="SYS", NCCL_NET="IB")["models"]["small"]["effective"]
    assert [(each["name"], each["value"], each["origin"]) for each in effective] == [
        ("NCCL_NET", "", "default"), ("NCCL_P2P_LEVEL", "PHB", "unit")]


def test_a_main_process_that_has_just_ended(call, machine):
    machine.host.write("trial/small.nccl.env", 'NCCL_P2P_LEVEL="SYS"\n')
    assert ask(call, machine, NCCL_P2P_LEVEL="SYS")["models"]["small"] == {
        "running": True, "lacking": {}, "unreadable": [4711],
        "effective": [{"name": "NCCL_P2P_LEVEL", "value": "SYS", "origin": "unit", **UNKNOWN}]}


def test_the_start_of_a_journal(tmp_path, monkeypatch):
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/words\nwhile echo ' line '; do :; done\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert systemd.journal_start("0a1b", 3) == ["line"] * 3
    assert (tmp_path / "words").read_text() == "--quiet --no-pager --output=cat _SYSTEMD_INVOCATION_ID=0a1b\n"


def test_the_home_is_that_of_the_user_database(monkeypatch):
    assert nccl_info.home_of("root") == "/root"
    assert nccl_info.home_of("no-such-user-here") == ""
