"""Data of a workload, fetched and laid out before anything is measured."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pydantic import Field

from benchhouse.evidence.sources import stage
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.sources import DATA, DataSource

_PLACE = f"{{{DATA}}}"


class WithData(Model):
    """A workload that may read data from elsewhere."""

    data: list[DataSource] = Field(
        default_factory=empty_list,
        description="Files to fetch first, kept in the cache; `{data}` in the command, its input and its environment "
        "is the folder in which each lies at its `path`.",
    )


@contextmanager
def staged_data(sources: Sequence[DataSource], ctx: Context) -> Iterator[str]:
    """Yield the folder of links to the data, which is removed afterwards; empty if there are no sources."""
    if not sources:
        yield ""
        return
    folder = ctx.workdir.resolve() / DATA
    try:
        facts = stage(sources, folder, ctx.cache.build)
    except BenchError as error:
        ctx.fail("no_data", f"{error.message}{f'; {error.hint}' if error.hint else ''}")
    ctx.metadata(data=facts)
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder)


def fill_data(text: str, folder: str, quote: Callable[[str], str] = str) -> str:
    """Return `text` with `{data}` filled in; the shell's own `${data}` stays."""
    if not folder:
        return text
    pieces = text.split(_PLACE)
    filled = pieces[0]
    for piece in pieces[1:]:
        filled += (_PLACE if filled.endswith("$") else quote(folder)) + piece
    return filled


def fill_variables(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    return {name: fill_data(value, folder) for name, value in environment.items()}
