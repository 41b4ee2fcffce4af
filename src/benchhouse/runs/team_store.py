"""Follow the team's store: fetch runs that are new in the engine of workspace.yaml, and record when it last answered.

The state is in one file of the workspace, so that the process that shows it need not be the one that fetches.
"""

from datetime import UTC, datetime, timedelta

from pydantic import Field, ValidationError

from benchhouse.evidence.writing import now, write_text
from benchhouse.runs import sharing
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.model import Model
from benchhouse.schema.secrets import without_secrets

_PATIENCE_S = 60.0  # added to three intervals, because fetching from a large store may take this long


class Followed(Model):
    """The state of the engine that a workspace follows."""

    engine: str = Field(description="Its address, without a password.")
    every_s: float = Field(description="Seconds between two looks.")
    answered: str = Field("", description="When it last told all that it has, UTC; empty: not yet.")
    runs: int = Field(0, description="Runs that it had then.")
    new: int = Field(0, description="Those of them that came, or grew, with that look.")
    refused: list[str] = Field(default_factory=list, description="Runs that could not be taken, each with the reason.")
    problem: str = Field("", description="Why it does not answer.")
    since: str = Field("", description="Since when it does not, UTC.")

    def away_since(self) -> str:
        """Return since when the engine has not answered; empty if it answers. A dead follower counts, too."""
        if self.problem or not self.answered:
            return self.since
        late = datetime.now(UTC) - datetime.fromisoformat(self.answered)
        return self.answered if late > timedelta(seconds=3 * self.every_s + _PATIENCE_S) else ""


def followed(workspace: WorkspaceFolder) -> Followed | None:
    """Return the result of the last fetch; None if there was none yet."""
    try:
        known = Followed.model_validate_json(workspace.followed.read_bytes())
    except (OSError, ValidationError):
        return None
    return known


def look(workspace: WorkspaceFolder, every_s: float) -> Followed:
    """Fetch what is new. Failures are part of the answer, and the next call may succeed."""
    from benchhouse.warehouse.transfer import pull

    before = followed(workspace)
    name = before.engine if before else workspace.settings.name
    try:
        engine = sharing.engine_of(workspace)
        name = without_secrets(engine)
        moved = pull(workspace, engine, ())
        sharing.note_pulled(workspace, {item.run_id: item.tables for item in moved if item.what != "refused"})
    except (BenchError, OSError) as error:
        problem = (error.message if isinstance(error, BenchError) else str(error)).strip().partition("\n")[0]
        known = before if before and before.engine == name else Followed(engine=name, every_s=every_s)
        since = known.since if known.problem else now()
        seen = known.model_copy(update={"every_s": every_s, "problem": problem, "since": since})
    else:
        seen = Followed(
            engine=name,
            every_s=every_s,
            answered=now(),
            runs=len(moved),
            new=sum(item.what in ("new", "renewed") for item in moved),
            refused=[f"{item.run_id}: {item.reason}" for item in moved if item.what == "refused"],
        )
    workspace.state.mkdir(exist_ok=True)
    write_text(workspace.followed, seen.model_dump_json() + "\n", sync=False)
    return seen
