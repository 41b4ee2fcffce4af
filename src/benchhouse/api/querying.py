"""One question in SQL. Alone in its file: it needs the tables, and nothing of plans, runs or reports."""

from benchhouse.schema.layout import Workspace
from benchhouse.warehouse.query import Result, Warehouse


def query(workspace: Workspace, sql: str) -> Result:
    """The answer to one SELECT over the tables of a workspace."""
    with Warehouse.open(workspace) as warehouse:
        return warehouse.query(sql)
