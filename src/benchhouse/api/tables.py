"""The warehouse's tables for people: what there is, column by column, and what is too old to be kept."""

from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import Workspace

if TYPE_CHECKING:
    from benchhouse.schema.retention import Pruning, Retention


def describe_tables(name: str | None = None) -> dict[str, dict[str, Any]]:
    """The curated tables, or one: what a row is, and every column with type and meaning."""
    from benchhouse.warehouse.tables import TABLES, VIEWS

    known = VIEWS | TABLES
    if name is not None and name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(known)}"
        raise BenchError(f"no table '{name}'", hint)
    return {
        table.name: {
            "description": table.description,
            "grain": table.grain,
            "source": table.source or None,
            "columns": [{"name": item.name, "type": item.kind, "meaning": item.description} for item in table.columns],
        }
        for table in known.values()
        if name in (None, table.name)
    }


def prune(workspace: Workspace, *, dry_run: bool) -> "Pruning":
    """Take away what retention.yaml says is too old. Without such a file it is only shown, by the usual ages."""
    from benchhouse.warehouse.retention import prune as take_away

    path = workspace.root / "retention.yaml"
    if not path.is_file() and not dry_run:
        raise BenchError(
            "there is no retention.yaml, and evidence is not deleted by a default",
            "Write one, such as `{hot: 30d, warm: 180d, cold: 730d}`; what would go: bench warehouse prune --dry-run",
        )
    return take_away(workspace, read_policy(path), datetime.now(UTC), dry_run=dry_run)


def read_policy(path: Path) -> "Retention":
    """The policy of a file; the usual one where there is none. Every mistake is raised with its place."""
    from benchhouse.schema.misfits import from_pydantic
    from benchhouse.schema.problems import ProblemsError
    from benchhouse.schema.retention import Retention
    from benchhouse.schema.yamltext import load_yaml

    if not path.is_file():
        return Retention()
    document = load_yaml(path)
    try:
        return Retention.model_validate(document.data)
    except ValidationError as error:
        raise ProblemsError(from_pydantic(error, document, Retention)) from error
