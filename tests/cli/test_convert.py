"""Descriptors of Benchmark AI on the command line: printed as scenarios, planned, run, kept as schedules."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples" / "benchmark-ai"
SITE = ("--site", EXAMPLES / "site.yaml")
RUN = {  # a metric of each, its mean as the program prints it, and its unit
    "emit": ("accuracy", 0.6, "1"),
    "single-node-cpu": ("throughput", 321.5, "img/s"),
    "horovod": ("throughput", 201.5, "img/s"),
    "inference": ("response_time", None, "s"),
    "shell-script": ("round_trip", 2.5, "ms"),
}


def test_each_example_plans_as_itself_and_as_what_it_is_converted_to(bench, tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "copy")
    paths = sorted(EXAMPLES.glob("*.toml"))
    failures = []
    for path in paths:
        plan = bench("plan", tmp_path / "copy" / path.name, *SITE, "--json")
        (tmp_path / "copy" / "made.yaml").write_text(bench("convert", path, *SITE).out)
        again = bench("plan", tmp_path / "copy" / "made.yaml", *SITE, "--json")
        if plan.code or again.code or json.loads(again.out)["plan_digest"] != json.loads(plan.out)["plan_digest"]:
            failures.append((path.name, plan.err, again.err))
    assert len(paths) >= 20 and not failures


@pytest.mark.parametrize("name", RUN)
def test_examples_run_where_their_program_exists(name, bench, tmp_path):
    done = bench("run", EXAMPLES / f"{name}.toml", *SITE, "--json")
    assert done.code == 0, done.err + done.out
    metric, mean, unit = RUN[name]
    rows = {(row["metric"], row["stat"]): row for row in json.loads(done.out)["points"]}
    assert rows[metric, "mean"]["unit"] == unit
    assert mean is None or rows[metric, "mean"]["mean"] == pytest.approx(mean)
    if name == "emit":
        for table in ("benchmark_run_fact", "trial_fact"):
            sql = f"SELECT json_extract_string(labels, '$.task_name') AS task FROM {table}"
            assert bench("query", sql, "--csv").out == "task\nemitted_accuracy\n"
        (config,) = tmp_path.glob("results/*/*/effective_config.yaml")
        assert yaml.safe_load(config.read_text())["labels"] == {"task_name": "emitted_accuracy"}
    if name == "single-node-cpu":
        (meta,) = tmp_path.glob("results/*/*/meta.json")
        staged = json.loads(meta.read_text())["custom"]["data"]
        assert [item["path"] for item in staged] == ["data/images/train.txt", "data/images/validation.txt"]


def test_the_schedule_of_a_descriptor_is_kept(bench):
    added = bench("schedule", "add", EXAMPLES / "scheduled.toml", *SITE, "--json")
    assert json.loads(added.out)["cron"] == "0 2 * * *"
    rendered = bench("schedule", "render", EXAMPLES / "distributed.toml", *SITE, "--on", "scrontab")
    assert "0 0 * * 0 " in rendered.out, rendered.err
    none = bench("schedule", "add", EXAMPLES / "emit.toml", *SITE)
    assert none.code == 2 and "nothing says when emit.toml is to run" in none.err


@pytest.mark.parametrize(
    ("old", "new", "place", "phrase"),
    [
        ("([-+]?", "(a)([-+]?", "22:11", "has 2 groups"),
        ('"elapsed"', '"elapsed time"', "20:8", "does not match the pattern"),
        ("[ml]", '[[data.sources]]\nsrc = "ftp://host/x"\npath = "/x"\n[ml]', "16:1", "can't be fetched"),
    ],
)
def test_what_only_the_experiment_refuses_is_told_in_the_descriptor_too(old, new, place, phrase, bench, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text((EXAMPLES / "hello-world.toml").read_text().replace(old, new))
    done = bench("validate", path)
    assert done.code == 2 and f"bad.toml:{place}:" in done.err and phrase in done.err, done.err


def test_only_descriptors_are_converted(bench, tmp_path):
    done = bench("convert", tmp_path / "x.yaml")
    assert done.code == 2 and "is no descriptor" in done.err
    assert yaml.safe_load(bench("convert", EXAMPLES / "emit.toml").out)["scenario"] == "emitted_accuracy"
