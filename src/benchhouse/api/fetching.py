"""Data that installed experiments declare, brought into the cache before a run needs it."""

from dataclasses import dataclass
from pathlib import Path

from benchhouse.api import catalogue, places
from benchhouse.schema.errors import BenchError
from benchhouse.schema.problems import did_you_mean


@dataclass(frozen=True)
class Fetchable:
    """One declared file; `path` is where it lies, or will lie, in the cache."""

    name: str
    experiment: str
    source: str
    sha256: str
    licence: str
    path: Path

    @property
    def here(self) -> bool:
        return self.path.is_file()


def fetchable() -> list[Fetchable]:
    """All declared data, by name and experiment."""
    found = [
        Fetchable(
            item["name"],
            listed.name,
            item["source"],
            item["sha256"],
            item.get("licence", ""),
            places.cache() / "data" / item["sha256"],
        )
        for listed in catalogue.experiments()
        for item in listed.data
    ]
    return sorted(found, key=lambda item: (item.name, item.experiment))


def fetch(name: str) -> list[Fetchable]:
    """Bring the data of that name, of every experiment that has some; what is here already is only checked."""
    from benchhouse.schema.experiment import Data
    from benchhouse.worker.cache import DataCache

    known = fetchable()
    chosen = [item for item in known if item.name == name]
    if not chosen:
        names = sorted({item.name for item in known})
        meant = did_you_mean(name, names)
        raise BenchError(
            f"no installed experiment declares data '{name}'",
            f"did you mean '{meant}'?" if meant else f"there is: {', '.join(names) or 'none'}",
        )
    for item in chosen:
        data = Data(name=item.name, source=item.source, sha256=item.sha256, licence=item.licence)
        path = DataCache(places.cache(), item.experiment, [data]).fetch(item.name)
        assert path == item.path
    return chosen
