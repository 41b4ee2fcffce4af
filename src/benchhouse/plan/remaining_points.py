"""Remove points that need not run again from a scenario."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.plan.scenario_file import ScenarioFile


def text_without(file: ScenarioFile, points: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the scenario with each of these points added to `exclude`."""
    data = dict(parse_yaml(file.text, file.document.path).data)
    data["exclude"] = [*data.get("exclude", ()), *(dict(point) for point in points)]
    return dump_yaml(data)
