"""A run's hot metrics, end to end: evidence, text file, node exporter, Prometheus."""

import time

import pytest
from services.prometheus import Prometheus, is_clean, needs_prometheus

from benchhouse.schema.hot_metrics import LABELS, SCOPE, STATS, result_name


def labels_of(text: str) -> set[str]:
    return {
        pair.partition("=")[0]
        for line in text.splitlines()
        if "{" in line and not line.startswith("#")
        for pair in line.partition("{")[2].rpartition("}")[0].split(",")
    }


@needs_prometheus
def test_the_figures_of_a_real_prometheus_are_those_of_the_evidence(lab, tmp_path):
    place = lab.workspace / "prom"
    place.mkdir()
    home = tmp_path / "prometheus"
    home.mkdir()
    with Prometheus(home, place, []) as server:
        lab.bench(
            "run", lab.scenario("certified", workload={"n": [1, 2, 3]}, repetitions=2),
            "--textfile", place, "--label", "cluster=alps", "--label", "region=eu",
        )  # fmt: skip
        (file,) = place.glob("*.prom")
        is_clean(file.read_text())
        assert labels_of(file.read_text()) <= set(LABELS)
        newest = {}
        for trial in sorted(lab.trials(), key=lambda trial: trial.meta["ended"]):
            newest[trial.spec["benchmark_case_id"]] = trial
        assert len(newest) == 3
        compared = 0
        for case, trial in newest.items():
            for row in trial.metrics["benchhouse"]["measurements"]:
                if row["window"] or row["stat"] not in STATS:
                    continue
                name, factor, _ = result_name(row["metric"], row["stat"], row["unit"])
                expression = f'{name}{{run_id="{lab.run_id()}",benchmark_case_id="{case}",cluster="alps",region="eu"}}'
                assert server.value(expression) == pytest.approx(row["value"] * factor, rel=1e-12)
                compared += 1
        assert compared == 3 * 6  # mean, p50, p95, p99, max of `wait`, and `rate`
        assert server.value(f'benchhouse_run_trials_succeeded{{run_id="{lab.run_id()}"}}') == 6


@needs_prometheus
def test_the_values_of_a_running_trial_can_be_scraped_and_go_with_it(lab, tmp_path):
    scenario = lab.scenario(
        "slow", workload={"seconds": 4, "spin": True},
        monitors={"interval": 0.5, "textfile": "prom", "labels": {"cluster": "alps"}},
    )  # fmt: skip
    place = lab.workspace / "prom"
    process = lab.start("run", scenario)
    try:
        deadline = time.monotonic() + 120
        while not (found := list(place.glob("benchhouse_live_*.prom"))) or "cpu" not in found[0].read_text():
            assert time.monotonic() < deadline, process.poll()
            time.sleep(0.05)
        text = found[0].read_text()
        is_clean(text)
        assert labels_of(text) <= {*LABELS, SCOPE}
        assert 'scope="trial"' in text
        assert 'cluster="alps"' in text
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, out + err
    finally:
        process.kill()
    assert [path.name for path in place.iterdir()] == [f"benchhouse_run_{lab.run_id()}.prom"]


def test_a_label_that_is_not_on_the_list_is_refused_before_anything_runs(lab):
    scenario = lab.scenario("slow")
    for label in ("request_id=1", "user=me", "run_id=7", "nonsense"):
        done = lab.bench("run", scenario, "--textfile", lab.workspace / "prom", "--label", label, code=2)
        assert "cluster, region, node_pool" in done.stderr or "NAME=VALUE" in done.stderr
    done = lab.bench("validate", lab.scenario("slow", monitors={"textfile": "prom", "labels": {"user": "me"}}), code=2)
    assert "cluster" in done.stderr
    assert not (lab.workspace / ".bench" / "runs").exists()
    assert not (lab.workspace / "prom").exists()


def test_a_text_file_that_can_not_be_written_any_more_is_told_and_the_run_goes_on(lab):
    place = lab.workspace / "prom"
    process = lab.start("run", lab.scenario("slow", workload={"seconds": 1.5, "n": [1, 2]}), "--textfile", place)
    lab.wait_for_mark("slow-1-*")
    for path in place.iterdir():
        path.unlink()
    place.rmdir()
    place.write_text("no longer a folder")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert err.count("the text file is not kept up to date") == 1
    assert len(lab.trials()) == 2
