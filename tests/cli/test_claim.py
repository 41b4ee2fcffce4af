"""`bench claim` as a user types it."""

import json
import sys
from pathlib import Path

import pytest

from benchhouse.schema.layout import WorkspaceFolder

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("claims", "warehouse")]
import claim_maker  # noqa: E402


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return claim_maker.fill(WorkspaceFolder(tmp_path_factory.mktemp("cli") / "ws"))


@pytest.fixture
def claim(bench, filled, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_KEYS_DIR", str(tmp_path / "keys"))
    return lambda *args, cwd=None: bench("claim", *args, cwd=cwd or filled.root)


def test_a_number_is_claimed_signed_given_away_and_checked(bench, claim, filled, tmp_path):
    assert claim("key", "make").code == 0
    made = claim("make", claim_maker.NUMBER, "--sign")
    assert made.code == 0, made.err
    name = made.out.strip()
    assert f"cite it as [claim:{name}]" in made.err
    (row,) = [row for row in json.loads(claim("list", "--json").out) if row["id"] == name]
    assert (row["label"], row["signature"]) == ("PUBLICATION-GRADE", "signed")
    assert "PUBLICATION-GRADE" in claim("list").out
    assert json.loads(claim("show", name, "--json").out)["claim"]["n"] == 5
    assert f"walk it back:  bench trace {name}" in claim("show", name).err
    asked = bench("query", f"SELECT * FROM claim_fact WHERE claim_id = '{name}'", "--json", cwd=filled.root)
    (told,) = json.loads(asked.out)["rows"]
    assert told["low"] < told["value"] < told["high"] and told["n"] == 5
    assert len(told["trials"]) == 5 and told["lacks"] == [] and len(set(told["runs"])) == 1
    exported = claim("export", name, "-o", tmp_path / "claim.tar")
    assert exported.out.strip() == str(tmp_path / "claim.tar")
    empty = tmp_path / "empty"
    empty.mkdir()
    checked = claim("verify", tmp_path / "claim.tar", "--trust", tmp_path / "keys" / "claim.pub", cwd=empty)
    assert checked.code == 0
    assert f"PUBLICATION-GRADE {name}: holds" in checked.out
    assert "5. ✓ signature" in checked.out


def test_what_is_not_safe_is_exit_code_4_with_every_reason(claim):
    refused = claim("make", "run-s:name=hnsw:latency.p99")
    assert refused.code == 4
    assert "thin_percentile" in refused.err
    assert "bench claim make run-s:name=hnsw:latency.p99 --realism" in refused.err
    assert json.loads(claim("make", "run-s:name=hnsw:latency.p99", "--json").out)["exit_code"] == 4
    made = claim("make", "run-s:name=hnsw:latency.p99", "--realism")
    assert made.code == 0
    assert "REALISM-GRADE" in made.err
    unsigned = claim("verify", made.out.strip())
    assert unsigned.code == 0
    assert "5. - signature\n     unsigned" in unsigned.out


def test_a_damaged_packet_is_exit_code_4(claim, tmp_path):
    (tmp_path / "x.tar").write_bytes(b"nothing")
    assert claim("verify", tmp_path / "x.tar").code == 4
    assert claim("verify", tmp_path / "none.tar").code == 2
    assert claim("verify", "feedbeef").code == 2


def test_a_document_is_linted(claim, tmp_path, filled):
    name = claim("make", claim_maker.NUMBER).out.strip()
    page = tmp_path / "page.md"
    page.write_text(f"It does 110.2 qps [claim:{name}].\n")
    assert claim("lint", page).code == 0
    page.write_text(f"It does 110.2 qps [claim:{name}] at 3.5 ms.\n")
    done = claim("lint", page)
    assert done.code == 4
    assert f"{page}:1:{done.out.partition(':1:')[2].partition(':')[0]}: '3.5 ms' cites no claim" in done.out
    (told,) = json.loads(claim("lint", page, "--no-trace", "--json").out)
    assert (told["cited"], len(told["problems"])) == (1, 1)


def test_a_claim_is_traced_with_its_query(bench, claim, filled):
    name = claim("make", claim_maker.NUMBER).out.strip()
    done = bench("trace", name, "--sql", cwd=filled.root)
    assert done.code == 0
    assert "| WITH grouped AS (" in done.out
    assert "every step holds" in done.out


def test_everything_is_verified_at_once(bench, filled):
    done = bench("verify", "--all", cwd=filled.root)
    assert (done.code, done.out.strip()) == (0, "10 trials checked: all as sealed")
