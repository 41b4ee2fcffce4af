"""The orchestrator's side of a run whose nodes share no file system with it: a bucket carries the files of `slots/`.

One thread sends what the executor writes there and the folders of trials. Another fetches the reports of slots and
sealed folders, which are in place before the executor reads that their trial has ended. The executor therefore sees
plain files. The other side is `bucket_slot`. The objects below s3://BUCKET/PREFIX/RUN are

    index                       a growing count, the session, and how many bytes of orders each slot has
    orders/SLOT/AT.PIECES       a parcel: orders from that byte on, with the folders of the trials they begin
    reports/SLOT/AT.PIECES      a parcel: reports from that byte on, with sealed folders and logs
    data/SHA256                 datasets
"""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from benchhouse.executors import bucket_parcel
from benchhouse.executors.bucket_parcel import INDEX, ParcelNotice, RunBucket
from benchhouse.executors.cluster_node import GIVEN_UP, LEFT, ORDERS, REPORTS
from benchhouse.http.s3_bucket import S3Refused
from benchhouse.processes.durable import put_in_place, sync
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.layout import TrialFolder

_BEAT_S = 5.0
_LOCAL_S = 0.05  # between two checks of the executor's files
_SOON_S, _LATE_S = 0.1, 2.0  # between two listings of the reports: after news, and after a long time without any
_AT_ONCE = 8
_PIECE_BYTES = 1 << 20


class BucketMirror:
    """Mirrors the files of `home` to objects in a bucket and back, for the life of an executor."""

    def __init__(self, home: Path, address: str, say: Callable[[str], None], environ: Mapping[str, str]) -> None:
        """Create the mirror; send no request. `address` is the run's own place. Raise BenchError if it is invalid."""
        self.home, self.address = home, address
        self._depot = RunBucket(address, environ, say, lambda: None)
        self._say = say
        self._session = f"{time.time_ns():x}-{os.getpid()}"
        self._slots: dict[str, _Slot] = {}
        self._data: set[str] = set()
        self._beats = itertools.count(1)
        self._earlier: set[str] = set()  # slots of earlier sessions
        self._crew = ThreadPoolExecutor(_AT_ONCE, "bucket")
        self._writing, self._bringing = threading.Lock(), threading.Lock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._problem: BenchError | None = None

    def make_sure(self) -> None:
        """Check that the bucket exists and allows writing, listing, and removing. Raise BenchError if not."""
        self._depot.make_sure()

    def recover(self) -> int:
        """Fetch what slots of earlier sessions sent after their session ended, remove the rest, and return the trial
        count.

        The index is written first, so that an earlier slot that is still alive sees that its session has ended.
        """
        if self._threads or not (self.home / LEFT).is_file():
            return 0
        try:
            self._write_index()
            notices = [ParcelNotice(key) for key in self._depot.keys("reports/")]
            slots = {notice.slot: _Slot(self.home / notice.slot) for notice in notices}
            trials = sum(self._bring(slots[notice.slot], notice) for notice in notices)
            self._clear()
        except (S3Refused, OSError) as error:
            raise self._told(error) from error
        if trials:
            self._say(f"{trials} sealed trial{'s' * (trials > 1)} of an earlier session came home from {self.address}")
        return trials

    def begin(self) -> None:
        """Start to mirror the slots' folders to the bucket and back."""
        if self._threads:
            return
        self.home.mkdir(parents=True, exist_ok=True)
        self._earlier = {path.name for path in self.home.iterdir()}
        (self.home / LEFT).write_text(f"{self.address}\n", encoding="utf-8")
        self._write_index()
        for work in (self._send, self._fetch):
            self._threads.append(threading.Thread(target=self._guarded, args=(work,), daemon=True, name="bucket"))
            self._threads[-1].start()

    def check(self) -> None:
        """Raise the error with which a thread has failed, if any."""
        if self._problem:
            raise self._problem

    def settle(self) -> None:
        """Fetch everything that ended slots have sent, including their last reports. Raise BenchError if that fails."""
        self.check()
        try:
            self._bring_all()
        except (S3Refused, OSError) as error:
            raise self._told(error) from error

    def close(self) -> None:
        """Fetch what is there and remove the run's objects. If the bucket is unreachable, report what is left in it."""
        if not self._threads:
            return
        self._over.set()
        if self._depot.away_s:
            self._depot.hurry.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        try:
            if self._problem is None:
                self._bring_all()
                self._clear()
        except (S3Refused, OSError) as error:
            self._problem = self._told(error)
        if self._problem:
            self._say(f"left in {self.address}: {self._problem.message}; to bring it home: {self._resume}")
        self._crew.shutdown()
        self._depot.close()

    # -- the threads ----------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BenchError as error:
            self._problem = self._told(error) if isinstance(error, S3Refused) else error
        except Exception as error:  # noqa: BLE001 - an unnoticed end of the thread would be waited for forever
            self._problem = self._told(error if isinstance(error, OSError) else S3Refused("", repr(error)))

    def _send(self) -> None:
        """Send heartbeats, even during long transfers, and orders."""
        beat_at = 0.0
        while not self._over.wait(_LOCAL_S):
            if self._send_orders() or time.monotonic() >= beat_at:
                self._write_index()
                beat_at = time.monotonic() + _BEAT_S
        if self._send_orders():  # the orders to end
            self._write_index()

    def _fetch(self) -> None:
        pause_s = _SOON_S
        while not self._over.wait(pause_s):
            sent = self._orders_sent
            news = self._bring_all()
            pause_s = _SOON_S if news or sent != self._orders_sent else min(1.5 * pause_s, _LATE_S)

    @property
    def _orders_sent(self) -> int:
        return sum(slot.sent for slot in list(self._slots.values()))

    def _write_index(self) -> None:
        with self._writing:
            orders = {slot.name: slot.sent for slot in list(self._slots.values())}
            content = {"session": self._session, "beat": next(self._beats), "orders": orders}
            self._depot.put(INDEX, json.dumps(content).encode())

    def _send_orders(self) -> bool:
        with os.scandir(self.home) as entries:
            for entry in entries:
                if entry.name not in self._slots and entry.name not in self._earlier and entry.is_dir():
                    self._slots[entry.name] = _Slot(Path(entry.path))
        news = [self._send_orders_of(slot) for slot in self._slots.values()]
        return any(news)

    def _send_orders_of(self, slot: "_Slot") -> bool:
        lines = slot.unsent()
        if not lines:
            return False
        files: list[tuple[str, Path]] = []
        for order in map(json.loads, lines.splitlines()):
            slot.receive_order(order)
            if "folder" in order:
                folder = TrialFolder(Path(order["folder"]))
                self._send_dataset(folder)
                files += [(f"{order['id']}/{path.name}", path) for path in (folder.spec, folder.effective_config)]
        slot.order_keys += bucket_parcel.send(self._depot, "orders", slot.name, slot.sent, lines, files)
        slot.sent += len(lines)
        return True

    def _send_dataset(self, folder: TrialFolder) -> None:
        dataset = json.loads(folder.spec.read_bytes()).get("dataset")
        if dataset and dataset["sha256"] not in self._data:
            self._depot.put_file(f"data/{dataset['sha256']}", Path(dataset["path"]), dataset["sha256"])
            self._data.add(dataset["sha256"])

    # -- fetching ------------------------------------------------------------------------------------------------

    def _bring_all(self) -> bool:
        """Fetch every available parcel, each slot's in order, several slots in parallel. Return whether any came."""
        with self._bringing:
            by_slot: dict[str, list[ParcelNotice]] = {}
            done: list[str] = []
            for notice in map(ParcelNotice, self._depot.keys("reports/")):
                if notice.slot in self._slots:
                    by_slot.setdefault(notice.slot, []).append(notice)
                else:  # from an earlier session, whose trials have started again
                    done += notice.keys
            list(self._crew.map(self._bring_slot, by_slot, by_slot.values()))
            for name, notices in by_slot.items():
                done += [*(key for notice in notices for key in notice.keys), *self._slots[name].used_up()]
            self._depot.remove(done)
            return bool(by_slot)

    def _bring_slot(self, name: str, notices: list[ParcelNotice]) -> None:
        slot = self._slots[name]
        for notice in sorted(notices, key=lambda notice: notice.at):
            if notice.at == slot.heard:  # an earlier one is already fetched, and its removal was interrupted
                self._bring(slot, notice)

    def _bring(self, slot: "_Slot", notice: ParcelNotice) -> int:
        """Fetch a parcel: first sealed folders and logs, last the lines. Return how many sealed folders arrived."""
        return self._depot.patiently(lambda: self._unpack(slot, notice))

    def _unpack(self, slot: "_Slot", notice: ParcelNotice) -> int:
        arrivals: dict[str, _Arrival] = {}
        try:
            with bucket_parcel.opened(self._depot, notice) as (lines, files):
                for name, file in files:
                    trial, _, rest = name.partition("/")
                    if trial not in arrivals:
                        arrivals[trial] = _Arrival(trial, *slot.trial(trial))
                    arrivals[trial].take(rest, file)
            reports = [json.loads(line) for line in lines.splitlines()]
            came = 0
            for report in reports:
                if "exit" in report and (arrival := arrivals.get(report["id"])) and not slot.is_given_up:
                    if problem := arrival.settle():
                        report["exit"] = report["exit"] or 1
                        arrival.note(problem)
                    came += arrival.is_sealed and not problem
            slot.hear(reports, len(lines))
            return came
        finally:
            for arrival in arrivals.values():
                arrival.remove()

    def _clear(self) -> None:
        self._depot.remove(self._depot.keys())
        (self.home / LEFT).unlink(missing_ok=True)

    def _told(self, error: S3Refused | OSError) -> BenchError:
        if isinstance(error, OSError):
            return unwritable(self.home, error)
        message = f"the bucket of this run ({self.address}): {error.message}"
        return BenchError(message, f"finished trials are kept; when it is well: {self._resume}", Exit.TRIAL_FAILED)

    @property
    def _resume(self) -> str:
        return f"bench run --resume {self.home.parent.name}"


class _Slot:
    """How many bytes of orders and reports of a slot were carried, and where its trials belong."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.sent = 0
        self.heard = 0  # bytes of the report file on the node
        self.order_keys: list[str] = []
        self.is_given_up = False  # its trials have started elsewhere
        self._jobs: dict[str, tuple[Path, Path]] = {}
        self._is_free = False

    def unsent(self) -> bytes:
        with contextlib.suppress(FileNotFoundError), (self.folder / ORDERS).open("rb") as file:
            file.seek(self.sent)
            text = file.read()
            return text[: text.rfind(b"\n") + 1]
        return b""

    def receive_order(self, order: Mapping[str, Any]) -> None:
        self.is_given_up = self.is_given_up or GIVEN_UP in order
        if "folder" in order:
            self._jobs[order["id"]] = (Path(order["folder"]), Path(order["log"]))

    def trial(self, trial: str) -> tuple[Path, Path]:
        """Return the folder and the log of a trial that this slot was given, in this session or an earlier one."""
        if trial not in self._jobs:
            with contextlib.suppress(FileNotFoundError):
                for line in (self.folder / ORDERS).read_bytes().splitlines():
                    self.receive_order(json.loads(line))
        if trial not in self._jobs:
            raise BenchError(f"slot {self.name} sent a trial that it was not given: {trial}")
        return self._jobs[trial]

    def hear(self, reports: list[Any], size: int) -> None:
        """Make reports visible to the executor, after everything that they refer to is in place."""
        self.heard += size
        self._is_free = self._is_free or any("exit" in report for report in reports)
        with (self.folder / REPORTS).open("ab", buffering=0) as file:
            file.write(b"".join(json.dumps(report).encode() + b"\n" for report in reports))

    def used_up(self) -> list[str]:
        """Return the keys of orders that are carried out and forget them. A slot has one trial at a time."""
        if not self._is_free:
            return []
        keys, self.order_keys, self._is_free = self.order_keys, [], False
        return keys


class _Arrival:
    """A sealed folder on its way: kept next to its final place until it is complete and its digests match."""

    def __init__(self, trial: str, folder: Path, log: Path) -> None:
        self._trial, self._folder, self._log = trial, folder, log
        self._here = self._folder.with_name(f"{self._folder.name}.arriving")
        self._digests: dict[str, str] = {}
        shutil.rmtree(self._here, ignore_errors=True)

    @property
    def is_sealed(self) -> bool:
        return bool(self._digests)

    def take(self, name: str, file: IO[bytes]) -> None:
        """Store one file, named `log` or `folder/...`."""
        kind, _, inside = name.partition("/")
        if kind == "folder" and inside:
            self._digests[inside] = _write(self._here / inside, file)
        elif name == "log":
            _write(self._log, file)

    def settle(self) -> str:
        """Move the folder to its place; an existing one stays. Return what is wrong with it, or an empty string."""
        if not self.is_sealed:
            return ""
        here = TrialFolder(self._here)
        self._digests.pop(here.manifest.name, None)
        try:
            manifest = json.loads(here.manifest.read_bytes())
            sealed = {name: entry["sha256"] for name, entry in manifest["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return "its sealed folder came without a manifest that can be read"
        if wrong := sorted(set(sealed.items()) ^ set(self._digests.items())):
            return f"its sealed folder did not come as it was sealed: {wrong[0][0]}"
        if manifest.get("trial_id") != self._trial:
            return f"another trial's folder came: {manifest.get('trial_id')}"
        final = self._folder.parents[1] / self._trial
        for folder in {path.parent for path in self._here.rglob("*")}:
            sync(folder)
        if not final.exists():
            put_in_place(self._here, final)
        shutil.rmtree(self._folder, ignore_errors=True)
        return ""

    def note(self, problem: str) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{problem}\n")

    def remove(self) -> None:
        shutil.rmtree(self._here, ignore_errors=True)


def _write(path: Path, file: IO[bytes]) -> str:
    """Write a file, sync it to disk, and return its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sha256 = hashlib.sha256()
    with path.open("wb") as out:
        for piece in _pieces(file):
            sha256.update(piece)
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    return sha256.hexdigest()


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece
