"""Commands in comments: they start, stop, show, and compare runs for the people in trusted.yaml."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchhouse.api.agent import YOUNG_S, ending
from benchhouse.api.evaluation import EvaluateKeywords, Evaluation
from benchhouse.api.execution import ScenarioText, Source, scenario_inside
from benchhouse.automation.github.commands import HELP, CommentCommand
from benchhouse.automation.github.deliveries import CommandOrder
from benchhouse.automation.github.worker import RunProgressText
from benchhouse.documents.yaml_reader import ScalarRefused, load_yaml, resolve_plain
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.report.markdown_text import block, code, folded, plain, table
from benchhouse.results.numbers import plural, quantity
from benchhouse.runs.checkout import commits_of
from benchhouse.runs.trust_file import read_trusted, require
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.quoting import quote
from benchhouse.schema.roles import Role
from benchhouse.schema.secrets import blanker, holds_secret
from benchhouse.warehouse.query import Warehouse, own

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace

_MOST_ROWS = 30
_FOLDERS = ("", "scenarios/")


RUNS_OF_COMMITS = own(
    "SELECT run_id, git_commit FROM benchmark_run_fact "
    "WHERE scenario = $scenario AND git_commit IS NOT NULL AND NOT git_dirty ORDER BY started DESC, run_id DESC"
)


class ChatActions:
    """The commands of one workspace. No reply holds a secret from this process's environment."""

    def __init__(self, workspace: "Workspace", note: Callable[[str], None]) -> None:
        self._workspace = workspace
        values = [value for name, value in os.environ.items() if value and holds_secret(name, os.environ)]
        self._blank = blanker(values)
        self._note = note

    def note(self, text: str) -> None:
        self._note(self._blank(text))

    def person(self, login: str) -> tuple[str, Role] | None:
        """Return the person with this GitHub login and their role, by the workspace's trusted.yaml, never a PR's."""
        trusted = read_trusted(self._workspace.folder)
        known = trusted.by_github(login) if trusted else None
        return (known[0], known[1].role) if known else None

    def start(self, command: CommentCommand, run_id: str, by: str) -> None:
        if command.name == "evaluate":
            which: EvaluateKeywords = dict(command.settings)  # type: ignore[assignment]  # names that the parser knows
            self._workspace.evaluations.submit(run_id, by=by, **(which if "all" not in which else {"all": True}))
            return
        source = self._scenario(command.about, command.settings)
        self._workspace.submit(source, run_id=run_id, by=by)

    def progress(self, run_id: str, since_s: float) -> RunProgressText:
        if run_id in self._workspace.evaluations:
            return self._of_evaluation(self._workspace.evaluations[run_id], since_s)
        over = ending(self._workspace, run_id, since_s)
        if over is None:
            status = self._workspace[run_id].status()
            done = f"{status.done} of {plural(status.trials, 'trial')} done"
            return RunProgressText(f"Run {code(run_id)} of {code(status.scenario)}: {status.state}, {done}.")
        good = over.state == "succeeded"
        text = f"Run {code(run_id)}: {over.state}."
        why = f"\n\n{block(over.why)}" if over.why else ""
        return RunProgressText(text, good, self._blank(f"{text}{why}\n\n{self._numbers(run_id)}{_closer(run_id)}"))

    def answer(self, command: CommentCommand, by: str, order: CommandOrder, runs: Sequence[str]) -> str:
        if command.name == "approve":
            return self._blank(self._approve(command.about, by, order))
        if command.name == "stop":
            return self._blank(self._stop(command.about, by))
        return self._blank(_ANSWERS[command.name](self, command.about, runs))

    # -- commands

    def _help(self, about: str, runs: Sequence[str]) -> str:
        return block(HELP)

    def _status(self, about: str, runs: Sequence[str]) -> str:
        token = about or _newest(runs)
        if token in self._workspace.evaluations:
            evaluation = self._workspace.evaluations[token]
            return f"{_counted(evaluation)}\n\n{_table_of(evaluation)}"
        run = self._workspace[token]
        status = run.status()
        outcomes = _outcomes(status.outcomes)
        lines = [f"run {status.run_id} of {status.scenario}: {status.state}",
                 f"{status.done} of {plural(status.trials, 'trial')} done{f' ({outcomes})' if outcomes else ''}",
                 *([status.stopped] if status.stopped else [])]  # fmt: skip
        return block("\n".join(lines))

    def _approve(self, digest: str, by: str, order: CommandOrder) -> str:
        door = f"github, {order.login} in {order.repository}#{order.number}"
        approved = self._workspace.approvals.approve(digest, by=by, door=door)
        if approved.run_id:
            return f"{code(approved.name)} was used by run {code(approved.run_id)}; another run has to ask again."
        return f"Approved for one run: {code(approved.name)}. Who asked for it gives the same command again."

    def _stop(self, about: str, by: str) -> str:
        if about in self._workspace.evaluations:
            require(self._workspace.folder, "admin", "ending an evaluation", by)
            self._workspace.evaluations.stop(about)
            return f"Evaluation {code(about)} is stopped; what it has measured is kept."
        run = self._workspace[about]
        run.stop()
        return f"Run {code(run.id)} is stopped; what it has measured is kept."

    def _compare(self, about: str, runs: Sequence[str]) -> str:
        runs = [run for run in runs if run not in self._workspace.evaluations]
        new = _newest(runs)
        try:
            base = self._workspace[about].id
        except NotFoundError:
            base = self._of_branch(about, new)
        if base == new:
            raise BenchError(f"{new} is the last run of this thread itself", "name an earlier one: /bench status RUN")
        compared = self._workspace.compare(base, new)
        return f"{compared.markdown()}{_closer(new, f'bench compare {base} {new}')}"

    # -- parts

    def _of_branch(self, branch: str, run_id: str) -> str:
        """Return the newest other run of the same scenario that measured a clean commit of a branch."""
        commits = set(commits_of(self._workspace.root, branch))
        if not commits:
            raise NotFoundError(f"there is neither a run nor a branch {quote(branch)}", "/bench compare RUN")
        scenario = self._workspace[run_id].record.scenario
        with Warehouse.open(self._workspace.folder) as warehouse:
            rows = warehouse.query(RUNS_OF_COMMITS, {"scenario": scenario}).rows
        runs = [other for other, commit in rows if commit in commits and other != run_id]
        if not runs:
            raise NotFoundError(
                f"no run of {scenario} measured a commit of {quote(branch)}", "run it there, or name a run"
            )
        return str(runs[0])

    def _of_evaluation(self, evaluation: Evaluation, since_s: float) -> RunProgressText:
        young = 0 <= since_s < YOUNG_S  # its process may not have taken it over yet
        text = _counted(evaluation)
        if evaluation.state == "running" or (
            evaluation.state in ("planned", "interrupted") and young and evaluation.runs
        ):
            return RunProgressText(text)
        name = evaluation.evaluation_id
        commands = [f"bench evaluations {name}"]
        commands += [f"bench evaluate --resume {name}"] if evaluation.unfinished else ["bench leaderboard"]
        more = folded("How to look closer, and to go on", block("\n".join(commands)))
        return RunProgressText(
            text, evaluation.exit_code == 0, self._blank(f"{text}\n\n{_table_of(evaluation)}\n\n{more}")
        )

    def _scenario(self, name: str, settings: Sequence[tuple[str, str]]) -> Source:
        root = self._workspace.root
        if re.fullmatch(r"[A-Za-z0-9._-]{1,200}", name) and not name.endswith((".yaml", ".yml")):
            there = [f"{folder}{name}.yaml" for folder in _FOLDERS if (root / folder / f"{name}.yaml").is_file()]
            name = there[0] if there else f"{name}.yaml"
        path = scenario_inside(root, name)
        if not settings:
            return path
        data = load_yaml(path).data
        for key, value in settings:
            _replace(data, key, value)
        return ScenarioText(dump_yaml(data), str(path.relative_to(root.resolve())))

    def _numbers(self, run_id: str) -> str:
        points = [
            point for point in self._workspace.points(run_id) if point.headline or point.stat in ("value", "mean")
        ]
        chosen = [point for point in points if point.headline] or points
        rows = [
            [plain(point.point), plain(f"{point.metric}.{point.stat}"), quantity(point.mean, plain(point.unit)),
             _interval(point.interval), str(point.n)]
            for point in chosen[:_MOST_ROWS]
        ]  # fmt: skip
        if not rows:
            return ""
        more = f"\n\n{len(chosen) - _MOST_ROWS:,} more: {code(f'bench report {run_id}')}" * (len(chosen) > _MOST_ROWS)
        return table(["point", "metric", "mean", "95% interval", "n"], rows, range(2, 5)) + more + "\n\n"


_ANSWERS: dict[str, Callable[[ChatActions, str, Sequence[str]], str]] = {
    "help": ChatActions._help,
    "status": ChatActions._status,
    "compare": ChatActions._compare,
}


def _counted(evaluation: Evaluation) -> str:
    done = sum(run.state not in ("waiting", "begun") for run in evaluation.runs)
    planned = evaluation.plan
    parts = [f"{count} {state}" for state in ("reused", "broken") if (count := planned.count(state))]
    beside = f" ({', '.join(parts)} beside them)" if parts else ""
    if not evaluation.runs:
        reason = "what it asks for was measured before" if planned.count("reused") else "no benchmark is touched"
        return f"Evaluation {code(evaluation.asked)}: nothing to run: {reason}{beside}."
    runs = f"{done} of {plural(len(evaluation.runs), 'run')} done{beside}"
    return f"Evaluation {code(evaluation.evaluation_id)} ({code(evaluation.asked)}): {evaluation.state}, {runs}."


def _table_of(evaluation: Evaluation) -> str:
    rows = [
        [plain(run.benchmark), code(run.run_id), run.state, plain(run.why) or _outcomes(run.outcomes)]
        for run in evaluation.runs[:_MOST_ROWS]
    ]
    rows += [
        [plain(item.benchmark), "", "broken", plain(item.error)]
        for item in evaluation.plan.benchmarks if item.state == "broken"
    ][:_MOST_ROWS]  # fmt: skip
    more = len(evaluation.runs) - _MOST_ROWS
    rest = f"\n\n{more:,} more: {code(f'bench evaluations {evaluation.evaluation_id}')}" if more > 0 else ""
    return table(["benchmark", "run", "state", "trials"], rows) + rest if rows else ""


def _outcomes(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))


def _newest(runs: Sequence[str]) -> str:
    if not runs:
        raise BenchError("no run was started in this thread", "/bench run NAME, or name one: /bench status RUN")
    return runs[0]


def _closer(run_id: str, *more: str) -> str:
    commands = "\n".join([*more, f"bench report {run_id}", f"bench trace {run_id}", f"bench verify {run_id}"])
    return folded("How to look closer, and to check", block(commands))


def _interval(interval: tuple[float, float] | None) -> str:
    return f"{interval[0]:.4g} to {interval[1]:.4g}" if interval else ""


def _replace(data: Any, path: str, value: str) -> None:
    """Replace a single value of the scenario by a number, a word, true, or false; raise if it has none at that path."""
    *parents, last = path.split(".")
    at = data
    for name in parents:
        at = at.get(name) if isinstance(at, dict) else None
    if not isinstance(at, dict) or isinstance(at.get(last, {}), dict | list):
        raise BenchError(f"the scenario has no single value {quote(path)}", "--set changes one that it has")
    try:
        at[last] = resolve_plain(value) if value else ""
    except ScalarRefused as error:
        raise BenchError(f"--set {path}: {error}", "quote it in the scenario's file") from error
