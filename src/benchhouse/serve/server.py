"""The process of `bench serve`: one server on one workspace, until it is stopped."""

import gc
import resource
import socket
import sys
from collections.abc import Callable

import uvicorn

from benchhouse.api.workspace import Workspace
from benchhouse.processes.tcp_peer import accounts_are_visible
from benchhouse.runs.sharing import engine_of
from benchhouse.schema.errors import BenchError
from benchhouse.serve.app import make_app
from benchhouse.serve.connections import Connections
from benchhouse.serve.log import log_to_stderr
from benchhouse.serve.settings import Settings
from benchhouse.serve.store_follower import follow

_BACKLOG = 1024  # connections that wait to be accepted, and that may be accepted before the first of them is counted
_OTHER_FILES = 512  # for the tables, evidence, and libraries
_IDLE_S = 15
_SWITCH_S = 0.001  # a fifth of the default: an answer releases the interpreter with each row and file that it reads
_COLLECTIONS = (700, 10, 100)  # old objects a tenth as often as by default: each time stops all answers for 100 ms


def serve(workspace: Workspace, settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; call `ready` with the address once the server listens."""
    check(workspace, settings)
    listener = _listen(settings.host, settings.port)
    at = listener.getsockname()
    shown = f"[{at[0]}]" if ":" in at[0] else at[0]
    log_to_stderr()
    gc.set_threshold(*_COLLECTIONS)
    sys.setswitchinterval(_SWITCH_S)
    if settings.follow_s is not None:
        follow(workspace.root, settings.follow_s)
    _allow_open_files(settings.max_connections + _BACKLOG + _OTHER_FILES)
    workspace.query_limits = settings.query_limits
    connections = Connections(settings)
    config = uvicorn.Config(
        make_app(workspace, settings, connections),
        http=connections.protocol(),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the guard reads them: uvicorn would trust every process on this machine
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=5,
    )
    ready(f"http://{shown}:{at[1]}{settings.root_path}/")
    uvicorn.Server(config).run(sockets=[listener])


def check(workspace: Workspace, settings: Settings) -> None:
    """Raise BenchError if the server could not identify its clients."""
    good = any(token.state == "good" for token in workspace.tokens.list())
    if not settings.is_loopback and not settings.proxies and not good:
        raise BenchError(
            f"{settings.host} is reached by others than this machine, and nothing says who may ask",
            "make a token: bench token make NAME --scope read|run|approve|admin; or let a proxy with a login ask: "
            "--trusted-proxy ADDRESS; or serve this machine alone: --host 127.0.0.1",
        )
    if not settings.is_loopback and settings.login is False:
        raise BenchError(
            f"--no-login is for this machine alone, and {settings.host} is reached by others",
            "leave it out, or serve this machine alone: --host 127.0.0.1",
        )
    if settings.without_login and settings.login is None and not accounts_are_visible():
        raise BenchError(
            "this system does not show which account opens a connection, so the server can't recognize yours",
            "bench token make NAME --scope run, then bench serve --login; or answer every account of this machine "
            "without a login: --no-login",
        )
    if settings.login and not good:
        raise BenchError("--login needs a token, and there is none that counts", "bench token make NAME --scope run")
    if settings.follow_s is not None:
        engine_of(workspace.folder)


def warnings(settings: Settings) -> list[str]:
    """Return warnings about settings that let other people do more than an owner may expect."""
    found = []
    if not settings.is_loopback and not settings.proxies:
        found.append(
            f"tokens and results cross the network unencrypted, as {settings.host} is reached by other machines; put a "
            "proxy with a certificate before it (--trusted-proxy), or serve this machine alone and reach it by "
            "ssh -L 8642:127.0.0.1:8642 HOST"
        )
    if settings.without_login and settings.login is False and settings.allow != "read":
        found.append(
            f"every account of this machine can run programs as you (--no-login --allow {settings.allow}); leave out "
            "--no-login, so that others need a token"
        )
    return found


def _allow_open_files(needed: int) -> None:
    """Raise the soft limit of open files, which is often 1,024, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in (resource.RLIM_INFINITY, hard) and soft < needed:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
        )


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise BenchError(
            f"nothing can listen on {host} port {port}: {error.strerror or error}", "give another: --port 0 takes any"
        ) from error
