"""Walk a number back; apart from its neighbours, for importing what runs and servers need takes half a second."""

from benchhouse.api import claims
from benchhouse.results.lineage import Trace
from benchhouse.results.lineage import trace as walk
from benchhouse.schema.layout import Workspace


def trace(workspace: Workspace, token: str) -> Trace:
    """The four steps of a claim, a number of a report, a metric of a run, or a trial."""
    return claims.trace(workspace, token) or walk(workspace, token)
