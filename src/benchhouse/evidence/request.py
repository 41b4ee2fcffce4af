"""A trial's folder before it runs: what is asked of it, and the scenario that asks for exactly this again."""

import shutil
from typing import Any

from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import write_fresh
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.secrets import is_secret_key
from benchhouse.schema.trial import TrialSpec


def make_folder(folder: TrialFolder, spec: TrialSpec) -> None:
    """Raises OSError where it can't be written. What an attempt that was killed has left there goes."""
    try:
        folder.path.mkdir(parents=True)
    except FileExistsError:
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.path.mkdir(parents=True)
    write_fresh(folder.spec, spec.model_dump_json(indent=2, by_alias=True) + "\n")
    write_fresh(folder.effective_config, effective_config(spec))


def effective_config(spec: TrialSpec) -> str:
    """The whole configuration of one trial, as a scenario that runs exactly this trial again."""
    config = {
        "schema_version": 1,
        "scenario": spec.scenario,
        "experiment": spec.experiment.name,
        "version": spec.experiment.version,
        "target": _escaped(spec.target),
        "workload": _escaped(spec.parameters),
        "folder": _escaped(spec.folder) or None,
        "repetitions": 1,
        "seed": spec.seed,
        "resources": spec.resources.model_dump(exclude_none=True),
        "limits": spec.limits.model_dump(exclude_none=True),
        "executor": spec.executor,
        "runtime": spec.runtime.model_dump(exclude_defaults=True) | {"kind": spec.runtime.kind},
        "partition": spec.partition,
        "account": spec.account,
        "qos": spec.qos,
        "artifacts": _escaped(spec.artifacts),
        "binds": _escaped(spec.binds),
        "environment": _escaped(spec.environment),
        "services": {
            name: _escaped(service.use.model_dump(exclude_defaults=True)) for name, service in spec.services.items()
        },
        "logs": spec.logs.model_dump(exclude_defaults=True),
        "monitors": spec.monitors and (spec.monitors.model_dump(exclude_defaults=True) or None),
    }
    return dump_yaml({key: value for key, value in config.items() if value not in (None, {}, [])})


def _escaped(value: Any, key: str = "") -> Any:
    """A `$` that was plain stays plain when the file is read again; a secret stays a reference."""
    if isinstance(value, dict):
        return {name: _escaped(item, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item, key) for item in value]
    return value.replace("$", "$$") if isinstance(value, str) and not is_secret_key(key) else value
