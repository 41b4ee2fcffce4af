"""Bring data that experiments need, checked by digest."""

from typing import TYPE_CHECKING

import click

from benchhouse.cli import options, show

if TYPE_CHECKING:
    from benchhouse.api.fetching import Fetchable

_EXAMPLES = """\b
Examples:
  bench fetch              what there is, and what is here already
  bench fetch glove        341,479 real word vectors, for vector.search
  bench fetch minilm wordnet      a model and 116,919 texts, for embeddings that are made here
"""


@click.command(help=f"{__doc__} Without a name, list what there is.\n\n{_EXAMPLES}")
@click.argument("names", nargs=-1)
@options.json_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    from benchhouse.api import fetching

    found = [item for name in names for item in fetching.fetch(name)] if names else fetching.fetchable()
    if as_json:
        show.as_json([_document(item) for item in found])
    elif names:
        for item in found:
            click.echo(item.path)
    else:
        rows = [(item.name, item.experiment, "yes" if item.here else "no", item.licence, item.source) for item in found]
        show.table(("data", "experiment", "here", "licence", "source"), rows)
        show.note("next:  bench fetch NAME")


def _document(item: "Fetchable") -> dict[str, object]:
    return {
        "name": item.name,
        "experiment": item.experiment,
        "source": item.source,
        "sha256": item.sha256,
        "licence": item.licence,
        "path": str(item.path),
        "here": item.here,
    }
