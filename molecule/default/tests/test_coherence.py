"""The battery of questions, asked of a real vLLM with a real small model: what it knows, and what it was heard to say."""

import json


def test_a_small_model_makes_sense_as_far_as_it_binds(controller):
    controller.plays("check_coherence")
    newest = max((controller.artifacts / "demo/coherence").glob("*/*.json"), key=lambda path: path.name)
    document = json.loads(newest.read_text())
    said = {each["name"]: each for each in document["items"]}
    assert document["verdict"] == "coherent"
    assert (said["fact"]["verdict"], said["fact"]["answer"]) == ("coherent", "The capital of France is Paris.")
    assert (said["arithmetic"]["verdict"], said["arithmetic"]["answer"].splitlines()[0]) == ("incoherent", "17 + 25 = 32")
    assert said["other language"]["verdict"] == "incoherent"
    assert said["logprobs"]["reason"] == "9 logprobs from -1.65 to -0.35"
    assert [said[f"needle {place}"]["answer"].count("7319") > 0 for place in ("at the head", "in the middle", "at the tail")] == [True] * 3
