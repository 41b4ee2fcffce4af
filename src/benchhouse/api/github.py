"""`ws.github`: requests from GitHub, how they are received, and what processes them."""

import builtins
import functools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchhouse.api.chat import ChatActions
from benchhouse.api.verb_group import VerbGroup
from benchhouse.automation.github.client import GitHub
from benchhouse.automation.github.deliveries import Delivery, DeliveryRefused, read_delivery
from benchhouse.automation.github.reporting import Reported, place_of, report
from benchhouse.automation.github.store import GitHubStore, StoredOrder, opened
from benchhouse.automation.github.worker import STEP_S, CommandWorker
from benchhouse.automation.schedules.agent import own_name, process_is_gone
from benchhouse.report.gate_comment import GateCommentAnswer
from benchhouse.runs.sharing import workspace_file
from benchhouse.schema.errors import BenchError
from benchhouse.schema.github import GitHubSettings
from benchhouse.schema.json_text import read_json
from benchhouse.schema.quoting import quote
from benchhouse.schema.secrets import reference

_LARGEST_GATE = 4 << 20


@dataclass(frozen=True)
class GitHubOrder:
    """A command from a comment, or an event that starts something, and what became of it."""

    time: str
    repository: str
    number: int
    """Number of the issue or pull request; 0 if there is none."""
    login: str
    text: str
    state: str
    """asked, running, answering, or done."""
    run_id: str
    """The run that the order started; empty if it started none."""
    answer: str


class WebhookDoor:
    """Receives webhooks. Settings are read once; secrets come from the environment of this process."""

    def __init__(self, settings: GitHubSettings, secret: str, store: GitHubStore) -> None:
        self._settings, self._secret, self._store = settings, secret, store

    def read(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Read and check a delivery. Raises DeliveryRefused."""
        if not self._secret:
            raise DeliveryRefused(
                503, f"the variable {reference(self._settings.webhook_secret)} is not set for the server"
            )
        return read_delivery(headers, body, self._settings, self._secret)

    def take(self, deliveries: Sequence[Delivery]) -> list[bool]:
        """Store all deliveries durably at once, on one thread. Return False for each that was stored before."""
        return self._store.take(deliveries, time.time())


class GitHubVerbs(VerbGroup):
    """Webhooks, commands in comments, and reports on pull requests."""

    def list(self, limit: int = 50) -> "builtins.list[GitHubOrder]":
        """Return the orders from GitHub, newest first."""
        with opened(self._folder) as store:
            return [_shown(kept) for kept in store.recent(limit)]

    def report(self, gate: str | os.PathLike[str], *, name: str = "benchmark") -> Reported:
        """Publish the answer of `bench gate --json` on the commit and the pull request of a workflow's event.

        The repository, commit, and pull request are those of GitHub's event, whatever the file contains.
        """
        environment = os.environ
        event_file, token = Path(environment.get("GITHUB_EVENT_PATH", "")), environment.get("GITHUB_TOKEN", "")
        if not event_file.is_file() or not token:
            raise BenchError(
                f"{'GITHUB_TOKEN' if event_file.is_file() else 'GITHUB_EVENT_PATH'} is not set",
                "it runs in a workflow of GitHub Actions, with env: {GITHUB_TOKEN: ${{ github.token }}}",
            )
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}", name):
            raise BenchError(f"{quote(name)} can't name a report", "letters, digits and . _ -")
        github = GitHub(environment.get("GITHUB_API_URL", "https://api.github.com"), token)
        answer = _gate_answer(Path(gate))
        event = read_json(event_file.read_bytes())
        return report(answer, name, place_of(event, environment, github), github)

    def settings(self) -> GitHubSettings:
        """Return `github` of workspace.yaml. Raises BenchError if there is none."""
        file = workspace_file(self._folder)
        if file is None or file.github is None:
            raise BenchError(
                "workspace.yaml names no repository of GitHub", "write there: github: {repositories: [owner/name]}"
            )
        return file.github

    @contextmanager
    def at_work(self, *, once: bool, poll: bool, note: Callable[[str], None]) -> Iterator[None]:
        """Process GitHub's orders while the caller's block runs, or `once` before it. Without `github` settings, do
        nothing."""
        file = workspace_file(self._folder)
        if not poll and (file is None or file.github is None):
            yield
            return
        settings, ended = self.settings(), threading.Event()
        if once:
            self._work(settings, poll, note, lambda: True)
            yield
            return
        pause = functools.partial(ended.wait, STEP_S)
        thread = threading.Thread(target=self._work, args=(settings, poll, note, pause), name="github")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _work(
        self, settings: GitHubSettings, poll: bool, note: Callable[[str], None], ended: Callable[[], bool]
    ) -> None:
        token = os.environ.get(reference(settings.token) or "", "")
        if not token:
            note(f"the variable {reference(settings.token)} is not set: GitHub will refuse what is said to it")
        deeds = ChatActions(self._workspace, note)
        github = GitHub(settings.api, token)
        repositories = tuple(settings.repositories) if poll else ()
        me = own_name()
        with opened(self._folder) as store:
            worker = CommandWorker(store, github, deeds, time.time, me, process_is_gone, repositories, settings.poll_s)
            worker.step()
            while not ended():
                worker.step()
            worker.stop()

    def door(self) -> WebhookDoor:
        """Return the receiver for a server that takes webhooks. Only one thread may use it."""
        settings = self.settings()
        secret = os.environ.get(reference(settings.webhook_secret) or "", "")
        return WebhookDoor(settings, secret, GitHubStore(self._folder))


def _gate_answer(path: Path) -> GateCommentAnswer:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_GATE + 1)
        if len(text) > _LARGEST_GATE:
            raise BenchError(f"{path}: more than {_LARGEST_GATE >> 20} MiB", "give the file of bench gate --json")
        return GateCommentAnswer.model_validate(read_json(text))
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise BenchError(
            f"{path} is no answer of bench gate --json: {reason}", "bench gate --json > gate.json"
        ) from error


def _shown(kept: StoredOrder) -> GitHubOrder:
    order = kept.order
    return GitHubOrder(
        time=datetime.fromtimestamp(kept.time, UTC).isoformat(timespec="seconds"),
        repository=order.repository,
        number=order.number,
        login=order.login,
        text=order.text[:200],
        state=kept.state,
        run_id=kept.run_id if kept.shown else "",
        answer=kept.answer,
    )
