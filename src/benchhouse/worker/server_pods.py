"""Servers on Kubernetes that are not started here: the pods behind them during a trial, seen by the run's process."""

from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.server_pods import ServerPods

_LOOK_S = 0.05
_MOST_TOLD = 5
_UNSEEN = "nobody could see whether the same pods stayed behind"


@dataclass(frozen=True)
class ServerPodChanges:
    """The changes of a server's pods during a trial."""

    name: str
    facts: dict[str, Any]
    code: str = ""
    message: str = ""


class PodsBehind:
    """The pods behind the servers of one trial."""

    def __init__(self, patience_s: float = 10.0) -> None:
        """`patience_s`: how long to wait for an observation that should arrive twice a second."""
        self._patience_s = patience_s
        self._began: dict[str, tuple[Path, ServerPods]] = {}

    def begin(self, name: str, path: Path) -> tuple[list[str], dict[str, Any]]:
        """Return the endpoints of a server, and facts about it for the evidence."""
        try:
            last = _read(path)
        except (OSError, ValueError) as error:
            raise ExperimentFailed("server_not_ready", f"{name}: what is behind it was never looked up") from error
        seen, is_fresh = self._wait(path, last.look + 1)
        if seen.problem:
            raise ExperimentFailed("server_not_ready", f"{name}: {seen.problem}")
        self._began[name] = path, seen
        facts = seen.model_dump(mode="json", exclude={"schema_version", "look", "problem", "changes"})
        facts |= {"mode": "external", "kubernetes": facts.pop("server"), "changes": []}
        return seen.endpoints, facts if is_fresh else facts | {"stale": True}

    def compare(self) -> list[ServerPodChanges]:
        """Compare with observations that started after this call, so that every earlier change is included."""
        try:
            wanted = {name: _read(path).look + 2 for name, (path, _) in self._began.items()}
            return [self._compared(name, look) for name, look in wanted.items()]
        except (OSError, ValueError) as error:
            return [ServerPodChanges(name, {}, "pods_unseen", f"{_UNSEEN} {name}: {error}") for name in self._began]

    def _compared(self, name: str, look: int) -> ServerPodChanges:
        path, began = self._began[name]
        seen, is_fresh = self._wait(path, look)
        changes = [change for change in seen.changes if change.look > began.look]
        facts: dict[str, Any] = {"changes": [f"{change.at} {change.message}" for change in changes]}
        if changes:
            facts["pods_after"] = [pod.model_dump(mode="json") for pod in seen.pods]
            words = list(dict.fromkeys(change.message for change in changes))
            more = f"; and {len(words) - _MOST_TOLD} more changes" if len(words) > _MOST_TOLD else ""
            message = f"behind {name} ({seen.server}), during the trial: {'; '.join(words[:_MOST_TOLD])}{more}"
            return ServerPodChanges(name, facts, "server_changed", message)
        if not is_fresh:
            why = f"the cluster, or the run's process, was silent for {self._patience_s:g} s"
            return ServerPodChanges(name, facts, "pods_unseen", f"{_UNSEEN} {name} ({seen.server}): {why}")
        return ServerPodChanges(name, facts)

    def _wait(self, path: Path, look: int) -> tuple[ServerPods, bool]:
        """Wait for this observation or a later one. Return True with it, or False with the last one if none arrives in
        time."""
        deadline = monotonic() + self._patience_s
        while (seen := _read(path)).look < look:
            if monotonic() > deadline:
                return seen, False
            sleep(_LOOK_S)
        return seen, True


def _read(path: Path) -> ServerPods:
    return ServerPods.model_validate_json(path.read_bytes())
