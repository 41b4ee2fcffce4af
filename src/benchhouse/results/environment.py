"""The machine of a trial, in words, as the trial recorded it."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchhouse.results.content import RunEnvironment
from benchhouse.schema.artifacts import MeasuredModel, StagedDataset
from benchhouse.schema.quantities import show_bytes
from benchhouse.schema.trial import Meta

Row = Mapping[str, Any]
PACKAGES_DIFFER = "packages that differ between trials"


def environment(meta: Meta, rows: Sequence[Row], packages_that_differ: str = "") -> RunEnvironment:
    hardware = dict(meta.hardware)
    cpus = (hardware.pop("cpus_usable", None), hardware.pop("cpus_online", None))
    model = str(hardware.pop("cpu_model", None) or hardware.get("machine", ""))
    memory = hardware.pop("memory_bytes", None)
    kernel = str(hardware.pop("kernel", "") or "")
    other = {name.replace("_", " "): value for name, value in hardware.items() if value not in (None, [], "")}
    other |= {f"{name} driver": version for name, version in meta.drivers.items() if version}
    other |= {
        name: value
        for name, value in (
            ("partition", meta.partition),
            ("Slurm job", meta.slurm_job_id),
            ("nodes", meta.slurm_node_list),
            ("container digest", meta.container_digest),
            ("model", _licensed(meta.model)),
            ("dataset", _licensed(meta.dataset)),
            (PACKAGES_DIFFER, packages_that_differ),
        )
        if value
    }
    return RunEnvironment(
        run_id=meta.run_id,
        trial_id=meta.trial_id,
        package_lock_digest=meta.package_lock_digest,
        git_commit=meta.git_commit,
        git_dirty=meta.git_dirty,
        hosts=sorted({row["host"] for row in rows}),
        cpu=model + (f", {cpus[0]} of {cpus[1]} threads" if all(cpus) else ""),
        memory=show_bytes(memory) if isinstance(memory, int) else "",
        kernel=kernel,
        python=meta.python.split(" ")[0],
        limits=limits_in_words(meta.limits),
        other=other,
    )


def _licensed(item: MeasuredModel | StagedDataset | None) -> str:
    return f"{item.name}, {item.licence or 'licence unknown'}" if item else ""


def limits_in_words(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return each limit as text, with its requested size and what enforces it."""
    requested, held = limits.get("asked"), limits.get("enforced_by")
    if not isinstance(requested, Mapping) or not isinstance(held, Mapping):
        return dict(limits)
    shown = {}
    for name, value in requested.items():
        size = show_bytes(value) if name == "memory" else f"{value:g} s" if name in ("wall", "cpu") else str(value)
        holder = held.get(name) or held.get({"cpu": "cpu_s", "processes": "pids"}.get(name, "")) or "nothing"
        shown[name] = f"{size}, held by {holder}"
    return shown
