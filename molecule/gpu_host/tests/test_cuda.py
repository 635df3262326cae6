"""NVIDIA's repository and the CUDA toolkit: what is installed, held, proven and refused. Inventory: toolkit 13.0 from NVIDIA's repository."""

from contextlib import contextmanager

import pytest

BOTH = {"source": "nvidia", "versions": ["12.8", "13.0"], "selected": "13.0"}
WHEELS = {"source": "pypi", "versions": ["13.0"], "selected": "13.0"}
KEYRING, SOURCE = "/etc/apt/keyrings/modelhost-nvidia.gpg", "/etc/apt/sources.list.d/modelhost-nvidia.sources"


@contextmanager
def moved_away(host, path):
    host.check_output("mv %s %s", path, f"{path}.away")
    try:
        yield
    finally:
        host.check_output("mv %s %s", f"{path}.away", path)


@contextmanager
def serving(host):
    """A unit by the name of a model's, as busy as one."""
    host.check_output("systemd-run --unit=vllm-busy sleep infinity")
    try:
        yield
    finally:
        host.check_output("systemctl stop vllm-busy")


@pytest.fixture
def provide(controller, overlay):
    """Run the roles with the scenario's variables, or with others in their place."""

    def act(*arguments, fails=False, **variables):
        done = controller.play("../molecule/gpu_host/toolkit", *arguments, overlay=overlay(**variables) if variables else None)
        assert (done.returncode != 0) is fails
        return done.said.replace("''", "'")

    return act


def test_the_key_is_trusted_for_this_repository_alone(host):
    assert host.file(KEYRING).mode == 0o644
    assert f"Signed-By: {KEYRING}" in host.file(SOURCE).content_string
    assert "nvidia" not in host.check_output("ls /etc/apt/trusted.gpg.d")
    assert "600" in host.check_output("apt-cache policy cuda-toolkit-13-0")


def test_the_toolkit_is_held(host):
    held = host.check_output("apt-mark showhold").split()
    assert {"cuda-toolkit-13-0", "cuda-nvcc-13-0", "cuda-cudart-dev-13-0"} <= set(held)


@pytest.mark.case("H1")
def test_an_upgrade_leaves_the_toolkit(provide, host):
    """The repository has 13.0.1 and 13.0.2 of each package."""
    names = ("cuda-toolkit-13-0", "cuda-nvcc-13-0", "cuda-cudart-dev-13-0")
    older = " ".join(f"{name}=13.0.1-1" for name in names)
    host.check_output(f"apt-get install --yes --allow-downgrades --allow-change-held-packages {older}")
    host.check_output(f"apt-mark auto {' '.join(names[1:])}")  # as they were: teardown leaves what somebody asked for by name
    provide()
    assert [host.package(name).version for name in names] == ["13.0.1-1"] * 3
    assert "Inst cuda-" not in host.check_output("apt-get dist-upgrade --simulate")
    host.check_output(f"apt-mark unhold {' '.join(names)}")
    assert "Inst cuda-toolkit-13-0 [13.0.1-1] (13.0.2-1" in host.check_output("apt-get dist-upgrade --simulate")
    assert "changed=1 " in provide()  # held again


@pytest.mark.case("A6")
def test_toolkits_side_by_side(provide, host):
    provide(modelhost_cuda={**BOTH, "selected": "12.8"})
    assert "release 12.8" in host.check_output("/usr/local/cuda-12.8/bin/nvcc --version")
    assert "release 13.0" in host.check_output("/usr/local/cuda-13.0/bin/nvcc --version")
    assert "cuda-toolkit-12-8" in host.check_output("apt-mark showhold")
    assert "changed=0" in provide()


@pytest.mark.case("A6")
def test_a_toolkit_that_does_not_know_the_gpus(provide):
    said = provide(fails=True, modelhost_gpus={"count": 8, "compute_capability": "7.0"})
    assert "The toolkit /usr/local/cuda-13.0 (modelhost_cuda) cannot do what FlashInfer will ask of it" in said
    assert "it compiles for compute capabilities 7.5, 8.0," in said and "not for 7.0" in said


@pytest.mark.case("A6")
@pytest.mark.parametrize(("path", "sentence"), [
    ("/usr/bin/ninja", "ninja: ninja is not on the PATH /usr/local/bin:/usr/bin:/bin. Install the package ninja-build."),
    ("/usr/include/python3.13/Python.h", "Python.h: python.c:1:10: fatal error: Python.h: No such file or directory."),
])
def test_what_the_service_compiles_with_is_proven(provide, host, path, sentence):
    with moved_away(host, path):
        said = provide(fails=True)
    assert "modelhost cannot compile what Triton and torch.compile will ask for at the first request" in said
    assert sentence in said


def test_nothing_is_installed_below_a_model(provide, host):
    with serving(host):
        said = provide(fails=True, modelhost_cuda=WHEELS)
        assert "vllm-busy.service serves or loads, and 13.0 would be installed on its host" in said
        assert not host.file("/opt/modelhost/cuda").exists
        assert "changed=0" in provide()  # nothing to change is nothing to refuse


@pytest.mark.case("A6")
def test_the_real_nvcc_from_wheels(provide, host):
    """Downloads 700 MB. The proof is the role's own; this asks for more, a kernel that is Blackwell's."""
    with serving(host):
        provide("-e", "provision_force=true", modelhost_cuda=WHEELS)
    home = "/opt/modelhost/cuda/13.0"
    assert host.check_output("find %s ! -user root -o -perm /go+w ! -type l", home) == ""
    host.check_output("printf '__global__ void k(int *x) { *x = 1; }' > /tmp/k.cu")
    host.check_output("cd / && runuser -u modelhost -- %s/bin/nvcc -arch=sm_120 -cubin -o /tmp/k.cubin /tmp/k.cu", home)
    assert host.check_output("%s/bin/nvcc --list-gpu-code", home).split()[-2:] == ["sm_120", "sm_121"]
    assert host.file("/tmp/k.cubin").content[:4] == b"\x7fELF"
    host.check_output("rm /tmp/k.cu /tmp/k.cubin")


def test_an_interrupted_installation_is_finished(provide, host):
    host.check_output("rm /opt/modelhost/cuda/13.0/.complete")
    provide(modelhost_cuda=WHEELS)
    assert host.file("/opt/modelhost/cuda/13.0/.complete").exists
    assert not host.file("/opt/modelhost/cuda/13.0.partial").exists


def test_a_toolkit_that_is_there(provide):
    present = {"source": "present", "path": "/opt/modelhost/cuda/13.0", "versions": ["13.0"], "selected": "13.0"}
    assert "changed=0" in provide(modelhost_cuda=present)


@pytest.mark.case("A5")
@pytest.mark.parametrize("path", [":/usr/local/cuda-13.0", "/usr/local/cuda-13.0:/opt/cuda"])
def test_its_folder_is_one_absolute_path(provide, path):
    said = provide(fails=True, modelhost_cuda={"source": "present", "path": path, "versions": [], "selected": ""})
    assert f'(CUDA_HOME; modelhost_cuda.path with source present) is "{path}": it must be one absolute path' in said


def test_another_key_is_refused_and_not_written(provide, host):
    other = {"debian13": {"file": "8793F200.pub", "fingerprint": "0" * 40}}
    with moved_away(host, KEYRING):
        said = provide(fails=True, nvidia_repository_keys=other)
        assert "and 0000000000000000000000000000000000000000 is expected. Nothing was written." in said
        assert not host.file(KEYRING).exists


def test_another_declaration_of_the_repository(provide, host):
    path = "/etc/apt/sources.list.d/cuda-debian13-x86_64.list"
    line = "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://example.org/compute/cuda/repos/debian13/x86_64/ /"
    host.check_output("echo %s > %s", line, path)
    try:
        assert f"NVIDIA's repository is declared in {path} already" in provide(fails=True)
    finally:
        host.check_output("rm %s", path)
