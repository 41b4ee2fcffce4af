"""The checks of `bench site check` on a Kubernetes cluster. Missing objects and denied access are valid results."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from shutil import disk_usage
from typing import Any

from benchhouse.http.kubeconfig import find_access, kubeconfig_files
from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, Object, Unreachable, path_of
from benchhouse.http.pod_image import probe_image
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.kubernetes_rights import RIGHTS, Right
from benchhouse.schema.quantities import show_bytes
from benchhouse.schema.site import Site, SiteFinding, State
from benchhouse.sites import kubernetes_facts as facts
from benchhouse.sites.kubernetes_pod import probe_pod

_ANSWER_S = 5.0
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ADMIN = "bench site render makes manifests that an admin can apply"


@dataclass
class ClusterAnswers:
    """Findings for people, and their consequences for a profile."""

    findings: list[SiteFinding] = field(default_factory=list)
    profile: dict[str, Any] = field(default_factory=dict)
    to_confirm: list[str] = field(default_factory=list)

    def tell(self, what: str, state: State, value: str = "", note: str = "") -> None:
        self.findings.append(SiteFinding(what=what, state=state, value=value, note=note))


def is_wanted(site: Site) -> bool:
    """Return whether the profile has settings for Kubernetes."""
    return "kubernetes" in site.model_fields_set or site.executor == "kubernetes"


def probe_cluster(site: Site, workspace: Path, job: bool) -> ClusterAnswers:
    """Return what the API shows this account about its namespace, and the volume as seen by this machine.

    With `job`, a pod of a few seconds reports what only a pod can see.
    """
    settings = site.kubernetes
    answers = ClusterAnswers(profile=settings.model_dump(exclude_unset=True))
    try:
        client = KubeClient(find_access(settings.context), outage_s=0.0, timeout_s=_ANSWER_S)
        version = client.get("/version")["gitVersion"]
        namespace = settings.namespace or client.access.namespace
        questions = _Questions(client, namespace, settings, answers, on_kuberay=site.ray.cluster is not None)
        questions.who()
    except (BenchError, KeyError, ValueError) as error:
        is_nowhere = not is_wanted(site) and not any(path.is_file() for path in kubeconfig_files())
        note = "no kubeconfig here, and the profile names no cluster" if is_nowhere else _words(error)
        answers.tell("kubernetes", "unknown" if isinstance(error, Unreachable) else "missing", "", note)
        return answers
    answers.findings.insert(0, SiteFinding(what="kubernetes", state="good", value=f"{version}, {client.access.server}, "
                            f"context {client.access.context}"))  # fmt: skip
    answers.profile |= {"context": client.access.context, "namespace": namespace}
    for question in (questions.space, questions.rights, questions.quotas, questions.nodes, questions.volume,
                     questions.names, questions.queue, questions.features, questions.image):  # fmt: skip
        try:
            question()
        except (BenchError, KeyError, TypeError, ValueError) as error:
            answers.tell(question.__name__, "unknown", "", _words(error))
    _folder(answers, settings, workspace)
    if job:
        answers.findings += probe_pod(client, namespace, settings)
    elif settings.volume:
        note = "only a pod can tell: bench site check --job"
        answers.tell("volume in a pod", "unknown", "whether pods see the same files", note)
    return answers


def _words(error: Exception) -> str:
    return (
        "; ".join(str(error).splitlines()) if isinstance(error, BenchError) else f"an answer nobody expects: {error!r}"
    )


@dataclass
class _Questions:
    """The checks of a namespace, one per method. Without permission, the result is unknown."""

    client: KubeClient
    namespace: str
    site: KubernetesSite
    answers: ClusterAnswers
    several_nodes: bool = True
    on_kuberay: bool = False
    suitable: list[Object] = field(default_factory=list)  # nodes

    def may(self, right: Right, verb: str) -> bool:
        resource, _, part = right.resource.partition("/")
        asked = {"verb": verb, "group": right.group, "resource": resource, "subresource": part}
        if right.level != "cluster":
            asked["namespace"] = self.namespace
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        return bool(self.client.create(_REVIEWS, body)["status"].get("allowed"))

    def who(self) -> None:
        """Raise BenchError if the server does not know this account."""
        try:
            self.may(RIGHTS[0], RIGHTS[0].verbs[0])
        except KubernetesRefused as error:
            if error.status in (401, 403):
                hint = f"log in anew, or choose another context than {self.client.access.context!r}"
                raise BenchError(f"the API server does not know this account: {error.message}", hint) from error
            raise

    def space(self) -> None:
        found, status = self._look("v1", "", "namespaces", self.namespace)
        if found is None:
            note = _ADMIN if status == 404 else "whether it is there can't be seen with this account"
            self.answers.tell("namespace", "missing" if status == 404 else "unknown", self.namespace, note)
            return
        phase = found["status"]["phase"]
        note = "" if phase == "Active" else "it is being deleted: nothing new starts there; choose another, or wait"
        self.answers.tell("namespace", "missing" if note else "good", f"{self.namespace}, {phase}", note)

    def rights(self) -> None:
        """Report the granted verbs in one line per kind of object, and each missing verb in a line of its own."""
        unused = {
            "localqueues": self.site.queue is None,
            "workloads": self.site.queue is None,
            "rayjobs": not self.on_kuberay,
            "priorityclasses": self.site.priority_class is None,
            "runtimeclasses": self.site.runtime_class is None,
        }
        for right in RIGHTS:
            if unused.get(right.resource) or self._is_foreign(right):
                continue
            granted = [verb for verb in right.verbs if self.may(right, verb)]
            if granted:
                self.answers.tell(f"may use {right.api}", "good", ", ".join(granted), right.purpose)
            state: State = "missing" if right.level in ("run", "evidence", "queue", "ray") else "unknown"
            for verb in right.verbs:
                if verb not in granted:
                    why = f"needed to {right.purpose}: {_ADMIN}" if state == "missing" else f"only to {right.purpose}"
                    self.answers.tell(f"may {verb} {right.api}", state, "no", why)

    def _is_foreign(self, right: Right) -> bool:
        """Return whether the right is unused here: no server names are created, or the cluster lacks the API."""
        if right.level == "endpoints":
            return bool(right.group) and self._look_at(f"/apis/{right.group}")[0] is None
        return right.resource == "services" and not self.site.names

    def quotas(self) -> None:
        lists = {}
        for plural in ("resourcequotas", "limitranges"):
            found, _ = self._look("v1", self.namespace, plural)
            if found is None:
                self.answers.tell(plural, "unknown", "", "this account may not list them")
            lists[plural] = (found or {}).get("items") or []
            if found is not None and not lists[plural]:
                self.answers.tell(plural, "good", "none in the namespace")
        self.answers.findings += [facts.quota_finding(item) for item in lists["resourcequotas"]]
        self.answers.findings += [facts.limits_finding(item) for item in lists["limitranges"]]
        if facts.unset_memory(lists["resourcequotas"], lists["limitranges"], self.site):
            note = "the quota refuses pods that ask for none: kubernetes: {memory: 2GiB}, or resources: of the scenario"
            self.answers.tell("memory of a pod", "missing", "", note)

    def nodes(self) -> None:
        found, _ = self._look("v1", "", "nodes")
        if found is None:
            self.answers.tell("nodes", "unknown", "", "this account may not list them: architecture and GPUs unknown")
            return
        self.several_nodes = len(found["items"]) > 1
        self.answers.findings += facts.node_findings(found["items"], self.site)
        self.suitable = [node for node in found["items"] if facts.fits(node, self.site)]

    def volume(self) -> None:
        if self.site.volume is None:
            if self.site.bucket is None:
                self.answers.tell("volume", "missing", "", "the profile names none: volume: {claim, path}, or bucket:")
                self.answers.to_confirm.append("kubernetes.volume: a claim, and where this machine has the same volume")
            return
        name = self.site.volume.claim
        found, status = self._look("v1", self.namespace, "persistentvolumeclaims", name)
        if found is None:
            note = f"there is no such claim in {self.namespace}: {_ADMIN}" if status == 404 else "may not be looked at"
            self.answers.tell(f"volume {name}", "missing" if status == 404 else "unknown", "", note)
        else:
            self.answers.findings.append(facts.claim_finding(found, self.several_nodes))

    def names(self) -> None:
        """Check the objects that the profile names."""
        here = self.namespace
        for kind, api, namespace, plural, name in (
            ("service account", "v1", here, "serviceaccounts", self.site.service_account),
            ("priority class", "scheduling.k8s.io/v1", "", "priorityclasses", self.site.priority_class),
            ("runtime class", "node.k8s.io/v1", "", "runtimeclasses", self.site.runtime_class),
            ("secret", "v1", here, "secrets", self.site.bucket_secret),
            *(("secret", "v1", here, "secrets", name) for name in (*self.site.pull_secrets, *self.site.secrets)),
        ):
            if name is not None:
                self._named(kind, (api, namespace, plural, name))

    def _named(self, kind: str, place: tuple[str, str, str, str]) -> None:
        found, status = self._look(*place)
        if found is not None:
            self.answers.tell(f"{kind} {place[3]}", "good")
        elif status == 404:
            where = f"in {place[1]}" if place[1] else "in the cluster"
            note = f"there is none of this name {where}: pods would not start; kubectl get {place[2]}"
            self.answers.tell(f"{kind} {place[3]}", "missing", "", note)
        else:
            note = "this account may not look; nor need it" if kind == "secret" else "this account may not look"
            self.answers.tell(f"{kind} {place[3]}", "unknown", "", note)

    def queue(self) -> None:
        name = self.site.queue
        if name is None:
            return
        group, _ = self._look_at("/apis/kueue.x-k8s.io")
        if group is None:
            note = "the cluster has no Kueue: pods start without a queue; leave `queue` out, or choose another context"
            self.answers.tell(f"queue {name}", "missing", "", note)
            return
        api = group["preferredVersion"]["groupVersion"]
        found, status = self._look(api, self.namespace, "localqueues", name)
        if found is not None:
            self.answers.findings.append(facts.queue_finding(found))
        elif status == 404:
            known = (self._look(api, self.namespace, "localqueues")[0] or {}).get("items") or []
            names = ", ".join(item["metadata"]["name"] for item in known) or "none"
            note = f"pods would wait forever; queues of {self.namespace}: {names}"
            self.answers.tell(f"queue {name}", "missing", "", note)
        else:
            self.answers.tell(f"queue {name}", "unknown", "", "this account may not look at localqueues")

    def features(self) -> None:
        schema, _ = self._look_at("/openapi/v2")
        if schema is None:
            self.answers.tell("fields of a Job", "unknown", "", "the server does not show its schema")
            return
        known = facts.job_features(schema)
        note = "" if "completionMode" in known else "an older server: each slot of a run is a Job of its own"
        self.answers.tell("fields of a Job", "good", ", ".join(known) or "the basic ones", note)

    def image(self) -> None:
        image = self.site.image
        if image is None:
            note = "the profile names none: kubernetes: {image: registry/name@sha256:...}"
            self.answers.tell("image", "missing", "", note)
            self.answers.to_confirm.append("kubernetes.image: an image with Python 3.11 or newer, pinned by its digest")
            return
        answer = probe_image(image, self.site, self.suitable)
        notes = [text for text in (answer.text, answer.hint) if text]
        states: dict[str, State] = {"there": "good", "missing": "missing", "unknown": "unknown"}
        state = states[answer.state]
        if "@sha256:" not in image:
            notes.insert(0, "no digest: two runs may use two images under one name; pin it as registry/name@sha256:...")
            if not image.startswith("localhost/"):  # no registry can replace it
                state = "missing"
        self.answers.tell("image", state, image, "; ".join(notes))

    def _look(self, api: str, namespace: str, plural: str, name: str = "") -> tuple[Object | None, int]:
        return self._look_at(path_of(api, namespace, plural, name))

    def _look_at(self, path: str) -> tuple[Object | None, int]:
        """Return the object and 200, or None and the status 403 or 404."""
        try:
            return self.client.get(path), 200
        except KubernetesRefused as error:
            if error.status not in (403, 404):
                raise
            return None, error.status


def _folder(answers: ClusterAnswers, site: KubernetesSite, workspace: Path) -> None:
    """Check the volume as seen by this machine."""
    if site.volume is None:
        return
    path = Path(site.volume.path)
    if not path.is_dir():
        note = f"mount the volume of the claim {site.volume.claim} there, under this very name"
        answers.tell("volume's path", "missing", str(path), f"no such folder here: {note}")
        return
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".bench-check-"):
            free = disk_usage(path).free
    except OSError as error:
        answers.tell("volume's path", "missing", str(path), f"can't be written: {error.strerror or error}")
        return
    answers.tell("volume's path", "good", f"{path}, {show_bytes(free)} free")
    if not workspace.resolve().is_relative_to(path.resolve()):
        note = f"pods would not see it: make it below {path}, e.g. bench -C {path}/ws ..."
        answers.tell("workspace on the volume", "missing", str(workspace), note)
