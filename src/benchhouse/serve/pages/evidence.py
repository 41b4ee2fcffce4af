"""Sealed trials of a run: their files, the content, and whether they are unchanged."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from benchhouse.api.workspace import Workspace
from benchhouse.report.evidence_sections import when
from benchhouse.report.tags import table, tag
from benchhouse.results.numbers import number, plural
from benchhouse.schema.trial import outcome_words
from benchhouse.serve.pages.shell import WebPage, anchor
from benchhouse.serve.pages.team import follows

if TYPE_CHECKING:
    from benchhouse.api.sealed_trials import TrialEvidence
    from benchhouse.evidence.verify import Damage

_SHOWN_BYTES = 256 << 10
_PAGE = 200
_BLOCK = 1 << 18


def all_trials(workspace: Workspace, request: Request) -> WebPage:
    run = workspace[request.path_params["run"]]
    at, trials = f"/runs/{run.id}/evidence", run.trials()
    first = _first(request)
    rows = [
        (
            anchor(request, item.name, f"{at}/{item.name}"),
            item.point,
            outcome_words(item.outcome),
            item.manifest[:12],
            "here" if item.here else "elsewhere",
        )
        for item in trials[first : first + _PAGE]
    ]
    if "verify" in request.query_params:
        checked = run.verify()
        verdict = _verdict(checked.damage, plural(checked.checked, "sealed folder"))
    else:
        verdict = tag("p", anchor(request, "Verify: hash every file again", at, verify="yes"))
    further = anchor(request, "Next", at, first=first + _PAGE) if first + _PAGE < len(trials) else None
    heads = ("trial", "point", "outcome", "manifest (sha256)", "files")
    return WebPage(
        "Evidence",
        (
            tag("p", anchor(request, f"Run {run.id}", f"/runs/{run.id}"), f", {plural(len(trials), 'sealed trial')}"),
            verdict,
            table(heads, rows, label="Sealed trials") if rows else tag("p", "No trial of this run is sealed here yet."),
            tag("p", further) if further else None,
        ),
    )


def one_trial(workspace: Workspace, request: Request) -> WebPage:
    run = workspace[request.path_params["run"]]
    found = run.evidence(request.path_params["trial"], fetch=follows(request))
    trial, at = found.trial, f"/runs/{run.id}/evidence/{found.trial.name}"
    rows = [
        (anchor(request, file.name, f"{at}/{file.name}"), number(file.size), tag("code", file.sha256))
        for file in found.files
    ]
    if "verify" in request.query_params:
        verdict = _verdict(found.verify(), plural(len(found.files), "file"))
    else:
        verdict = tag("p", anchor(request, "Verify: hash every file again", at, verify="yes"))
    return WebPage(
        f"Trial {trial.name}",
        (
            _way(request, run.id),
            tag("p", f"{trial.point}: {outcome_words(trial.outcome)}, sealed {when(found.sealed)}"),
            verdict,
            table(("file", "bytes", "sha256"), rows, right=(1,), label="Files"),
            tag("p", anchor(request, "Its logs", f"/runs/{run.id}/logs", trial=trial.trial_id)),
        ),
    )


def one_file(workspace: Workspace, request: Request) -> WebPage | Response:
    """Show text as text. Every file can be downloaded, and the browser never renders it as its claimed type."""
    run = workspace[request.path_params["run"]]
    found = run.evidence(request.path_params["trial"], fetch=follows(request))
    name = request.path_params["file"]
    if "download" in request.query_params:
        return _download(found, name)
    with found.open(name) as file:
        content = file.read(_SHOWN_BYTES + 1)
    at = f"/runs/{run.id}/evidence/{found.trial.name}"
    entry = next(file for file in found.files if file.name == name)
    cut = f"The first {number(_SHOWN_BYTES)} of {number(entry.size)} bytes." if len(content) > _SHOWN_BYTES else None
    return WebPage(
        name,
        (
            _way(request, run.id, found),
            tag("p", f"{number(entry.size)} bytes, sha256 ", tag("code", entry.sha256)),
            tag("p", anchor(request, "Download", f"{at}/{name}", download="yes")),
            tag("p", cut) if cut else None,
            _text(content[:_SHOWN_BYTES]),
        ),
    )


def _text(content: bytes) -> Markup:
    if b"\0" in content:
        return tag("p", "This file is not text.", class_="soft")
    return tag("pre", content.decode("utf-8", errors="replace"), tabindex=0, class_="file", aria_label="Content")


def _download(found: "TrialEvidence", name: str) -> Response:
    file = found.open(name)
    short = quote(name.rpartition("/")[2], safe="")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{short}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }

    def blocks() -> Iterator[bytes]:
        with file:
            while block := file.read(_BLOCK):
                yield block

    return StreamingResponse(blocks(), media_type="application/octet-stream", headers=headers)


def _verdict(damage: "list[Damage]", checked: str) -> Markup:
    if not damage:
        return tag("p", f"Verified: {checked} hashed again, all as sealed.", class_="verdict", role="status")
    rows = [(item.trial, item.file, item.kind, item.detail) for item in damage]
    said = tag("p", f"{checked} hashed again: not all is as it was sealed.", class_="verdict trouble", role="status")
    return Markup(said + table(("trial", "file", "what", "detail"), rows, label="Damage"))  # noqa: S704


def _way(request: Request, run_id: str, found: "TrialEvidence | None" = None) -> Markup:
    at = f"/runs/{run_id}/evidence"
    steps = [anchor(request, f"Run {run_id}", f"/runs/{run_id}"), " › ", anchor(request, "Evidence", at)]
    if found:
        steps += [" › ", anchor(request, found.trial.name, f"{at}/{found.trial.name}")]
    return tag("p", *steps)


def _first(request: Request) -> int:
    text = request.query_params.get("first", "0")
    return int(text) if text.isdecimal() and len(text) < 9 else 0
