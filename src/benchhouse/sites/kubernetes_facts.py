"""Summarize objects of Kubernetes for a site engineer: remaining quotas, limits, volumes, nodes, queues. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.pod_template import read_quantity
from benchhouse.schema.quantities import show_bytes
from benchhouse.schema.site import SiteFinding

Object = Mapping[str, Any]
_EVERY_POD = ("pods", "count/pods", "count/jobs.batch", "count/configmaps", "cpu", "memory",
              "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")  # fmt: skip
_JOB_FEATURES = ("completionMode", "suspend", "podFailurePolicy", "backoffLimitPerIndex")


def _show(resource: str, amount: float) -> str:
    return show_bytes(amount) if "memory" in resource or "storage" in resource else f"{amount:g}"


def quota_finding(quota: Object) -> SiteFinding:
    """Return hard minus used; missing if nothing is left of a resource that every pod needs."""
    status = quota.get("status") or {}
    hard = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
    used = status.get("used") or {}
    left = {name: read_quantity(most) - read_quantity(used.get(name, "0")) for name, most in hard.items()}
    amounts = [
        f"{name} {_show(name, max(0.0, left[name]))} of {_show(name, read_quantity(most))}"
        for name, most in hard.items()
    ]
    spent = [name for name, amount in left.items() if amount <= 0 and name in _EVERY_POD]
    return SiteFinding(
        what=f"quota {quota['metadata']['name']}",
        state="missing" if spent else "good",
        value=f"left: {', '.join(amounts)}",
        note=f"no {', '.join(spent)} left, so no pod can start: end what uses it, or ask the admin for more"
        if spent
        else "",
    )


def unset_memory(quotas: Iterable[Object], ranges: Iterable[Object], site: KubernetesSite) -> bool:
    """Return whether a quota on memory would refuse pods that request no memory."""
    counted = {name for quota in quotas for name in (quota.get("spec") or {}).get("hard") or {}}
    given = any(
        "memory" in (item.get("default") or {}) for limits in ranges for item in (limits.get("spec") or {})["limits"]
    )
    return bool(counted & {"memory", "requests.memory", "limits.memory"}) and not given and site.memory is None


def limits_finding(limits: Object) -> SiteFinding:
    rows = []
    for item in (limits.get("spec") or {}).get("limits") or ():
        amounts = [
            f"{word} {', '.join(f'{name} {amount}' for name, amount in item[key].items())}"
            for key, word in (("min", "least"), ("max", "most"), ("default", "limit"), ("defaultRequest", "request"))
            if item.get(key)
        ]
        rows.append(f"{item['type']}: {'; '.join(amounts)}")
    return SiteFinding(what=f"limits {limits['metadata']['name']}", state="good", value=" / ".join(rows))


def claim_finding(claim: Object, several_nodes: bool) -> SiteFinding:
    name, phase = claim["metadata"]["name"], (claim.get("status") or {}).get("phase", "")
    modes = claim["spec"].get("accessModes") or []
    size = ((claim.get("status") or {}).get("capacity") or {}).get("storage")
    value = ", ".join([phase, *modes, *([show_bytes(read_quantity(size))] if size else [])])
    note = ""
    if claim["metadata"].get("deletionTimestamp"):
        state, note = "missing", "it is being deleted: kubectl describe pvc " + name
    elif phase != "Bound":
        state = "unknown" if phase == "Pending" else "missing"
        note = f"bound when the first pod uses it, or no volume fits: kubectl describe pvc {name}"
    elif not {"ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"} & set(modes):
        state, note = "missing", "pods can only read it: ask for a claim with ReadWriteMany"
    elif "ReadWriteMany" not in modes and several_nodes:
        state, note = (
            "unknown",
            f"{modes[0]}: pods of one node only, unless its driver does not mind; see node_selector",
        )
    else:
        state = "good"
    return SiteFinding(what=f"volume {name}", state=state, value=value, note=note)


def node_findings(nodes: Sequence[Object], site: KubernetesSite) -> list[SiteFinding]:
    """Return the nodes on which pods may be placed, their architectures, and their GPUs."""
    fitting = [node for node in nodes if fits(node, site)]
    kinds = sorted({node["status"]["nodeInfo"]["architecture"] for node in fitting})
    sizes = sorted({
        f"{read_quantity(node['status']['allocatable']['cpu']):g} cores, "
        f"{show_bytes(read_quantity(node['status']['allocatable']['memory']))}"
        for node in fitting
    })  # fmt: skip
    asked = ", ".join(f"{key}={value}" for key, value in site.node_selector.items())
    value = f"{len(fitting)} of {len(nodes)} ready, {' or '.join(kinds)}, {'; '.join(sizes[:3])}" if fitting else ""
    note = f"no node of {len(nodes)} is ready{f' with {asked}' if asked else ''}: kubectl get nodes --show-labels"
    findings = [
        SiteFinding(what="nodes", state="good" if fitting else "missing", value=value, note="" if fitting else note)
    ]
    if len(kinds) > 1 and "kubernetes.io/arch" not in site.node_selector:
        note = "an image of one of them fails on the other: node_selector: {kubernetes.io/arch: ...}"
        findings.append(SiteFinding(what="architecture", state="unknown", value=", ".join(kinds), note=note))
    amounts = {node["metadata"]["name"]: _amount(node, site.gpu_resource) for node in fitting}
    offers = [f"{name} {amount:g}" for name, amount in amounts.items() if amount]
    others = sorted({name for node in fitting for name in node["status"]["allocatable"] if _is_device(name)})
    note = "" if offers else f"trials with `gpus` would wait forever; offered: {', '.join(others) or 'no devices'}"
    findings.append(
        SiteFinding(what=site.gpu_resource, state="good" if offers else "missing", value=", ".join(offers), note=note)
    )
    return findings


def fits(node: Object, site: KubernetesSite) -> bool:
    """Return whether pods of this profile may be placed on the node."""
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in node["status"].get("conditions") or ())
    labels = node["metadata"].get("labels") or {}
    chosen = all(labels.get(key) == value for key, value in site.node_selector.items())
    return ready and chosen and not node["spec"].get("unschedulable") and _tolerated(node, site)


def _tolerated(node: Object, site: KubernetesSite) -> bool:
    return all(
        taint["effect"] == "PreferNoSchedule"
        or any(
            item.key in (None, taint["key"])
            and item.effect in (None, taint["effect"])
            and (item.operator == "Exists" or (item.value or "") == taint.get("value", ""))
            for item in site.tolerations
        )
        for taint in node["spec"].get("taints") or ()
    )


def _amount(node: Object, resource: str) -> float:
    return read_quantity(node["status"]["allocatable"].get(resource, "0"))


def _is_device(name: str) -> bool:
    return "/" in name and not name.startswith("kubernetes.io/")


def queue_finding(queue: Object) -> SiteFinding:
    """Return the state of a Kueue LocalQueue: its cluster queue, and how many workloads wait in it."""
    status = queue.get("status") or {}
    active = next((item for item in status.get("conditions") or () if item["type"] == "Active"), None)
    stopped = (queue.get("spec") or {}).get("stopPolicy", "None")
    note = ""
    if stopped != "None":
        note = f"it is stopped ({stopped}): nothing is admitted until its admin lets it"
    elif active and active["status"] != "True":
        note = f"it admits nothing: {active.get('message', '')}"
    backing = (queue.get("spec") or {}).get("clusterQueue", "no cluster queue")
    waiting, admitted = status.get("pendingWorkloads", 0), status.get("admittedWorkloads", 0)
    return SiteFinding(
        what=f"queue {queue['metadata']['name']}",
        state="missing" if note else "good",
        value=f"{backing}, {waiting} waiting, {admitted} admitted",
        note=note,
    )


def job_features(schema: Object) -> list[str]:
    """Return the useful fields of a Job that this API server keeps; older servers drop unknown ones silently."""
    fields = ((schema.get("definitions") or {}).get("io.k8s.api.batch.v1.JobSpec") or {}).get("properties") or {}
    return [name for name in _JOB_FEATURES if name in fields]
