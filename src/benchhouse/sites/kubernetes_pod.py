"""A probe pod for `bench site check --job`: it reports the Python of its image, and whether it sees our files."""

import json
import os
import secrets
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, Object, path_of, selector
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.pod_template import QUEUE_LABEL, pod_template
from benchhouse.schema.site import SiteFinding

_WAIT_S = 60.0
_LOOK_S = 0.3
_LABEL = "benchhouse.dev/check"
_HOPELESS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
             "CreateContainerError", "RunContainerError")  # fmt: skip
_SCRIPT = """
import json, os, platform, sys
seen = {"python": platform.python_version(), "machine": platform.machine(), "benchhouse": ""}
try:
    from importlib.metadata import version
    seen["benchhouse"] = version("benchhouse")
except Exception:
    pass
if len(sys.argv) > 1:
    seen["marker"] = os.path.exists(sys.argv[1])
    try:
        with open(sys.argv[1], "a") as file:
            file.write("pod")
        seen["refused"] = ""
    except OSError as error:
        seen["refused"] = error.strerror or str(error)
print(json.dumps(seen))
"""


def probe_pod(client: KubeClient, namespace: str, site: KubernetesSite) -> list[SiteFinding]:
    """Run the pod, remove it, and return its findings."""
    if site.image is None:
        return [SiteFinding(what="a pod", state="unknown", note="without an image none can be started")]
    if site.volume is None or not Path(site.volume.path).is_dir():
        return _asked(client, namespace, site, None)
    with tempfile.NamedTemporaryFile(dir=site.volume.path, prefix=".bench-check-") as marker:
        return _asked(client, namespace, site, Path(marker.name))


def _asked(client: KubeClient, namespace: str, site: KubernetesSite, marker: Path | None) -> list[SiteFinding]:
    job = _job(namespace, site, marker)
    name, begun = job["metadata"]["name"], time.monotonic()
    try:
        client.create(path_of("batch/v1", namespace, "jobs"), job)
        pod = _ended(client, namespace, name)
        text = client.text(path_of("v1", namespace, "pods", pod["metadata"]["name"], "log")).strip()
    except BenchError as error:
        return [SiteFinding(what="a pod", state="missing", note="; ".join(str(error).splitlines()))]
    finally:
        client.delete(path_of("batch/v1", namespace, "jobs", name), grace_s=0)
    try:
        seen = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        return [SiteFinding(what="a pod", state="missing", value=text[-200:], note=_failure(pod, site))]
    where = pod["spec"].get("nodeName", "")
    return _findings(seen, site, f"on {where} in {time.monotonic() - begun:.1f} s", marker)


def _findings(seen: Mapping[str, Any], site: KubernetesSite, where: str, marker: Path | None) -> list[SiteFinding]:
    too_old = tuple(int(part) for part in seen["python"].split(".")[:2]) < (3, 11)
    note = "its Python is older than 3.11: trials can't run in this image" if too_old else ""
    if not note and site.code == "image" and not seen["benchhouse"]:
        note = "the image has no benchhouse: install it there, or write code: volume"
    value = f"Python {seen['python']}, {seen['machine']}, {where}"
    findings = [SiteFinding(what="a pod", state="missing" if note else "good", value=value, note=note)]
    if marker and site.volume:
        claim, path = site.volume.claim, site.volume.path
        note = ""
        if not seen["marker"]:
            note = f"a file made here in {path} is not there in the pod: the claim {claim} is another volume"
        elif seen["refused"]:
            note = f"the pod can't write there as user {os.getuid()}: {seen['refused']}"
        value = "" if note else f"{path} is the same here and in the pod, and both write"
        findings.append(
            SiteFinding(what="volume in a pod", state="missing" if note else "good", value=value, note=note)
        )
    return findings


def _job(namespace: str, site: KubernetesSite, marker: Path | None) -> Object:
    """Return a Job whose pod has the settings of a run's pod, and minimal resources."""
    name = f"bench-check-{secrets.token_hex(4)}"
    labels = {"app.kubernetes.io/managed-by": "benchhouse", _LABEL: name}
    if site.queue:
        labels[QUEUE_LABEL] = site.queue
    amounts = {"cpu": "100m", "memory": "128Mi"}
    container: Object = {
        "name": "check",
        "command": [site.python, "-c", _SCRIPT, *([str(marker)] if marker else [])],
        "resources": {"requests": amounts, "limits": dict(amounts)},
    }
    user = (os.getuid(), os.getgid()) if site.volume else None
    spec = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": round(_WAIT_S),
        "ttlSecondsAfterFinished": 60,
        "template": pod_template(site, container, labels, user=user),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }


def _ended(client: KubeClient, namespace: str, name: str) -> Object:
    """Return the pod once it has ended. Raise BenchError with the cluster's message if it does not."""
    deadline, pod = time.monotonic() + _WAIT_S, None
    while time.monotonic() < deadline:
        listed = client.get(path_of("v1", namespace, "pods"), labelSelector=selector({_LABEL: name}))
        pod = next(iter(listed["items"]), None)
        if pod and pod["status"].get("phase") in ("Succeeded", "Failed"):
            return dict(pod)
        if words := _stuck(pod):
            raise BenchError(words)
        if pod is None and (words := _refused(client, namespace, name)):
            raise BenchError(f"no pod is made: {words}")
        time.sleep(_LOOK_S)
    why = _waits(pod) or _refused(client, namespace, name) or "kubectl describe job " + name
    raise BenchError(f"no pod has ended within {_WAIT_S:.0f} s: {why}")


def _stuck(pod: Object | None) -> str:
    for status in ((pod or {}).get("status") or {}).get("containerStatuses") or ():
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _HOPELESS:
            return f"{waiting['reason']}: {waiting.get('message', '')}"
    return ""


def _waits(pod: Object | None) -> str:
    conditions = ((pod or {}).get("status") or {}).get("conditions") or ()
    return next((item.get("message", "") for item in conditions if item.get("status") == "False"), "")


def _refused(client: KubeClient, namespace: str, name: str) -> str:
    """Return why the Job creates no pod, such as a quota or a missing account; empty if no reason is reported."""
    try:
        events = client.get(path_of("v1", namespace, "events"), fieldSelector=f"involvedObject.name={name}")["items"]
    except KubernetesRefused:
        return ""
    return next((item["message"] for item in events if item.get("reason") == "FailedCreate"), "")


def _failure(pod: Object, site: KubernetesSite) -> str:
    for status in pod["status"].get("containerStatuses") or ():
        ended = (status.get("state") or {}).get("terminated") or {}
        words = f"{ended.get('reason', '')} {ended.get('message', '')}".strip()
        return f"{site.python} of the image ended with {ended.get('exitCode', 'nothing')}: {words}"
    return str(pod["status"].get("message") or "it ended without a word")
