"""A kept service on several nodes of its job: replicas spread over them, or one server that spans them."""

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Ready, Recipe, ServerScale, Service, fill
from benchhouse.schema.service import SECRET, Address, Addresses, ServiceFolder, ServiceSpec
from benchhouse.worker import nodes
from benchhouse.worker.server_logs import ServiceLogWriter
from benchhouse.worker.services import RunningServer, Services
from benchhouse.worker.trial_services import RemoteServices


class Span:
    """The parts of a service on the other nodes; the first node has the service supervisor."""

    def __init__(self, path: Path, spec: ServiceSpec, logs: ServiceLogWriter, secret: str) -> None:
        """`path`, the folder that it writes to, must be visible to all nodes."""
        self._spec, self._secret = spec, secret
        cpus = spec.recipe.resources.cpus if spec.recipe.resources else 1
        self._elsewhere = RemoteServices(path, logs, cpus, spec.interface, spec.images)
        self._remote: list[Service] = []

    def start(self, services: Services) -> list[Service]:
        """Start the service. Return the servers that take requests, the first node's first, when all are up."""
        spec, recipe = self._spec, self._spec.recipe
        names = nodes.names()[: recipe.scale.nodes]
        if len(names) < recipe.scale.nodes:
            message = f"{spec.id} needs {recipe.scale.nodes} nodes, and its job has {len(names)}"
            raise ExperimentFailed("too_few_nodes", message)
        os.environ[SECRET] = self._secret  # one for all: a client of one may use the others
        if recipe.members:
            join = partial(self._join, names[1:])
            return services.start_all(recipe, spec.id, spec.parameters, 1, meanwhile=join)
        where = [names[number % len(names)] for number in range(spec.replicas)]
        mine, others = where.count(names[0]), [name for name in where if name != names[0]]
        local = services.start_all(recipe, spec.id, spec.parameters, mine)
        self._remote = self._elsewhere.start_all(recipe, spec.id, spec.parameters, others, mine)
        return [*local, *self._remote]

    def _join(self, others: list[str], head: RunningServer) -> None:
        """Start the members on all other nodes, which the head may wait for."""
        places = {"head": head.probe.places["host"]}
        places |= {f"head_{port}": head.probe.places[port] for port in head.recipe.ports}
        recipe = member_recipe(head.recipe, places)
        self._remote = self._elsewhere.start_all(recipe, f"{self._spec.id}-member", self._spec.parameters, others, 1)

    def addresses(self) -> Iterator[Address]:
        """Yield the addresses of replicas on other nodes, with everything that a client needs."""
        for service in self._remote if not self._spec.recipe.members else ():
            yield from Addresses.model_validate_json(ServiceFolder(service.folder).endpoints.read_bytes()).servers

    def handles(self) -> Iterator[int]:
        """Yield a descriptor for each that becomes readable when it has ended; the caller closes it."""
        for service in self._remote:
            with contextlib.suppress(ProcessLookupError):
                yield os.pidfd_open(service.pid)

    def died(self) -> str:
        return self._elsewhere.died()

    def close(self) -> None:
        self._elsewhere.close()


def member_recipe(recipe: Recipe, head: dict[str, str]) -> Recipe:
    """Return the recipe of each further node: up as soon as it runs, because the head reports when the whole is up."""
    changes = {
        "command": tuple(fill(word, head) for word in recipe.members),
        "members": (),
        "prepare": (),
        "scale": ServerScale(),
        "metrics": "",
        "endpoint": "{host}",
        "ready": Ready(kind="command", command=("true",)),
    }
    return recipe.model_copy(update=changes)
