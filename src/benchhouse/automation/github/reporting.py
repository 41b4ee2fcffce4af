"""A gate's result on GitHub: a check run of the commit, and one comment in the pull request, which is updated.

The identity of the commit comes from GitHub's event, never from the gate's file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchhouse.automation.github.client import GitHub
from benchhouse.report.gate_comment import GateCommentAnswer, gate_markdown
from benchhouse.schema.errors import BenchError


@dataclass(frozen=True)
class ReportLocation:
    """The destination of a report."""

    repository: str
    sha: str
    number: int
    """The number of the pull request; 0 if there is none, or if it has other commits by now."""
    evidence: str
    """The address of the workflow run."""
    foreign: bool
    """Whether the code that ran is from another repository."""


@dataclass(frozen=True)
class Reported:
    """The destinations of a written report."""

    place: ReportLocation
    check_run: int
    comment: int
    """The id of the comment; 0 if there is none."""
    judgement: str


def place_of(event: Mapping[str, Any], environment: Mapping[str, str], github: GitHub) -> ReportLocation:
    """Return the destination from the event of `GITHUB_EVENT_PATH`, and for a push, a release, or a schedule from
    variables."""
    try:
        repository = environment["GITHUB_REPOSITORY"]
        server, run = environment.get("GITHUB_SERVER_URL", "https://github.com"), environment.get("GITHUB_RUN_ID", "")
        evidence = f"{server}/{repository}/actions/runs/{run}" if run.isdigit() else ""
        if "workflow_run" in event:
            done = event["workflow_run"]
            head, sha = done["head_repository"], str(done["head_sha"])
            owner, branch = head["owner"]["login"], done["head_branch"]
            number = github.pull_of(repository, f"{owner}:{branch}", sha) if done["event"] == "pull_request" else 0
            foreign = head["full_name"].lower() != repository.lower()
            return ReportLocation(
                repository, sha, number, f"{server}/{repository}/actions/runs/{int(done['id'])}", foreign
            )
        if "pull_request" in event:
            pull = event["pull_request"]
            source = pull["head"]["repo"] or {}  # None: the fork was deleted
            foreign = str(source.get("full_name")).lower() != repository.lower()
            return ReportLocation(repository, str(pull["head"]["sha"]), int(pull["number"]), evidence, foreign)
        return ReportLocation(repository, environment["GITHUB_SHA"], 0, evidence, False)
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(
            f"this is no event of GitHub Actions: {error} is missing", "bench github report runs in a workflow"
        ) from error


def report(gate: GateCommentAnswer, name: str, place: ReportLocation, github: GitHub) -> Reported:
    """Write the report; it replaces an earlier one of the same commit or pull request."""
    text = gate_markdown(gate, name, place.evidence, foreign=place.foreign)
    title = f"{gate.headline}{' (measured by code of a fork)' if place.foreign else ''}"
    check = github.check_run(place.repository, place.sha, f"benchhouse: {name}", gate.conclusion, title, text)
    comment = 0
    if place.number:
        marker = f"<!-- benchhouse report {name} -->"
        body = f"{text}\n{marker}"
        comment = github.find_comment(place.repository, place.number, marker, by_bot=True)
        if comment:
            github.edit(place.repository, comment, body)
        else:
            comment = github.comment(place.repository, place.number, body)
    return Reported(place, check, comment, gate.judgement)
