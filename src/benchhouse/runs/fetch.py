"""Fetch what a run needs from outside before it starts: declared data, packages of its environment, images."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchhouse.catalog.entries import plug
from benchhouse.catalog.listing import list_experiments
from benchhouse.documents.problems import guess_hint
from benchhouse.plan.dataset import missing_dataset
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quantities import show_bytes
from benchhouse.sites import places


@dataclass(frozen=True)
class Fetchable:
    """A data file that an installed experiment declares."""

    name: str
    experiment: str
    source: str
    sha256: str
    licence: str
    path: Path
    """Its present or future place in the cache."""
    used_with: tuple[str, ...] = ()
    """Values of a scenario that need it; empty if every scenario of the experiment does."""
    brought: bool = False
    """Whether this call downloaded it; otherwise it was in the cache before, or is missing."""

    @property
    def here(self) -> bool:
        """Whether it is in the cache."""
        return self.path.is_file()

    @property
    def size(self) -> int | None:
        """Size in bytes; None until it is in the cache."""
        return self.path.stat().st_size if self.here else None

    def summary(self) -> str:
        """Return one line: size, license, digest, and origin."""
        licence = self.licence or "licence unknown"
        origin = f"downloaded from {self.source}" if self.brought else "already in the cache"
        return f"{self.name}: {show_bytes(self.size or 0)}, {licence}, sha256 {self.sha256[:12]}, {origin}"

    def to_dict(self) -> dict[str, Any]:
        names = ("name", "experiment", "source", "sha256", "licence", "here", "size", "brought")
        return {name: getattr(self, name) for name in names} | {"path": str(self.path)}


def fetchable() -> list[Fetchable]:
    """Return all declared data, by name and experiment."""
    cache = places.cache()
    declared = []
    for listed in list_experiments(cache):
        for item in listed.data:
            origin, used_with = (item["source"], item["sha256"], item.get("licence", "")), item.get("used_with", ())
            path = cache / "data" / item["sha256"]
            declared.append(Fetchable(item["name"], listed.name, *origin, path, tuple(used_with)))
    return sorted(declared, key=lambda item: (item.name, item.experiment))


def fetch(name: str) -> list[Fetchable]:
    """Download the data of that name for every experiment that declares it; what is in the cache is only checked."""
    known = fetchable()
    chosen = [item for item in known if item.name == name]
    if not chosen and name.endswith((".yaml", ".yml")):
        hint = f"to fetch all that a scenario needs: bench fetch -c {name}"
        raise BenchError(f"'{name}' is not a name of data", hint)
    if not chosen:
        names = sorted({item.name for item in known})
        hint = guess_hint(name, names).strip() or f"there is: {', '.join(names) or 'none'}"
        raise BenchError(f"no installed experiment declares data '{name}'", hint)
    return [_bring(item) for item in chosen]


def _bring(item: Fetchable) -> Fetchable:
    """Fetch and check one file by digest, whether it is new or not."""
    from benchhouse.evidence.data_cache import DataCache
    from benchhouse.schema.experiment import Data

    data = Data(name=item.name, source=item.source, sha256=item.sha256, licence=item.licence)
    before = item.here
    path = DataCache(places.cache(), item.experiment, [data]).fetch(item.name)
    assert path == item.path
    return replace(item, brought=not before)


def needed_data(prepared: PreparedRun) -> list[Fetchable]:
    """Return the data of the scenario's experiment, without data that none of its values needs."""
    plan = prepared.plan
    first = next(plan.instances())
    rows = [block.rows for item in plan.plans for block in item.space.blocks]
    values = set(_texts([first.target, first.parameters, rows]))
    own = [item for item in fetchable() if item.experiment == plan.experiment.name]
    return [item for item in own if not item.used_with or values.intersection(item.used_with)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def fetch_for(workspace: WorkspaceFolder, prepared: PreparedRun, note: Callable[[str], None]) -> list[Path]:
    """Fetch the data of a scenario, then its packages. Raise BenchError with a list if anything is still missing."""
    brought = []
    for item in needed_data(prepared):
        note(f"data {_bring(item).summary()}")
        brought.append(item.path)
    spec, place = prepared.plan.scenario.runtime, prepared.place(workspace)
    runtime, has_images = plug("runtimes", spec.kind)(), not list(_images(workspace, prepared))
    for spec in prepared.plan.runtimes:
        note(f"runtime {spec.kind}: {runtime.packages(spec, place)}")
        if has_images:  # a container's environment can't be made without its image
            runtime.prepare(spec, place)
            brought.append(Path(runtime.python(spec, place)[0]))
    if lacking := missing(workspace, prepared):
        message = f"all that can be fetched is here; still missing:{_bullets(lacking)}"
        raise BenchError(message, exit_code=Exit.TRIAL_FAILED)
    return brought


def missing(workspace: WorkspaceFolder, prepared: PreparedRun) -> list[str]:
    """Return what a job on another node would lack, each with the remedy; empty if it can start.

    Data and packages count only if compute nodes can't fetch them themselves.
    """
    lacking = [*_images(workspace, prepared), *_files(prepared)]
    if prepared.site.network.egress:
        return lacking
    fetch = "bench fetch -c SCENARIO, where there is a network"
    lacking += [f"data {item.name} ({item.source}): {fetch}" for item in needed_data(prepared) if not item.here]
    for spec in [] if lacking else prepared.plan.runtimes:
        if not Path(plug("runtimes", spec.kind)().python(spec, prepared.place(workspace))[0]).exists():
            lacking.append(f"the environment of runtime '{spec.kind}': {fetch}")
    return lacking


def _images(workspace: WorkspaceFolder, prepared: PreparedRun) -> Iterator[str]:
    try:
        prepared.container(workspace)
    except BenchError as error:
        yield f"{error.message}: {error.hint or 'bench images pull'}"


def _files(prepared: PreparedRun) -> Iterator[str]:
    yield from (problem.message for problem in missing_dataset(prepared.file, prepared.plan.folder))
    for source in (bind.partition(":")[0] for bind in prepared.plan.scenario.binds):
        if source.startswith("/") and not Path(source).exists():
            yield f"a bind: {source} does not exist"


def refusals(workspace: WorkspaceFolder, prepared: PreparedRun) -> list[str]:
    """Return what a run can't start without: on this machine its image, because the rest is looked up when used."""
    here = prepared.plan.scenario.executor == "local"
    return list(_images(workspace, prepared)) if here else missing(workspace, prepared)


def require(workspace: WorkspaceFolder, prepared: PreparedRun) -> None:
    """Raise BenchError with the whole list if jobs elsewhere would lack something."""
    if lacking := missing(workspace, prepared):
        egress = f"; compute nodes of site '{prepared.site.site}' do not reach the internet"
        egress = "" if prepared.site.network.egress else egress
        raise BenchError(f"jobs would not find what they need{egress}:{_bullets(lacking)}")


def _bullets(items: list[str]) -> str:
    return "".join(f"\n  - {item}" for item in items)
