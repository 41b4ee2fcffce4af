"""The page of one run for one reader, and the comparison of two releases."""

from starlette.requests import Request

from benchhouse.api.workspace import AUDIENCES, Workspace
from benchhouse.report.tags import Content, tag
from benchhouse.serve.pages import parts
from benchhouse.serve.pages.forms import ask, choice, field
from benchhouse.serve.pages.shell import WebPage, anchor, empty, relative


def audience(workspace: Workspace, request: Request) -> WebPage:
    """Show the page of `bench report --for`; a partner sees only publishable values."""
    from benchhouse.report.pages import sections

    params = parts.form_fields(request, "run", "vs", "audience")
    chosen = params["audience"] or AUDIENCES[0]
    form = ask(
        request,
        "/views",
        field("run", "Run", params["run"] or "@last"),
        field("vs", "Against", params["vs"], placeholder="the run before it"),
        choice("audience", "For", [(name, name) for name in AUDIENCES], chosen),
    )
    if not workspace.runs():
        return WebPage("Views", (form, empty("No run yet. Start one:", "bench run SCENARIO.yaml")))
    page = workspace.views.audience(chosen, params["run"] or "@last", params["vs"] or None)
    shown = (relative(section, workspace) for section in sections(page))
    return WebPage(page.title, (tag("p", page.lead, class_="verdict"), form, *shown))


def release(workspace: Workspace, request: Request) -> WebPage:
    """Show what got better, worse, or stayed the same from one release to another, based on claims that hold."""
    from benchhouse.report.pages import sections
    from benchhouse.report.release_page import release_page

    params = parts.form_fields(request, "from", "to", "realism")
    form = ask(
        request,
        "/views/release",
        field("from", "From", params["from"], placeholder="0.9.1"),
        field("to", "To", params["to"], placeholder="0.10.0"),
        choice("realism", "Claims", (("", "publication-grade"), ("1", "realism-grade too")), params["realism"]),
        button="Compare",
    )
    words = (
        "A release is the version of a server, an image digest, a commit, a package version, or a run. All numbers are "
    )
    lead: Content = tag("p", words, anchor(request, "claims", "/claims"), " that hold.", class_="soft")
    if not (params["from"] and params["to"]):
        return WebPage("Releases", (lead, form))
    shown = release_page(workspace.views.release(params["from"], params["to"], realism=bool(params["realism"])).view)
    return WebPage(shown.title, (tag("p", shown.lead, class_="verdict"), form, *sections(shown)))
