"""Running servers and monitors, their endpoints, and their last output."""

from starlette.requests import Request

from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import Content, join, table, tag
from benchhouse.results.numbers import quantity
from benchhouse.serve.pages import parts
from benchhouse.serve.pages.forms import ask, field
from benchhouse.serve.pages.shell import WebPage, anchor, empty, relative
from benchhouse.serve.verb_requests import hide_places

_MOST_LINES = 2000


def servers(workspace: Workspace, request: Request) -> WebPage:
    running = [
        (anchor(request, item.id, f"/servers/{item.id}"), f"{item.recipe} {item.version}", item.phase,
         ", ".join(item.endpoints), item.host,
         anchor(request, item.run_id, f"/runs/{item.run_id}") if item.run_id else "", item.started[:19])
        for item in workspace.servers.running()
    ]  # fmt: skip
    heads = ("server", "recipe", "phase", "endpoints", "host", "of the run", "started")
    monitors = [
        (item.monitor_id, item.state, item.watches, item.host, item.started[:19],
         ", ".join(f"{seen.series} {quantity(seen.value, seen.unit)}" for seen in item.seen))
        for item in workspace.monitors.all()
    ]  # fmt: skip
    watched = ("monitor", "state", "watches", "host", "started", "what it saw")
    none = empty("No server runs. Start one, or have a scenario start it:", "bench servers start RECIPE")
    no_monitor = empty("No monitor yet. Sample this machine:", "bench monitors start")
    return WebPage(
        "Servers",
        (
            table(heads, running, label="Servers") if running else none,
            join(tag("h2", "Monitors"), table(watched, monitors, label="Monitors") if monitors else no_monitor),
        ),
    )


def one_server(workspace: Workspace, request: Request) -> WebPage:
    name = request.path_params["server"]
    params = parts.form_fields(request, "lines")["lines"]
    lines = min(int(params), _MOST_LINES) if params.isdecimal() and len(params) < 6 else 100
    output = workspace.servers.logs(name, lines=lines)
    server = next((item for item in workspace.servers.running() if item.id.startswith(name)), None)
    content: list[Content] = []
    if server:
        content.append(
            parts.facts([
                ("Phase", server.phase), ("Message", hide_places(server.message, workspace)),
                ("Recipe", f"{server.recipe} {server.version}"),
                ("Endpoints", ", ".join(server.endpoints)), ("Metrics", ", ".join(server.metrics)),
                ("Host", server.host), ("Process or job", server.job), ("Started", server.started[:19]),
                ("Last answered", server.checked[:19]),
                ("Of the run", anchor(request, server.run_id, f"/runs/{server.run_id}") if server.run_id else ""),
                ("Stop it", tag("code", f"bench servers stop {server.id}")),
            ])
        )  # fmt: skip
    else:
        content.append(tag("p", "It is over; this is what it left.", class_="verdict trouble"))
    content += [
        tag("h2", "What it wrote last"),
        ask(request, f"/servers/{name}", field("lines", "Lines", str(lines), "number", min=1, max=_MOST_LINES)),
        relative(tag("pre", "".join(output.lines) or "nothing yet", tabindex=0), workspace),
    ]
    return WebPage(f"Server {name}", tuple(content))
