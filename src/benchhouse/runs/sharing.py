"""Share results with a team: after each run they are sent to the places that workspace.yaml names.

A journal in the workspace records what arrived. It only saves work: whatever it lacks is sent again, and store and
engine keep what they have. A server that is away causes a warning and never fails a run.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.evidence import journals
from benchhouse.evidence.folder import list_sealed
from benchhouse.evidence.store import Carried
from benchhouse.runs.evidence_transfer import push_folders
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.model import Model
from benchhouse.schema.secrets import resolve, without_secrets
from benchhouse.schema.workspace_file import SearchIndex, SharingSettings, WorkspaceFile

AGAIN = "bench warehouse share"
NAME_IT = "write workspace.yaml: {warehouse: {share: postgresql://user@host/db, evidence: s3://bucket/prefix}}"
_BATCH = 50  # lines of the journal that are synced together

Note = Callable[[str], None]


class Arrived(Model):
    """A line of the journal: a trial or run, with its stamp, that has arrived."""

    to: str
    what: str
    stamp: str


class DeadLetter(Model):
    """A line of the dead letters: a document that was rejected for good, with the reason."""

    to: str
    status: int
    reason: str
    index: str
    id: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Destination:
    """One shared place, and how much of the workspace it has as far as the journal shows."""

    to: str
    noun: str
    """`trial` in a store of evidence, `run` in an engine."""
    there: int
    missing: list[str]
    """Trials (scenario/trial) or runs that have not arrived yet."""
    moved: int = 0
    """Number of those that arrived just now."""
    problem: str = ""
    """Why more did not arrive; empty if nothing failed."""

    @property
    def summary(self) -> str:
        count = f"{self.there} of {self.there + len(self.missing)} {self.noun}s in {self.to}"
        return f"{count}; {len(self.missing)} not there yet" if self.missing else count


def settings(workspace: WorkspaceFolder) -> SharingSettings | None:
    """Return the sharing settings; None if the workspace shares nothing. Raise with the place of every mistake."""
    file = workspace_file(workspace)
    return file.warehouse if file else None


def workspace_file(workspace: WorkspaceFolder) -> WorkspaceFile | None:
    """Return the contents of workspace.yaml; None if there is no such file."""
    path = workspace.settings
    return validated(load_yaml(path), WorkspaceFile) if path.is_file() else None


def standing(workspace: WorkspaceFolder) -> list[Destination]:
    """Return what has arrived at each place, by the journal, without any request."""
    return [place.standing() for place in _places(workspace)]


def share(workspace: WorkspaceFolder) -> list[Destination]:
    """Send what has not arrived yet, evidence first; if evidence can't be sent, the tables still are."""
    places = _places(workspace)
    if not places:
        raise BenchError(f"{workspace.root} shares nothing", NAME_IT)
    return [place.send() for place in places]


def after_run(workspace: WorkspaceFolder, note: Note) -> None:
    """Share the results, and note what could not be shared: the run is complete here in any case."""
    try:
        for place in [place.send() for place in _places(workspace)]:
            if place.missing:
                note(f"not shared: {place.summary} ({place.problem}); go on with:  {AGAIN}")
            elif place.moved:
                note(f"shared: {place.summary}{f'; {place.problem}' if place.problem else ''}")
    except BenchError as error:
        note(f"not shared: {error.message}; go on with:  {AGAIN}")


class _Place(ABC):
    """One destination: what of the workspace belongs there, by name and stamp, and how it is sent."""

    noun: ClassVar[str]

    def __init__(self, workspace: WorkspaceFolder, to: str) -> None:
        self.workspace, self.to = workspace, to
        self._unwritten: list[Arrived] = []

    @abstractmethod
    def here(self) -> dict[str, str]:
        """Return what should be there, by name; its stamp changes when it does."""

    @abstractmethod
    def transfer(self, names: Sequence[str]) -> dict[str, str]:
        """Send these and call `arrived` for each. Return the rejected ones with the reason."""

    def standing(self) -> Destination:
        stamps = self.here()
        known = {(line.what, line.stamp) for line in _journal(self.workspace) if line.to == self.to}
        missing = [name for name, stamp in stamps.items() if (name, stamp) not in known]
        return Destination(self.to, self.noun, len(stamps) - len(missing), missing)

    def send(self) -> Destination:
        before = self.standing()
        if not before.missing:
            return before
        problem, refused = "", dict[str, str]()
        try:
            refused = self.transfer(before.missing)
        except BenchError as error:
            problem = error.message.strip().partition("\n")[0]
        finally:  # what arrived is recorded, whatever interrupted the rest
            self._write_down()
        problem = problem or next((f"{name}: {reason}" for name, reason in refused.items()), "")
        after = self.standing()
        return replace(after, moved=after.there - before.there, problem=problem)

    def arrived(self, name: str, stamp: str) -> None:
        self._unwritten.append(Arrived(to=self.to, what=name, stamp=stamp))
        if len(self._unwritten) >= _BATCH:
            self._write_down()

    def _write_down(self) -> None:
        lines, self._unwritten = self._unwritten, []
        journals.append(self.workspace.shared_journal, lines, AGAIN)


class _Store(_Place):
    """Sealed folders in a store of evidence."""

    noun = "trial"

    def __init__(self, workspace: WorkspaceFolder, to: str, endpoint: str) -> None:
        super().__init__(workspace, f"{to} at {endpoint}" if endpoint else to)
        self._address, self._endpoint = to, endpoint

    def here(self) -> dict[str, str]:
        stamps = {}
        for folder in map(TrialFolder, list_sealed(self.workspace.results)):
            status = folder.manifest.stat()
            stamps[f"{folder.path.parent.name}/{folder.path.name}"] = f"{status.st_mtime_ns}:{status.st_size}"
        return stamps

    def transfer(self, names: Sequence[str]) -> dict[str, str]:
        stamps, refused = self.here(), dict[str, str]()
        folders = [TrialFolder(self.workspace.results / name) for name in names]

        def report(carried: Carried) -> None:
            if carried.what == "refused":
                refused[carried.folder] = carried.reason
            else:
                self.arrived(carried.folder, stamps[carried.folder])

        push_folders(self.workspace, self._address, self._endpoint, folders, report)
        return refused


class _Tables(_Place):
    """Collected runs in an engine."""

    noun = "run"

    def here(self) -> dict[str, str]:
        from benchhouse.warehouse.engine_lake import LakeEngine  # imports pyarrow

        with closing(LakeEngine(self.workspace)) as lake:
            return {run_id: _stamp(files) for run_id, files in lake.runs().items()}

    def transfer(self, names: Sequence[str]) -> dict[str, str]:
        from benchhouse.warehouse.transfer import TransferredRun, push

        stamps, refused = self.here(), dict[str, str]()

        def say(moved: TransferredRun) -> None:
            if moved.what == "refused":
                refused[moved.run_id] = moved.reason
            else:
                self.arrived(moved.run_id, stamps[moved.run_id])

        push(self.workspace, self.to, names, say=say)
        return refused


class _SearchIndex(_Tables):
    """Numbers and logs of collected runs in a search engine. Documents that it rejects for good become dead letters."""

    def __init__(self, workspace: WorkspaceFolder, index: SearchIndex) -> None:
        super().__init__(workspace, without_secrets(f"{index.url}/{index.prefix}"))
        self._index = index

    def transfer(self, names: Sequence[str]) -> dict[str, str]:
        from benchhouse.runs.search_documents import documents
        from benchhouse.runs.search_engine import SearchEngine

        index, stamps, refused = self._index, self.here(), 0
        known = resolve({"url": index.url, "api_key": index.api_key}, os.environ)
        if "$" in known["url"] + known["api_key"]:
            raise BenchError("a variable that `search` of workspace.yaml names is not set", "export it")
        engine = SearchEngine(known["url"], known["api_key"])
        engine.put_templates(index.prefix)
        for run_id in names:
            for letter in engine.send(documents(self.workspace, run_id, index.prefix, logs=index.logs)):
                refused += 1
                item = letter.document
                line = DeadLetter(
                    to=self.to, status=letter.status, reason=letter.reason, index=item.index, id=item.id, body=item.body
                )
                journals.append(self.workspace.dead_letters, line, AGAIN)
            self.arrived(run_id, stamps[run_id])
        path = self.workspace.dead_letters.relative_to(self.workspace.root)
        return {f"{refused} documents": f"refused for good, kept in {path}"} if refused else {}


def store_of(workspace: WorkspaceFolder, sharing: SharingSettings) -> tuple[str, str]:
    """Return the address and endpoint of the store of evidence; both are empty if none is named."""
    return (_address(workspace, sharing.evidence), sharing.endpoint) if sharing.evidence else ("", "")


def engine_of(workspace: WorkspaceFolder) -> str:
    """Return the address of the team's engine. Raise BenchError if workspace.yaml names none."""
    sharing = settings(workspace)
    if sharing is None or not sharing.share:
        raise BenchError("workspace.yaml names no store of the team", NAME_IT)
    return _address(workspace, sharing.share)


def note_pulled(workspace: WorkspaceFolder, runs: Mapping[str, Mapping[str, str]]) -> None:
    """Record that runs pulled from the engine are there, with the digests of their tables."""
    engine = engine_of(workspace)
    known = {(line.what, line.stamp) for line in _journal(workspace) if line.to == engine}
    stamps = {(run_id, _stamp(files)) for run_id, files in runs.items()}
    new = [Arrived(to=engine, what=run_id, stamp=stamp) for run_id, stamp in sorted(stamps - known)]
    journals.append(workspace.shared_journal, new, AGAIN)


def _journal(workspace: WorkspaceFolder) -> list[Arrived]:
    return journals.read(workspace.shared_journal, Arrived)[0]


def _stamp(files: Mapping[str, str]) -> str:
    return digest(dict(files))[:16]


def _places(workspace: WorkspaceFolder) -> list[_Place]:
    file, places = workspace_file(workspace), list[_Place]()
    sharing = file.warehouse if file else None
    if sharing and sharing.evidence:
        places.append(_Store(workspace, *store_of(workspace, sharing)))
    if sharing and sharing.share:
        places.append(_Tables(workspace, _address(workspace, sharing.share)))
    if file and file.search:
        places.append(_SearchIndex(workspace, file.search))
    return places


def _address(workspace: WorkspaceFolder, written: str) -> str:
    """Return the address; a folder is relative to workspace.yaml, wherever the command is run."""
    is_folder = ":" not in written and not written.startswith("$")
    return str(workspace.root / Path(written).expanduser()) if is_folder else written
