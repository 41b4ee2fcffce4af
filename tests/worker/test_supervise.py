"""How a trial may end, whatever the experiment does; through `bench run`, as a user meets it."""

import json
import re
import subprocess
import sys

import pytest
from laboratory import ENDINGS, Lab, Trial, wait_until

from benchhouse.evidence.verify import verify
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.trial import MEASURED, OUTCOMES


@pytest.fixture(scope="module")
def endings(tmp_path_factory):
    """One run of every ending; the trials of the others go on, so one run shows them all."""
    lab = Lab(tmp_path_factory.mktemp("endings"))
    lab.scenario("mischief", workload={"act": list(ENDINGS)}, parallel=2)
    lab.done = lab.bench("run", "s.yaml", code=1)
    return lab


def test_every_ending_has_its_outcome_and_code(endings):
    trials, failures = endings.by("act"), []
    for act, (outcome, code) in ((act, ending) for act, ending in ENDINGS.items() if ending):
        trial = trials[act]
        found = (trial.outcome, trial.metrics["benchhouse"]["outcome"], trial.metrics["errors"]["rate"])
        expected = (outcome, outcome, None if outcome in MEASURED else 1)  # null: it was not measured
        if outcome not in OUTCOMES or found != expected or code not in (None, trial.code):
            failures.append((act, found, trial.code))
    assert not failures
    assert {trial.meta["trials_before"] for trial in trials.values()} == {None}, "each has a process of its own"


def test_the_other_trials_go_on_and_nothing_is_left(endings):
    assert set(endings.by("act")) == {act for act in ENDINGS if ENDINGS[act]}
    endings.is_tidy()


def test_what_is_raised_is_kept_with_type_message_traceback_and_last_words(endings):
    failure = endings.by("act")["raise"].meta["failure"]
    assert failure["message"] == "a known mistake"
    assert "loud_error" in failure["traceback"]
    assert failure["log_tail"].splitlines() == ["last words on stderr", "last words on stdout"]
    assert "a known mistake" in endings.done.stderr
    assert "effective_config.yaml" in endings.done.stderr


def test_an_endless_message_is_cut(endings):
    assert (endings.by("act")["endless_message"].folder / "meta.json").stat().st_size < 1_000_000


def test_a_handled_failure_has_no_traceback_and_is_not_retried(endings):
    trial = endings.by("act")["fail"]
    assert trial.meta["failure"]["traceback"] == ""
    assert len(trial.meta["attempts"]) == 1


def test_a_kill_from_outside_is_retried_and_a_segfault_is_not(endings):
    trials = endings.by("act")
    assert [item["outcome"] for item in trials["killed"].meta["attempts"]] == ["error"] * 3
    assert len(trials["segfault"].meta["attempts"]) == 1


def test_a_retryable_failure_is_tried_again_and_every_attempt_is_kept(endings):
    trial = endings.by("act")["flaky"]
    assert [(item["attempt"], item["outcome"]) for item in trial.meta["attempts"]] == [
        (1, "failed"),
        (2, "failed"),
        (3, "succeeded"),
    ]
    assert [item["reason"] for item in trial.meta["attempts"]] == ["the service is away"] * 2 + [""]
    kept = [trial.folder.with_name(f"{trial.folder.name}.attempt-{number}") for number in (1, 2)]
    assert [json.loads((path / "meta.json").read_bytes())["failure"]["code"] for path in kept] == ["busy", "busy"]
    assert not trial.folder.with_name(f"{trial.folder.name}.attempt-3").exists()


def test_retries_end(endings):
    assert len(endings.by("act")["flaky_for_ever"].meta["attempts"]) == 3


def test_an_experiment_that_kills_its_worker_is_lost_and_named(endings):
    lost = [event for event in endings.events() if event.get("outcome") == "lost"]
    assert len(lost) == 3
    assert len({event["trial_id"] for event in lost}) == 1
    assert "killed by signal 9" in lost[0]["reason"]


def test_a_trial_that_was_cut_short_measured_nothing(endings):
    assert endings.by("act")["overflow"].metrics["benchhouse"]["measurements"] == []


def test_an_invalid_trial_keeps_its_numbers_and_all_its_reasons_and_is_not_retried(endings):
    trial = endings.by("act")["invalid"]
    assert {item["stat"]: item["value"] for item in trial.metrics["benchhouse"]["measurements"]}["mean"] == 2.5
    assert trial.metrics["latency_ms"]["p50"] == 2.5
    reason = "the requests were 40 ms late; ask for fewer; starved: the client had no CPU left"
    assert trial.meta["failure"]["message"] == reason
    assert trial.metrics["notes"].startswith(f"INVALID: late: {reason}")
    assert [(item["outcome"], item["reason"]) for item in trial.meta["attempts"]] == [("invalid", reason)]


@pytest.mark.parametrize("act", ["invalid_fail", "invalid_raise"])
def test_a_trial_that_doubts_itself_and_then_fails_has_failed_and_its_doubts_are_warnings(endings, act):
    trial = endings.by("act")[act]
    assert trial.metrics["benchhouse"]["measurements"] == []
    assert [item["code"] for item in trial.meta["warnings"]] == ["late", "starved"]


def test_a_histogram_gives_its_statistics_in_the_declared_unit(endings):
    trial = endings.by("act")["histogram"]
    rows = {item["stat"]: item for item in trial.metrics["benchhouse"]["measurements"]}
    assert list(rows) == ["mean", "stdev", "min", "p50", "p90", "p95", "p99", "p99.9", "max"]
    assert {(item["n"], item["unit"]) for item in rows.values()} == {(1000, "ms")}
    assert (rows["mean"]["value"], rows["min"]["value"], rows["max"]["value"]) == (500.5, 1, 1000)  # exact
    for stat, exact in {"p50": 500.5, "p90": 900.1, "p95": 950.05, "p99": 990.01, "p99.9": 999.001}.items():
        assert rows[stat]["value"] == pytest.approx(exact, rel=2**-11)
    assert trial.metrics["latency_ms"] == {stat: rows[stat]["value"] for stat in ("p50", "p90", "p99")}
    told = trial.metrics["benchhouse"]["quantile_definitions"]
    assert told == {"x": "histogram, relative error at most 0.05%"}
    assert not (trial.folder / "samples.csv").exists()
    (entry,) = json.loads((trial.folder / "histograms.json").read_bytes())["histograms"]
    assert (entry["metric"], entry["window"], entry["unit"], entry["relative_error"]) == ("x", "", "ms", 2**-11)
    assert sum(entry["nanoseconds"]["counts"]) == 1000
    assert "histograms.json" in json.loads((trial.folder / "manifest.json").read_bytes())["files"]


def test_processes_that_outlive_the_experiment_are_ended_and_named(endings):
    (warning,) = endings.by("act")["daemon"].meta["warnings"]
    assert warning["code"] == "left_processes"
    assert "sleep" in warning["message"]


def test_artifacts_that_can_not_be_sealed_are_left_out_by_name(endings):
    trial = endings.by("act")["odd_artifacts"]
    (warning,) = trial.meta["warnings"]
    assert warning["code"] == "artifacts_changed"
    assert all(word in warning["message"] for word in ("artifacts/pipe", "artifacts/link", "udcff.bin"))
    names = {path.name for path in (trial.folder / "artifacts").rglob("*") if path.is_file()}
    assert names == {"a b\nc é.txt", "\\udcff.bin", "locked"}


def test_facts_that_are_no_json_are_kept_as_text(endings):
    trial = endings.by("act")["odd_facts"]
    facts = trial.meta["custom"]
    assert facts["nan"] is None
    assert facts["inf"] is None
    assert facts["word"] == "NaN"
    assert facts["odd"] == {"(1, 2)": [3]}
    assert facts["broken"] == "\\ud800"
    assert facts["when"] == "/a"
    assert trial.meta["warnings"] == [{"code": "7", "message": "None"}]


def test_a_plain_function_gives_metrics_and_metadata_unless_a_name_is_bad(lab):
    lab.run("plain", workload={"n": [4, -1]}, code=1)
    trial, bad = (lab.by("n")[n] for n in (4, -1))
    measured = {item["metric"]: item["value"] for item in trial.metrics["benchhouse"]["measurements"]}
    assert measured == {"double": 8, "half": 2}
    assert trial.meta["custom"] == {"word": "yes", "list": [1], "flag": True, "nothing": None}
    assert bad.code == "bad_metric_name"


def test_a_deprecated_experiment_runs_with_a_warning(lab):
    done = lab.bench("run", lab.scenario("old"))
    assert "old 0.9 is deprecated: it was wrong; use new" in done.stderr
    assert lab.trials()[0].meta["warnings"] == [{"code": "deprecated", "message": "old 0.9: it was wrong; use new"}]


# -- limits --------------------------------------------------------------------------------------------------------


def test_a_stubborn_trial_with_children_ends_at_its_wall_limit(lab):
    lab.run("mischief", code=1, workload={"act": "stubborn"}, limits={"wall": 1})
    lab.is_tidy()
    (trial,) = lab.trials()
    assert (trial.outcome, trial.code) == ("timeout", "wall_limit")
    assert trial.meta["limits"] == {"asked": {"wall": 1.0}, "enforced_by": {"wall": "worker timer"}}
    assert 1 <= trial.meta["duration_s"] < 60
    assert trial.metrics["errors"]["timeouts"] == 1


def test_trials_end_at_their_limits_of_cpu_and_memory_also_when_a_child_uses_them(lab):
    acts = ["burn", "burn_below", "fill", "fill_below"]
    lab.run("mischief", code=1, workload={"act": acts}, limits={"cpu": 1, "memory": "200MB"}, parallel=2)
    lab.is_tidy()
    trials = lab.by("act")
    for act in ("burn", "burn_below"):
        assert (trials[act].outcome, trials[act].code) == ("timeout", "cpu_limit"), act
        assert trials[act].meta["limits"]["enforced_by"]["cpu_s"].startswith("RLIMIT_CPU + tree accounting")
        assert 0.9 < trials[act].meta["usage"]["cpu_s"] < 3, act
    enforced_by = trials["fill"].meta["limits"]["enforced_by"]["memory"]
    assert re.match("cgroup|RLIMIT_AS", enforced_by)
    for act in ("fill", "fill_below") if "cgroup" in enforced_by else ("fill",):  # else each process has its own limit
        assert (trials[act].outcome, trials[act].code) == ("out_of_memory", "memory_limit"), act


def test_a_quarter_of_a_gigabyte_of_output_is_kept_in_part_and_in_little_memory(lab):
    """The CPU time of the capture is checked in test_output.py, without the start of a run."""
    lab.run("mischief", workload={"act": "shout"})
    (trial,) = lab.trials()
    assert sum(path.stat().st_size for path in trial.folder.rglob("*") if path.is_file()) < 40 << 20
    assert "bytes not kept" in trial.stdout()
    assert trial.meta["usage"]["max_rss_bytes"] < 200 << 20


# -- secrets -------------------------------------------------------------------------------------------------------


def test_secrets_reach_the_experiment_and_nothing_else(lab):
    passwords = {"A": "hunter2-åß", "B": 'quo"te\\back', "C": "1234"}
    lab.variables |= passwords
    scenario = lab.scenario(
        "secretive", target={"password": ["$A", "$B", "$C"]}, workload={"environ": [False, True]},
        environment={"DB_PASSWORD": "$A"},
    )  # fmt: skip
    done = lab.bench("run", scenario, code=1)
    lab.bench("report", code=0)
    assert {path.read_text() for path in lab.marks.glob("told-*")} == set(passwords.values())
    assert len(list(lab.marks.glob("told-*"))) == len(lab.trials()) == 6
    for trial in lab.trials():
        assert trial.meta["failure"]["message"] == "refused: [redacted]"
        assert "the password is [redacted]" in trial.stdout()
        assert (trial.folder / "artifacts" / "dump.bin").read_bytes().endswith(b"\0[redacted]\xff tail")
        assert "secret_blanked" in {warning["code"] for warning in trial.meta["warnings"]}
    del passwords["C"]  # each digest has four digits like these
    shapes = {form for text in passwords.values() for form in (text, json.dumps(text)[1:-1])}
    shapes |= {json.dumps(text, ensure_ascii=False)[1:-1] for text in passwords.values()}
    assert not [shape for shape in shapes if shape in done.stdout + done.stderr]
    for path in lab.workspace.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not any(shape.encode() in data for shape in shapes), path


# -- a worker by itself ----------------------------------------------------------------------------------------------


def prepared(lab, template, act="ok"):
    """A folder as a worker would find it."""
    folder = lab.workspace / "alone" / "trial"
    folder.mkdir(parents=True)
    spec = template | {"final": str(lab.workspace / "alone" / "sealed"), "cache": str(lab.root / "cache")}
    spec["parameters"] = {"act": act, "n": 0}
    (folder / "trial.json").write_text(json.dumps(spec))
    return folder


def work(lab, *args):
    command = [sys.executable, "-m", "benchhouse.worker", *map(str, args)]
    return subprocess.run(command, env=lab.environment(), capture_output=True, text=True, timeout=60)


def test_a_worker_needs_no_host(lab, template):
    folder = prepared(lab, template, "daemon")
    done = work(lab, folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    sealed = folder.with_name("sealed")
    assert not folder.exists()
    assert verify(TrialFolder(sealed)) == []
    assert Trial(sealed).outcome == "succeeded"
    lab.is_tidy()


def test_a_worker_exits_with_an_error_for_wrong_arguments(lab):
    assert work(lab, lab.workspace / "nowhere").returncode == 1
    assert work(lab, "--what").returncode == 2


def test_a_worker_that_is_terminated_seals_nothing_and_leaves_nothing(lab, template):
    folder = prepared(lab, template, "stubborn")
    worker = subprocess.Popen([sys.executable, "-m", "benchhouse.worker", str(folder)], env=lab.environment())
    wait_until(lambda: len(lab.left_running()) >= 4, "the stubborn family")
    worker.terminate()
    assert worker.wait(120) == 143
    assert not folder.with_name("sealed").exists()
    lab.is_tidy()


def test_the_log_of_a_trial_has_its_start_and_its_end(endings):
    lines = [json.loads(line) for line in (endings.by("act")["fail"].folder / "logs" / "trial.jsonl").open()]
    notes = [(line["level"], line["message"]) for line in lines if line["component"] == "worker"]
    assert notes[0] == ("info", "trial started") and notes[-1] == ("info", "trial ended")
