"""Servers that outlive a trial, as pods.

A server whose program is in the trials' image is a Job that runs our keeper, as a batch job does. A server with an
image of its own is a StatefulSet (`kubernetes_server`), followed from here.

A server ends when its run or the server itself is stopped (`stop`), when its Job reaches its time limit, or when its
keeper or watchdog no longer sees the heartbeat of its run's orchestrator.
"""

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from benchhouse.documents.manifest_yaml import as_yaml
from benchhouse.executors.cluster_node import ALIVE, ORDERS, REPORTS, Tail, append
from benchhouse.executors.kubernetes_manifest import HOST, SERVER, Pods, name
from benchhouse.executors.kubernetes_server import ImageServer, is_from_image
from benchhouse.executors.kubernetes_server_state import PodServerState, describe_pod_end
from benchhouse.executors.kubernetes_status import read_pod
from benchhouse.http.kubeconfig import IN_CLUSTER, find_access
from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, Object, Unreachable, path_of, selector
from benchhouse.processes.services import job_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.pod_template import RUN_LABEL, Manifest, label
from benchhouse.schema.resources import Resources
from benchhouse.schema.secrets import make_up
from benchhouse.schema.service import OVER, Addresses, KeeperJob, ServiceFolder, ServiceSpec, read_state

if TYPE_CHECKING:
    from benchhouse.executors.kubernetes import KubernetesExecutor

_LOOK_S, _FOLLOW_S = 0.05, 0.5
_PATIENCE_S = 30.0  # of a pod whose orchestrator sends no heartbeat
_BEGIN_S = 600.0  # the same without any heartbeat, because packages may have to be installed first
_END_S = 90.0


@dataclass
class StartedServerPod:
    """A server that this process has started."""

    folder: ServiceFolder
    spec: ServiceSpec
    reports: Tail
    begun: bool = False  # whether its pod has received its Python
    ended: str = ""  # how its pod ended
    state: PodServerState | None = None  # the state, if only the cluster keeps the server
    pods: dict[str, Object] = field(default_factory=dict)  # by name
    job: str = ""
    asked_at: float = field(default_factory=time.monotonic)
    waits: str = ""  # why a pod of it has no node


class KubernetesKeepers:
    """Starts, follows, and ends the servers of a run, or servers without a run."""

    def __init__(self, executor: "KubernetesExecutor") -> None:
        self._executor = executor
        self._kept: dict[str, StartedServerPod] = {}  # by folder
        self._stopping = False

    @property
    def alive(self) -> str:
        return str(self._executor.home / ALIVE)

    def render(self, folder: ServiceFolder, spec: ServiceSpec, python: Sequence[str]) -> str:
        """Return the exact manifests. Secrets are generated at each start."""
        own = self._unique_name(folder, spec, "START")
        if not is_from_image(spec):
            return as_yaml([self._job(self._pods(spec), folder, spec, own)])
        server = self._image_server(folder, spec, own)
        return as_yaml([server.watchdog(), *(manifest for _, _, manifest in server.objects())])

    def start(self, items: Sequence[tuple[ServiceFolder, ServiceSpec]], python: Sequence[str]) -> None:
        for folder, spec in items:
            self._refuse(folder, spec)
        for folder, spec in items:
            self._start(folder, spec)

    def beside(self, folder: ServiceFolder) -> list[str]:
        job = job_of(folder)
        assert job is not None
        hint = "write its monitors into the scenario, as those of trials"
        raise BenchError(f"nothing can be started inside of the pod of {job.name}", hint)

    def gone(self, folder: ServiceFolder) -> str:
        kept, job = self._kept.get(str(folder.path)), job_of(folder)
        if kept and kept.spec.run_id:  # it is followed
            return kept.ended
        if job is None:
            return ""
        client, namespace, query = _found(job)
        try:
            pods: list[Object] = client.get(path_of("v1", namespace, "pods"), **query)["items"]
            if not pods:
                client.get(path_of("batch/v1", namespace, "jobs", job.name))
        except KubernetesRefused as error:
            return f"its Job {job.name} was deleted" if error.status == 404 else ""
        return next((text for pod in pods if (text := _end_of(pod) or describe_pod_end(pod))), "")

    def follow(self, folder: ServiceFolder) -> None:
        """Follow a server that was started without a run, for as long as this process lives."""
        if str(folder.path) not in self._kept and (kept := self._find_existing(folder)):
            self._kept[str(folder.path)] = kept
            threading.Thread(target=self._attend, args=(kept,), daemon=True, name=f"server {kept.spec.id}").start()

    def _find_existing(self, folder: ServiceFolder) -> StartedServerPod | None:
        """Return a running server that has an image of its own; None for others, whose state their keeper reports."""
        job = job_of(folder)
        if job is None or job.executor != "kubernetes":
            return None
        spec = ServiceSpec.model_validate_json(folder.spec.read_bytes())
        if not is_from_image(spec):
            return None
        try:
            secret = Addresses.model_validate_json(folder.endpoints.read_bytes()).servers[0].places["secret"]
        except (OSError, ValueError):  # it has ended, or was never up
            return None
        server = ImageServer(self._pods(spec), spec, folder.path.name, job.name, secret, os.environ)
        state = PodServerState(folder, server, partial(_read_log, job), json.loads(job.where.get("pods", "{}")))
        return StartedServerPod(folder, spec, Tail(folder.path / REPORTS), job=job.name, state=state)

    def stop(self, folders: Sequence[ServiceFolder]) -> None:
        """Delete the Jobs of these servers. Return when no pod of them runs."""
        self._stopping = True
        for folder in folders:
            kept = self._kept.get(str(folder.path)) or self._find_existing(folder)
            if kept and kept.state:
                self._request_pods(kept)
                kept.state.close()
        jobs = [(folder, job) for folder in folders if (job := job_of(folder))]
        for folder, job in jobs:
            if folder.path.is_dir():
                folder.stop.write_text("0", encoding="utf-8")  # in case Kubernetes does not answer
            client, namespace, _ = _found(job)
            client.delete(path_of("batch/v1", namespace, "jobs", job.name))
            if anchor := job.where.get("anchor"):
                client.delete(path_of("v1", namespace, "configmaps", anchor))
        deadline = time.monotonic() + _END_S
        for _, job in jobs:
            client, namespace, query = _found(job)
            while any(
                read_pod(pod).state != "ended" for pod in client.get(path_of("v1", namespace, "pods"), **query)["items"]
            ):
                if time.monotonic() > deadline:
                    hint = f"look: kubectl get pods --namespace {namespace}; then stop again"
                    raise BenchError(f"Kubernetes has not ended {job.name} within {_END_S:g} s", hint)
                time.sleep(0.3)

    # -- how a server is started -----------------------------------------------------------------------------------

    def _refuse(self, folder: ServiceFolder, spec: ServiceSpec) -> None:
        recipe = spec.recipe
        self._executor.refuse_impossible(folder.path.absolute())
        self._executor.probe()
        if not self._executor.site.volume:
            raise BenchError(
                f"{spec.id} outlives a trial, and pods reach it by files that they share",
                "write kubernetes: {volume: ...}, or mode: embedded",
            )
        if not recipe.reachable:
            raise BenchError(
                f"the recipe {recipe.name} can't be reached from another pod: it does not say {{host}}",
                "write {host} into its command and its endpoint, or mode: embedded",
            )
        if recipe.scale.nodes > 1:
            raise BenchError(f"the recipe {recipe.name} spans {recipe.scale.nodes} nodes: a server here is in one pod")
        if is_from_image(spec):
            self._executor.refuse_missing(recipe.pinned_image)
            self._image_server(folder, spec, "").refuse()

    def _image_server(self, folder: ServiceFolder, spec: ServiceSpec, own: str) -> ImageServer:
        return ImageServer(self._pods(spec), spec, folder.path.name, own, make_up(), os.environ)

    def _pods(self, spec: ServiceSpec) -> Pods:
        pods = self._executor.pods()
        return pods if spec.run_id else replace(pods, run_id=spec.id, scenario="")

    def _unique_name(self, folder: ServiceFolder, spec: ServiceSpec, mark: str) -> str:
        """Return a name that differs at each start, so that remains of an earlier start are not taken for this one."""
        words = (spec.run_id, folder.path.name) if spec.run_id else (folder.path.name,)
        return f"{name('bench', *words)[:40].strip('-')}-{mark.lower()}"

    def _start(self, folder: ServiceFolder, spec: ServiceSpec) -> None:
        executor, pods, own = self._executor, self._pods(spec), self._unique_name(folder, spec, token_hex(4))
        where = {"context": executor.client.access.context, "namespace": executor.namespace}
        where |= {"run": pods.labels[RUN_LABEL], "server": label(folder.path.name)}
        where |= {} if spec.run_id else {"anchor": pods.anchor_name}
        for path in (folder.path / ORDERS, folder.path / REPORTS):
            path.unlink(missing_ok=True)
        kept = StartedServerPod(folder, spec, Tail(folder.path / REPORTS), job=own)
        job = KeeperJob(executor="kubernetes", job_id=own, name=own, where=where)
        # first, so that later processes can end it by that
        folder.job.write_text(job.model_dump_json(), encoding="utf-8")
        anchor = executor.begin_run(self) if spec.run_id else self._create_own_anchor(pods)
        jobs = path_of("batch/v1", executor.namespace, "jobs")
        if is_from_image(spec):
            server = self._image_server(folder, spec, own)
            kept.state = PodServerState(folder, server, partial(_read_log, job))
            self._kept[str(folder.path)] = kept
            owner = executor.client.create(jobs, server.watchdog(anchor))["metadata"]["uid"]
            for api, plural, manifest in server.objects(owner):
                executor.client.create(path_of(api, executor.namespace, plural), manifest)
        else:
            self._kept[str(folder.path)] = kept
            executor.client.create(jobs, self._job(pods, folder, spec, own, anchor))
        threading.Thread(target=self._attend, args=(kept,), daemon=True, name=f"server {spec.id}").start()

    def _create_own_anchor(self, pods: Pods) -> str:
        executor = self._executor
        executor.ship_code()
        made = executor.client.create(path_of("v1", executor.namespace, "configmaps"), pods.anchor())
        return str(made["metadata"]["uid"])

    def _job(self, pods: Pods, folder: ServiceFolder, spec: ServiceSpec, own: str, anchor: str = "") -> Manifest:
        executor, site = self._executor, self._executor.site
        given: dict[str, Any] = {
            "folders": [str(folder.path.absolute())],
            "environment": dict(executor.assignment.site.environment),
            "patience_s": _PATIENCE_S if spec.alive else _BEGIN_S,
            "needs": list(pods.needs),
            "bucket": "",
            "alive": spec.alive,
            "keeps": True,
        }
        labels = pods.labels | {SERVER: label(folder.path.name)}
        resources = pods.resources(executor.ask(spec.recipe.resources or Resources()))
        template = pods.template(given, resources, labels)
        if spec.node:
            template["spec"]["nodeSelector"] = {**template["spec"].get("nodeSelector", {}), HOST: spec.node}
        content: Manifest = {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,  # a restarted server would be another server
            "activeDeadlineSeconds": max(1, round(spec.time or site.time)),
            "ttlSecondsAfterFinished": round(site.keep),
            "template": template,
        }
        return pods.as_job(own, labels, content, anchor)

    # -- what they report ----------------------------------------------------------------------------------------------

    def _attend(self, kept: StartedServerPod) -> None:
        """Send the pod its Python once it has reported its facts, or follow a server with its own image to its end."""
        while kept.state and not kept.state.is_over:
            if not kept.spec.run_id:  # no watch of a run covers it
                self._request_pods(kept)
            kept.state.look()
            self._check_placement(kept)
            time.sleep(_FOLLOW_S)
        while not kept.state and not (kept.begun or kept.ended):
            self._check_placement(kept)
            for report in kept.reports.read():
                if "ended" in report:
                    kept.ended = str(report["ended"])
                elif "pod" in report:
                    self._begin(kept, report["pod"])
            time.sleep(_LOOK_S)

    def _request_pods(self, kept: StartedServerPod) -> None:
        job = job_of(kept.folder)
        if kept.state is None or job is None:
            return
        client, namespace, query = _found(job)
        try:
            pods = client.get(path_of("v1", namespace, "pods"), **query)["items"]
        except (KubernetesRefused, Unreachable):  # the next round requests it again
            return
        for pod in pods:
            kept.state.take(pod, is_deleted=False)
        kept.state.take_list({pod["metadata"]["name"] for pod in pods})
        if not kept.spec.run_id and (uids := json.dumps(kept.state.uids)) != job.where.get("pods"):
            noted = job.model_copy(update={"where": job.where | {"pods": uids}})
            kept.folder.job.write_text(noted.model_dump_json(), encoding="utf-8")

    def _check_placement(self, kept: StartedServerPod) -> None:
        """Set `ended` if the pod has had no node, or no pod was created, for the patience of the executor."""
        if kept.ended or not kept.spec.run_id or time.monotonic() - kept.asked_at < self._executor.patience_s:
            return
        if kept.waits and not self._executor.site.autoscaled:
            kept.ended = f"its pod {kept.waits}"
        elif not kept.pods:
            path = path_of("v1", self._executor.namespace, "events")
            events = self._executor.client.get(path, fieldSelector="type!=Normal")["items"]
            words = [event["message"] for event in events if event["involvedObject"]["name"] == kept.job]
            kept.ended = f"no pod was made for it: {words[-1] if words else 'Kubernetes does not say why'}"

    def _begin(self, kept: StartedServerPod, look: Mapping[str, str]) -> None:
        try:
            order: dict[str, Any] = {"begin": {"python": self._executor.python_for(look)}}
        except (BenchError, OSError) as error:
            kept.ended, order = str(error), {"end": str(error)}
        kept.begun = True
        append(kept.folder.path / ORDERS, order)

    def take(self, pod: Object, *, is_deleted: bool) -> None:
        kept = self._of(pod)
        if kept is None or self._stopping:
            return
        kept.pods[pod["metadata"]["name"]] = pod
        words = read_pod(pod)
        waits = words.text if words.state == "waits" and words.is_worth_telling else ""
        if waits and waits != kept.waits:
            self._executor.assignment.say(f"{kept.spec.id}: its pod {waits}")
        kept.waits = waits
        if kept.state:
            kept.state.take(pod, is_deleted=is_deleted)
        elif not kept.ended:
            kept.ended = _end_of(pod) or ("its pod was deleted" if is_deleted else "")

    def take_list(self, pods: Sequence[Object]) -> None:
        there = {pod["metadata"]["name"] for pod in pods}
        for kept in [kept for kept in list(self._kept.values()) if kept.spec.run_id]:
            if kept.state and not self._stopping:
                kept.state.take_list(there)
            for pod_name, pod in list(kept.pods.items()):
                if pod_name not in there:
                    self.take(pod, is_deleted=True)

    def _of(self, pod: Object) -> StartedServerPod | None:
        server = (pod["metadata"].get("labels") or {}).get(SERVER)
        return next((kept for kept in list(self._kept.values()) if label(kept.folder.path.name) == server), None)


def _end_of(pod: Object) -> str:
    """Return how a pod ended or why it can never begin; empty if neither applies."""
    words = read_pod(pod)
    return words.text if words.state in ("ended", "refused") else ""


def _found(job: KeeperJob) -> tuple[KubeClient, str, dict[str, str]]:
    """Return the client, the namespace, and the query for the pods of a server."""
    context = job.where["context"]
    client = KubeClient(find_access(None if context == IN_CLUSTER else context))
    labels = {RUN_LABEL: job.where["run"], SERVER: job.where["server"]}
    return client, job.where["namespace"], {"labelSelector": selector(labels)}


def _read_log(job: KeeperJob, pod: str, query: Mapping[str, str]) -> str:
    client, namespace, _ = _found(job)
    return client.text(path_of("v1", namespace, "pods", pod, "log"), **query)


def unfinished(folders: Sequence[ServiceFolder]) -> list[ServiceFolder]:
    """Return the servers with a Job whose state does not show that they have ended."""
    states = [(folder, read_state(folder)) for folder in folders if folder.job.is_file()]
    return [folder for folder, state in states if state is None or state.phase not in OVER]
