"""Values that may be published, the contracts of runs, and documents that cite claims."""

from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.requests import Request

from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import Content, join, table, tag
from benchhouse.results.numbers import name_of, quantity
from benchhouse.serve.pages import parts
from benchhouse.serve.pages.shell import WebPage, anchor, empty

if TYPE_CHECKING:
    from benchhouse.results.lineage import LineageStep
    from benchhouse.schema.claim import Claim

_MOST_DOCUMENTS = 50
_MOST_TRIALS = 200


def claims(workspace: Workspace, request: Request) -> WebPage:
    entries = workspace.claims.list()
    beside = tag(
        "p",
        anchor(request, "Documents that cite claims", "/claims/documents"),
        " · ",
        anchor(request, "Contracts", "/contracts"),
        " · ",
        anchor(request, "One release against another", "/views/release"),
    )
    if not entries:
        return WebPage("Claims", (empty("No claim yet. Make one:", "bench claim make @last:METRIC"), beside))
    rows = [
        (anchor(request, entry.id, f"/claims/{entry.id}"), entry.statement, parts.verdict(entry.label),
         parts.verdict(entry.signature), _value(entry.value, entry.unit, entry.interval), str(entry.n or ""))
        for entry in entries
    ]  # fmt: skip
    heads = ("claim", "statement", "label", "signature", "value (interval)", "n")
    return WebPage("Claims", (beside, table(heads, rows, (4, 5), label="Claims")))


def _value(value: float | None, unit: str, interval: tuple[float, float] | None) -> str:
    if value is None:
        return ""
    ends = f" ({' to '.join(quantity(end, '1') for end in interval)})" if interval else ""
    return f"{quantity(value, unit)}{ends}"


def one_claim(workspace: Workspace, request: Request) -> WebPage:
    shown = workspace.claims.show(request.path_params["claim"])
    claim, verify = shown.claim, bool(request.query_params.get("verify"))
    facts: list[tuple[str, Content]] = [
        ("Label", parts.verdict(claim.label)),
        ("Signature", join(parts.verdict(shown.signature.state), ": ", shown.signature.says)),
        ("Number", name_of(claim.metric, claim.stat)),
        ("Value", _value(claim.value, claim.unit, claim.interval)),
        ("Interval", f"{claim.policy.confidence:.0%}, {claim.method}"),
        ("Trials behind it", str(claim.n)),
        ("Measured", f"{claim.measured_from[:19]} to {claim.measured_to[:19]} UTC"),
        *((f"Contract {item.name}", f"{item.mode} of {item.asked}, {item.digest}") for item in claim.contracts),
        ("Cite it as", tag("code", f"[claim:{shown.id}]")),
        ("Give it away", tag("code", f"bench claim export {shown.id}")),
    ]
    lacks = [f"{reason.code}: {reason.message}" for reason in claim.reasons]
    changed = [(item.dimension, item.a, item.b) for item in claim.changed]
    return WebPage(
        f"Claim {shown.id}",
        (
            tag("p", claim.statement, class_="verdict"),
            parts.facts(facts),
            parts.notes(lacks, "What it lacks") if lacks else None,
            join(tag("h2", "What changed from the base"), table(("what", "before", "after"), changed, label="Changed"))
            if changed
            else None,
            _checked(workspace, shown.id) if verify else _verify_button(request, shown.id),
            _trials(request, claim),
            *(tag("details", tag("summary", f"Query {digest[:12]} ({spec.engine} {spec.engine_version})"),
                  tag("pre", spec.sql, tabindex=0)) for digest, spec in claim.queries.items()),
        ),
    )  # fmt: skip


def _verify_button(request: Request, claim: str) -> Markup:
    again = anchor(request, "Verify it now", f"/claims/{claim}", verify="1")
    return tag("p", again, ": its bytes, its query run again, its statistics, label and signature.")


def _checked(workspace: Workspace, claim: str) -> Markup:
    checked = workspace.claims.verify(claim)
    holds = "holds" if checked.ok else "does NOT hold"
    return tag(
        "section",
        tag("h2", "Verified: ", tag("span", holds, class_="good" if checked.ok else "bad")),
        steps(checked.trace.steps),
        parts.notes(checked.notes),
        id="verified",
    )


def steps(walked: "list[LineageStep]") -> Markup:
    """Return the steps from the value to its bytes."""
    return tag(
        "ol",
        *(
            tag("li", tag("b", f"{'✓' if step.ok else '✗'} {step.name}", class_="good" if step.ok else "bad"),
                tag("ul", *(tag("li", line) for line in step.says)))
            for step in walked
        ),
    )  # fmt: skip


def _trials(request: Request, claim: "Claim") -> Markup:
    rows = [
        (trial.trial_id, anchor(request, trial.run_id, f"/runs/{trial.run_id}"), quantity(trial.value, claim.unit))
        for trial in claim.trials[:_MOST_TRIALS]
    ]
    return join(tag("h2", "Trials behind it"), table(("trial", "run", "value"), rows, (2,), label="Trials"))


def documents(workspace: Workspace, request: Request) -> WebPage:
    """Show the numbers without a valid claim in the Markdown files of the workspace."""
    inside = workspace.claims.documents()
    if not inside:
        return WebPage("Documents", (empty("There is no Markdown file in this workspace or its docs/."),))
    content: list[Content] = [
        tag("p", "Numbers that cite no claim, cite a wrong value, or cite one that is unsafe.", class_="small soft")
    ]
    for checked in workspace.claims.lint(inside[:_MOST_DOCUMENTS], traced=False):
        name = Path(checked.path).relative_to(workspace.root).as_posix()
        bad = len(checked.problems)
        content.append(tag("h2", name))
        content.append(tag("p", f"{checked.cited} cited, {bad} to mend", class_="bad" if bad else "good"))
        rows = [(str(item.line or ""), item.message, item.expected) for item in checked.problems[:100]]
        content.append(table(("line", "what is wrong", "expected"), rows, (0,), label=name) if rows else None)
    left = len(inside) - _MOST_DOCUMENTS
    content.append(tag("p", f"{left} more: bench claim lint", class_="note") if left > 0 else None)
    return WebPage("Documents", tuple(content))


def contracts(workspace: Workspace, request: Request) -> WebPage:
    rows = [
        (anchor(request, item.contract, f"/contracts/{item.contract}"), item.benchmark_class, item.workload,
         ", ".join(item.metrics), str(item.min_replicates))
        for item in workspace.contracts.list()
    ]  # fmt: skip
    heads = ("contract", "class", "workload", "metrics", "fewest replicates")
    words = "What is promised before a run, and what is left of it afterwards. Begin with one of these:"
    more = tag("p", "Run under one: ", tag("code", "bench run SCENARIO.yaml --contract FILE"), class_="note")
    return WebPage("Contracts", (tag("p", words), table(heads, rows, (4,), label="Contracts"), more))


def one_contract(workspace: Workspace, request: Request) -> WebPage:
    name = request.path_params["contract"]
    text = workspace.contracts.text(workspace.contracts.show(name))
    return WebPage(f"Contract {name}", (tag("pre", text, tabindex=0),))


def run_contract(workspace: Workspace, request: Request) -> WebPage:
    """Show the contract of a run, what was observed of each guarantee, and its resulting class."""
    run = workspace[request.path_params["run"]]
    governs = run.contract()
    content: list[Content] = [tag("p", "Run ", anchor(request, run.id, f"/runs/{run.id}"))]
    if governs:
        rows = [(item.name, "seen" if item.observed else "not seen", item.says) for item in governs.guarantees]
        content += [
            tag("p", f"{governs.mode} of {governs.terms.asked}: {governs.settled.sentence()}", class_="verdict"),
            table(("guarantee", "observed", "what was seen"), rows, label="Guarantees"),
        ]
    else:
        content.append(empty("No contract governs this run.", "bench run SCENARIO.yaml --contract FILE"))
    if run.folder.is_dir():
        rendered = workspace.contracts.render(run.id)
        content += [
            tag("h2", "The contract that it amounts to"),
            parts.notes(rendered.to_confirm, "To be confirmed by whoever publishes"),
            tag("pre", workspace.contracts.text(rendered.contract), tabindex=0),
        ]
    return WebPage("Contract of a run", tuple(content))
