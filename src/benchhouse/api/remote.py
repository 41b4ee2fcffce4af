"""A workspace that `bench serve` serves elsewhere, read over HTTP: `benchhouse.open("https://bench.example.org")`.

Methods have the same names as those of `Workspace` and return the same types, or plain data, as `--json` prints it, if
a type needs the files of the workspace.
"""

import os
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from pydantic import TypeAdapter

from benchhouse.api.rows import Rows
from benchhouse.http.client import HttpClient, Response
from benchhouse.schema.errors import BenchError, Exit, NotFoundError

if TYPE_CHECKING:
    from benchhouse.api.run_list import RunPage
    from benchhouse.results.history import CaseSummary
    from benchhouse.results.run_points import PointValue
    from benchhouse.runs.estimate import PlanSummary
    from benchhouse.runs.status import RunOverview, RunStatus, RunWarning, UnsuccessfulTrial
    from benchhouse.schema.logs import LogLine

T = TypeVar("T")
_LOCAL = ("localhost", "127.0.0.1", "::1")
_TIMEOUT_S = 120.0
_LARGEST = 256 << 20
_ROWS_AT_ONCE = 2000


class RemoteGroup:
    """A group of verbs that only read. Each method returns plain data: `ws.claims.list()`."""

    def __init__(self, workspace: "RemoteWorkspace", paths: dict[str, str]) -> None:
        self._workspace, self._paths = workspace, paths

    def __getattr__(self, name: str) -> Any:
        if name not in self._paths:
            raise AttributeError(f"{name}: not over HTTP; there is {', '.join(self._paths)}")
        path, _, field = self._paths[name].partition("{")

        def ask(what: str = "", **query: Any) -> Any:
            named = path + quote(what, safe="") + field.partition("}")[2] if field else path
            return self._workspace.ask(Any, named, **query)

        return ask


_GROUPS = {
    "alarms": {"list": "/alarms", "log": "/alarms/log"},
    "approvals": {"list": "/approvals", "show": "/approvals/{name}"},
    "audit": {"list": "/audit"},
    "baselines": {"list": "/baselines"},
    "catalog": {
        "experiments": "/catalog/experiments",
        "benchmarks": "/catalog/benchmarks",
        "targets": "/catalog/targets",
        "importers": "/catalog/importers",
        "show": "/catalog/experiments/{name}",
        "json_schema": "/schema/{name}",
    },
    "claims": {"list": "/claims", "show": "/claims/{name}", "verify": "/claims/{name}/verify"},
    "clients": {"running": "/clients"},
    "contracts": {"list": "/benchmark/contracts", "show": "/benchmark/contracts/{name}"},
    "github": {"list": "/github"},
    "images": {"references": "/images"},
    "leaderboards": {"list": "/leaderboards", "rank": "/leaderboards/{name}"},
    "monitors": {"all": "/monitors", "list": "/monitors/available"},
    "packages": {"list": "/packages", "show": "/packages/{name}", "requirements": "/packages/requirements"},
    "schedules": {"list": "/schedules", "get": "/schedules/{name}"},
    "servers": {
        "running": "/servers",
        "recipes": "/recipes",
        "recipe": "/recipes/{name}",
        "check": "/servers/{name}/check",
        "logs": "/servers/{name}/logs",
    },
    "sites": {"profiles": "/sites", "profile": "/sites/{name}"},
    "tokens": {"list": "/tokens"},
    "views": {"release": "/views/release"},
    "warehouse": {"schema": "/warehouse/schema", "followed": "/warehouse/followed"},
}


class RemoteWorkspace:
    """A served workspace. `token` defaults to $BENCH_TOKEN."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._token = token or os.environ.get("BENCH_TOKEN") or ""
        self._client = HttpClient(_TIMEOUT_S, limit_bytes=_LARGEST, proxy=True)
        parts = urlsplit(self.url)
        if self._token and parts.scheme == "http" and parts.hostname not in _LOCAL:
            raise BenchError(f"a token is not sent to {parts.hostname} in plain text", "ask by https://")

    def __repr__(self) -> str:
        return f"<RemoteWorkspace {self.url}>"

    def __getattr__(self, name: str) -> RemoteGroup:
        if name not in _GROUPS:
            raise AttributeError(f"a workspace over HTTP has no {name}")
        return RemoteGroup(self, _GROUPS[name])

    def __getitem__(self, run: str) -> "RemoteRun":
        """Return a run: `ws["@last"]`."""
        return RemoteRun(self, self.ask(dict[str, Any], f"/runs/{quote(run, safe='')}")["run_id"])

    def ask(self, kind: Any, path: str, **query: Any) -> Any:
        """Return the answer to any reading verb of the HTTP API, as the type `kind`. Parameters that are None are not
        sent."""
        given = {key: value for key, value in query.items() if value is not None}
        text = urlencode(
            {key: str(value).lower() if isinstance(value, bool) else value for key, value in given.items()}, True
        )
        url = f"{self.url}/api{path}{'?' if text else ''}{text}"
        return self._read(kind, self._client.get(url, self._headers()))

    def post(self, kind: Any, path: str, body: dict[str, Any], **headers: str) -> Any:
        """Return the answer to any verb of the HTTP API that takes a body."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._read(kind, self._client.post_json(f"{self.url}/api{path}", body, self._headers() | named))

    def _headers(self) -> dict[str, str]:
        return {"Accept": "application/json"} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})

    def _read(self, kind: Any, response: Response) -> Any:
        if response.ok:
            return TypeAdapter(kind).validate_python(response.json())
        if "problem+json" not in (response.headers.get("Content-Type") or ""):
            raise BenchError(
                f"{response.address}: answers {response.status} {response.reason}", "is it a `bench serve`?"
            )
        problem = response.json()
        error = NotFoundError if response.status == 404 else BenchError
        raise error(problem["title"], problem.get("detail", ""), Exit(problem.get("exit_code", Exit.BAD_INPUT)))

    def run_page(self, *, after: str | None = None, limit: int = 50, **filters: str | None) -> "RunPage":
        """Return the state of runs, newest first. `after` is the cursor of the previous page."""
        from benchhouse.api.run_list import RunPage

        page: RunPage = self.ask(RunPage, "/runs", after=after, limit=limit, **filters)
        return page

    def runs(self) -> "list[RemoteRun]":
        """Return all runs, oldest first."""
        runs, cursor = list[RemoteRun](), ""
        while cursor is not None:
            page = self.run_page(after=cursor or None, limit=500)
            runs += [RemoteRun(self, run.run_id) for run in page.runs]
            cursor = page.cursor  # type: ignore[assignment]
        return runs[::-1]

    def points(self, run: str = "@last") -> "Rows[PointValue]":
        """Return the values of a run."""
        from benchhouse.results.run_points import PointPage, PointValue

        rows, cursor = list[PointValue](), ""
        while cursor is not None:
            path = f"/runs/{quote(run, safe='')}/points"
            page: PointPage = self.ask(PointPage, path, after=cursor or None, limit=_ROWS_AT_ONCE)
            rows += page.rows
            cursor = page.cursor  # type: ignore[assignment]
        return Rows(rows)

    def compare(self, *selectors: str, metrics: tuple[str, ...] = (), **options: Any) -> dict[str, Any]:
        """Compare two runs, or points of runs, the second with the first; any other number of targets side by side."""
        answer: dict[str, Any] = self.ask(dict, "/compare", side=selectors, metric=metrics, **options)
        return answer

    def gate(self, base: str | None = None, new: str = "@last", **rules: Any) -> dict[str, Any]:
        """Judge a change for a pipeline. `exit_code` is that of `bench gate`."""
        answer: dict[str, Any] = self.ask(dict, "/gate", base=base, new=new, **rules)
        return answer

    def history(self, metric: str | None = None, case: str | None = None, **more: Any) -> dict[str, Any]:
        """Return one metric over all runs."""
        answer: dict[str, Any] = self.ask(dict, "/history", metric=metric, case=case, **more)
        return answer

    def cases(self) -> "list[CaseSummary]":
        """Return the cases that have a history."""
        from benchhouse.results.history import CaseSummary

        answer: list[CaseSummary] = self.ask(list[CaseSummary], "/cases")
        return answer

    def changes(self, since: str = "24h") -> dict[str, Any]:
        """Return what changed since a time, and what needs a person."""
        answer: dict[str, Any] = self.ask(dict, "/changes", since=since)
        return answer

    def why(self, run: str = "@last", vs: str | None = None) -> dict[str, Any]:
        """Return why a run got slower."""
        answer: dict[str, Any] = self.ask(dict, f"/runs/{quote(run, safe='')}/why", vs=vs)
        return answer

    def trace(self, ref: str) -> dict[str, Any]:
        """Trace a value back to its bytes."""
        answer: dict[str, Any] = self.ask(dict, "/trace", ref=ref)
        return answer

    def query(self, sql: str, *, rows: int = 10_000) -> "Rows[dict[str, Any]]":
        """Return the rows of one SELECT over the tables, at most `rows` of them."""
        return Rows(self.post(dict[str, Any], "/query", {"sql": sql, "rows": rows})["rows"])

    def plan(self, scenario: str | dict[str, Any], *, points: int = 20) -> "list[PlanSummary]":
        """Return what a scenario (its text or content) would run on the server."""
        from benchhouse.runs.estimate import PlanSummary

        return [self.post(PlanSummary, "/plan", {"scenario": scenario, "points": points})]

    def report_text(self, run: str = "@last", *, audience: str | None = None, form: str = "html") -> str:
        """Return the report of a run as one document: html, markdown, or json."""
        query = urlencode({"form": form} | ({"audience": audience} if audience else {}))
        response = self._client.get(f"{self.url}/api/runs/{quote(run, safe='')}/report?{query}", self._headers())
        return response.text() if response.ok else str(self._read(str, response))

    def submit(self, scenario: str | dict[str, Any], *, key: str = "") -> dict[str, Any]:
        """Start a scenario (its text or content). Repeated calls with the same `key` start it only once."""
        headers = {"Idempotency_Key": key} if key else {}
        answer: dict[str, Any] = self.post(dict[str, Any], "/runs", {"scenario": scenario}, **headers)
        return answer


class RemoteRun:
    """A run of a served workspace."""

    def __init__(self, workspace: RemoteWorkspace, run_id: str) -> None:
        self.workspace, self.id = workspace, run_id

    def __repr__(self) -> str:
        return f"<RemoteRun {self.id}>"

    def _ask(self, kind: Any, path: str, **query: Any) -> Any:
        return self.workspace.ask(kind, f"/runs/{quote(self.id, safe='')}{path}", **query)

    def overview(self) -> "RunOverview":
        """Return what ran, where, and how it ended."""
        from benchhouse.runs.status import RunOverview

        answer: RunOverview = self._ask(RunOverview, "")
        return answer

    def status(self) -> "RunStatus":
        """Return the state of the run."""
        from benchhouse.runs.status import RunStatus

        answer: RunStatus = self._ask(RunStatus, "/status")
        return answer

    def points(self) -> "Rows[PointValue]":
        """Return the values of the run."""
        return self.workspace.points(self.id)

    def failures(self) -> "list[UnsuccessfulTrial]":
        """Return the trials that failed."""
        from benchhouse.runs.status import UnsuccessfulTrial

        answer: list[UnsuccessfulTrial] = self._ask(list[UnsuccessfulTrial], "/failures")
        return answer

    def warnings(self) -> "list[RunWarning]":
        """Return named doubts about the values of the run."""
        from benchhouse.runs.status import RunWarning

        answer: list[RunWarning] = self._ask(list[RunWarning], "/warnings")
        return answer

    def logs(self, lines: int = 20, **filters: Any) -> "list[LogLine]":
        """Return the newest lines of all trials and components of the run."""
        from benchhouse.schema.logs import LogLine

        answer: list[LogLine] = self._ask(list[LogLine], "/logs", lines=lines, **filters)
        return answer

    def why(self, vs: str | None = None) -> dict[str, Any]:
        """Return why the run got slower."""
        return self.workspace.why(self.id, vs)

    def verify(self) -> dict[str, Any]:
        """Hash every file of the run's sealed trials again, on the server."""
        answer: dict[str, Any] = self._ask(dict, "/verify")
        return answer

    def stop(self) -> dict[str, Any]:
        """Stop the run and everything it started. Sealed trials are kept."""
        answer: dict[str, Any] = self.workspace.post(dict[str, Any], f"/runs/{quote(self.id, safe='')}/stop", {})
        return answer
