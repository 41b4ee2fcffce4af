"""Run trials on Kubernetes: a slot is a pod. See docs/design/kubernetes.md."""

import getpass
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from benchhouse.documents.manifest_yaml import as_yaml
from benchhouse.executors.cluster_engine import ClusterNode, SlotRequest
from benchhouse.executors.kubernetes_engine import KubernetesEngine, PodListener, delete_run
from benchhouse.executors.kubernetes_keepers import KubernetesKeepers, unfinished
from benchhouse.executors.kubernetes_manifest import CODE, Pods, supported_fields
from benchhouse.executors.kubernetes_waits import WaitBook
from benchhouse.executors.remote_cluster import ClusterExecutor, SlotHandle
from benchhouse.http.kubeconfig import IN_CLUSTER, find_access
from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, Object, path_of
from benchhouse.http.pod_image import probe_image
from benchhouse.processes.worker_copy import code_folder, copy_own_code, layer_for
from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model
from benchhouse.schema.pod_template import chosen
from benchhouse.schema.protocols import Assignment, Job
from benchhouse.schema.resources import Resources
from benchhouse.schema.secrets import holds_secret, mentioned
from benchhouse.schema.service import ServiceFolder
from benchhouse.schema.trial import Outcome

_LOOK_HOLDS_S = 30.0


class _Left(Model):
    """The place where a run has created objects that are not deleted yet."""

    context: str = Field(description="Of the kubeconfig.")
    namespace: str = Field(description="Of the objects.")
    anchor: str = Field(description="Name of the ConfigMap that owns all of them.")


@dataclass(frozen=True)
class _ClusterLook:
    """The facts that an executor without trials has read from a cluster."""

    at: float
    client: KubeClient
    known: frozenset[str]
    asked: frozenset[str]
    nodes: Sequence[Object] | None


class KubernetesExecutor(ClusterExecutor):
    """An executor whose slots are pods of Jobs; only benchhouse retries them."""

    title = "Kubernetes"
    has_gangs = True
    _looks: ClassVar[dict[tuple[str, ...], _ClusterLook]] = {}  # per process: a run is checked, then started

    def __init__(self, assignment: Assignment) -> None:
        scenario = assignment.scenario
        self.site = chosen(assignment.site.kubernetes, scenario.kubernetes if scenario else None)
        super().__init__(assignment, "", self.site.patience)
        self._unknown: dict[str, Mapping[str, Any] | None] = {}  # slots whose place the cluster has not reported yet
        self._known: frozenset[str] | None = None
        self._asked: set[str] = set()  # images that were checked
        self._nodes: Sequence[Object] | None = None
        self._is_begun = False  # whether this session has created anything there
        self.keepers = self._keepers = KubernetesKeepers(self)
        if self.site.bucket and not self.site.volume:
            from benchhouse.executors.cluster_bucket import BucketMirror

            address = f"{self.site.bucket.rstrip('/')}/{assignment.run.run_id}"
            self.mirror = BucketMirror(self.home, address, assignment.say, os.environ)

    # -- what a cluster fills in ---------------------------------------------------------------------------------

    def settings(self) -> Mapping[str, Any]:
        return {}

    def ask(self, resources: Resources) -> SlotRequest:
        asked = super().ask(resources)
        return asked if asked.memory else asked.model_copy(update={"memory": self.site.memory})

    def python(self, job: Job) -> tuple[str, ...]:
        return ()  # the interpreter of the image, which the pod reports

    def _where(self) -> str:
        return f"{self.client.access.context}, namespace {self.namespace}"

    def _open(self) -> KubernetesEngine:
        book = WaitBook(self.assignment.run.waits)
        engine = KubernetesEngine(self.client, self.pods(), self.patience_s, self.assignment.say, book)
        if self._nodes is None:
            self._nodes = engine.list_nodes()
        engine.take_nodes(self._nodes)
        return engine

    def _take_slot(self, job: Job) -> None:
        self._begin_run()
        super()._take_slot(job)

    def _begin_run(self) -> None:
        """Record where objects will be created, before the first one, so that a killed session can be swept."""
        if self._is_begun:
            return
        self._delete_left()
        self._is_begun = True
        self.ship_code()
        left = _Left(context=self.client.access.context, namespace=self.namespace, anchor=self.pods().anchor_name)
        self.home.mkdir(parents=True, exist_ok=True)
        self._mark.write_text(left.model_dump_json(), encoding="utf-8")

    def begin_run(self, servers: PodListener) -> str:
        """Do the same for servers, and pass them news of their pods. Return the uid of the object that owns them."""
        self._begin_run()
        self.beat()
        self.cluster.follow(servers)
        return self.cluster.anchor()

    def ship_code(self) -> None:
        """Copy benchhouse to the volume for pods with `code: volume`."""
        if self.site.code == "volume":
            copy_own_code(self._code)

    def end_services(self) -> None:
        folders = [ServiceFolder(path) for path in self.assignment.run.services.glob("*")]
        self._keepers.stop(unfinished(folders))

    @property
    def _mark(self) -> Path:
        return self.home / "kubernetes.json"

    def _left(self) -> _Left | None:
        try:
            return _Left.model_validate_json(self._mark.read_bytes())
        except (OSError, ValueError):
            return None

    def sweep(self) -> None:
        """Delete the objects of a killed session of this run; one that ended normally has removed its mark."""
        if not self._is_begun:
            self._delete_left()
        super().sweep()

    def _delete_left(self) -> None:
        if left := self._left():
            client = KubeClient(find_access(None if left.context == IN_CLUSTER else left.context))
            delete_run(client, left.namespace, self.assignment.run.run_id, left.anchor)
            self._mark.unlink(missing_ok=True)

    def close(self) -> None:
        super().close()
        self._mark.unlink(missing_ok=True)
        if self._known is not None and not self._is_begun:
            look = _ClusterLook(time.monotonic(), self.client, self._known, frozenset(self._asked), self._nodes)
            self._looks[self._probe_key] = look

    @property
    def _probe_key(self) -> tuple[str, ...]:
        return (os.environ.get("KUBECONFIG", ""), self.site.model_dump_json(), *self.needs)

    def _recall_look(self) -> None:
        """Reuse the facts of an executor that just checked the same, to repeat no request and no registry pull."""
        look = self._looks.pop(self._probe_key, None)
        if look and time.monotonic() - look.at < _LOOK_HOLDS_S:
            self.client, self._known, self._asked, self._nodes = look.client, look.known, set(look.asked), look.nodes

    def _require(self) -> None:
        self.refuse_impossible(self.home.parent.absolute())
        if self._known is None:
            self._recall_look()
        self.probe()
        self.refuse_missing(self.site.image or "")
        if self.mirror:
            self.mirror.make_sure()

    def _refuse_unless_fits(self, ask: SlotRequest) -> None:
        if self.cluster.answered:  # an account limited to a namespace may not list nodes; then the scheduler reports it
            super()._refuse_unless_fits(ask)

    def _single_node_reason(self) -> str:
        if why := super()._single_node_reason():
            return why
        beside = self._attached_at(0)
        return f"its pods are to be on the node of {beside[0]} (node: 0), each on one of its own" if beside else ""

    def _attached_at(self, node: int | str) -> tuple[str, ...]:
        """Return the run's attached servers on that node, as seen from a trial."""
        scenario = self.assignment.scenario
        services = scenario.services if scenario else {}
        return tuple(name for name, use in services.items() if use.mode == "attached" and use.node == node)

    def nodes(self) -> Sequence[ClusterNode]:
        return self._opened().nodes

    # -- what is known before anything is created -------------------------------------------------------------------

    @cached_property
    def client(self) -> KubeClient:
        return KubeClient(find_access(self.site.context))

    @property
    def namespace(self) -> str:
        return self.site.namespace or self.client.access.namespace

    def refuse_impossible(self, workspace: Path) -> None:
        """Raise BenchError if the settings allow no pod to work. `workspace` is a folder that pods must see."""
        site = self.site
        if not site.image:
            raise BenchError(
                "no image for the pods is named", "write kubernetes: {image: registry/name@sha256:...} in site.yaml"
            )
        if "@sha256:" not in site.image and not site.image.startswith("localhost/"):
            text = f"the image {site.image} is not pinned: another one can have that name tomorrow"
            if self.assignment.site.images.pinned == "required":
                raise BenchError(text, "write registry/name@sha256:..., or images: {pinned: optional} in the site")
            self.assignment.say(text)
        if not site.volume and not site.bucket:
            raise BenchError(
                "pods and this machine share nothing, so no evidence could come back",
                "write kubernetes: {volume: {claim: NAME, path: /where/it/is/mounted/here}} in site.yaml, or without a "
                "volume kubernetes: {bucket: s3://NAME/PREFIX, bucket_secret: NAME}",
            )
        if site.volume and not workspace.is_relative_to(site.volume.path):
            raise BenchError(
                f"the workspace {workspace} is not on the volume that pods see, {site.volume.path}",
                f"move the workspace there (bench -C {site.volume.path}/...), or correct kubernetes: {{volume: ...}}",
            )
        scenario = self.assignment.scenario
        services = scenario.services.items() if scenario else ()
        if not site.volume and (attached := [name for name, use in services if use.mode == "attached"]):
            raise BenchError(
                f"{attached[0]} is attached to the run, and trials find it by files that pods share",
                "write kubernetes: {volume: ...}, or mode: embedded",
            )
        if not site.volume and (named := [name for name, use in services if use.kubernetes]):
            raise BenchError(
                f"trials learn by files that pods share what is behind {named[0]}, and here is no volume",
                "write kubernetes: {volume: ...}, or only the endpoint: of the server",
            )
        if site.code == "volume" and not site.volume:
            raise BenchError("code: volume needs a volume", "write kubernetes: {volume: ...}, or code: image")
        if scenario and scenario.runtime.kind != "process":
            raise BenchError(
                f"the runtime of a pod is its image, and the scenario asks for {scenario.runtime.kind}",
                "put the packages into the image: kubernetes: {image: ...}, and leave runtime: out",
            )
        if self.needs and not site.secrets:
            raise BenchError(
                f"the scenario refers to {', '.join(self.needs)}, and pods do not get this machine's variables",
                f"kubectl create secret generic NAME --from-literal={self.needs[0]}=..., then kubernetes: {{secrets: "
                "[NAME]}",
            )

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Return the names of the secret variables that the scenario refers to."""
        scenario = self.assignment.scenario
        names = mentioned(scenario.model_dump_json()) if scenario else set()
        return tuple(sorted(name for name in names if holds_secret(name, os.environ)))

    def probe(self) -> None:
        """Create a Job as a dry run, to learn which fields this server keeps and whether we may create Jobs."""
        if self._known is not None:
            return
        try:
            answer = self.client.create(path_of("batch/v1", self.namespace, "jobs"), self.pods().probe(), dryRun="All")
        except KubernetesRefused as error:
            raise self._explained(error) from error
        self._known = supported_fields(answer)
        if self.site.volume:
            self._refuse_unless_claimed(self.site.volume.claim)

    def refuse_missing(self, image: str) -> None:
        """Check an image once: raise BenchError if no pod could get it, and report if that cannot be determined."""
        if image in self._asked:
            return
        self._asked.add(image)
        answer = probe_image(image, self.site, self.cluster.suitable)
        if answer.state == "missing":
            raise BenchError(answer.text, answer.hint)
        if answer.state == "unknown" or answer.hint:
            self.assignment.say("; ".join(filter(None, (answer.text, answer.hint))))

    def _refuse_unless_claimed(self, claim: str) -> None:
        """Raise BenchError if the claim is missing or lost, because its pods would wait forever."""
        try:
            status = self.client.get(path_of("v1", self.namespace, "persistentvolumeclaims", claim)).get("status") or {}
        except KubernetesRefused as error:
            if error.status == 403:
                return
            hint = f"kubectl get pvc --namespace {self.namespace}; then kubernetes: {{volume: {{claim: ...}}}}"
            raise BenchError(f"there is no claim {claim} in the namespace {self.namespace}", hint) from error
        if status.get("phase") == "Lost":
            raise BenchError(f"the volume of the claim {claim} is gone", f"kubectl describe pvc {claim}")

    def _explained(self, error: KubernetesRefused) -> BenchError:
        where = f"(context {self.client.access.context}, namespace {self.namespace})"
        if error.status == 404 and "namespaces" in error.message:
            hint = f"kubectl create namespace {self.namespace}, or name another: kubernetes: {{namespace: ...}}"
            return BenchError(f"there is no namespace {self.namespace} {where}", hint)
        if "being terminated" in error.message:
            hint = "wait until it is gone, or name another: kubernetes: {namespace: ...}"
            return BenchError(f"the namespace {self.namespace} is being deleted {where}", hint)
        return BenchError(f"{error.message} {where}", error.hint)

    def pods(self) -> Pods:
        run = self.assignment.run
        scenario = self.assignment.scenario
        return Pods(
            site=self.site,
            namespace=self.namespace,
            run_id=run.run_id,
            scenario=scenario.scenario if scenario else "",
            owner=getpass.getuser(),
            command=self._command(),
            needs=self.needs,
            known=self._known or frozenset(),
            scratch=str(self.home.parents[3]) if self.mirror else "",
            user=(os.getuid(), os.getgid()) if os.getuid() and (self.site.restricted or not self.mirror) else None,
            beside=self._attached_at(0),
            away=self._attached_at("others"),
        )

    def _command(self) -> tuple[str, ...]:
        module = ("-m", "benchhouse.executors.slot_pod")
        if self.site.code == "image" or not self.site.volume:
            return (self.site.python, "-I", *module)
        return (self.site.python, "-I", str(code_folder(self._code) / "start.py"), *module)

    @property
    def _code(self) -> Path:
        assert self.site.volume
        return Path(self.site.volume.path) / CODE

    # -- slots -----------------------------------------------------------------------------------------------------

    def render(self, jobs: Sequence[Job], trials: int) -> str:
        pods, run_id, numbers = self.pods(), self.assignment.run.run_id, itertools.count(1)
        slots = []
        for _ in range(min(self.parallel, trials)):
            names = [f"{run_id}-{next(numbers)}" for _ in range(jobs[0].resources.nodes)]
            slots += self._new_slots(jobs[0], names)
        return as_yaml([pods.anchor(), *(pods.job(kind) for kind in pods.kinds(slots))])

    def _hear_all(self) -> bool:
        heard = super()._hear_all()
        for name, ready in list(self._unknown.items()):
            if (member := self._member(name)) is None:
                del self._unknown[name]
            elif (facts := self.cluster.place(name)) is not None:
                del self._unknown[name]
                member.send({"placed": facts})
                if ready:
                    super()._hear(member, ready)
                heard = True
        return heard

    @property
    def cluster(self) -> KubernetesEngine:
        engine = self._opened()
        assert isinstance(engine, KubernetesEngine)
        return engine

    def _hear(self, taken: SlotHandle, report: Mapping[str, Any]) -> None:
        """Send a reporting pod the Python for its trials; it is ready only once the cluster has reported its place."""
        name = taken.slot.name
        if "pod" in report:
            self._unknown[name] = None
            taken.send({"begin": {"python": self.python_for(report["pod"])}})
        elif "ready" in report and name in self._unknown:
            self._unknown[name] = report
        else:
            super()._hear(taken, report)

    def python_for(self, look: Mapping[str, str]) -> list[str]:
        """Return the command prefix of a Python with benchhouse in a pod, from the facts that the pod reported."""
        if self.site.code == "image":
            if look["benchhouse"] != (ours := version("benchhouse")):
                self.assignment.say(f"the image has benchhouse {look['benchhouse'] or 'unknown'}, this is {ours}")
            return [self.site.python, "-P"]
        layer = layer_for(self._code, look["python"], look["machine"], look["libc"], self.assignment.say)
        return [self.site.python, "-P", str(code_folder(self._code) / "start.py"), str(layer)]

    def _outcome(self, taken: SlotHandle) -> Outcome | None:
        return "out_of_memory" if taken.slot.name in self.cluster.out_of_memory else None
