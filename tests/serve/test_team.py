"""`bench serve --follow`: a team's real PostgreSQL and S3 in the pages, while they are there and while they are not."""

import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from asking import PAGE, address, ask
from engines_at_hand import filled
from laboratory import Lab, children, wait_until
from services import postgres, started
from services.outage import Mortal
from services.seaweedfs import SeaweedFS, running
from trial_maker import make_trial

from benchhouse.evidence.store import object_key
from benchhouse.recipes.postgres import RECIPE
from benchhouse.runs import sharing
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect

READS = ("USAGE ON SCHEMA", "SELECT ON ALL TABLES IN SCHEMA")
PASSWORD = "planted-9f31c7"


@dataclass
class Team:
    """Ada, who runs and shares; the servers; and the lead's workspace, which has nothing but workspace.yaml."""

    ada: WorkspaceFolder
    lead: Lab
    tables: Mortal
    evidence: Mortal
    store: SeaweedFS

    def share(self) -> None:
        assert all(not place.missing for place in sharing.share(self.ada))


@pytest.fixture(scope="module")
def team(tmp_path_factory) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    with started.running(RECIPE) as tables, running() as store, pytest.MonkeyPatch.context() as patch:
        variables = store.environment | {"TEAM_PASSWORD": PASSWORD}
        for name, value in variables.items():
            patch.setenv(name, value)
        store.bucket("team")
        at = urlsplit(tables.endpoint)
        rest = f"@{at.hostname}:{at.port}/postgres\n  evidence: s3://team/evidence\n  endpoint: {store.url}\n"
        lead, ada = Lab(folder), filled(folder / "ada")
        lead.variables |= variables
        for place, who in ((ada.root, "postgres"), (lead.workspace, "lead")):
            (place / "workspace.yaml").write_text(f"warehouse:\n  share: postgresql://{who}:$TEAM_PASSWORD{rest}")
        (server,) = children(store.pid)
        made = Team(ada, lead, Mortal(tables.pid), Mortal(server), store)
        made.share()
        postgres.ask(
            tables.endpoint, "CREATE ROLE lead LOGIN", *(f"GRANT {what} benchhouse_store TO lead" for what in READS)
        )
        with closing(made.tables), closing(made.evidence):
            yield made


@pytest.fixture(scope="module")
def base(team) -> Iterator[str]:
    process = team.lead.start("serve", "--port", "0", "--follow", "0.3s")
    yield address(process)
    process.terminate()
    said = process.communicate()[1]
    assert PASSWORD not in said and "Traceback" not in said, said


def runs(base):
    return {run["run_id"]: run for run in json.loads(ask(base, "/api/runs")[2])["runs"]}


def page(base, path, status=200):
    answered, _, text = ask(base, path, **PAGE)
    assert answered == status, text
    assert PASSWORD not in text
    return text


def new_run(team, run_id, repetition=1):
    collect(team.ada, run_id, [make_trial(team.ada, run_id, repetition, ef=40)])
    team.share()


def test_runs_of_the_team_are_shown_as_soon_as_they_are_shared(team, base):
    wait_until(lambda: {"run-a", "run-b"} <= runs(base).keys(), "the first look")
    new_run(team, "run-c")
    wait_until(lambda: "run-c" in runs(base), "a run that is new")
    new_run(team, "run-c", 2)
    wait_until(lambda: runs(base)["run-c"]["trials"] == 2, "a run that grew")
    shown = runs(base)["run-a"]
    assert (shown["state"], shown["trials"], shown["outcomes"]) == ("pulled", 14, {"succeeded": 13, "failed": 1})
    assert shown["failures"][0]["code"] == "boom"
    front = page(base, "/?since=720h")
    assert re.search(r"postgresql://127\.0\.0\.1:\d+/postgres: 3 runs, read \d{4}-\d\d-\d\d \d\d:\d\d", front)
    assert "has not answered" not in front
    assert "pulled" in page(base, "/runs")
    assert "Numbers of the points" in page(base, "/runs/run-a")
    for path in ("", "/status", "/points", "/failures", "/invalid", "/warnings", "/verify", "/report"):
        assert ask(base, f"/api/runs/run-a{path}")[0] == 200, path
    overview = json.loads(ask(base, "/api/runs/run-a")[2])
    assert (overview["state"], overview["done"], overview["hosts"]) == ("pulled", 14, ["node1"])
    known = json.loads(ask(base, "/api/warehouse/followed")[2])
    assert (known["runs"], known["problem"], known["refused"]) == (3, "", [])
    (tables,) = [place for place in json.loads(ask(base, "/api/warehouse/shared")[2]) if place["noun"] == "run"]
    assert tables["missing"] == [], "what came from there is there"


def elsewhere(base, run):
    """Trials whose evidence is not in the workspace of the server."""
    rows = page(base, f"/runs/{run}/evidence").split("<tr>")
    return [re.search(r"evidence/([0-9a-f-]+)", row)[1] for row in rows if "elsewhere" in row]


def test_evidence_is_brought_when_somebody_looks_at_it_and_only_as_it_was_sealed(team, base):
    wait_until(lambda: "run-a" in runs(base), "the first look")
    first, changed, *_ = elsewhere(base, "run-a")
    assert "meta.json" in page(base, f"/runs/run-a/evidence/{first}")
    assert "all as sealed" in page(base, f"/runs/run-a/evidence/{first}?verify=yes")
    assert first not in elsewhere(base, "run-a")
    here, there = (place / "results" / "demo" / first for place in (team.lead.workspace, team.ada.root))
    names = sorted(path.relative_to(there) for path in there.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(here) for path in here.rglob("*") if path.is_file())
    assert all((here / name).read_bytes() == (there / name).read_bytes() for name in names)

    sealed = team.ada.trial("demo", changed).metrics
    key = f"evidence/{object_key(hashlib.sha256(sealed.read_bytes()).hexdigest())}"
    forged = sealed.read_bytes().replace(b"1", b"2")
    bucket = team.store.bucket("team")
    bucket.put(key, forged, hashlib.sha256(forged).hexdigest())
    assert "sealed as" in page(base, f"/runs/run-a/evidence/{changed}", 400)
    assert not (team.lead.workspace / "results" / "demo" / changed).exists()
    bucket.put(key, sealed, key.rpartition("/")[2])
    assert "metrics.json" in page(base, f"/runs/run-a/evidence/{changed}")


@pytest.mark.slow("a store stops and starts again, and the server retries it every few seconds")
def test_a_store_that_goes_away_is_said_and_comes_back_by_itself(team, base):
    wait_until(lambda: {"run-a", "run-b"} <= runs(base).keys(), "the first look")
    unseen = elsewhere(base, "run-b")[0]
    with team.tables.away(), team.evidence.away():
        wait_until(lambda: "has not answered since" in page(base, "/runs"), "the banner")
        assert "What it had at" in page(base, "/") and "run-a" in page(base, "/runs")
        assert "Numbers of the points" in page(base, "/runs/run-b")
        since = json.loads(ask(base, "/api/warehouse/followed")[2])["since"]
        assert "refused" in page(base, f"/runs/run-b/evidence/{unseen}", 400)
        assert json.loads(ask(base, "/api/warehouse/followed")[2])["since"] == since
    wait_until(lambda: "has not answered" not in page(base, "/runs"), "the tables to be back")
    wait_until(lambda: ask(base, f"/runs/run-b/evidence/{unseen}", **PAGE)[0] == 200, "the evidence to be back")
    new_run(team, "run-d")
    wait_until(lambda: "run-d" in runs(base), "a run that came after")


@pytest.mark.slow("a connection to a PostgreSQL that stands still is given up after twenty seconds")
def test_a_store_that_stands_still_is_said_to_be_away_and_holds_up_no_page(team, base):
    wait_until(lambda: "run-a" in runs(base), "the first look")
    with team.tables.held():
        wait_until(lambda: "has not answered since" in page(base, "/runs"), "the banner")
        assert "timeout" in json.loads(ask(base, "/api/warehouse/followed")[2])["problem"]
        begun = time.monotonic()
        assert "run-a" in page(base, "/runs") and "Numbers of the points" in page(base, "/runs/run-a")
        assert time.monotonic() - begun < 15, "no page waits for the store"
    wait_until(lambda: "has not answered" not in page(base, "/runs"), "it to go on")
    new_run(team, "run-e")
    wait_until(lambda: "run-e" in runs(base), "a run that came after")


def test_who_follows_ends_with_a_server_that_is_killed(team):
    process = team.lead.start("serve", "--port", "0", "--follow", "0.3s")
    address(process)
    wait_until(lambda: children(process.pid), "who follows")
    (follower,) = children(process.pid)
    os.kill(follower, signal.SIGKILL)
    wait_until(lambda: children(process.pid) not in ([], [follower]), "another one")
    (follower,) = children(process.pid)
    process.kill()
    process.communicate()
    wait_until(lambda: not Path(f"/proc/{follower}/exe").exists(), "it to end")


def test_a_workspace_that_names_no_store_is_not_followed(bench):
    refused = bench("serve", "--follow", "--port", "0")
    assert refused.code == 2 and "warehouse: {share: postgresql://" in refused.err
