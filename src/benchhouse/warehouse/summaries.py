"""The summary of each case per run, stored by the digests of the run's files, so that a history does not read every
run.

It is a cache in its own file, `summaries.sqlite`, next to the catalog. Files of tables never change, a run's rows
depend only on its files, and every use first compares the digests with the catalog's: new and changed runs are
summarized then, removed ones are left out. A lost or damaged cache is rebuilt; if no file can be written, it is in
memory.
"""

# ruff: noqa: S608 - the names in these texts are our own

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from benchhouse.warehouse.answer_cache import KnownAnswers
from benchhouse.warehouse.catalog import BUSY_TIMEOUT_MS
from benchhouse.warehouse.locked_engine import as_plain
from benchhouse.warehouse.query import Result, Warehouse, own
from benchhouse.warehouse.run_tables import MEASUREMENT_FACT, TRIAL_FACT
from benchhouse.warehouse.table import SCHEMA_VERSION

FILE_NAME = "summaries.sqlite"
_VERSION = 100 * SCHEMA_VERSION + 1  # of the cached data and of the tables that it is made from
_TABLES = (MEASUREMENT_FACT.name, TRIAL_FACT.name)
_AT_ONCE = 50  # runs that are read together: bounds the memory
_THESE = "list_contains(CAST($runs AS VARCHAR[]), t.run_id)"
_GOOD_FIGURES = "NOT t.warmup AND m.scope = 'trial' AND m.\"window\" = ''"
_filling = threading.Lock()
_cases = KnownAnswers[list[dict[str, Any]]]()

TRIED = own(
    f"""
SELECT t.run_id, t.benchmark_case_id, t.target_name, max(t.scenario) FILTER (WHERE t.outcome = 'succeeded'),
       max(t.point) FILTER (WHERE t.outcome = 'succeeded'), max(t.experiment) FILTER (WHERE t.outcome = 'succeeded'),
       max(t.experiment_version) FILTER (WHERE t.outcome = 'succeeded'),
       list(DISTINCT t.instance_digest ORDER BY t.instance_digest) FILTER (WHERE t.outcome = 'succeeded'),
       list(DISTINCT t.outcome ORDER BY t.outcome), count(*) FILTER (WHERE t.outcome = 'succeeded'),
       epoch_us(min(t.started)), epoch_us(max(t.started) FILTER (WHERE t.outcome = 'succeeded')),
       max_by(t.trial_id, t.started) FILTER (WHERE t.outcome = 'succeeded')
FROM trial_fact t WHERE NOT t.warmup AND {_THESE}
GROUP BY t.run_id, t.benchmark_case_id, t.target_name
ORDER BY ALL
""".strip()
)
NUMBERS = own(
    f"""
WITH grouped AS (
  SELECT t.run_id, epoch_us(min(t.started)) AS started, t.benchmark_case_id, t.target_name, m.metric, m.stat, m.unit,
         m.direction, list(m.value ORDER BY t.repetition, t.trial_id) AS "values"
  FROM trial_fact t JOIN measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
  WHERE m.outcome = 'succeeded' AND {_GOOD_FIGURES} AND {_THESE}
  GROUP BY ALL
), refused AS (
  SELECT t.run_id, epoch_us(min(t.started)) AS started, t.benchmark_case_id, t.target_name, m.metric, m.stat
  FROM trial_fact t JOIN measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
  WHERE t.outcome = 'succeeded' AND {_GOOD_FIGURES} AND {_THESE}
  GROUP BY t.run_id, t.benchmark_case_id, t.target_name, m.metric, m.stat HAVING bool_and(m.outcome = 'invalid')
)
SELECT benchmark_case_id, target_name, metric, stat, unit, direction, run_id, started, len("values"),
       list_avg("values"), list_stddev_samp("values"), list_min("values") FROM grouped
UNION ALL
SELECT benchmark_case_id, target_name, metric, stat, '', NULL, run_id, started, 0, NULL, NULL, NULL FROM refused
ORDER BY ALL
""".strip()
)


class Summaries:
    """All current runs of the tables, by case: `with Summaries.of(warehouse) as summaries`."""

    def __init__(self, warehouse: Warehouse, db: sqlite3.Connection) -> None:
        self.warehouse, self._db = warehouse, db

    @classmethod
    @contextmanager
    def of(cls, warehouse: Warehouse) -> Iterator["Summaries"]:
        """Update the summaries to the current tables, and read them in one transaction."""
        db = _opened(str(warehouse.workspace.warehouse))
        try:
            summaries = cls(warehouse, db)
            summaries._catch_up()
            db.execute("BEGIN")  # updates of other processes are not half visible
            yield summaries
        finally:
            db.close()

    @cached_property
    def state(self) -> str:
        """The digest of all input files: while it is the same, so is every answer."""
        return hashlib.sha256(repr(sorted(self._kept().items())).encode()).hexdigest()

    def cases(self) -> Sequence[Mapping[str, Any]]:
        """Return the cases with a succeeded trial and their number of runs, by scenario and point."""
        key = str(self.warehouse.workspace.root), "cases", "", (self.state,)
        known = _cases.find(key)
        if known is None:
            known = self._read_cases()
            _cases.keep(key, known, sum(map(len, known)))
        return known

    def _read_cases(self) -> list[dict[str, Any]]:
        rows = self._db.execute(
            "SELECT benchmark_case_id, target_name, max(scenario), max(point), json_group_array(DISTINCT instances), "
            "json_group_array(DISTINCT scenario), count(*), max(experiment), max(version) FROM tried JOIN cases "
            "ON cases.id = tried.cased WHERE succeeded > 0 GROUP BY cased ORDER BY 3, 4, 2 NULLS LAST, 1"
        )
        names = ("benchmark_case_id", "target_name", "scenario", "point", "instances", "scenarios", "runs",
                 "experiment", "version")  # fmt: skip
        return [
            dict(zip(names, row, strict=True))
            | {"instances": sorted({item for text in json.loads(row[4]) for item in json.loads(text)})}
            | {"scenarios": sorted(json.loads(row[5]))}
            for row in rows
        ]

    def recorded(self, case_id: str, target: str | None) -> list[dict[str, Any]]:
        """Return the metrics of a case: a row per metric, statistic, unit, and direction, those of its first run first.
        `refused` means INVALID in every trial of every run."""
        rows = self._db.execute(
            f"""
            WITH picked AS {_CASED}, first AS (
              SELECT run FROM tried, picked WHERE cased = picked.id AND succeeded > 0 ORDER BY began, run LIMIT 1
            ), mine AS (
              SELECT metrics.*, picked.id AS cased FROM metrics, picked
              WHERE EXISTS (SELECT 1 FROM numbers WHERE cased = picked.id AND measured = metrics.id)
            )
            SELECT metric, stat, unit, direction, unit = '' AND NOT EXISTS (
                     SELECT 1 FROM numbers WHERE cased = mine.cased AND measured = mine.id AND n > 0) FROM mine
            ORDER BY NOT EXISTS (
              SELECT 1 FROM numbers, first WHERE cased = mine.cased AND measured = mine.id AND numbers.run = first.run
            ), metric, stat
            """,
            [case_id, target],
        )
        return _dicts(rows, "metric", "stat", "unit", "direction", "refused")

    def values(self, case_id: str, target: str | None, metric: str, stat: str) -> list[dict[str, Any]]:
        """Return one value of a case per run, oldest first, with its instances; `n` is 0 if it is INVALID in every
        trial."""
        rows = self._db.execute(
            "SELECT run_id, started, metrics.unit, metrics.direction, n, mean, stdev, least, instances FROM numbers "
            "JOIN metrics ON metrics.id = numbers.measured JOIN runs ON runs.id = numbers.run "
            "JOIN tried ON tried.cased = numbers.cased AND tried.run = numbers.run "
            f"WHERE numbers.cased IN {_CASED} AND metrics.metric = ? AND metrics.stat = ? ORDER BY started, run_id",
            [case_id, target, metric, stat],
        )
        named = _dicts(rows, "run_id", "started", "unit", "direction", "n", "mean", "stdev", "min", "instances")
        return [row | {"started": _moment(row["started"]), "instances": json.loads(row["instances"])} for row in named]

    def without_number(self, case_id: str, target: str | None) -> list[tuple[str, list[str]]]:
        """Return runs that tried a case and in which no trial succeeded, with the outcomes."""
        rows = self._db.execute(
            "SELECT run_id, outcomes FROM tried JOIN runs ON runs.id = tried.run "
            f"WHERE cased IN {_CASED} AND succeeded = 0 ORDER BY began, run_id",
            [case_id, target],
        )
        return [(run_id, json.loads(outcomes)) for run_id, outcomes in rows]

    def last_run(self, case_id: str, target: str | None) -> str:
        """Return the last run that tried a case, whether or not a trial succeeded; empty if there is none."""
        sql = f"SELECT run_id FROM tried JOIN runs ON runs.id = tried.run WHERE cased IN {_CASED}"
        row = self._db.execute(f"{sql} ORDER BY began DESC, run_id DESC LIMIT 1", [case_id, target]).fetchone()
        return str(row[0]) if row else ""

    def newest_trial(self, case_id: str, target: str | None) -> tuple[str, str] | None:
        """Return the scenario and id of the last succeeded trial of a case; None if there is none."""
        row: tuple[str, str] | None = self._db.execute(
            f"SELECT scenario, newest_trial FROM tried WHERE cased IN {_CASED} AND succeeded > 0 "
            "ORDER BY newest_started DESC LIMIT 1",
            [case_id, target],
        ).fetchone()
        return row

    # -- bringing it up to date

    def _catch_up(self) -> None:
        if not any(self._missing()):
            return
        with _filling:  # two threads would do the same work
            while True:
                missing, gone = self._missing()
                if gone:
                    with self._writing():
                        self._forget(gone)
                if not missing:
                    return
                self._read(missing[:_AT_ONCE])

    def _missing(self) -> tuple[list[str], list[str]]:
        """Return the runs to read, and those whose rows are to be removed."""
        present, kept = self.warehouse.catalog.digests(_TABLES), self._kept()
        return [run for run, digest in present.items() if kept.get(run) != digest], sorted(kept.keys() - present.keys())

    def _kept(self) -> dict[str, str]:
        return dict(self._db.execute("SELECT run_id, digest FROM runs").fetchall())

    def _read(self, run_ids: Sequence[str]) -> None:
        """Summarize these runs, under the digests of the files that were actually read."""
        parameters = {"runs": list(run_ids)}
        numbers = self.warehouse.query(NUMBERS, parameters, runs=run_ids, name="summaries of numbers")
        tried = self.warehouse.query(TRIED, parameters, runs=run_ids, name="summaries of trials")
        read, known = _digests(numbers), _digests(tried)
        with self._writing():
            same = {run for run, files in known.items() if files.items() <= read.get(run, {}).items()}
            self._forget([*run_ids])
            self._db.executemany(
                "INSERT INTO runs (run_id, digest) VALUES (?, ?)",
                [(run, "+".join(digest for _, digest in sorted(read[run].items()))) for run in sorted(same)],
            )
            runs = dict(self._db.execute("SELECT run_id, id FROM runs").fetchall())
            self._insert_tried([row for row in tried.rows if row[0] in same], runs)
            self._insert_numbers([row for row in numbers.rows if row[6] in same], runs)

    def _insert_tried(self, rows: Sequence[Sequence[Any]], runs: Mapping[str, int]) -> None:
        cased = self._ids("cases", ("benchmark_case_id", "target_name"), {(row[1], row[2]) for row in rows})
        self._db.executemany(
            f"INSERT INTO tried VALUES ({', '.join('?' * 12)})",
            [
                (cased[row[1], row[2]], runs[row[0]], *row[3:7], json.dumps(row[7] or []), json.dumps(row[8]), *row[9:])
                for row in rows
            ],
        )

    def _insert_numbers(self, rows: Sequence[Sequence[Any]], runs: Mapping[str, int]) -> None:
        cased = self._ids("cases", ("benchmark_case_id", "target_name"), {(row[0], row[1]) for row in rows})
        columns = ("metric", "stat", "unit", "direction")
        measured = self._ids("metrics", columns, {tuple(row[2:6]) for row in rows})
        self._db.executemany(
            f"INSERT INTO numbers VALUES ({', '.join('?' * 8)})",
            [(cased[row[0], row[1]], measured[tuple(row[2:6])], runs[row[6]], *row[7:]) for row in rows],
        )

    def _ids(self, table: str, columns: Sequence[str], wanted: set[tuple[Any, ...]]) -> dict[tuple[Any, ...], int]:
        select = f"SELECT {', '.join(columns)}, id FROM {table}"
        known = {tuple(row[:-1]): row[-1] for row in self._db.execute(select)}
        new = sorted(wanted - known.keys(), key=repr)
        marks = ", ".join("?" * len(columns))
        self._db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", new)
        return {tuple(row[:-1]): row[-1] for row in self._db.execute(select)} if new else known

    def _forget(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            found = self._db.execute("SELECT id FROM runs WHERE run_id = ?", [run_id]).fetchone()
            if found:
                for statement in _FORGET:
                    self._db.execute(statement, {"run": found[0]})

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


_CASED = "(SELECT id FROM cases WHERE benchmark_case_id = ? AND target_name IS ?)"
_FORGET = (
    (
        "DELETE FROM numbers WHERE cased IN (SELECT cased FROM tried WHERE run = :run) "
        "AND measured IN (SELECT id FROM metrics) AND run = :run"
    ),
    "DELETE FROM tried WHERE run = :run",
    "DELETE FROM runs WHERE id = :run",
)
_SCHEMA = (
    "CREATE TABLE runs (id INTEGER PRIMARY KEY, run_id TEXT UNIQUE, digest TEXT NOT NULL)",
    "CREATE TABLE cases (id INTEGER PRIMARY KEY, benchmark_case_id TEXT, target_name TEXT)",
    "CREATE TABLE metrics (id INTEGER PRIMARY KEY, metric TEXT, stat TEXT, unit TEXT, direction TEXT)",
    (
        "CREATE TABLE tried (cased INTEGER, run INTEGER, scenario TEXT, point TEXT, experiment TEXT, version TEXT, "
        "instances TEXT, outcomes TEXT, succeeded INTEGER, began INTEGER, newest_started INTEGER, newest_trial TEXT, "
        "PRIMARY KEY (cased, run)) WITHOUT ROWID"
    ),
    "CREATE INDEX tried_by_run ON tried (run)",
    (
        "CREATE TABLE numbers (cased INTEGER, measured INTEGER, run INTEGER, started INTEGER, n INTEGER, mean REAL, "
        "stdev REAL, least REAL, PRIMARY KEY (cased, measured, run)) WITHOUT ROWID"
    ),
)


def _opened(folder: str) -> sqlite3.Connection:
    """Open the cache file, replaced if it is damaged or of another version; in memory if it cannot be written."""
    path = f"{folder}/{FILE_NAME}"
    if os.access(folder, os.W_OK):
        for _ in range(2):
            with contextlib.suppress(sqlite3.DatabaseError):
                return _prepared(path)
            for ending in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path + ending)  # noqa: PTH108 - a cache: nothing is lost with it
    return _prepared(":memory:")


def _prepared(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000)
    try:
        if db.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            if db.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                    db.execute(f"DROP TABLE {name}")
                for statement in _SCHEMA:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {_VERSION}")
            db.execute("COMMIT")
        db.execute("PRAGMA synchronous = OFF")  # what a crash of the machine damages is rebuilt
        db.execute("SELECT count(*) FROM runs").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _digests(result: Result) -> dict[str, dict[str, str]]:
    """Return the digests of the files that were read, by run and table."""
    digests: dict[str, dict[str, str]] = {}
    for item in result.spec.inputs:
        digests.setdefault(item.run_id, {})[item.table] = item.sha256
    return digests


def _dicts(rows: Any, *names: str) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in rows]


def _moment(microseconds: int) -> str:
    """Return a time as the tables write it."""
    return str(as_plain(datetime.fromtimestamp(microseconds / 1e6, UTC)))
