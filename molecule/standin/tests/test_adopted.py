"""A host that already serves, from a unit that somebody wrote by hand and that runs as root."""

import hashlib

import pytest

UNIT = "/etc/systemd/system/vllm-plain.service"
BY_HAND = """\
[Service]
ExecStart=/opt/modelhost/engines/vllm-standin-1.0.0/bin/python -m vllm_standin.serve --model /srv/weights/standin --port 8000 --served-model-name mine
Environment=STANDIN_LOAD_SECONDS=1
Restart=always
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture(scope="module", autouse=True)
def by_hand(host, controller):
    """The host as it was before modelhost came: its unit serves, and nothing of ours says so."""
    controller.plays("switch_model")
    host.check_output("systemctl disable --now vllm-plain")
    host.check_output("rm -r /var/lib/modelhost/state /var/lib/modelhost/generations /etc/modelhost/models /etc/modelhost/declared")
    host.check_output("printf %%s %s > %s", BY_HAND, UNIT)
    host.check_output("systemctl daemon-reload && systemctl enable --now vllm-plain")
    yield
    host.run("systemctl disable --now vllm-plain vllm-odd")
    host.run("rm -r /var/lib/modelhost/state /etc/systemd/system/vllm-*.service")
    host.check_output("systemctl daemon-reload")
    controller.plays("switch_model")


@pytest.mark.case("L15")
def test_it_is_adopted_and_not_bulldozed(controller, endpoint, unit, host, overlay, wait_for):
    wait_for(lambda: endpoint.names() == ["mine"])
    pid = unit("plain").pid

    refused = controller.play("site")
    assert refused.returncode != 0
    assert f"{UNIT} is there and modelhost did not write it: it stays as it is. To take it over, say -e adopt=true" in refused.said

    kept = controller.plays("site", "-e", "adopt=true")
    assert "plain is serving" in kept.said
    copy = f"/var/lib/modelhost/adopted/vllm-plain.service.{hashlib.sha256(BY_HAND.encode()).hexdigest()[:12]}"
    assert (host.file(copy).content_string, host.file(copy).mode) == (BY_HAND, 0o600)
    assert host.file(UNIT).content_string == BY_HAND
    assert unit("plain").pid == pid
    assert "a unit that modelhost did not write" in controller.plays("status").said

    # A successor that does not serve gives way to it.
    failed = controller.play("switch_model", "-e", "adopt=true", "-e", "model=crashing")
    assert failed.returncode != 0
    assert "State: plain serves again, as before." in failed.said
    assert endpoint.names() == ["mine"]
    assert host.file(UNIT).content_string == BY_HAND
    assert unit("plain").show("User", "UnitFileState") == {"User": "", "UnitFileState": "enabled"}

    # One that answers takes its place.
    controller.plays("switch_model", "-e", "adopt=true")
    assert endpoint.names() == ["plain", "default"]
    assert unit("plain").show("User", "UnitFileState") == {"User": "modelhost", "UnitFileState": "enabled"}
    assert host.file(copy).content_string == BY_HAND
    assert "did not write" not in controller.plays("status").said
