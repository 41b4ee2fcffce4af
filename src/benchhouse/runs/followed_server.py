"""One existing server on Kubernetes that a run follows; each check is written to a file."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from benchhouse.evidence.writing import now, write_model
from benchhouse.http.kubeconfig import IN_CLUSTER, find_access
from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, Unreachable
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.server_pods import MOST_CHANGES, NamedServer, PodChange, ServerPods, differences
from benchhouse.sites.kubernetes_servers import ServerLookup

_OBJECT_S = 15.0  # between checks of the object that selects the pods; at once if they have changed
_ANSWER_S = 5.0


def follow_server(
    path: Path, server: NamedServer, site: KubernetesSite, endpoint: str | None, *, is_inside: bool
) -> "FollowedServer":
    """Find the server. Raise BenchError if it does not exist or can't be measured. `is_inside`: trials are pods."""
    access = find_access(site.context)
    client = KubeClient(access, outage_s=0.0, timeout_s=_ANSWER_S)
    lookup = ServerLookup(client, server, site.namespace or access.namespace, endpoint)
    inside = is_inside or access.context == IN_CLUSTER
    seen = lookup.find(inside=inside, names=site.names)
    if seen.problem:
        raise BenchError(seen.problem, f"look: kubectl describe {server} --namespace {lookup.namespace}")
    seen = seen.model_copy(update={"look": 1, "looked": now()})
    return FollowedServer(lookup, inside, site.names, path, seen, time.monotonic())


@dataclass
class FollowedServer:
    """A server that is followed."""

    lookup: ServerLookup
    inside: bool
    names: bool
    path: Path
    seen: ServerPods
    found_at: float

    def look(self) -> None:
        """Check the server and write its state. If the cluster does not answer, write nothing, which trials can see."""
        try:
            pods = self.lookup.pods()
            found = self.seen.model_copy(update={"pods": pods})
            if pods != self.seen.pods or self.seen.problem or time.monotonic() - self.found_at > _OBJECT_S:
                found, self.found_at = self.lookup.find(inside=self.inside, names=self.names), time.monotonic()
        except (KubernetesRefused, Unreachable):  # busy or away
            return
        except BenchError as error:
            found = self.seen.model_copy(update={"problem": error.message, "endpoints": []})
        look, at = self.seen.look + 1, now()
        changes = [PodChange(look=look, at=at, message=text) for text in differences(self.seen, found)]
        changes = [*self.seen.changes, *changes][-MOST_CHANGES:]
        self.seen = found.model_copy(update={"look": look, "looked": at, "changes": changes})
        self.write()

    def write(self) -> None:
        with contextlib.suppress(OSError):  # a full disk is reported by the trial that can't be sealed
            write_model(self.path, self.seen, sync=False)
