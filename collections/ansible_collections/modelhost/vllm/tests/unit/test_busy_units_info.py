"""Which units keep a driver from being changed."""

from __future__ import annotations

import pytest
from ansible_collections.modelhost.vllm.plugins.modules import busy_units_info


@pytest.mark.parametrize(("state", "busy"), [
    ("active", ["vllm-small.service"]),
    ("activating", ["vllm-small.service"]),
    ("deactivating", ["vllm-small.service"]),
    ("reloading", ["vllm-small.service"]),
    ("inactive", []),
    ("failed", []),
])
def test_states(host, call, state, busy):
    host.units = {"vllm-small.service": {**host.STOPPED, "ActiveState": state}}
    assert call(busy_units_info) == {"changed": False, "units": busy}


def test_several(host, call):
    host.units = {"vllm-b.service": host.RUNNING, "vllm-a.service": host.RUNNING, "vllm-c.service": host.STOPPED}
    assert call(busy_units_info, check_mode=True)["units"] == ["vllm-a.service", "vllm-b.service"]


def test_a_host_without_models(host, call):
    assert call(busy_units_info)["units"] == []
