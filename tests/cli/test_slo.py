"""`bench slo find`: a real search against a queue with a known answer, and what is no search."""

import json
import math
from pathlib import Path

import pytest
from mocks.llm import MockLLM
from services.quiet_moment import in_a_quiet_moment

from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.documents.yaml_writer import dump_yaml

RATE = "requests_per_s"


def scenario(lab, url, **workload):
    return lab.scenario(
        "serving.load",
        name="knee",
        target={"url": url, "model": "mock", "api": "completions", "stream": False},
        workload={"warmup": 0.5, "prompts": {"prompt_tokens": 4, "output_tokens": 1}} | workload,
    )


@pytest.mark.slow("the search sends up to 4000 requests, at the rate that a queue of known capacity takes")
@pytest.mark.serial
@pytest.mark.timeout(900)
def test_the_knee_of_a_queue_is_found_with_an_interval_that_holds_it(lab):
    """M/M/1 at 250/s: a tenth of the requests take more than 40 ms where 250 - rate = ln(10) / 0.04 s."""
    knee = 250 - math.log(10) / 0.04
    asked = ["--slo", "e2e.p90<40ms", "--to", "500", "--requests", "4000", "--precision", "10%"]
    answers = []

    def search():
        with MockLLM(servers=1, service_exp_ms=4, seed=5) as server:
            # On a busy machine the client is late, and the search would repeat each probe.
            path = scenario(lab, server.url, rps=100, error_limit="100ms")
            done = lab.bench("slo", "find", path, *asked, "--json", code=None, timeout_s=280)
        answers.append((done, json.loads(done.stdout)))
        found = answers[-1][1]["found"]
        assert found["status"] in ("found", "budget")
        assert found["low"] * 0.9 <= knee <= found["high"] * 1.1 < 2 * found["low"]

    in_a_quiet_moment(search, attempts=3)
    done, answer = answers[-1]
    found = answer["found"]
    assert found["requests"] <= 4000
    assert len(answer["probes"]) == found["probes"] >= 3
    assert json.loads((lab.workspace / "reports" / "knee-slo" / "slo.json").read_text()) == answer
    assert "probe 1: 100 requests/s, " in done.stderr
    lab.bench("report", answer["probes"][-1]["run_id"])
    lab.is_tidy()


def test_the_capacity_is_what_the_probes_measured_and_the_scenario_is_read_as_everywhere(lab):
    """One server that takes 7.5 ms for a request: 133.3/s. A short window ends within a second, which counts in part.
    In YAML 1.1 `on` would be true."""
    with MockLLM(servers=1, ttft_ms=7.5) as server:
        path = scenario(lab, server.url, concurrency=4, error_limit="100ms")
        path.write_text(dump_yaml(parse_yaml(path.read_text(), "").data) + "description: on\n")
        asked = ["--slo", "e2e.p90<5s", "--to", "8", "--requests", "600", "--json"]
        answer = json.loads(lab.bench("slo", "find", path, *asked, code=None, timeout_s=120).stdout)
    measured = [json.loads((folder / "metrics.json").read_text()) for folder in lab.folders("knee-slo")]
    rates = [row["value"] for trial in measured for row in trial["benchhouse"]["measurements"] if row["metric"] == RATE]
    assert sorted(rates) == sorted(point["delivered"] for point in answer["found"]["curve"])
    assert 80 < answer["capacity"] < 134.5
    kept = lab.workspace_object().run(answer["probes"][0]["run_id"]).scenario.read_text()
    assert parse_yaml(kept, "kept").value(("description",)) == "on"


def test_a_scenario_with_several_points_is_no_search(lab):
    done = lab.bench("slo", "find", scenario(lab, "http://127.0.0.1:1", rps=[1, 2]), "--slo", "e2e.p90<1s", code=2)
    assert "a search needs a scenario with one point, and this one has 2" in done.stderr


def test_an_experiment_without_a_load_is_named(lab):
    done = lab.bench("slo", "find", lab.scenario("once"), "--slo", "e2e.p90<1s", code=2)
    assert "is no load experiment" in done.stderr


def test_a_mistake_in_the_objective_is_told_with_its_place(lab):
    done = lab.bench("slo", "find", scenario(lab, "http://127.0.0.1:1", rps=1), "--slo", "tttf.p90<1s", code=2)
    assert "did you mean" in done.stderr.lower()
    assert "ttft" in done.stderr


def test_a_server_that_is_not_there_ends_the_search(lab):
    done = lab.bench("slo", "find", scenario(lab, "http://127.0.0.1:1", rps=1), "--slo", "e2e.p90<1s", code=1)
    assert "not_reached" in done.stderr


@pytest.mark.slow("the search sends 800 requests at each of three loads")
@pytest.mark.timeout(600)
def test_a_load_that_the_client_cannot_deliver_lowers_the_search(lab):
    """Four requests of 50 ms in flight are at most 80 a second, whoever sends them; a client that another load leaves a
    third of that delivers an eighth of the first load."""
    with MockLLM(ttft_ms=50) as server:
        limits = {"arrivals": "constant", "max_in_flight": 4, "error_limit": "300ms"}
        path = scenario(lab, server.url, rps=200, warmup=0, **limits)
        asked = ["--slo", "e2e.p50<30s", "--requests", "800", "--precision", "10%"]
        done = lab.bench("slo", "find", path, *asked, "--json", code=1, timeout_s=500)
    answer = json.loads(done.stdout)
    assert answer.get("found"), done.stdout + done.stderr
    assert answer["found"]["status"] == "client_limited" and answer["found"]["knee"] < 100
    assert [probe["load"] for probe in answer["undelivered"]][:2] == [200, 100]
    assert answer["undelivered"][0]["reason"].startswith(("not_delivered: ", "e2e.p50 can be off by "))
    assert f"the client could not deliver 200 ({answer['undelivered'][0]['reason']})" in done.stderr
    assert answer["error_limit"] == 0.3 and "knee" not in answer
    report = lab.bench("report", answer["probes"][-1]["run_id"])
    page = Path(report.stdout.strip().splitlines()[-1])
    assert "the workload takes times that can be off by 300 ms" in page.read_text()


def test_only_where_no_load_at_all_can_be_delivered_does_the_search_give_up(lab):
    """One request of 10 ms in flight is at most 100 a second, and an eighth of the first load is 150."""
    with MockLLM(ttft_ms=10) as server:
        path = scenario(lab, server.url, rps=1200, warmup=0, arrivals="constant", max_in_flight=1)
        done = lab.bench("slo", "find", path, "--slo", "e2e.p50<30s", "--requests", "800", code=1, timeout_s=500)
    assert "the client could not deliver any load, not even 150 rps: " in done.stderr
    assert "error_limit" in done.stderr and "--to" not in done.stderr
