"""Telemetry in the report: what is drawn and told is what the files of one sealed trial hold."""

import json
import re
from array import array
from itertools import pairwise
from math import inf, nan

import pyarrow.parquet as pq
import pytest
from laboratory import Lab
from tables import check_table
from trial_maker import flip_byte, make_trial

from benchhouse.evidence.folder import read_spec, seal
from benchhouse.report import html, markdown
from benchhouse.report.data import gather
from benchhouse.report.files import report_json
from benchhouse.report.machine_section import machine_section
from benchhouse.report.time_chart import nice_step, scaled, time_chart
from benchhouse.results.machine import MOST_POINTS, MOST_SAMPLES, Panel, SeriesLine, rates, thinned
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.telemetry import NodeSummary, Phase, Series, TelemetrySummary
from benchhouse.warehouse.ingest import collect
from benchhouse.worker.monitors import nvml, store
from benchhouse.worker.monitors.sampler import Recording, Track

BUSY = Series(name="cpu_busy", unit="s", kind="counter", family="node")
USED = Series(name="memory_used", unit="B", family="node")
CPU = Series(name="cpu", unit="s", kind="counter", family="process")
RSS = Series(name="rss", unit="B", family="process")
STEADY = [Phase(name="steady", begin_s=2.0, end_s=8.0)]


def track(scope, series, samples, every_s=1.0):
    """The first series is a counter that grows by 0, 1, 2, 0, 1, 2, ... cores, the others wander."""
    rows, grown = array("d"), 0.0
    for at in range(samples):
        rows.extend(
            [at * every_s, grown, *((100 + at % 7) * 2.0**20 * (1 + place) for place in range(len(series) - 1))]
        )
        grown += at % 3 * every_s
    return Track(scope, series, rows)


def watched(workspace, *, samples=11, every_s=1.0, duration_s=10.0, told=STEADY, more=(), failure=None, **options):
    """A sealed trial with a node, itself and a server in its telemetry."""
    folder = TrialFolder(make_trial(workspace, sealed=False, **options))
    scopes = [("node", (BUSY, USED)), ("trial", (CPU, RSS)), ("service:db", (CPU, RSS)), *more]
    tracks = [track(scope, series, samples, every_s) for scope, series in scopes]
    store.write(folder.telemetry, Recording(every_s, tracks, 0, 0.001, samples, []), "2026-03-01", duration_s, told)
    meta = json.loads(folder.meta.read_text())
    ended = {"outcome": "failed", "failure": failure} if failure else {}
    folder.meta.write_text(json.dumps(meta | {"duration_s": duration_s} | ended))
    return seal(folder, read_spec(folder), "failed" if failure else "succeeded")


def report(workspace, folders):
    collect(workspace, "run-a", folders)
    return gather(workspace, ["run-a"])


@pytest.fixture
def one(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    folder = watched(workspace)
    return folder, report(workspace, [folder])


def parquet(folder, line):
    table = pq.read_table(folder / line.file)
    return table["time_s"].to_pylist(), table[line.series].to_pylist()


def places(path):
    """The places of an SVG path."""
    return [tuple(map(float, place.split())) for place in path.removeprefix("M").removesuffix("h0").split("L")]


def test_lines_are_those_of_the_parquet_files(one):
    folder, data = one
    (machine,) = data.machines
    assert [(panel.title, [line.label for line in panel.lines]) for panel in machine.panels] == [
        ("CPU", ["node", "trial", "db"]), ("Memory of processes", ["trial", "db"]), ("Memory of the machine", ["node"]),
    ]  # fmt: skip
    for line in machine.lines:
        times, values = parquet(folder, line)
        if line.series in ("memory_used", "rss"):
            assert (line.times_s, line.values) == (times, values)
        else:
            assert line.values == [after - before for before, after in pairwise(values)]
            assert line.times_s == [time + 0.5 for time in times[:-1]]


def test_the_curve_lies_where_its_values_say_and_phases_where_they_were(one):
    _, data = one
    page = html.render(data)
    drawn = page[page.index("<figcaption>CPU<") : page.index("<figcaption>Memory of processes<")]
    (height,) = set(re.findall(r'height="(\d+)"', drawn))
    bands = re.findall(r'<rect class="phase (\w+)" x="([\d.]+)" width="([\d.]+)" y="(\d+)"', drawn)
    assert [band[0] for band in bands] == ["warmup", "steady", "teardown"]
    left, top = float(bands[0][1]), float(bands[0][3])
    second = sum(float(band[2]) for band in bands) / 10.0
    assert [round((float(band[1]) - left) / second) for band in bands] == [0, 2, 8]
    found = places(re.findall(r'<path d="([^"]+)" class="over-time"', drawn)[0])
    assert [round((x - left) / second, 1) for x, _ in found] == [at + 0.5 for at in range(10)]
    cores = [(top + float(height) - y) / float(height) * 2 for _, y in found]
    assert cores == pytest.approx([at % 3 for at in range(10)], abs=0.01)


def test_figures_are_those_of_the_summary_and_few_samples_are_marked(one):
    folder, data = one
    (machine,) = data.machines
    summary = TelemetrySummary.model_validate_json((folder / "telemetry" / "summary.json").read_text())
    assert {figure.phase for figure in machine.figures} == {"warmup", "steady", "teardown"}
    for figure in machine.figures:
        stats = summary.stats(figure.scope, figure.series, figure.phase)
        assert (figure.n, figure.avg, figure.p95, figure.max) == (stats.n, stats.avg, stats.p95, stats.max)
        assert bool(figure.few) == ("p95" in stats.too_few_for)
    text = markdown.render(data)
    assert "| db CPU (cores) | steady | 1 | \\~2 | 2 | 6 |" in text
    assert "| db memory (MiB) | steady | 103 | \\~105.7 | 106 | 7 |" in text
    page = html.render(data)
    assert '<td class="n"><span class="shaky" title="p95 from 6 samples; 20 are needed">~</span>2</td>' in page


def test_every_line_and_figure_names_its_trial_and_file(one):
    folder, data = one
    (machine,) = data.machines
    manifest = json.loads((folder / "manifest.json").read_text())["files"]
    assert machine.trial_id == folder.name and machine.folder.endswith(folder.name)
    assert all(manifest[line.file]["sha256"] == line.sha256 for line in machine.lines)
    page, text = html.render(data), markdown.render(data)
    for name in ("node", "trial", "service.db"):
        file = f"telemetry/{name}.parquet"
        assert f"{file} {manifest[file]['sha256'][:12]}" in page
    assert machine.folder in page and machine.folder in text
    assert f"telemetry/summary.json {machine.summary_sha256[:12]}" in text
    kept = json.loads(report_json(data))["report"]["machines"][0]
    assert "values" not in kept["panels"][0]["lines"][0]  # the file that is named holds them
    assert kept["panels"][0]["lines"][0]["samples"] == 10 and kept["figures"]


def test_the_median_trial_by_duration_speaks_for_its_point(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    lengths = {1: 30.0, 2: 10.0, 3: 20.0}
    folders = [watched(workspace, repetition=at, duration_s=length) for at, length in lengths.items()]
    (machine,) = report(workspace, [*folders, make_trial(workspace, repetition=4)]).machines
    assert (machine.repetition, machine.duration_s) == (3, 20.0)
    assert machine.chosen == "the median of 3 trials with telemetry by duration"


def test_trials_that_failed_are_drawn_after_the_others_one_of_each_kind(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    died = {"code": "server_died", "message": "db ended by SIGKILL during the trial"}
    folders = [
        watched(workspace, repetition=1),
        watched(workspace, repetition=2, minute=1, failure=died),
        watched(workspace, repetition=3, minute=2, failure=died),
        watched(workspace, repetition=1, minute=3, ef=64, failure={"code": "corrupt", "message": "three bytes"}),
    ]
    data = report(workspace, folders)
    assert [(item.repetition, item.trouble) for item in data.machines] == [
        (1, ""), (2, "failed: server_died"), (1, "failed: corrupt"),
    ]  # fmt: skip
    assert data.machines[0].chosen == "the only trial"
    assert data.machines[1].chosen == "one of 2 trials that ended so"
    assert all(item.lines and item.figures for item in data.machines)
    section, text = str(machine_section(data.machines, 1)), markdown.render(data)
    assert '<b class="bad">failed: server_died</b>' in section
    assert "no number is made of them" in section and "more point" not in section
    assert "**failed: corrupt**" in text and "Repetition 1, the only trial that ended so." in text
    assert "no number is made of them" not in str(machine_section(data.machines[:1], 1))


def test_points_without_telemetry_show_nothing(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    short = watched(workspace, samples=2, duration_s=1.0, told=[])
    data = report(workspace, [short, make_trial(workspace, repetition=1, ef=64)])
    assert (short / "telemetry" / "summary.json").exists()
    assert data.machines == []
    assert "Machine and servers" not in html.render(data) + markdown.render(data)


@pytest.mark.parametrize("name", ["node.parquet", "summary.json"])
def test_telemetry_that_is_not_what_was_sealed_is_not_shown(tmp_path, name):
    workspace = WorkspaceFolder(tmp_path)
    folder = watched(workspace)
    collect(workspace, "run-a", [folder])
    flip_byte(folder / "telemetry" / name, at=200)
    assert gather(workspace, ["run-a"]).machines == []


def test_without_told_phases_there_is_the_whole_and_no_band(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    data = report(workspace, [watched(workspace, told=[])])
    assert {figure.phase for figure in data.machines[0].figures} == {"trial"}
    drawn = str(machine_section(data.machines, 1))
    assert "<rect" not in drawn and "whole trial" in drawn


def test_gpus_have_their_own_charts_and_the_energy_is_told(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    gpu = ("gpu0", (nvml.ENERGY, nvml.BUSY, nvml.POWER))
    data = report(workspace, [watched(workspace, more=[gpu])])
    titles = [panel.title for panel in data.machines[0].panels]
    assert titles[-2:] == ["GPU busy", "GPU power"]
    assert "9\u2009J" in html.render(data)


def test_a_long_trial_is_thinned_and_no_peak_is_lost(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    data = report(workspace, [watched(workspace, samples=3000, every_s=0.1, duration_s=300.0)])
    for line in data.machines[0].lines:
        assert len(line.values) <= MOST_SAMPLES < line.samples
    assert "the least and the greatest of each bucket" in html.render(data)
    ramp = [(float(at), 1.0) for at in range(10_000)]
    ramp[1234], ramp[8765] = (1234.0, 9.0), (8765.0, -9.0)
    kept = thinned(ramp)
    assert {(1234.0, 9.0), (8765.0, -9.0)} <= set(kept)
    assert kept == sorted(kept) and len(kept) <= MOST_SAMPLES


def test_a_rate_needs_two_values_and_a_whole_interval():
    assert rates([0.0, 1.0, 2.0, 2.01], [0.0, nan, 4.0, 5.0], 1.0) == [(1.0, 2.0)]
    assert rates([0.0, 1.0], [1.0, inf], 1.0) == []


def test_a_page_of_many_points_stays_small(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    data = report(workspace, [watched(workspace, samples=1000, every_s=0.1, duration_s=100.0)])
    machine = data.machines[0]
    page = str(machine_section([machine] * MOST_POINTS, MOST_POINTS))
    assert len(page) < 4_000_000
    assert page.count(" open>") == 3  # the others are folded
    assert "20 more points not shown" in machine_section([machine], 21)


@check_table("reach, most, step", [(2.0, 4, 0.5), (9.1, 4, 5.0), (0.003, 4, 0.001), (1e12, 8, 2e11), (7.87, 8, 1.0)])
def test_ticks_are_round(reach, most, step):
    assert nice_step(reach, most) == pytest.approx(step)


@check_table(
    "unit, greatest, told",
    [("B", 0, (1, "B")), ("B", 3 << 20, (1 << 20, "MiB")), ("B", 1e30, (1 << 40, "TiB")), ("1", 0.5, (0.01, "%"))],
)
def test_units_fit_the_size(unit, greatest, told):
    assert scaled(unit, greatest) == told


def test_a_line_of_zeros_or_of_one_value_is_drawn():
    line = SeriesLine(
        scope="gpu0", series="x", label="gpu0", file="f", sha256="", samples=1, times_s=[0.5], values=[0.0]
    )
    drawn = time_chart(Panel(title="t", unit="W", lines=[line]), [], 1.0, {"gpu0": "red"})
    assert "nan" not in drawn and str(inf) not in drawn and 'h0"' in drawn


@pytest.mark.slow("three real runs, one of which uses a core for 1.5 s")
def test_a_real_run_is_in_its_report(tmp_path):
    """One core is burnt for 1.5 s; the same run without monitors, or too short for them, shows nothing."""
    lab = Lab(tmp_path)
    lab.run("slow", workload={"seconds": 1.5, "spin": True}, monitors={"interval": "0.2s"})
    lab.bench("report")
    page = (lab.workspace / "reports" / "s" / "index.html").read_text()
    (trial,) = lab.trials()
    (machine,) = gather(lab.workspace_object(), [lab.run_id()]).machines
    assert f"results/s/{trial.folder.name}" in page and page.count('class="over-time"') == 4
    cpu = next(line for line in machine.lines if (line.scope, line.series) == ("trial", "cpu"))
    times, values = parquet(trial.folder, cpu)
    assert (cpu.times_s, cpu.values) == tuple(map(list, zip(*rates(times, values, 0.2), strict=True)))
    assert max(cpu.values) > 0.1, "beside neighbours it gets a part of the core; asleep it would take nothing"
    for name, more in {
        "off": {"workload": {"seconds": 0.5}, "monitors": False},
        "short": {"workload": {"n": 1}},
    }.items():
        lab.run("slow", name=name, **more)
        lab.bench("report")
        assert "Machine and servers" not in (lab.workspace / "reports" / name / "index.html").read_text()


def test_nodes_of_a_trial_are_drawn_apart_and_the_abnormal_one_is_named(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    folder = TrialFolder(make_trial(workspace, sealed=False))
    waited = Series(name="cpu_wait", unit="s", kind="counter", family="process")
    tracks = []
    for node in ("", "n2", "n3", "n4"):
        rows = array("d")
        for at in range(0 if node else 3, 11):  # what steps run on the experiment's node is seen later
            rows.extend([float(at), at * 0.5, 1e6, at * (0.6 if node == "n3" else 0.01)])
        scope = f"{node}/trial" if node else "steps"
        tracks.append(Track(scope, (CPU, RSS, waited), rows, node))
    nodes = [
        NodeSummary(name="n2", clock_ahead_s=3600.0, clock_uncertainty_s=0.0002),
        NodeSummary(name="n5", problem="no"),
    ]
    recording = Recording(1.0, tracks, 0, 0.001, 11, [], "n1", nodes)
    store.write(folder.telemetry, recording, "2026-03-01", 10.0, [])
    data = report(workspace, [seal(folder, read_spec(folder), "succeeded")])
    (machine,) = data.machines
    assert [line.label for line in machine.panels[0].lines] == ["n2 trial", "n3 trial", "n4 trial"]
    assert machine.abnormal.startswith(
        "n3 is not as the other 3 nodes: others use its cores (cpu_wait of trial is 0.6 "
    )
    for text in (html.render(data), markdown.render(data)):
        assert "n3 is not as the other 3 nodes" in text
        assert "n2 +3,600,000.00 ms (within 0.20), n5: no." in text
