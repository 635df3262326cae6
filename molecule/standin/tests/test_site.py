"""What site.yml leaves on the host: asked from systemd, from the running process and from the endpoint."""

import json

import pytest


def test_the_wished_model_answers_under_both_names(endpoint):
    assert endpoint.names() == ["plain", "default"]
    assert endpoint.capital_of_france("plain") == ("plain", "The capital of France is Paris.")
    assert endpoint.capital_of_france("default") == ("plain", "The capital of France is Paris.")


def test_the_unit_is_what_was_designed(unit):
    assert unit("plain").show(
        "ActiveState", "UnitFileState", "Type", "User", "Restart", "KillMode", "TimeoutStopUSec", "LimitMEMLOCK", "StartLimitBurst",
        "StartLimitIntervalUSec", "NoNewPrivileges", "ProtectSystem", "FragmentPath") == {
            "ActiveState": "active", "UnitFileState": "enabled", "Type": "exec", "User": "modelhost", "Restart": "always", "KillMode": "mixed",
            "TimeoutStopUSec": "6s", "LimitMEMLOCK": "infinity", "StartLimitBurst": "3", "StartLimitIntervalUSec": "6h",
            "NoNewPrivileges": "yes", "ProtectSystem": "strict", "FragmentPath": "/etc/systemd/system/vllm-plain.service"}


def test_other_models_have_units_that_do_not_start_at_boot(unit):
    assert unit("odd").show("LoadState", "ActiveState", "UnitFileState") == {
        "LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "disabled"}


def test_every_process_runs_as_the_service_user(host, unit):
    group = unit("plain").show("ControlGroup")["ControlGroup"]
    pids = host.check_output("cat /sys/fs/cgroup%s/cgroup.procs", group).split()
    assert len(pids) == 2
    assert set(host.check_output("ps -o user:20= -p %s", ",".join(pids)).split()) == {"modelhost"}


@pytest.mark.case("N6")
def test_nccl_settings_are_in_the_running_process_and_nowhere_else(host, unit):
    environment = unit("plain").environment
    assert {name: value for name, value in environment.items() if name.startswith("NCCL_")} == {"NCCL_P2P_LEVEL": "SYS", "NCCL_DEBUG": "WARN"}
    assert host.run("grep -rl NCCL_ /etc/environment /etc/profile.d /etc/systemd/system").stdout == ""


@pytest.mark.case("L12")
def test_caches_are_keyed_by_engine(unit):
    environment = unit("plain").environment
    assert {name: environment[name] for name in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE")} == {
        "VLLM_CACHE_ROOT": "/var/cache/modelhost/vllm-standin-1.0.0/vllm",
        "TRITON_CACHE_DIR": "/var/cache/modelhost/vllm-standin-1.0.0/triton",
        "FLASHINFER_WORKSPACE_BASE": "/var/cache/modelhost/vllm-standin-1.0.0/flashinfer"}


@pytest.mark.case("A6")
@pytest.mark.parametrize("tool", ["gcc --version", "g++ --version", "ninja --version"])
def test_the_service_user_finds_the_jit_tools_on_the_units_path(host, unit, tool):
    path = unit("plain").environment["PATH"]
    assert path == "/opt/modelhost/engines/vllm-standin-1.0.0/bin:/usr/local/bin:/usr/bin:/bin"
    assert host.run("setpriv --reuid=modelhost --regid=modelhost --clear-groups env PATH=%s " + tool, path).rc == 0


@pytest.mark.case("A6")
def test_python_headers_are_there(host):
    assert host.run("echo '#include <Python.h>' | gcc -E -I/usr/include/python3.13 - ").rc == 0


def test_the_service_cannot_write_to_its_engine(host, unit):
    """Its mount namespace has the engine read-only, and its user could not write there either."""
    mounts = host.check_output("cat /proc/%s/mountinfo", str(unit("plain").pid))
    root = [line.split() for line in mounts.splitlines() if line.split()[4] == "/"][-1]
    assert "ro" in root[5].split(",")
    owners = host.check_output("find /opt/modelhost/engines/vllm-standin-1.0.0 '(' ! -user root -o -perm /022 ')' ! -type l")
    assert owners == ""


def test_the_record_of_what_was_applied(host):
    applied = json.loads(host.check_output("cat /var/lib/modelhost/state/applied.json"))
    assert applied["schema"] == 1
    assert list(applied["models"]) == ["plain"]
    record = applied["models"]["plain"]
    assert {name: record[name] for name in ("wish", "engine", "host", "port", "gpus")} == {
        "wish": "plain", "engine": "vllm-standin-1.0.0", "host": "127.0.0.1", "port": 8000, "gpus": []}
    names = host.check_output("ls /var/lib/modelhost/generations/plain/%s", record["generation"]).split()
    assert names == ["plain.env", "plain.nccl.env", "plain.yaml", "vllm-plain.service"]


def test_only_the_loopback_address_is_bound(host):
    listening = host.check_output("python3 -c %s", "print(open('/proc/net/tcp').read())")
    # 8000 is 1F40; 0100007F is 127.0.0.1; 0A is LISTEN
    assert [line.split()[1] for line in listening.splitlines() if ":1F40" in line.split()[1] and line.split()[3] == "0A"] == ["0100007F:1F40"]
