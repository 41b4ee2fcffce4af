"""A gate's answer on GitHub: a check run beside the commit, and one comment in the pull request, which is updated.

What ran is said by the event that GitHub wrote, never by the gate's file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchhouse.automation.github.client import GitHub
from benchhouse.report.gate_comment import GateCommentAnswer, gate_markdown
from benchhouse.schema.errors import BenchError


@dataclass(frozen=True)
class ReportLocation:
    """Where a report belongs."""

    repository: str
    sha: str
    number: int
    """Of the pull request; 0: there is none, or it has other commits by now."""
    evidence: str
    """Address of the workflow's run."""
    foreign: bool
    """Whether the code that ran is of another repository."""


@dataclass(frozen=True)
class Reported:
    """What was written where."""

    place: ReportLocation
    check_run: int
    comment: int
    """0: none."""
    judgement: str


def place_of(event: Mapping[str, Any], environment: Mapping[str, str], github: GitHub) -> ReportLocation:
    """By the event of `GITHUB_EVENT_PATH`, and for a push, a release or a schedule by the variables beside it."""
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
    """Again for the same commit or pull request, it takes the place of what was said before."""
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
