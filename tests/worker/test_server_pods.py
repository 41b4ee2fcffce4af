"""What a trial notes of the pods behind its server, by the file that its run's process writes."""

import threading

import pytest

from benchhouse.evidence.writing import write_model
from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.server_pods import PodChange, ServerPod, ServerPods
from benchhouse.worker.server_pods import PodsBehind


@pytest.fixture
def looks(tmp_path):
    """Writes a look, and goes on with the same pods until the test is over."""
    path, over = tmp_path / "llm.json", threading.Event()
    state = {
        "server": "service/llm", "context": "c", "namespace": "n", "address": "pods", "endpoints": ["http://a:1"],
        "pods": [ServerPod(name="a", uid="1", images={"main": "sha256:1"}, ready=True)], "look": 1,
    }  # fmt: skip
    write = lambda: write_model(path, ServerPods.model_validate(state), sync=False)  # noqa: E731

    def go_on():
        while not over.wait(0.01):
            state["look"] += 1
            write()

    write()
    thread = threading.Thread(target=go_on)
    yield path, state, thread
    over.set()
    if thread.ident:
        thread.join()


def test_pods_that_stay_are_evidence_without_a_warning(looks):
    path, _, thread = looks
    thread.start()
    behind = PodsBehind()
    endpoints, facts = behind.begin("llm", path)
    assert endpoints == ["http://a:1"]
    assert (facts["mode"], facts["kubernetes"], facts["pods"][0]["uid"]) == ("external", "service/llm", "1")
    assert [(item.code, item.facts) for item in behind.compare()] == [("", {"changes": []})]


def test_a_change_before_the_trial_is_none_of_its_and_one_within_it_is_told(looks):
    path, state, thread = looks
    state["changes"] = [PodChange(look=1, at="t0", message="the pod z is gone")]
    thread.start()
    behind = PodsBehind()
    behind.begin("llm", path)
    state["changes"] = [*state["changes"], PodChange(look=10**6, at="t1", message="the pod a is gone")]
    (compared,) = behind.compare()
    assert (compared.code, compared.facts["changes"]) == ("server_changed", ["t1 the pod a is gone"])
    assert compared.message == "behind llm (service/llm), during the trial: the pod a is gone"


def test_a_server_without_a_ready_pod_fails_the_trial(looks):
    path, state, thread = looks
    state |= {"problem": "service/llm has no ready pod", "endpoints": []}
    thread.start()
    with pytest.raises(ExperimentFailed, match="llm: service/llm has no ready pod"):
        PodsBehind().begin("llm", path)


def test_that_nobody_looks_any_more_is_told(looks):
    path, _, _ = looks
    behind = PodsBehind(patience_s=0.05)
    assert behind.begin("llm", path)[1]["stale"]
    assert [item.code for item in behind.compare()] == ["pods_unseen"]
    path.unlink()
    (compared,) = behind.compare()
    assert compared.code == "pods_unseen" and "llm.json" in compared.message
    with pytest.raises(ExperimentFailed, match="never looked up"):
        PodsBehind().begin("llm", path)
