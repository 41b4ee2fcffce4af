import json
from dataclasses import replace

import pytest
from tables import check_table
from trial_maker import make_trial

from benchhouse.report.pull_request import comparison_markdown, comparison_svg
from benchhouse.results.comparison import CompareOptions, ComparisonSide, compare_runs
from benchhouse.results.comparison_sides import compare_selected
from benchhouse.results.invalid_trials import caveats
from benchhouse.results.selection import Selector, parse_selector, select
from benchhouse.schema.errors import BenchError
from benchhouse.schema.measurement import Measurement
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.query import Warehouse


def row(run="a", point="ef=16", target="hnsw", values=(10.0, 10.1, 9.9, 10.0, 10.05), **changes):
    name, _, ef = point.partition("=")
    parameters = {name: int(ef), "k": 10}
    base = {
        "run_id": run,
        "scenario": "s",
        "experiment": "vector.search",
        "target_name": target,
        "point": point,
        "axes": json.dumps({name: int(ef)}),
        "target": json.dumps({"name": target}),
        "parameters": json.dumps(parameters),
        "instance_digest": f"{target}/{point}",
        "benchmark_case_id": f"case/{point}",
        "workload_spec_digest": "w",
        "metric": "qps",
        "stat": "value",
        "unit": "1/s",
        "direction": "higher",
        "n": len(values),
        "values": list(values),
        "trials": [f"{run}-{at}" for at in range(len(values))],
    }
    return base | changes


def compare_rows(a, b, *, selected=(), names=("A", "B"), facts=({}, {}), order=None, **options):
    one, two = (
        ComparisonSide(name, rows, selected, known) for name, rows, known in zip(names, (a, b), facts, strict=True)
    )
    return compare_runs(one, two, CompareOptions(**options), order)


def scaled(factor, **more):
    return row(values=[factor * value for value in (10.0, 10.1, 9.9, 10.0, 10.05)], **more)


@check_table(
    "text, selector",
    [
        ("@last", Selector("@last")),
        ("run-a:index=hnsw", Selector("run-a", {"index": "hnsw"})),
        ("run-a: index = hnsw , ef=16", Selector("run-a", {"index": "hnsw", "ef": "16"})),
        ("run-a:path=a=b", Selector("run-a", {"path": "a=b"})),
    ],
)
def test_selector_is_a_run_and_filters(text, selector):
    assert parse_selector(text) == selector


@check_table("text", ["", ":a=b", "run:", "run:a", "run:a=", "run:=b", "run:a=1,a=2"])
def test_malformed_selector_is_refused(text):
    with pytest.raises(BenchError):
        parse_selector(text)


def test_select_filters_on_axes_target_and_parameters():
    rows = [row(), row(point="ef=64"), row(target="flat")]
    assert select(rows, Selector("a", {"ef": "16", "target": "hnsw"})) == [rows[0]]
    assert select(rows, Selector("a", {"target.name": "flat"})) == [rows[2]]
    assert select(rows, Selector("a", {"k": "10"})) == rows


def test_select_says_which_values_there_are():
    with pytest.raises(BenchError, match="no point with ef=17; it has 16, 64"):
        select([row(), row(point="ef=64")], Selector("a", {"ef": "17"}))


def test_same_instance_is_matched_by_digest_and_judged_by_direction():
    table = compare_rows([row()], [scaled(1.2, run="b")])
    found = table.rows[0]
    assert (found.verdict, found.n_a, found.n_b) == ("better", 5, 5)
    assert found.change == pytest.approx(0.2)
    assert found.change_interval[0] < 0.2 < found.change_interval[1]
    assert found.hedges_g > 5
    assert compare_rows([row()], [scaled(0.8, run="b")]).regressions()[0].verdict == "worse"


def test_targets_are_matched_on_the_same_case():
    table = compare_rows([row()], [scaled(2, target="flat")], selected={"target"})
    assert [(item.dimension, item.a, item.b) for item in table.differences] == [("target", "hnsw", "flat")]
    assert len(table.rows) == 1
    assert not table.exploratory


def test_a_selected_axis_does_not_tell_points_apart():
    table = compare_rows([row()], [scaled(2, point="ef=64")], selected={"ef"})
    assert table.rows[0].point == "ef=16 → ef=64"
    assert [item.dimension for item in table.differences] == ["parameter ef"]


def named(target, index, **more):
    """A point of a run whose targets are its only axis."""
    axes, whole = json.dumps({"target.name": target}), json.dumps({"name": target, "index": index})
    return row(target=target, axes=axes, **more) | {"target": whole}


def test_selecting_among_targets_leaves_the_workload_to_match_by():
    table = compare_rows([named("flat", "flat")], [named("ivf-4", "ivf")], selected={"index", "target"})
    assert [item.dimension for item in table.differences] == ["target"]
    assert len(table.rows) == 1


def nested(level, target="gzip", **more):
    """A point of an axis inside a mapping: `values.level`."""
    parameters = {"values": {"file": "data.txt", "level": level}, "k": 10}
    axes = {"target.name": target, "values.level": level}
    changes = {"axes": json.dumps(axes), "parameters": json.dumps(parameters), "point": f"{target} level={level}"}
    identity = {"instance_digest": f"{target}/{level}", "benchmark_case_id": f"case/{level}"}
    return row(target=target, **more) | changes | identity


@check_table("key", ["values.level", "workload.values.level", "level"])
def test_a_selected_axis_inside_a_mapping_does_not_distinguish_points(key):
    table = compare_rows([nested(1)], [nested(9)], selected={key})
    assert [item.point for item in table.rows] == ["gzip level=1 → gzip level=9"]
    assert [(item.dimension, item.a, item.b) for item in table.differences] == [("parameter values.level", "1", "9")]


def test_two_targets_pair_level_by_level_on_an_axis_inside_a_mapping():
    sides = ([nested(level, target) for level in (1, 6, 9)] for target in ("gzip", "bzip2"))
    table = compare_rows(*sides, selected={"name"})
    assert [item.point for item in table.rows] == [f"gzip level={n} → bzip2 level={n}" for n in (1, 6, 9)]
    across = compare_rows([nested(1)], [nested(9, "bzip2")], selected={"name", "values.level"})
    assert len(across.rows) == 1


def test_what_else_differs_inside_the_mapping_still_tells_points_apart():
    other = nested(9) | {"parameters": json.dumps({"values": {"file": "else.txt", "level": 9}, "k": 10})}
    with pytest.raises(BenchError, match="nothing to compare"):
        compare_rows([nested(1)], [other], selected={"values.level"})


@check_table("key", ["target.options.cache", "options.cache", "cache"])
def test_an_option_inside_a_target_selects_among_targets(key):
    sides = []
    for cache in (0, 1):
        whole = {"target": json.dumps({"name": "db", "options": {"cache": cache}}), "point": f"cache={cache}"}
        sides.append([row(instance_digest=str(cache), axes=json.dumps({"target.options.cache": cache})) | whole])
    assert len(compare_rows(*sides, selected={key}).rows) == 1


def test_a_value_with_a_line_break_is_found_without_it_and_shown_on_one_line():
    rows = [row(axes=json.dumps({"stdin": text})) for text in ("1000\n", "20\n")]
    for wanted in ("1000", "1000\\n"):
        assert select(rows, Selector("a", {"stdin": wanted})) == [rows[0]]
    with pytest.raises(BenchError, match=r"no point with stdin=7; it has 1000\\n, 20\\n"):
        select(rows, Selector("a", {"stdin": "7"}))


def test_one_selected_point_is_compared_with_each_of_several():
    several = [named(f"hnsw-{ef}", "hnsw") for ef in (16, 48)]
    one = [named("flat", "flat")]
    assert len(compare_rows(one, several, selected={"index"}).rows) == 2
    assert len(compare_rows(several, one, selected={"index"}).rows) == 2
    two = [*one, named("flat-2", "flat")]
    with pytest.raises(BenchError, match="nothing to compare"):
        compare_rows(two, several, selected={"index"})


def test_targets_of_two_runs_are_not_taken_for_each_other():
    with pytest.raises(BenchError, match="nothing to compare: no point of old belongs to one of new") as refused:
        compare_rows([named("flat", "flat")], [named("ivf-4", "ivf", run="b")], names=("old", "new"))
    assert "old has flat ef=16\nnew has ivf-4 ef=16\n" in refused.value.hint
    assert refused.value.exit_code == 2


def test_points_of_one_side_are_listed_not_dropped():
    table = compare_rows([row(), row(point="ef=64")], [row(run="b"), row(run="b", point="ef=128")])
    assert (len(table.rows), table.only_a, table.only_b) == (1, ["ef=64"], ["ef=128"])


def test_ambiguous_points_are_not_paired_by_guess():
    twins = [row(run="b", target="flat"), row(run="b", target="ivf")]
    with pytest.raises(BenchError, match="nothing to compare") as refused:
        compare_rows([row()], twins)
    assert "B has flat ef=16, ivf ef=16" in refused.value.hint


def test_points_without_a_common_metric_say_what_each_has():
    with pytest.raises(BenchError, match="no metric in common") as refused:
        compare_rows([row()], [row(run="b", metric="latency", stat="mean")])
    assert refused.value.hint == "A has qps\nB has latency mean"


def test_the_same_trials_on_both_sides_are_noted():
    assert compare_rows([row()], [row()]).notes == ["A and B are the same trials."]
    assert compare_rows([row()], [row(run="b")]).notes == []


def test_percentile_is_shaky_where_either_side_has_too_few_samples():
    many, few = (row(metric="latency", stat="p99", samples=5 * each) for each in (100, 20))
    assert [compare_rows([a], [b]).rows[0].shaky for a, b in ((many, many), (many, few), (few, many))] == [
        False, True, True,
    ]  # fmt: skip
    assert "~latency p99" in comparison_markdown(compare_rows([few], [many])).replace("\\", "")


def test_metrics_come_in_the_order_given():
    sides = [[row(run=run, metric=metric) for metric in ("a", "b", "c")] for run in ("x", "y")]
    table = compare_rows(*sides, order={"c": 0, "b": 1})
    assert [item.metric for item in table.rows] == ["c", "b", "a"]


@check_table("change", [{"unit": "1/min"}, {"direction": "lower"}])
def test_metric_that_means_something_else_is_refused(change):
    with pytest.raises(BenchError, match="can't be compared"):
        compare_rows([row()], [row(run="b", **change)])


def test_two_changes_at_once_are_exploratory():
    facts = {"git commit": "aaa", "host": "node1"}
    one = compare_rows([row()], [row(run="b")], facts=(facts, facts | {"host": "node2"}))
    assert not one.exploratory
    two = compare_rows([row()], [row(run="b")], facts=(facts, {"git commit": "bbb", "host": "node2"}))
    assert two.exploratory
    assert two.notes[0].startswith("Exploratory: 2 things changed at once (git commit, host)")


def test_the_executor_is_no_second_cause_beside_another_change():
    facts = {"executor": "local", "host": "node1"}
    table = compare_rows([row()], [row(run="b")], facts=(facts, {"executor": "dask", "host": "node2"}))
    assert [item.dimension for item in table.differences] == ["executor", "host"]
    assert not table.exploratory


def test_headline_statistics_are_compared_and_single_sided_ones_named():
    a = [row(metric="latency", stat=stat, unit="ms", direction="lower") for stat in ("mean", "p50", "p90", "p99")]
    b = [dict(item, run_id="b") for item in a[:2]]
    table = compare_rows(a, b, names=("old", "new"))
    assert [item.stat for item in table.rows] == ["mean"]
    assert table.unmatched_metrics == ["latency p99 (only in old)"]
    everything = compare_rows(a, b, every=True)
    assert [item.stat for item in everything.rows] == ["mean", "p50"]
    assert everything.unmatched_metrics == ["latency p90 (only in A)", "latency p99 (only in A)"]


def test_unknown_metric_is_refused_with_those_there_are():
    with pytest.raises(BenchError, match="no metric nope here; there are qps"):
        compare_rows([row()], [row(run="b")], metrics=("nope",))


@check_table(
    "bounds, verdict",
    [
        ((None, None), "worse"), ((0.4, 0.5), "worse"), ((0.6, 0.5), "within error bounds"),
        ((1.1, None), "within error bounds"), ((None, 5.0), "within error bounds"),
    ],
)  # fmt: skip
def test_a_difference_within_the_error_bounds_is_not_called_a_difference(bounds, verdict):
    a, b = row(error_bound=bounds[0]), scaled(0.9, run="b", error_bound=bounds[1])  # about 1.0 apart
    table = compare_rows([a], [b])
    (compared,) = table.rows
    assert (compared.verdict, compared.error_bound_a, compared.error_bound_b) == (verdict, *bounds)
    assert compared.sentence.endswith(f": {verdict}")
    assert any("can be off by" in note for note in table.notes) == (verdict == "within error bounds")
    assert table.regressions() == ([] if verdict != "worse" else [compared])


def test_equal_sides_have_no_evidence_of_a_difference_whatever_their_bounds():
    table = compare_rows([row(error_bound=3.0)], [row(run="b", error_bound=3.0)])
    assert table.rows[0].verdict == "no evidence of a difference"


def refused(metric, stat, at="hnsw/ef=16"):
    return {"instance_digest": at, "metric": metric, "stat": stat}


def test_figures_that_are_invalid_in_every_trial_are_named_with_their_side():
    latency = {"metric": "latency", "unit": "ms", "direction": "lower", "stat": "p99"}
    a = ComparisonSide("A", [row(), row(**latency)], refused=[refused("latency", "max")])
    b = ComparisonSide(
        "B", [row(run="b")], refused=[refused("latency", "p99"), refused("other", "mean", "of another point")]
    )
    table = compare_runs(a, b)
    assert [item.name for item in table.rows] == ["qps"]
    assert table.invalid_metrics == ["latency p99 is INVALID in every trial of B"]
    assert table.unmatched_metrics == []
    assert "latency p99 is INVALID in every trial of B" in comparison_markdown(table)
    with pytest.raises(BenchError, match="nothing to compare: latency p99 is INVALID in every trial of B"):
        compare_runs(a, b, CompareOptions(metrics=("latency.p99",)))


def test_a_run_whose_every_figure_is_invalid_says_so(collected):
    bad = Measurement(metric="qps", stat="value", value=1.0, unit="1/s", error_bound=1.0, valid=False)
    folders = [make_trial(collected, "run-off", at, numbers=[bad]) for at in (1, 2)]
    collect(collected, "run-off", folders)
    with Warehouse.open(collected) as warehouse, pytest.raises(BenchError, match="INVALID in every trial: qps"):
        compare_selected(warehouse, "run-a", "run-off")


def test_a_side_without_the_metric_is_told_what_it_has(collected):
    recall = Measurement(metric="recall", stat="value", value=0.9, unit="1")
    collect(collected, "run-b", [make_trial(collected, "run-b", at, numbers=[recall]) for at in (1, 2)])
    with Warehouse.open(collected) as warehouse, pytest.raises(BenchError, match="have no metric in common") as refused:
        compare_selected(warehouse, "run-a", "run-b", CompareOptions(("qps",)))
    assert refused.value.hint == "run-a has qps\nrun-b has recall"


def test_one_repetition_is_not_judged():
    table = compare_rows([row(values=(1.0,))], [row(run="b", values=(2.0,))])
    assert table.rows[0].verdict == "too few repetitions"
    assert table.rows[0].change_interval is None


def test_the_same_input_gives_the_same_table_as_json():
    first, second = (compare_rows([row()], [scaled(1.01, run="b")]).as_dict() for _ in range(2))
    assert json.dumps(first) == json.dumps(second)


def test_markdown_holds_changes_rows_and_what_is_missing():
    text = comparison_markdown(
        compare_rows([row(), row(point="ef=64")], [scaled(1.2, run="b")], names=("x|y", "B"), facts=({}, {"host": "n"}))
    )
    assert text.startswith("**B against A: 1 better**")  # the verdict first, and each side named once
    assert text.count("x|y") == 1
    assert "\n| qps | 10.01/s | 12.01/s | +20.0% (" in text
    both = [row(), row(point="ef=64")], [row(run="b"), row(run="b", point="ef=64")]
    assert "\n| ef=64 | qps |" in comparison_markdown(compare_rows(*both))
    assert "Only in A: ef=64." in text


def test_a_long_comparison_shows_what_got_worse_and_folds_the_rest():
    points = [f"ef={at}" for at in range(40)]
    worse = [row(run="b", point=point) if point != "ef=33" else scaled(0.5, run="b", point=point) for point in points]
    compared = compare_rows([row(point=point) for point in points], worse)
    text = comparison_markdown(compared)
    assert text.startswith("**B against A: 1 worse, 39 no evidence of a difference**")
    table = text[: text.index("<details><summary>10 more</summary>")]
    assert table.index("| ef=33 |") < table.index("| ef=0 |")
    drawn = comparison_svg(compared)
    assert drawn.startswith("<svg")
    assert "10 more not drawn" in drawn
    assert drawn.count("<circle") == 30


def test_compare_selected_reads_the_warehouse(collected):
    with Warehouse.open(collected) as warehouse:
        table = compare_selected(warehouse, "run-a:ef=16", "run-a:ef=64", CompareOptions(("qps",)))
    assert [item.point for item in table.rows] == [
        "name=flat ef=16 → name=flat ef=64",
        "name=hnsw ef=16 → name=hnsw ef=64",
    ]
    assert {item.verdict for item in table.rows} == {"better"}
    assert [item.dimension for item in table.differences] == ["parameter ef"]


def test_by_default_the_headline_of_each_metric_is_compared_and_with_every_all_of_it(collected):
    present = {"time": ("mean", "min", "p50", "p99", "max"), "size": ("p50", "p90", "max"), "rate": ("value",)}
    for at, run in enumerate(("run-x", "run-y")):
        numbers = [
            Measurement(metric=metric, stat=stat, value=float(at + 1), unit="ms", direction="lower", n=100)
            for metric, stats in present.items()
            for stat in stats
        ]
        collect(collected, run, [make_trial(collected, run, number, numbers=numbers) for number in (0, 1)])
    with Warehouse.open(collected) as warehouse:
        leading, everything = (
            compare_selected(warehouse, "run-x", "run-y", CompareOptions(every=every)) for every in (False, True)
        )
    assert {item.name for item in leading.rows} == {"time mean", "time p99", "size p50", "rate"}
    shown = [same(item) for item in everything.rows]
    assert len(shown) == 9 and all(same(item) in shown for item in leading.rows)


def same(row):
    """Without what depends on the number of rows."""
    return replace(row, p_adjusted=None)


LATE = {"outcome": "invalid", "value": 9e9, "reason": ("late", "requests were 41 ms late; ask for fewer")}


def test_invalid_trials_are_refused_and_counted_with_their_reason(collected):
    with Warehouse.open(collected) as warehouse:
        before = compare_selected(warehouse, "run-a:ef=16", "run-a:ef=64")
    collect(collected, "run-a", [make_trial(collected, "run-a", at, **LATE) for at in (7, 8)])
    with Warehouse.open(collected) as warehouse:
        table = compare_selected(warehouse, "run-a:ef=16", "run-a:ef=64")
    assert table.rows == before.rows
    failed, invalid, warned = (note for note in table.notes if note not in before.notes)
    assert "of 13 trials of run-a:ef=16 carry warnings: " in warned
    assert failed == "1 of 13 trials of run-a:ef=16 did not succeed and are not in these numbers."
    why = "late: requests were 41 ms late; ask for fewer (2 trials)"
    assert invalid == f"2 of 13 trials of run-a:ef=16 are INVALID and refused: {why}"
    assert any("INVALID and refused" in line for line in comparison_markdown(table).splitlines())


def test_a_side_of_none_but_invalid_trials_is_refused_with_the_reason(collected):
    collect(collected, "run-a", [make_trial(collected, "run-a", 1, ef=99, **LATE)])
    with Warehouse.open(collected) as warehouse:
        with pytest.raises(BenchError, match="run-a:ef=99 has no successful trial to compare") as refused:
            compare_selected(warehouse, "run-a:ef=99", "run-a:ef=64")
        assert "1 of 1 trials of run-a:ef=99 are INVALID and refused: late: requests were 41 ms" in refused.value.hint
        with pytest.raises(BenchError, match="it has 16, 64, 99"):
            compare_selected(warehouse, "run-a:ef=17", "run-a:ef=64")


DOUBTED = ["drift: the second half is 9% slower", "drift: twice in one trial", "few_samples: p99 of 40"]


def test_warnings_of_the_trials_are_told_beside_the_numbers():
    tried = [{"outcome": "succeeded", "warnings": lines} for lines in (DOUBTED, DOUBTED[:1], [])]
    assert caveats(
        "run-a",
        [*tried, {"outcome": "invalid", "warnings": DOUBTED, "failure_code": "late", "failure_message": "by far"}],
    ) == [
        "1 of 4 trials of run-a are INVALID and refused: late: by far",
        "2 of 4 trials of run-a carry warnings: drift: twice in one trial (2 trials); few_samples: p99 of 40",
    ]
    assert caveats("run-a", tried[2:]) == []
