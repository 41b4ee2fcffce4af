"""A space of ado as a benchmark that `uses:` can name: its points without its target."""

from collections.abc import Mapping

from benchhouse.documents.document import Document
from benchhouse.documents.problems import ProblemsError
from benchhouse.plan.spaces import read_space, scenarios
from benchhouse.schema.scenario import Benchmark

_FROZEN = ("experiment", "version", "workload", "axes")


def benchmark_of_space(document: Document, name: str, environ: Mapping[str, str]) -> tuple[Benchmark, Document]:
    """The benchmark of that name, and a view of the space's file that has its shape."""
    space = read_space(document)
    if len(space.space.experiments) > 1:
        message = "a space of several experiments can't be used by name"
        raise ProblemsError([document.problem(("experiments",), message, "a space for each experiment")])
    (file,) = scenarios(space, environ)
    data = {"benchmark": name} | {key: file.document.data[key] for key in _FROZEN if key in file.document.data}
    view = Document(document.path, document.text, data, file.document.positions)
    return Benchmark.model_validate(data), view
