"""Where downloads come from: what an inventory may say."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.module_utils.downloads import download_findings

EXAMPLE = {
    "modelhost_ca_bundle": "", "modelhost_pypi_url": "", "modelhost_pytorch_url": "https://download.pytorch.org/whl/cu130",
    "modelhost_hub_url": "https://huggingface.co", "modelhost_nvidia_url": "https://developer.download.nvidia.com/compute/cuda/repos",
    "modelhost_find_links": [], "modelhost_https_proxy": "", "modelhost_offline": "",
}


@pytest.mark.parametrize("changes", [
    {},
    {"modelhost_nvidia_url": "file:///srv/vendor", "modelhost_offline": "/srv/offline", "modelhost_find_links": ["/srv/wheels", "/srv/more"]},
    {"modelhost_https_proxy": "http://proxy.example.org:3128", "modelhost_ca_bundle": "/etc/ssl/site.pem"},
])
def test_what_passes(changes):
    assert download_findings({**EXAMPLE, **changes}) == []


@pytest.mark.parametrize(("name", "value", "sentence"), [
    ("modelhost_find_links", "/srv/wheels", "modelhost_find_links: '/srv/wheels' is no list of absolute paths: write [] or [/srv/wheels]"),
    ("modelhost_find_links", ["wheels"], "modelhost_find_links: ['wheels'] is no list of absolute paths: write [] or [/srv/wheels]"),
    ("modelhost_find_links", None, "modelhost_find_links is missing or empty: write [] for none, as inventory/example does"),
    ("modelhost_offline", True, "modelhost_offline: True is no text: put it in quotes"),
    ("modelhost_offline", "srv/offline", "modelhost_offline: 'srv/offline' is no absolute path: begin it with /, or write '' for none"),
    ("modelhost_offline", None, "modelhost_offline is missing or empty: write '' for none, as inventory/example does"),
    ("modelhost_ca_bundle", "site.pem", "modelhost_ca_bundle: 'site.pem' is no absolute path: begin it with /, or write '' for none"),
    ("modelhost_pypi_url", "mirror/simple", "modelhost_pypi_url: 'mirror/simple' is no address: begin it with https:// or http://"),
    ("modelhost_https_proxy", "proxy:3128", "modelhost_https_proxy: 'proxy:3128' is no address: begin it with https:// or http://"),
    ("modelhost_hub_url", None, "modelhost_hub_url is missing or empty: write the address that inventory/example has, or that of a mirror"),
    ("modelhost_hub_url", "", "modelhost_hub_url is missing or empty: write the address that inventory/example has, or that of a mirror"),
])
def test_what_is_refused(name, value, sentence):
    assert download_findings({**EXAMPLE, name: value}) == [sentence]
