"""A lease in a database: of several processes that would do the same work, one does it."""

from collections.abc import Callable

from benchhouse.automation.database import AutomationDatabase

TABLE = """CREATE TABLE IF NOT EXISTS leases (
  name TEXT PRIMARY KEY, holder TEXT NOT NULL, until DOUBLE PRECISION NOT NULL)"""


def take(
    db: AutomationDatabase, name: str, holder: str, now: float, for_s: float, is_gone: Callable[[str], bool]
) -> str:
    """Become, or stay, its holder; returns who is."""
    with db.alone():
        rows = db.ask("SELECT holder, until FROM leases WHERE name = ?", [name])
        # One that ends later than a lease lasts is of a clock that was wrong.
        if rows and rows[0][0] != holder and now < rows[0][1] <= now + 2 * for_s and not is_gone(rows[0][0]):
            return str(rows[0][0])
        db.ask("DELETE FROM leases WHERE name = ?", [name])
        db.ask("INSERT INTO leases VALUES (?, ?, ?)", [name, holder, now + for_s])
    return holder


def release(db: AutomationDatabase, name: str, holder: str) -> None:
    with db.alone():
        db.ask("DELETE FROM leases WHERE name = ? AND holder = ?", [name, holder])
