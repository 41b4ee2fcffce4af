"""A server with an image of its own, as Kubernetes objects that are built from values alone.

A StatefulSet runs the recipe's command, a Secret holds what must not appear in a manifest, and a Job owns both. The
Job's pod ends when the orchestrator's heartbeat stops; the finished Job is then deleted with everything it owns.
Cleanup therefore needs no credentials of the cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchhouse.executors.kubernetes_manifest import SERVER, SOON_GONE, Pods
from benchhouse.schema.errors import BenchError
from benchhouse.schema.pod_template import VOLUME, Manifest, label, pod_template, quantities
from benchhouse.schema.recipe import LOOPBACK, Recipe, fill
from benchhouse.schema.resources import Resources
from benchhouse.schema.secrets import resolve
from benchhouse.schema.service import ServiceSpec

CONTAINER = "server"
START = "benchhouse.dev/start"  # label that identifies one start of a server
_FOLDER = "/benchhouse"  # {folder}
_SECRET = "BENCHHOUSE_SECRET"  # noqa: S105 - the name of a variable
_FIRST_PORT = 8000
_NOBODY = 65534
_PATIENCE_S, _GRACE_S = 30.0, 10
_LITTLE = {"requests": {"cpu": "0", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}  # no core that a trial could use


def is_from_image(spec: ServiceSpec) -> bool:
    """Return whether the server has its own image: the recipe names one, and no program of the trials' image is set."""
    return bool(spec.recipe.pinned_image) and "program" not in spec.parameters


@dataclass(frozen=True)
class ImageServer:
    """The objects of one server. `own` is the name of the objects, `server` the name in the run."""

    pods: Pods
    spec: ServiceSpec
    server: str
    own: str
    secret: str
    environ: Mapping[str, str]

    @property
    def recipe(self) -> Recipe:
        return self.spec.recipe

    @property
    def labels(self) -> dict[str, str]:
        return self.pods.labels | {SERVER: label(self.server), START: self.own}

    @cached_property
    def resources(self) -> Resources:
        return self.recipe.resources or Resources()

    @cached_property
    def ports(self) -> dict[str, int]:
        """The ports. Each pod has its own network, so any port is free."""
        return {name: number or _FIRST_PORT + at for at, (name, number) in enumerate(self.recipe.ports.items())}

    @cached_property
    def chosen(self) -> dict[str, str]:
        """The recipe's parameters that have a value."""
        given = {**self.recipe.parameters, **self.spec.parameters}
        return {name: value for name, value in given.items() if value is not None}

    def places(self, host: str) -> dict[str, str]:
        """Return the values of the recipe's placeholders, including secrets."""
        places = self._plain(host) | {"secret": self.secret}
        return places | {name: fill(resolve(text, self.environ, name), places) for name, text in self.chosen.items()}

    def _plain(self, host: str) -> dict[str, str]:
        named = next((Path(item.rpartition(":")[2]).name for item in self.recipe.program if "*" not in item), "")
        return {
            "folder": _FOLDER,
            "host": host,
            "program": self.recipe.image_program or named,
            "python": "python3",
            "threads": str(self.resources.cpus),
            "replica": "0",
            **{name: str(number) for name, number in self.ports.items()},
        }

    @cached_property
    def _in_manifest(self) -> dict[str, str]:
        """The same placeholders without secrets, for manifests: `$(NAME)` refers to a variable of the container."""
        places = self._plain("$(POD_IP)") | {"secret": f"$({_SECRET})"}
        return places | {
            name: f"$({_variable(name)})" if self._is_secret(name, text) else fill(_quoted(text), places)
            for name, text in self.chosen.items()
        }

    def _is_secret(self, key: str, text: str) -> bool:
        return bool(resolve(text, self.environ, key) != text)

    # -- objects ---------------------------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Raise BenchError for recipes that cannot run in a pod."""
        recipe, volume = self.recipe, self.pods.site.volume
        texts = [*recipe.command, *(word for line in recipe.prepare for word in line), *recipe.files.values()]
        if self.spec.replicas > 1 and any("{replica}" in text for text in (*texts, *recipe.environment.values())):
            raise BenchError(
                f"the recipe {recipe.name} tells its replicas apart ({{replica}}), which have one command here",
                "start one of them, or name its program in the trials' image: parameters: {program: ...}",
            )
        for bind in recipe.binds:
            source = fill(bind, self.places(LOOPBACK)).partition(":")[0]
            if volume is None or not Path(source).is_relative_to(volume.path):
                raise BenchError(
                    f"{recipe.name} wants {source}, which is not on the volume that pods see", "copy it there"
                )

    def watchdog(self, anchor_uid: str = "") -> Manifest:
        """Return the Job that owns the rest. It ends when the orchestrator is gone, and is then deleted."""
        patience_s = _PATIENCE_S if self.spec.alive else self.pods.site.time  # without a run: until its time limit
        given = {"outlast": self.spec.alive, "patience_s": patience_s}
        template = self.pods.template(given, _LITTLE, self.pods.labels)
        template["spec"]["terminationGracePeriodSeconds"] = 1  # it has nothing to clean up
        content: Manifest = {
            "backoffLimit": 6,
            "activeDeadlineSeconds": max(1, round(self.spec.time or self.pods.site.time)),
            "ttlSecondsAfterFinished": 0,
            "template": template,
        }
        return self.pods.as_job(self.own, self.pods.labels, content, anchor_uid)

    def objects(self, owner_uid: str = "") -> list[tuple[str, str, Manifest]]:
        """Return the API, plural, and manifest of each object, in order of creation."""
        owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": self.own, "uid": owner_uid}]
        metadata: Manifest = {"name": self.own, "namespace": self.pods.namespace, "labels": self.labels}
        metadata |= {"ownerReferences": owner} if owner_uid else {}
        secret: Manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": self._hidden()}
        spec: Manifest = {
            "replicas": self.spec.replicas,
            "serviceName": self.own,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {START: self.own}},
            "template": self._template(),
        }
        stateful: Manifest = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
        service: Manifest = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "clusterIP": "None",  # each pod gets a name, so no proxy is between client and server
                "publishNotReadyAddresses": True,
                "selector": {START: self.own},
                "ports": [{"name": f"port-{number}", "port": number} for number in self.ports.values()],
            },
        }
        named = [("v1", "services", service)] if self.pods.site.names and self.ports else []
        return [("v1", "secrets", secret), *named, ("apps/v1", "statefulsets", stateful)]

    def host_of(self, pod: Mapping[str, Any]) -> str:
        """Return the host at which others reach the pod."""
        if self.pods.site.names:
            return f"{pod['metadata']['name']}.{self.own}.{self.pods.namespace}.svc"
        return str(pod["status"]["podIP"])

    def _hidden(self) -> dict[str, str]:
        places, recipe = self.places("0.0.0.0"), self.recipe  # noqa: S104 - inside its pod
        hidden = {_SECRET: self.secret}
        hidden |= {_variable(name): places[name] for name, text in self.chosen.items() if self._is_secret(name, text)}
        hidden |= {
            key: fill(resolve(text, self.environ, key), places)
            for key, text in recipe.environment.items()
            if self._is_secret(key, text)
        }
        return hidden | {f"file-{at}": fill(text, places) for at, text in enumerate(recipe.files.values())}

    def _template(self) -> Manifest:
        recipe, site = self.recipe, self.pods.site
        container: Manifest = {
            "name": CONTAINER,
            "command": self._words(recipe.command),
            "workingDir": _FOLDER,
            "env": self._environment(),
            "resources": quantities(
                self.resources.cpus, self.resources.memory or site.memory, self.resources.gpus, site
            ),
            "ports": [{"containerPort": number} for number in self.ports.values()],
            "readinessProbe": self._probe(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        user = (_NOBODY, _NOBODY) if recipe.refuses_root else None
        settings = site.model_copy(update={"image": recipe.pinned_image})
        template = pod_template(settings, container, self.labels, user=user)
        pod = template["spec"]
        pod |= {
            "restartPolicy": "Always",  # a StatefulSet allows no other
            "shareProcessNamespace": True,  # the server is not process 1, so signals end it as on any machine
            "terminationGracePeriodSeconds": _GRACE_S,
            "tolerations": [*SOON_GONE, *pod.get("tolerations", ())],
        }
        if user:
            pod["securityContext"]["fsGroup"] = _NOBODY
        pod["volumes"] += [{"name": "folder", "emptyDir": {}}, {"name": "hidden", "secret": {"secretName": self.own}}]
        mounts = pod["containers"][0]["volumeMounts"]
        mounts.append({"name": "folder", "mountPath": _FOLDER})
        mounts += [
            {"name": "hidden", "mountPath": f"{_FOLDER}/{path}", "subPath": f"file-{at}"}
            for at, path in enumerate(recipe.files)
        ]
        mounts += [self._bind(bind) for bind in recipe.binds]
        if self.spec.node:
            pod["nodeSelector"] = {**pod.get("nodeSelector", {}), "kubernetes.io/hostname": self.spec.node}
        if self.server in self.pods.beside:  # on the node of the trials, so all replicas share it
            near = {"requiredDuringSchedulingIgnoredDuringExecution": [self.pods.on_node_of(self.server)]}
            pod["affinity"] = {"podAffinity": near}
        left_out = ("ports", "readinessProbe")
        first = {key: value for key, value in pod["containers"][0].items() if key not in left_out}
        if recipe.prepare:
            pod["initContainers"] = [
                first | {"name": f"prepare-{at}", "command": self._words(line)}
                for at, line in enumerate(recipe.prepare)
            ]
        return template

    def _words(self, words: tuple[str, ...]) -> list[str]:
        return [fill(_quoted(word), self._in_manifest) for word in words]

    def _environment(self) -> list[Manifest]:
        hidden = [_SECRET, *(_variable(name) for name, text in self.chosen.items() if self._is_secret(name, text))]
        hidden += [key for key, text in self.recipe.environment.items() if self._is_secret(key, text)]
        return [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *({"name": key, "valueFrom": {"secretKeyRef": {"name": self.own, "key": key}}} for key in hidden),
            *(
                {"name": key, "value": fill(_quoted(text), self._in_manifest)}
                for key, text in self.recipe.environment.items()
                if key not in hidden
            ),
        ]

    def _bind(self, bind: str) -> Manifest:
        source, _, rest = fill(bind, self.places(LOOPBACK)).partition(":")
        destination, _, mode = rest.partition(":")
        assert self.pods.site.volume is not None
        inside = str(Path(source).relative_to(self.pods.site.volume.path))
        return {"name": VOLUME, "mountPath": destination, "subPath": inside, "readOnly": mode == "ro"}

    def _probe(self) -> Manifest:
        """Return the recipe's own check if a kubelet can run it, otherwise a check that the port is open."""
        ready = self.recipe.ready
        probe: Manifest = {
            "periodSeconds": 1,
            "timeoutSeconds": 2,
            "successThreshold": ready.in_a_row,
            "failureThreshold": 5,
        }
        if ready.kind == "command":
            return probe | {"exec": {"command": self._words(ready.command)}}
        address = urlsplit(fill(ready.url or self.recipe.endpoint, self.places(LOOPBACK)))
        if ready.kind == "http":
            path = f"{address.path or '/'}{f'?{address.query}' if address.query else ''}"
            scheme = (address.scheme or "http").upper()
            return probe | {"httpGet": {"path": path, "port": address.port or 80, "scheme": scheme}}
        by_name = self.ports.get(ready.port) if ready.kind == "tcp" else None
        return probe | {"tcpSocket": {"port": by_name or address.port or next(iter(self.ports.values()))}}


def _variable(parameter: str) -> str:
    return f"BENCHHOUSE_{parameter.upper()}"


def _quoted(text: str) -> str:
    """Escape text that Kubernetes would expand as a variable."""
    return text.replace("$(", "$$(")
