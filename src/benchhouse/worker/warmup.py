"""Prepares once, before the first trial is forked, what every trial needs: otherwise it takes half of a short trial."""

import gc
import json
from contextlib import suppress
from functools import cache
from pathlib import Path

from benchhouse.catalog.loading import load, preload
from benchhouse.evidence.manifest import Manifest, ManifestEntry
from benchhouse.schema.experiment import Metric
from benchhouse.schema.measurement import Extras, Measurement, MetricsFile, Throughput
from benchhouse.schema.resources import Limits, Resources
from benchhouse.schema.telemetry import Phase
from benchhouse.schema.trial import Attempt, ExperimentRef, Failure, Meta, TrialSpec, TrialWarning
from benchhouse.worker import node
from benchhouse.worker.monitors import machine
from benchhouse.worker.results import Handover
from benchhouse.worker.topology import node_topology

_MODELS = (
    Attempt, Extras, Failure, ManifestEntry, Handover, Limits, Manifest, Measurement, Meta, Metric, MetricsFile, Phase,
    Resources, Throughput, TrialSpec, TrialWarning,
)  # fmt: skip


def warm_up(ref: ExperimentRef | None = None) -> None:
    """Collect facts about this machine, and build validators, which otherwise happens at first use.

    If the experiment is known and ours, it is loaded too. A third-party package may start threads or open a device, so
    each trial loads it separately, or the process that they share does.
    """
    gc.disable()  # objects created here stay: garbage collection would take a tenth of the time
    for learn in (node.packages_text, node.hardware, node.lock_digest, node.drivers, node_topology):
        learn()
    machine.node().close()  # caches its devices
    for model in _MODELS:
        model.model_rebuild()
    if ref is not None:
        _load(ref)
    gc.freeze()  # so that no child copies pages only to mark their objects
    gc.enable()


def warm_up_for(spec: Path) -> None:
    """Load the experiment of this trial, if permitted here, once for all trials that a host forks."""
    try:
        ref = ExperimentRef.model_validate(json.loads(spec.read_bytes())["experiment"])
    except (OSError, ValueError, KeyError, TypeError):
        return  # the trial's own worker reports the error
    _load_once(ref)


@cache
def _load_once(ref: ExperimentRef) -> None:
    gc.disable()
    with suppress(Exception):  # the trial reports it, with its traceback
        _load(ref)
    gc.freeze()
    gc.enable()


def _load(ref: ExperimentRef) -> None:
    if ref.object.startswith("benchhouse."):
        experiment = load(ref)
        for inputs in (experiment.target_model, experiment.workload_model):
            if inputs is not None:
                inputs.model_rebuild()
    preload(ref.bridge)
