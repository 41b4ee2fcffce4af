"""A run's existing servers on Kubernetes: found before its first trial, and followed until its last.

Trials have no account of the cluster. So the run's process checks twice a second and writes the state of each server
into a file. There a trial reads the pods behind its server when it begins, and the changes when it ends.
"""

import contextlib
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import RunFolder
from benchhouse.schema.pod_template import chosen
from benchhouse.schema.server_pods import ServerPods, named_server
from benchhouse.schema.service import TrialService

if TYPE_CHECKING:
    from benchhouse.runs.followed_server import FollowedServer

_LOOK_S = 0.5
_CONNECT_S = 5.0


class ExternalServers:
    """All existing servers of one run."""

    def __init__(self, prepared: PreparedRun, run: RunFolder) -> None:
        self._prepared, self._run = prepared, run
        self._services: Mapping[str, TrialService] = prepared.plan.services
        self._names = [name for name, service in self._services.items() if service.use.kubernetes]
        self._servers: list[FollowedServer] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def find(self) -> None:
        """Find the servers. Raise BenchError if one does not exist, has no ready pod, or can't be reached."""
        if self._names:
            self._servers = [self._found(name) for name in self._names]

    def start(self) -> None:
        """Find the servers and follow them from now on."""
        self.find()
        for server in self._servers:
            server.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError, ValueError):  # from an earlier session of this run
                look = ServerPods.model_validate_json(server.path.read_bytes()).look
                server.seen = server.seen.model_copy(update={"look": look + 1})
            server.write()
        if self._servers:
            self._thread = threading.Thread(target=self._follow, daemon=True, name="servers there")
            self._thread.start()

    def for_trials(self) -> dict[str, TrialService]:
        """Return all services of the run, with the files that describe the existing servers."""
        files = {name: str(self._path(name).absolute()) for name in self._names}
        return {
            name: service.model_copy(update={"pods": files[name]}) if name in files else service
            for name, service in self._services.items()
        }

    def close(self) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()

    def _follow(self) -> None:
        while not self._over.wait(_LOOK_S):
            for server in self._servers:
                server.look()

    def _path(self, name: str) -> Path:
        return self._run.pods / f"{name}.json"

    def _found(self, name: str) -> "FollowedServer":
        from benchhouse.runs.followed_server import follow_server  # imports the client of Kubernetes

        scenario, use = self._prepared.plan.scenario, self._services[name].use
        assert use.kubernetes is not None
        site = chosen(self._prepared.site.kubernetes, scenario.kubernetes)
        named, is_inside = named_server(use.kubernetes), scenario.executor == "kubernetes"
        try:
            server = follow_server(self._path(name), named, site, use.endpoint, is_inside=is_inside)
            if scenario.executor == "local":
                _refuse_unreachable(server.seen)
        except BenchError as error:
            raise BenchError(f"{name}: {error.message}", error.hint) from error
        return server


def _refuse_unreachable(seen: ServerPods) -> None:
    """Raise BenchError for a server that a trial on this machine could not reach."""
    for endpoint in seen.endpoints:
        parts = urlsplit(endpoint)
        try:
            place = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection(place, _CONNECT_S).close()
        except OSError as error:
            message = f"{seen.server} is at {endpoint}, which this machine can't reach: {error}"
            hint = "run the trials there (--executor kubernetes), or write endpoint: with an address that leads there"
            raise BenchError(message, hint) from error
