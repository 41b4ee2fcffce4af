"""Executes orders, once each, and answers in their threads: one progress comment, one final message.

Messages to GitHub are recorded before and after they are sent, so that after a kill in between they are found instead
of repeated. While GitHub is unreachable, runs continue and messages wait. The clock and the actions are injected.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from benchhouse.automation.github.client import Denied, GitHub, Later
from benchhouse.automation.github.commands import NEEDS, CommentCommand, find_command, parse_command
from benchhouse.automation.github.deliveries import CommandOrder, comment_order
from benchhouse.automation.github.store import GitHubStore, Poll, StoredOrder
from benchhouse.report.markdown_text import block
from benchhouse.schema.errors import BenchError
from benchhouse.schema.roles import Role, may

LEASE_S = 120.0
_RENEW_S = 20.0
_LONGEST_WAIT_S = 3 * 3600.0
STEP_S = 1.0
_LOOK_S, _LONGEST_LOOK_S = 2.0, 60.0
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 5.0, 900.0
_MOST_TEXT = 60_000  # GitHub accepts 65,536 characters
_SAID = 500
_PRUNE_S = 3600.0


@dataclass(frozen=True)
class RunProgressText:
    """The state of a run as Markdown."""

    text: str
    good: bool | None = None
    """Whether the run ended well; None while it runs."""
    final: str = ""


class CommandActions(Protocol):
    """The effects of commands."""

    def person(self, login: str) -> tuple[str, Role] | None:
        """Return the person in trusted.yaml with this login, and their role; None if there is none."""

    def start(self, command: CommentCommand, run_id: str, by: str) -> None:
        """Start a run or an evaluation; two calls start it once. Raise BenchError if it can't be started."""

    def progress(self, run_id: str, since_s: float) -> RunProgressText:
        """Return the progress of a run or an evaluation that was requested `since_s` seconds ago."""

    def answer(self, command: CommentCommand, by: str, order: CommandOrder, runs: list[str]) -> str:
        """Execute a command that ends immediately and return its answer; `runs` are those of the thread, newest
        first."""

    def note(self, text: str) -> None:
        """Show a message to a person who watches."""


@dataclass
class CommandWorker:
    """The worker process of one workspace. `step` does everything that is due."""

    store: GitHubStore
    github: GitHub
    deeds: CommandActions
    clock: Callable[[], float]
    me: str
    is_gone: Callable[[str], bool]
    repositories: tuple[str, ...] = ()
    """The repositories that are polled; empty if webhooks are used."""
    poll_s: float = 30.0
    dice: random.Random = field(default_factory=random.Random)
    _leads: bool = False
    _lease_at: float = 0.0
    _poll_at: dict[str, float] = field(default_factory=dict)
    _prune_at: float = 0.0
    _trouble: str = ""

    def step(self) -> None:
        now = self.clock()
        try:
            if not self._lead(now):
                return
            for repository in self.repositories:
                if not now < self._poll_at.get(repository, 0.0) <= now + _LONGEST_WAIT_S:  # if not, the clock went back
                    self._poll_at[repository] = self._poll(repository, now)
            for kept in self.store.open_orders(now, _LONGEST_WAIT_S):
                if self._lead(self.clock()):  # answers take their time
                    self._advance(kept)
            if not now < self._prune_at <= now + _PRUNE_S:
                self.store.prune()
                self._prune_at = now + _PRUNE_S
        except BenchError as error:  # for example a full disk
            self._note_once(str(error))

    def stop(self) -> None:
        """Release the lease, so that another worker can take over immediately."""
        if self._leads:
            self.store.release(self.me)

    def _lead(self, now: float) -> bool:
        if not self._lease_at - _RENEW_S <= now < self._lease_at:
            self._leads = self.store.lease(self.me, now, LEASE_S, self.is_gone)
            self._lease_at = now + _RENEW_S
        return self._leads

    # -- orders

    def _advance(self, kept: StoredOrder) -> None:
        steps = {"asked": self._begin, "running": self._follow, "answering": self._say}
        try:
            steps[kept.state](kept)
        except Later as error:
            self._note_once(error.message)
            wait_s = max(error.wait_s, self._backoff_s(kept.tries))
            self.store.change(kept.order.key, next_try=self.clock() + wait_s, tries=kept.tries + 1)
        except Denied as error:
            self.deeds.note(f"{kept.order.key}: {error.message}")
            self.store.change(kept.order.key, state="done", answer=f"not answered: {error.message}"[:_SAID])
        except BenchError as error:  # the run can't be read now
            self._note_once(f"{kept.order.key}: {error}")
            self.store.change(kept.order.key, next_try=self.clock() + _LONGEST_LOOK_S)

    def _begin(self, kept: StoredOrder) -> None:
        order = kept.order
        person = self.deeds.person(order.login)
        if person is None:  # unknown people get no answer, so that they cannot flood threads
            self._end(kept, f"{order.login} is not in trusted.yaml")
            return
        name, role = person
        try:
            line = find_command(order.text)
            if line is None:
                self._end(kept, "no command on a line of its own")
                return
            command = parse_command(line)
            if not may(role, NEEDS[command.name]):
                raise BenchError(
                    f"/bench {command.name} is for the role {NEEDS[command.name]}, and {name} has the role {role}",
                    "roles stand in trusted.yaml",
                )
            if command.name in ("run", "evaluate"):
                self.deeds.start(command, kept.run_id, name)
                self.deeds.note(f"{order.key}: began {command.name} {kept.run_id} for {name}")
                self.store.change(order.key, state="running")
                return
            answer = self.deeds.answer(command, name, order, self.store.runs_of(order))
        except BenchError as error:
            answer = block(str(error))
        except Exception as error:  # noqa: BLE001 - one broken order must not stop those of others
            self.deeds.note(f"{order.key}: {type(error).__name__}: {error}")
            answer = f"That failed here ({type(error).__name__}); the agent's log says more."
        self.store.change(order.key, state="answering", answer=answer, tries=0)

    def _follow(self, kept: StoredOrder) -> None:
        order, since_s = kept.order, self.clock() - kept.time
        progress = self.deeds.progress(kept.run_id, since_s)
        if progress.text != kept.shown or (order.number and not kept.comment):
            self._show(kept, progress)
        if progress.good is not None:
            if order.number:
                self.store.change(order.key, state="answering", answer=progress.final, tries=0)
            else:
                self._end(kept, progress.text)
            return
        look_s = min(_LONGEST_LOOK_S, max(_LOOK_S, since_s / 10))
        self.store.change(order.key, next_try=self.clock() + look_s, tries=0)

    def _show(self, kept: StoredOrder, progress: RunProgressText) -> None:
        order = kept.order
        if not order.number:
            if order.sha:
                state = {None: "pending", True: "success", False: "failure"}[progress.good]
                self.github.status(order.repository, order.sha, state, f"{kept.run_id} {progress.text}")
        elif comment := kept.comment or (kept.shown and self._find(kept, "progress")):
            self.github.edit(order.repository, int(comment), self._marked(kept, "progress", progress.text))
            self.store.change(order.key, comment=int(comment))
        else:
            self.store.change(order.key, shown=progress.text)  # from here on the comment may exist
            body = self._marked(kept, "progress", progress.text)
            self.store.change(order.key, comment=self.github.comment(order.repository, order.number, body))
        self.store.change(order.key, shown=progress.text)

    def _say(self, kept: StoredOrder) -> None:
        """Write the final message. An earlier attempt may have got through without an answer."""
        order = kept.order
        if not order.number:
            self._end(kept, kept.answer)
            return
        self.store.change(order.key, tries=kept.tries + 1)
        if not (kept.tries and self._find(kept, "final")):
            self.github.comment(order.repository, order.number, self._marked(kept, "final", kept.answer))
        self._end(kept, kept.answer)

    def _end(self, kept: StoredOrder, answer: str) -> None:
        self.store.change(kept.order.key, state="done", answer=answer[:_SAID])

    def _find(self, kept: StoredOrder, which: str) -> int:
        order = kept.order
        return self.github.find_comment(order.repository, order.number, self._marker(kept, which), order.at)

    @staticmethod
    def _marker(kept: StoredOrder, which: str) -> str:
        digest = hashlib.sha256(f"{kept.order.key} {kept.run_id} {which}".encode()).hexdigest()
        return f"<!-- benchhouse {digest[:32]} -->"

    def _marked(self, kept: StoredOrder, which: str, text: str) -> str:
        cut = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}\n\n... (cut)"
        return f"{cut}\n\n{self._marker(kept, which)}"

    # -- polling

    def _poll(self, repository: str, now: float) -> float:
        """Read new comments and return the time of the next poll."""
        poll = self.store.poll(repository.lower(), _stamp(now))
        if now < poll.next_look <= now + _LONGEST_WAIT_S:
            return poll.next_look
        try:
            orders, since, etag = self._read(repository, poll)
        except (Later, Denied) as error:  # a moved repository too: somebody may correct workspace.yaml
            self._note_once(error.message)
            wait_s = max(getattr(error, "wait_s", 0.0), self.poll_s, self._backoff_s(poll.failures))
            self.store.polled(replace(poll, next_look=now + wait_s, failures=poll.failures + 1), (), now)
            return now + wait_s
        self._trouble = ""
        if orders or (since, etag) != (poll.since, poll.etag) or poll.failures or poll.next_look:
            self.store.polled(Poll(poll.repository, since, etag, 0.0, 0), orders, now)
        return now + self.poll_s

    def _read(self, repository: str, poll: Poll) -> tuple[list[CommandOrder], str, str]:
        orders, since, etag = [], poll.since, poll.etag
        page = 1
        while True:
            comments, tag = self.github.new_comments(repository, poll.since, page, poll.etag if page == 1 else "")
            etag = tag if page == 1 else etag
            for comment in comments:
                since = max(since, str(comment["updated_at"]))
                number = int(str(comment["issue_url"]).rpartition("/")[2])
                order, _ = comment_order(repository, comment, number)
                if order and order.at >= poll.since:
                    orders.append(order)
            if len(comments) < self.github.page_size:
                return orders, since, etag if since == poll.since else ""  # the tag is of the old query
            page += 1

    def _backoff_s(self, tries: int) -> float:
        longest: float = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** min(tries, 20))
        return longest * self.dice.uniform(0.5, 1.0)

    def _note_once(self, text: str) -> None:
        if text != self._trouble:
            self._trouble = text
            self.deeds.note(text)


def _stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
