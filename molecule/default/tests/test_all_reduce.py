"""The probe with the engine's own torch, over gloo between two processes of the service user."""

from __future__ import annotations

import json


def test_all_reduce_is_measured_beside_the_served_model(controller, host, tmp_path):
    said = controller.plays("advise", "-e", f"all_reduce_artifacts={tmp_path}").said
    assert "No advice on parallelism" in said
    [copy] = (tmp_path / "demo/all_reduce").iterdir()
    document = json.loads(copy.read_text())
    assert json.loads(host.file(f"/var/lib/modelhost/all_reduce/{copy.name}").content_string) == document
    assert (document["schema"], document["backend"], document["world_size"], document["verdict"]) == (1, "gloo", 2, "ok")
    assert [each["bytes"] for each in document["sizes"]] == [1152, 2304, 4608, 9216, 18432, 36864, 73728, 9437184]
    assert all(each["latency_us"] > 0 for each in document["sizes"])
