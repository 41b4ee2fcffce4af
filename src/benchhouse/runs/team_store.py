"""The team's store, followed: runs that are new in the engine of workspace.yaml come here; when it last answered.

What is known stands in one file of the workspace, so that those who show it need not be those who look.
"""

from datetime import UTC, datetime, timedelta

from pydantic import Field, ValidationError

from benchhouse.evidence.writing import now, write_text
from benchhouse.runs import sharing
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.model import Model
from benchhouse.schema.secrets import without_secrets

_PATIENCE_S = 60.0  # beyond three turns: so long a look at a large store may take


class Followed(Model):
    """How it stands with the engine that a workspace follows."""

    engine: str = Field(description="Its address, without a password.")
    every_s: float = Field(description="Seconds between two looks.")
    answered: str = Field("", description="When it last told all that it has, UTC; empty: not yet.")
    runs: int = Field(0, description="Runs that it had then.")
    new: int = Field(0, description="Those of them that came, or grew, with that look.")
    refused: list[str] = Field(default_factory=list, description="Runs that could not be taken, each with the reason.")
    problem: str = Field("", description="Why it does not answer.")
    since: str = Field("", description="Since when it does not, UTC.")

    def away_since(self) -> str:
        """Since when nothing is heard of it; empty: it answers. Also where whoever looks is held up, or has died."""
        if self.problem or not self.answered:
            return self.since
        late = datetime.now(UTC) - datetime.fromisoformat(self.answered)
        return self.answered if late > timedelta(seconds=3 * self.every_s + _PATIENCE_S) else ""


def followed(workspace: WorkspaceFolder) -> Followed | None:
    """What the last look told; None where nobody has looked yet."""
    try:
        known = Followed.model_validate_json(workspace.followed.read_bytes())
    except (OSError, ValidationError):
        return None
    return known


def look(workspace: WorkspaceFolder, every_s: float) -> Followed:
    """Bring what is new; what goes wrong is told in the answer, and the next look may do better."""
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
