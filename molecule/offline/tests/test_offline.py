"""A host whose network is cut off, provisioned from the offline directory: that it is cut, that it serves, and what it refuses."""

import pytest

CALL = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)
    print("connected")
except OSError as error:
    print(type(error).__name__, error.errno)
"""
FLIP = """
import os, sys
with open(sys.argv[1], "r+b") as stream:
    stream.seek(os.path.getsize(sys.argv[1]) // 2)
    byte = stream.read(1)
    stream.seek(-1, 1)
    stream.write(bytes([byte[0] ^ 255]))
"""


@pytest.fixture
def flip(host):
    """Damage a file of the offline directory without changing its size, and repair it at the end."""
    flipped = []

    def act(pattern):
        path = host.check_output("ls -d /srv/offline/" + pattern)
        host.check_output("python3 -c %s %s", FLIP, path)
        flipped.append(path)

    yield act
    for path in flipped:
        host.check_output("python3 -c %s %s", FLIP, path)


@pytest.mark.parametrize(("address", "port", "said"), [
    ("example.com", "443", "gaierror -3"),  # no name is resolved
    ("192.0.2.1", "443", "OSError 113"),    # no address beyond the container network is reached
    ("10.88.77.1", "53", "OSError 113"),    # nor the machine that carries the host
])
def test_the_network_is_cut(host, address, port, said):
    assert host.check_output("python3 -c %s %s %s", CALL, address, port) == said


def test_the_host_has_no_right_to_mend_its_network(host):
    capabilities = int(host.check_output("sed -n 's/^CapBnd:\t//p' /proc/1/status"), 16)
    assert capabilities >> 21 & 1 == 1  # CAP_SYS_ADMIN, which the test hosts have
    assert capabilities >> 12 & 1 == 0  # CAP_NET_ADMIN


def test_the_model_answers(endpoint, unit):
    assert endpoint.capital_of_france("hub") == ("hub", "The capital of France is Paris.")
    assert unit("hub").show("ActiveState", "UnitFileState") == {"ActiveState": "active", "UnitFileState": "enabled"}


def test_the_weights_are_those_of_the_hub(host):
    store = "/var/lib/modelhost/weights/tiny--llama--0123456789ab"
    assert host.check_output("sha256sum %s/config.json", store).split()[0] == (
        "68400e68ae0a8da6ff804e7f65472d9b93cbcc0b7b5f8932e97149504780ba3b")
    assert host.file(f"{store}/.modelhost.json").exists


def test_apt_sees_only_the_directory_and_the_hosts_own_sources_are_as_they_were(host):
    seen = "APT_CONFIG=/srv/offline/apt/apt.conf apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages'"
    assert host.check_output(seen) == "file:/srv/offline/apt/"
    [source] = host.check_output("cat /etc/apt/sources.list").splitlines()
    assert source.startswith("deb http")
    assert host.run("ls /etc/apt/sources.list.d").stdout == ""
    assert host.run("grep -r offline /etc/apt").stdout == ""


def test_a_truncated_directory_is_refused_before_anything_is_installed(controller, host):
    wheel = host.check_output("ls /srv/offline/wheels/uv-*.whl")
    host.check_output("mv %s /srv/kept && head -c 1000 /srv/kept > %s", wheel, wheel)
    try:
        refused = controller.play("provision")
    finally:
        host.check_output("mv /srv/kept %s", wheel)
    assert refused.returncode != 0
    assert "modelhost_offline is /srv/offline and not what its manifest.json says. Missing: none; damaged: wheels/uv-0.13.9-" in refused.said
    assert "(1000 of " in refused.said


def test_a_directory_that_anybody_may_write_to_is_refused(controller, host):
    host.check_output("chmod go+w /srv/offline/apt && chown deploy /srv/offline/manifest.json")
    try:
        refused = controller.play("provision")
    finally:
        host.check_output("chmod go-w /srv/offline/apt && chown root /srv/offline/manifest.json")
    assert refused.returncode != 0
    assert "others than root may write to /srv/offline/manifest.json, /srv/offline/apt: chown -R root:root" in refused.said


def test_a_damaged_package_is_refused_by_apt(controller, host, flip):
    host.check_output("apt-get purge --yes --quiet ninja-build")
    flip("apt/ninja-build_*.deb")
    refused = controller.play("provision")
    assert refused.returncode != 0
    assert "Hash Sum mismatch" in refused.said
    assert not host.exists("ninja")


def test_a_damaged_wheel_is_refused_by_its_hash(controller, host, flip):
    host.check_output("apt-get purge --yes --quiet ninja-build; rm -rf /opt/modelhost/tools/uv-*")
    flip("wheels/uv-*.whl")
    refused = controller.play("provision")
    assert refused.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.said


def test_the_repaired_directory_repairs_the_host(controller, host):
    controller.plays("provision")
    assert host.exists("ninja")
    assert host.file("/opt/modelhost/tools/uv-0.13.9/bin/uv").exists
