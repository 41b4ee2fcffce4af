"""A lease in a database: one of several processes does a common task."""

from collections.abc import Callable

from benchhouse.automation.database import AutomationDatabase

TABLE = """CREATE TABLE IF NOT EXISTS leases (
  name TEXT PRIMARY KEY, holder TEXT NOT NULL, until DOUBLE PRECISION NOT NULL)"""


def take(
    db: AutomationDatabase, name: str, holder: str, now: float, for_s: float, is_gone: Callable[[str], bool]
) -> str:
    """Take or renew the lease if it is free; return the holder."""
    with db.alone():
        rows = db.ask("SELECT holder, until FROM leases WHERE name = ?", [name])
        # A lease with an end later than its length comes from a wrong clock.
        if rows and rows[0][0] != holder and now < rows[0][1] <= now + 2 * for_s and not is_gone(rows[0][0]):
            return str(rows[0][0])
        db.ask("DELETE FROM leases WHERE name = ?", [name])
        db.ask("INSERT INTO leases VALUES (?, ?, ?)", [name, holder, now + for_s])
    return holder


def release(db: AutomationDatabase, name: str, holder: str) -> None:
    with db.alone():
        db.ask("DELETE FROM leases WHERE name = ? AND holder = ?", [name, holder])
