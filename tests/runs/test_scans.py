"""Scans of packages: a planted flaw is found, exceptions end, and what could not look lets nothing through."""

import json
import shutil
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchhouse.catalog.advisories import read_advisories
from benchhouse.catalog.components import components_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.packages import PackageComponent

CODE = """
from benchhouse import Metric, experiment

@experiment("zip.time", version="1.0", metrics=[Metric(name="ms", unit="ms", direction="lower")])
def run(model: str = "a"):
    "Time it."
    return {"ms": 1.0}
"""
HIGH = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N"  # 7.5 by the calculator of FIRST
SCENARIO = "scenario: z\nexperiment: zip.time\n"


def advisory(name="zip-time", events=({"introduced": "0"}, {"fixed": "2.0"}), days=0, **fields):
    modified = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}]
    affected = [{"package": {"ecosystem": "PyPI", "name": name}, "ranges": ranges}]
    return {"id": "PYSEC-1", "modified": modified, "summary": "It leaks.", "affected": affected, **fields}


def mirror(folder: Path, *records) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, record in enumerate(records):
        (folder / f"{number}.json").write_text(record if isinstance(record, str) else json.dumps(record))
    return folder


@pytest.fixture
def nexus(tmp_path, packages):
    packages.add("zip-time", "zip_time", CODE, "zip.time = zip_time:run")
    home = tmp_path / "packages" / "zips"
    home.mkdir(parents=True)
    listed = "{requirement_specifier: zip-time>=0, experiments: [zip.time]}"
    (home / "nexus.yaml").write_text(f"package: {{name: zips, benchmark_packages: [{listed}]}}\n")
    (tmp_path / "z.yaml").write_text(SCENARIO)
    policy(tmp_path)
    mirror(tmp_path / "osv", advisory("somebody-else"))
    return tmp_path


def policy(root: Path, **more) -> None:
    packages = {"advisories": "osv", "max_age": "7d"} | more
    (root / "trusted.yaml").write_text(f"people: {{ada: {{}}}}\npackages: {json.dumps(packages)}\n")


def test_what_was_not_scanned_does_not_run_and_what_passed_does(nexus, bench):
    refused = bench("run", "z.yaml")
    assert (
        refused.code == 5
        and "zip-time: it was not scanned" in refused.err
        and "bench packages scan -c z.yaml" in refused.err
    )
    assert not (nexus / ".bench" / "runs").exists()
    assert json.loads(bench("packages", "list", "--json").out)[0]["scan"] == "not scanned"
    scanned = bench("packages", "scan", "zips", "--json")
    (item,) = json.loads(scanned.out)["packages"]
    assert scanned.code == 0 and item["state"] == "passed" and item["scan"]["advisories"] == 1
    parts = json.loads(Path(item["parts_list"]).read_text())
    assert (parts["bomFormat"], parts["components"][0]["name"]) == ("CycloneDX", "zip-time")
    assert bench("run", "z.yaml").code == 0
    assert "passed" in bench("packages", "list").out
    mirror(nexus / "osv", advisory(severity=[{"type": "CVSS_V3", "score": HIGH}], aliases=["CVE-2026-1"]))
    told = bench("packages", "scan")
    assert told.code == 2 and "has PYSEC-1 (CVE-2026-1), severity high, fixed in 2.0" in told.err
    for words in (
        ("run", "z.yaml", "--new"),
        ("submit", "z.yaml", "--new"),
        ("run", "--resume", "@last", "--rerun-failed"),
    ):
        assert bench(*words).code == 5, words
    policy(nexus, severities=["high"])
    assert bench("run", "z.yaml", "--new", "--dry-run").code == 0 and bench("packages", "list").out.count("passed") == 1


@pytest.mark.parametrize(
    ("rule", "state"),
    [
        ({"advisory": "CVE-2026-1", "until": "2999-01-01"}, "passed"),
        ({"advisory": "PYSEC-1", "until": "2020-01-01"}, "refused"),
        ({"advisory": "CVE-2026-2", "until": "2999-01-01"}, "refused"),
    ],
)
def test_an_exception_is_for_one_flaw_and_ends(nexus, bench, rule, state):
    mirror(nexus / "osv", advisory(aliases=["CVE-2026-1"]))
    policy(nexus, exceptions=[{"package": "zip-time", "why": "not reachable", **rule}])
    (item,) = json.loads(bench("packages", "scan", "--json").out)["packages"]
    assert item["state"] == state, item["reasons"]


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ((), "has no advisory about PyPI"),
        ((advisory(days=30),), "the newest advisory is 30 days old"),
        ((advisory(days=-30),), "which is not yet"),
        ((advisory("other"), "{"), "1.json is no advisory of OSV"),
        ((advisory("other"), "[]"), "1.json is no advisory of OSV"),
        (None, "there are no advisories"),
    ],
)
def test_a_scan_that_could_not_look_lets_nothing_through(nexus, bench, records, says):
    shutil.rmtree(nexus / "osv") if records is None else mirror(nexus / "osv", *records)
    done = bench("packages", "scan")
    assert done.code == 1 and "the scan could not look" in done.err and says in done.err and "failed" in done.out
    refused = bench("run", "z.yaml")
    assert refused.code == 5 and "the scan could not look" in refused.err


def test_a_licence_that_is_not_allowed_is_refused_and_so_is_none(nexus, bench):
    policy(nexus, licences=["MIT"])
    done = bench("packages", "scan")
    assert done.code == 2 and "no licence that it tells" in done.err
    exception = {"package": "zip-time", "licence": "", "until": "2999-01-01", "why": "ours"}
    policy(nexus, licences=["MIT"], exceptions=[exception])
    assert bench("packages", "scan").code == 0


def test_advised_scans_only_warn(nexus, bench):
    policy(nexus, scans="advised")
    done = bench("run", "z.yaml")
    assert done.code == 0 and "warning: packages that trusted.yaml does not let run" in done.err


FLAWED = [
    ([{"introduced": "0"}, {"fixed": "2.0"}], "1.9", True),
    ([{"introduced": "0"}, {"fixed": "2.0"}], "2.0", False),
    ([{"introduced": "0"}, {"fixed": "2.0"}], "2.0rc1", True),
    ([{"introduced": "1.5"}, {"last_affected": "1.7"}], "1.7", True),
    ([{"introduced": "1.5"}, {"last_affected": "1.7"}], "1.7.1", False),
    ([{"introduced": "1.5"}, {"last_affected": "1.7"}], "1.4", False),
    ([{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.5"}, {"fixed": "1.6"}], "1.3", False),
    ([{"fixed": "1.6"}, {"introduced": "1.5"}, {"introduced": "0"}, {"fixed": "1.2"}], "1.5.1", True),
    ([{"introduced": "0"}], "99", True),
    ([{"introduced": "none"}], "1.0", True),
]


@pytest.mark.parametrize(("events", "version", "affected"), FLAWED)
def test_versions_are_in_a_range_as_osv_counts(tmp_path, events, version, affected):
    known = read_advisories(mirror(tmp_path / "osv", advisory("Zip_Time", events)), {"zip-time"})
    assert bool(known.of(PackageComponent(name="zip-time", version=version))) == affected


def test_advisories_of_one_flaw_are_told_once_with_the_highest_severity(tmp_path):
    records = [
        advisory(id="PYSEC-1", aliases=["CVE-1"]),
        advisory(id="GHSA-1", aliases=["CVE-1"], database_specific={"severity": "MODERATE"}),
        advisory(id="PYSEC-2", withdrawn="2026-01-01T00:00:00Z"),
    ]
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for record in records:
            file.writestr(f"{record['id']}.json", json.dumps(record))
    known = read_advisories(archive, {"zip-time"})
    (flaw,) = known.of(PackageComponent(name="zip-time", version="1.0"))
    assert (flaw.severity, known.count, flaw.fixed) == ("medium", 2, ["2.0"])
    assert {flaw.advisory, *flaw.aliases} == {"PYSEC-1", "GHSA-1", "CVE-1"}


def test_a_package_brings_what_it_needs_here_and_what_is_missing_is_told(packages):
    components = {item.name: item for item in components_of("cyclonedx-python-lib")}
    for name in ("packageurl-python", "py-serializable", "defusedxml"):  # the last by way of py-serializable
        assert name in components
    assert components["cyclonedx-python-lib"].licence.startswith("Apache")
    assert components_of("benchhouse") == []
    with pytest.raises(BenchError, match="nowhere, which nowhere needs, is not installed here"):
        components_of("nowhere")
