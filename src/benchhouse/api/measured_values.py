"""`ws.measured()`: values of all runs as one table, with runs and times as a person names them."""

import time
from typing import TYPE_CHECKING

from benchhouse.results import measured_values
from benchhouse.results.measured_values import ALL, MeasuredFilters, MeasuredPage
from benchhouse.runs.logs import moment
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace


class MeasuredKeywords(MeasuredFilters, total=False):
    """Filters, with times in the format of `bench logs`, and the page: `after` is the cursor of the previous page."""

    since: str | None
    until: str | None
    after: str | None
    limit: int


def page(workspace: "Workspace", asked: MeasuredKeywords) -> MeasuredPage:
    limit = asked.get("limit", 1000)
    if limit < 1:
        raise BenchError("limit: at least 1", "the number of rows of a page")
    filters = MeasuredFilters(
        scenario=asked.get("scenario"),
        experiment=asked.get("experiment"),
        run_id=asked.get("run_id"),
        metric=asked.get("metric"),
        stat=asked.get("stat"),
    )
    if (run := asked.get("run_id")) and run != ALL:
        filters["run_id"] = workspace[run].id
    now_s = time.time()
    begins, ends = moment(asked.get("since"), now_s), moment(asked.get("until"), now_s)
    return measured_values.measured(workspace.folder, filters, begins, ends, asked.get("after"), limit)
