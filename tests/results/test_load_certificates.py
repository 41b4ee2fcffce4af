import json
from pathlib import Path

import pytest
from trial_maker import make_trial

from benchhouse.report import html, markdown
from benchhouse.report.data import gather
from benchhouse.report.load_section import load_section, seconds_chart
from benchhouse.report.payload import payload
from benchhouse.results.load_certificates import LoadFacts, gather_loads
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.warehouse.ingest import collect

LAG = {"p50_ms": 0.1, "p99_ms": 1.5, "max_ms": 3.0}
CERTIFICATE = {
    "loop": "open", "asked": 200.0, "offered": 500, "delivered": 499, "in_flight": 12, "cpu_share": 0.25,
    "processes": 2, "chosen": "2 load processes: 3,000 requests/s",
    "lag": LAG, "loop_lag": {**LAG, "p99_ms": 0.7}, "problems": [],
}  # fmt: skip
LATE = {**CERTIFICATE, "problems": [{"code": "arrivals_bent", "message": "late"}]}
SECONDS = """second,sent,completed,errors,in_flight,due,good
0,200,190,2,3,200,190
1,200,201,0,4,200,201
2,100,99,1,0,100,99
"""


def load(folder: Path, certificate: object = CERTIFICATE) -> None:
    """Make a sealed trial one of a load of 2.5 s."""
    meta = json.loads((folder / "meta.json").read_text())
    meta["custom"] = {"certificate": certificate, "window_s": 2.5}
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "artifacts").mkdir(exist_ok=True)
    (folder / "artifacts" / "intervals.csv").write_text(SECONDS)


@pytest.fixture
def data(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    folders = [make_trial(workspace, repetition=1), make_trial(workspace, repetition=2, outcome="invalid", minute=1)]
    collect(workspace, "run-a", folders)
    load(folders[0])
    load(folders[1], LATE)
    return gather(workspace, ["run-a"])


def test_certificates_are_in_the_report_also_of_invalid_trials(data):
    assert [(item.outcome, item.verdict) for item in data.loads] == [
        ("succeeded", "holds"),
        ("invalid", "INVALID: arrivals_bent"),
    ]
    assert (data.loads[0].lag_ms, data.loads[0].wake_ms, data.loads[0].delivered) == (1.5, 0.7, 499)
    text = markdown.render(data)
    assert "| INVALID: arrivals_bent | open | 200/s | 500 | 499 | 1.5 | 0.7 | – | 2 | 25.0% | 12 |" in text
    assert text.index("INVALID: arrivals") < text.index("| holds |")  # these need a look


def test_a_load_says_how_far_its_times_can_be_off_and_which_figures_are_invalid(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    common = {"metric": "wait", "unit": "ms", "direction": "lower", "role": "latency", "n": 500}
    numbers = [
        Measurement(stat="mean", value=4.0, error_bound=0.25, **common),
        Measurement(stat="p50", value=4.0, error_bound=0.5, **common),
        Measurement(stat="p99", value=9.0, error_bound=3.0, valid=False, **common),
    ]
    folders = [make_trial(workspace, repetition=at, numbers=numbers) for at in (1, 2)]
    collect(workspace, "run-a", folders)
    for folder in folders:
        load(folder)
    data = gather(workspace, ["run-a"])
    assert [(item.off_ms, item.refused) for item in data.loads] == [(0.5, ["wait p99"])] * 2
    assert data.headline[-1] == "1 point without a valid number of wait p99: see Warnings."
    text = markdown.render(data)
    assert "| holds; INVALID figures: wait p99 | open | 200/s | 500 | 499 | 1.5 | 0.7 | 0.5 | 2 | 25.0% | 12 |" in text
    assert "processes: auto chose 2 load processes: 3,000 requests/s." in text
    assert "| 4, n 2, can be off by 0.25 | 4, n 2, can be off by 0.50 | INVALID |" in text.replace(" ± 0", "")
    assert "INVALID: in every trial the figure can be off by more than is taken" in text
    assert "can be off by 0.25" in html.render(data)
    (figure,) = payload(data)["refused"]
    assert (figure["label"], figure["metric"], figure["primary"], figure["at"]) == ("wait p99", None, True, [0])


def test_the_last_part_of_a_second_counts_by_its_length(data):
    assert data.loads[0].rates == [190, 201, 198]
    assert data.loads[0].errors == [2, 0, 2]


def test_seconds_are_drawn_with_failures_in_red(data):
    drawn = str(load_section(data.loads))
    assert drawn.count("processes: auto chose 2 load processes: 3,000 requests/s.") == 1
    assert drawn.count("<svg") == 1  # both trials are of one point
    assert drawn.count("<path") == 4 and drawn.count("var(--bad)") == 2
    assert seconds_chart([data.loads[0].model_copy(update={"errors": [0, 0, 0]})]).count("<path") == 1


def test_the_curve_lies_where_its_values_say():
    flat = LoadFacts(
        **{name: CERTIFICATE[name] for name in ("loop", "asked", "offered", "delivered", "in_flight", "cpu_share")},
        point="p",
        run_id="r",
        trial_id="t",
        repetition=0,
        outcome="succeeded",
        problems=[],
        lag_ms=0,
        wake_ms=0,
        rates=[100, 50, 0],
        errors=[0, 0, 0],
    )
    path = seconds_chart([flat]).split('d="M')[1].split('"')[0]
    heights = [float(place.split()[1]) for place in path.split("L")]
    assert heights == [10.0, 82.0, 154.0]  # top of the frame, middle, bottom


def test_trials_without_a_certificate_are_not_asked_twice(tmp_path, monkeypatch):
    workspace = WorkspaceFolder(tmp_path)
    folders = [make_trial(workspace, repetition=at) for at in (1, 2, 3)]
    rows = [
        {
            "run_id": "run-a",
            "trial_id": f.name,
            "repetition": 1,
            "outcome": "succeeded",
            "folder": f.relative_to(tmp_path),
        }
        for f in folders
    ]
    asked = []
    real = gather_loads.__globals__["read_meta"]
    monkeypatch.setitem(gather_loads.__globals__, "read_meta", lambda folder: asked.append(folder) or real(folder))
    assert gather_loads(tmp_path, rows, lambda row: "p") == [] and len(asked) == 1


@pytest.mark.parametrize("broken", ["no such kind", {"problems": []}, {**CERTIFICATE, "offered": "many"}])
def test_a_certificate_that_can_not_be_read_is_left_out(tmp_path, broken):
    folder = make_trial(WorkspaceFolder(tmp_path))
    load(folder, broken)
    row = {
        "run_id": "r",
        "trial_id": "t",
        "repetition": 1,
        "outcome": "succeeded",
        "folder": folder.relative_to(tmp_path),
    }
    assert gather_loads(tmp_path, [row], lambda row: "p") == []
