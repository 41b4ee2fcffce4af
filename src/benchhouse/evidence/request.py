"""A trial's folder before it runs: its specification, and the scenario that repeats exactly this trial."""

import os
from functools import partial

from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.folder import discard
from benchhouse.evidence.writing import write_fresh
from benchhouse.processes.durable import make_folders
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.secrets import escape
from benchhouse.schema.trial import TrialSpec


def make_folder(folder: TrialFolder, spec: TrialSpec) -> None:
    """Make the folder, replacing what a killed attempt left there. Raise OSError if it can't be written."""
    make_folders(folder.path.parent)  # a sealed trial is on disk only if the folder that it is moved to is
    try:
        folder.path.mkdir()
    except FileExistsError:
        discard(folder.path)
        folder.path.mkdir()
    write_fresh(folder.spec, spec.model_dump_json(indent=2, by_alias=True) + "\n")
    write_fresh(folder.effective_config, effective_config(spec))


def effective_config(spec: TrialSpec) -> str:
    """Return the whole configuration of one trial, as a scenario that runs exactly this trial again."""
    escaped = partial(escape, environ=os.environ)
    config = {
        "schema_version": 1,
        "scenario": spec.scenario,
        "labels": spec.labels,
        "experiment": spec.experiment.name,
        "version": spec.experiment.version,
        "target": escaped(spec.target),
        "workload": escaped(spec.parameters),
        "folder": escaped(spec.folder) or None,
        "repetitions": 1,
        "seed": spec.seed,
        "resources": spec.resources.model_dump(exclude_none=True),
        "limits": spec.limits.model_dump(exclude_none=True),
        "executor": spec.executor,
        "runtime": spec.runtime.model_dump(exclude_defaults=True) | {"kind": spec.runtime.kind},
        "partition": spec.partition,
        "account": spec.account,
        "qos": spec.qos,
        "artifacts": escaped(spec.artifacts),
        "binds": escaped(spec.binds),
        "environment": escaped(spec.environment),
        "services": {
            name: escaped(service.use.model_dump(exclude_defaults=True)) for name, service in spec.services.items()
        },
        "logs": spec.logs.model_dump(exclude_defaults=True),
        "monitors": spec.monitors and (escaped(spec.monitors.model_dump(exclude_defaults=True)) or None),
    }
    return dump_yaml({key: value for key, value in config.items() if value not in (None, {}, [])})
