"""From a value back to its bytes, as `bench trace` prints it."""

from starlette.requests import Request

from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import join, tag
from benchhouse.serve.pages.forms import ask, field
from benchhouse.serve.pages.shell import WebPage, relative

_HELP = "The reference that a report prints beside a number, a claim, a trial, or RUN:metric such as @last:qps."


def trace(workspace: Workspace, request: Request) -> WebPage:
    ref = request.query_params.get("ref", "").strip()
    form = ask(request, "/trace", field("ref", "Reference", ref, size=40, required=True), button="Trace")
    if not ref:
        return WebPage("Trace", (tag("p", _HELP), form))
    found = workspace.trace(ref)
    verdict = "Every step holds." if found.ok else "The lineage is broken: not every step holds."
    steps = [
        tag(
            "li",
            tag(
                "h2",
                step.name.capitalize(),
                " ",
                tag("span", "holds" if step.ok else "does not hold", class_=_side(step.ok)),
            ),
            tag("ul", *(relative(tag("li", line), workspace) for line in step.says)),
        )
        for step in found.steps
    ]
    shown = join(
        tag("p", verdict, class_="verdict" if found.ok else "verdict trouble"), tag("ol", *steps, class_="steps")
    )
    return WebPage("Trace", (form, tag("p", tag("code", f"bench trace {ref}")), shown))


def _side(ok: bool) -> str:
    return "place best" if ok else "place worst"
