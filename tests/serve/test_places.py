"""Pages and answers name no folder of the machine that they are of, however the folder is called and written."""

import json
import sqlite3
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from markupsafe import escape

from benchhouse.api.rows import as_json
from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import embedded_json
from benchhouse.schema.errors import BenchError
from benchhouse.serve.verb_requests import hide_places, words_of

TALKING = """
import os
from pathlib import Path
from benchhouse import Context, Metric, experiment


@experiment("talking", version="1.0", metrics=[Metric(name="x", unit="s")])
def talking(ctx: Context):
    print("reads", Path(os.environ["LAB"]).parent / "ws" / "data", flush=True)
    ctx.emit("x", 1)
"""


def test_a_folder_is_hidden_whatever_its_name_and_form(tmp_path: Path):
    failures = []
    for name in ("plain", "Jörg's runs", 'a & b <"c">'):
        root = tmp_path / name
        root.mkdir()
        for write in (str, json.dumps, as_json, escape, embedded_json):
            text = hide_places(str(write(f"in {root}/results/x, of {root}")), Workspace(root))
            if text.strip('"') != "in results/x, of .":
                failures.append((name, write.__name__, text))
    assert not failures


def test_an_error_hides_it_too(tmp_path: Path):
    root = tmp_path / "Jörg"
    root.mkdir()
    error = BenchError(f"{root}/s.yaml: no", f"look at {root}/s.yaml")
    assert words_of(error, Workspace(root))[:2] == ("s.yaml: no", "look at s.yaml")


def page(address: str) -> str:
    try:
        return urlopen(address).read().decode()
    except HTTPError as error:
        return error.read().decode()


def test_pages_of_logs_and_of_what_went_wrong_name_none(lab, serve):
    lab.install("talking", "1.0", TALKING, "[benchhouse.experiments]\ntalking = talking:talking\n")
    lab.bench("run", lab.scenario("talking"))
    base = serve()
    run = json.loads(urlopen(f"{base}/api/runs").read())["runs"][0]["run_id"]
    logs = page(f"{base}/runs/{run}/logs")
    assert "reads data" in logs and str(lab.root) not in logs
    with sqlite3.connect(lab.workspace / ".bench" / "warehouse" / "catalog.sqlite") as catalog:
        catalog.execute("PRAGMA user_version = 99")
    for path in ("/history", f"/runs/{run}", f"/compare?a={run}&b={run}"):
        shown = page(base + path)
        assert "catalog version 99" in shown and str(lab.root) not in shown, path
