"""The battery of questions on a host: what binds decides, everything is kept, and nothing is stopped."""

import json

import pytest


@pytest.fixture(scope="module", autouse=True)
def plain_serves(controller):
    controller.plays("switch_model")


def kept(host):
    newest = host.check_output("ls /var/lib/modelhost/coherence/plain").split()[-1]
    document = json.loads(host.file(f"/var/lib/modelhost/coherence/plain/{newest}").content_string)
    return document, {each["name"]: each["verdict"] for each in document["items"]}


def test_what_binds_decides(controller, host, unit):
    pid = unit("plain").pid
    said = controller.plays("check_coherence").said
    document, verdicts = kept(host)
    assert (document["verdict"], document["model"], document["engine"]["name"]) == ("coherent", "plain", "vllm-standin-1.0.0")
    assert (verdicts["fact"], verdicts["arithmetic"], verdicts["logprobs"]) == ("coherent", "incoherent", "incoherent")
    assert "tool call" not in verdicts  # plain has no parser for it
    assert "arithmetic (incoherent)" in said and "it does not name 42 or forty-two" in said
    copy = controller.artifacts / f"demo/coherence/plain/{document['started']}.json"
    assert json.loads(copy.read_text()) == document
    assert unit("plain").pid == pid


def test_a_model_that_does_not_serve_is_not_asked(controller, host):
    before = host.check_output("ls /var/lib/modelhost/coherence/plain")
    failed = controller.play("check_coherence", "-e", "model=odd")
    assert failed.returncode != 0
    assert "model: odd is stopped, and plain serves." in failed.said
    assert "fact, fact again, logprobs" in controller.plays("check_coherence", "--check").said
    assert host.check_output("ls /var/lib/modelhost/coherence/plain") == before


@pytest.mark.case("C4")
def test_what_does_not_bind_fails_where_all_of_it_does(controller, overlay):
    failed = controller.play("check_coherence", overlay=overlay(modelhost_models={"plain": {
        "engine": "vllm-standin-1.0.0", "gpus": [], "port": 8000, "weights": {"source": "directory", "path": "/srv/weights/standin"},
        "coherence": {"binds": ["fact", "arithmetic"]}}}))
    assert failed.returncode != 0
    assert "incoherent (arithmetic)" in failed.said
