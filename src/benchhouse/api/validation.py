"""`ws.validate`: whether a file can be used, and what it holds."""

import os
from pathlib import Path

from benchhouse.api.answers import Validation
from benchhouse.api.execution import ScenarioText, prepare_source
from benchhouse.evidence.metrics_check import check_metrics
from benchhouse.nexus import logical
from benchhouse.runs.preparation import prepare_all
from benchhouse.schema.layout import WorkspaceFolder


def validate(folder: WorkspaceFolder, path: str | os.PathLike[str] | ScenarioText) -> Validation:
    """Check a scenario, space of ado, descriptor, logical benchmark, metrics file, or scenario text."""
    if isinstance(path, ScenarioText):
        plan = prepare_source(folder, path, {})[0].plan
        return Validation(path.name, plan.points, plan.trial_count)
    is_descriptor = Path(path).suffix == ".toml"
    if not is_descriptor and (measurements := check_metrics(Path(path))) is not None:
        return Validation(str(path), measurements=measurements)
    if not is_descriptor and (checked := logical.validate_file(Path(path))) is not None:
        if not checked.good:
            raise checked.failure
        return Validation(str(path), bindings=checked.bindings)
    plans = [item.plan for item in prepare_all(folder, Path(path))]
    return Validation(str(path), sum(plan.points for plan in plans), sum(plan.trial_count for plan in plans))
