"""A slot's side of a run without a shared file system: a bucket carries the files that `keep_slot` reads and writes.

The other side is `cluster_bucket`. Folders have the same names on both sides, so no path is translated.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchhouse.executors import bucket_parcel
from benchhouse.executors.bucket_parcel import INDEX, ParcelNotice, RunBucket
from benchhouse.executors.cluster_node import ALIVE, ORDERS, REPORTS
from benchhouse.http.s3_bucket import S3Refused
from benchhouse.processes.durable import put_in_place, sync
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder

_LOCAL_S = 0.05  # between two checks of the reports
_SOON_S, _IDLE_S, _BUSY_S = 0.1, 2.0, 4.0  # between two reads of the index: after news, without a trial, during one


@contextlib.contextmanager
def carried(address: str, folder: Path, needs: Collection[str] = ()) -> Iterator[None]:
    """Carry the files of the slot in this folder while the context lasts. Raise BenchError if the bucket denies access.

    `address` is the run's place in the bucket. The credentials are the AWS_* variables of the environment, which are
    removed from it, except for those that the scenario `needs`, so that trials cannot use the bucket's account.
    """
    environ = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    for name in environ.keys() - set(needs):
        del os.environ[name]
    carrier = _Carrier(folder, address, environ)
    carrier.begin()
    try:
        yield
    finally:
        carrier.end()
    if carrier.problem:
        raise BenchError(f"the bucket of the run: {carrier.problem}")


class _Carrier:
    def __init__(self, folder: Path, address: str, environ: Mapping[str, str]) -> None:
        self._folder, self._depot = folder, RunBucket(address, environ, _say, self._beat)
        self._etag, self._index = "", dict[str, Any]()
        self._session = ""
        self._heard = self._sent = 0
        self._jobs: dict[str, tuple[Path, Path, Path]] = {}  # of started trials: folder, log, final place
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="bucket")
        self.problem = ""

    def begin(self) -> None:
        """Start to carry files. Raise BenchError if the bucket denies access or has no such run."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._look()
        if not self._index:
            raise BenchError("there is no such run: it is over")
        self._session = self._index["session"]
        self._thread.start()

    def end(self) -> None:
        """Send the last reports and stop."""
        self._over.set()
        self._thread.join()
        self._depot.close()

    def _serve(self) -> None:
        try:
            look_at, pause_s = 0.0, _SOON_S
            while not self._over.wait(_LOCAL_S):
                news = self._send_reports()
                if news:
                    look_at, pause_s = 0.0, _SOON_S
                if time.monotonic() >= look_at:
                    news = self._read_orders()
                    pause_s = _SOON_S if news else min(2 * pause_s, _BUSY_S if self._jobs else _IDLE_S)
                    look_at = time.monotonic() + pause_s
            self._look()
            if self._index.get("session") == self._session:  # otherwise nothing would remove the reports
                self._send_reports(last=True)
        except Exception as error:  # noqa: BLE001 - an unnoticed end of the thread would be waited for forever
            self.problem = error.message if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
            _say(self.problem)
            self._order({"end": f"the bucket: {self.problem}"})

    # -- orders ----------------------------------------------------------------------------------------------------

    def _read_orders(self) -> bool:
        """Fetch new orders and return whether there were any."""
        if self._look():
            if self._index.get("session") != self._session:
                over = "another session has taken the run over" if self._index else "its run is over"
                self._order({"end": over})
                return False
            self._beat()
        end, begun = self._index.get("orders", {}).get(self._folder.name, 0), self._heard
        while self._heard < end:
            self._depot.patiently(self._unpack)
        return self._heard > begun

    def _look(self) -> bool:
        """Read the index and return whether it has changed; a missing one counts as empty."""
        try:
            latest = self._depot.look(INDEX, self._etag)
        except S3Refused as refused:
            if refused.kind != "http_404":
                raise
            latest = ("", b"{}")
        if latest is None:
            return False
        self._etag, self._index = latest[0], json.loads(latest[1])
        return True

    def _unpack(self) -> None:
        notice = ParcelNotice(f"orders/{self._folder.name}/{self._heard:012d}.0")
        with bucket_parcel.opened(self._depot, notice) as (lines, files):
            orders = {order["id"]: order for order in map(json.loads, lines.splitlines()) if "folder" in order}
            for order in orders.values():
                Path(order["folder"]).mkdir(parents=True, exist_ok=True)
                Path(order["log"]).parent.mkdir(parents=True, exist_ok=True)
            for name, file in files:
                trial, _, inside = name.partition("/")
                with (Path(orders[trial]["folder"]) / inside).open("wb") as out:
                    shutil.copyfileobj(file, out)
        for order in orders.values():
            spec = json.loads(TrialFolder(Path(order["folder"])).spec.read_bytes())
            self._jobs[order["id"]] = (Path(order["folder"]), Path(order["log"]), Path(spec["final"]))
            self._bring_dataset(spec.get("dataset"))
        self._heard += len(lines)
        self._order(lines)

    def _bring_dataset(self, dataset: dict[str, Any] | None) -> None:
        if not dataset or (path := Path(dataset["path"])).exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        partial, sha256 = path.with_name(f"{path.name}.{self._folder.name}"), hashlib.sha256()
        with partial.open("wb") as out:
            for piece in self._depot.read(f"data/{dataset['sha256']}"):
                sha256.update(piece)
                out.write(piece)
        if sha256.hexdigest() != dataset["sha256"]:
            raise BenchError(f"{dataset['name']} did not come as it is: another sha256")
        sync(partial)
        put_in_place(partial, path)

    def _beat(self) -> None:
        """Write the heartbeat that the orchestrator writes if files are shared."""
        (self._folder.parent / ALIVE).write_text(f"{time.monotonic_ns()}\n")

    def _order(self, lines: bytes | dict[str, str]) -> None:
        text = lines if isinstance(lines, bytes) else json.dumps(lines).encode() + b"\n"
        with (self._folder / ORDERS).open("ab", buffering=0) as file:
            file.write(text)

    # -- reports ---------------------------------------------------------------------------------------------------

    def _send_reports(self, *, last: bool = False) -> bool:
        """Send new reports; return whether any were sent. A report that a trial has started waits for the next one."""
        with contextlib.suppress(FileNotFoundError), (self._folder / REPORTS).open("rb") as file:
            file.seek(self._sent)
            text = file.read()
            lines = text[: text.rfind(b"\n") + 1]
            reports = [json.loads(line) for line in lines.splitlines()]
            if not lines or not (last or any("pid" not in report for report in reports)):
                return False
            ended = [report["id"] for report in reports if "exit" in report]
            files = [item for trial in ended for item in self._files(trial)]
            bucket_parcel.send(self._depot, "reports", self._folder.name, self._sent, lines, files)
            self._sent += len(lines)
            for trial in ended:
                self._remove(trial)
            return True
        return False

    def _files(self, trial: str) -> Iterator[tuple[str, Path]]:
        _, log, final = self._jobs[trial]
        if log.is_file():
            yield f"{trial}/log", log
        if TrialFolder(final).sealed:
            for path in sorted(final.rglob("*")):
                if path.is_file():
                    yield f"{trial}/folder/{path.relative_to(final).as_posix()}", path

    def _remove(self, trial: str) -> None:
        """Delete a trial that is in the bucket and would only use space here."""
        folder, log, final = self._jobs.pop(trial)
        for place in (folder, final):
            shutil.rmtree(place, ignore_errors=True)
        log.unlink(missing_ok=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
