"""What an isolated environment must be told to install, checked before it is made: that takes minutes."""

from pathlib import Path

from benchhouse.catalog.provided import brings, source_of
from benchhouse.documents.problems import Problem
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.plan.scenario_paths import is_local_package, without_extras
from benchhouse.schema.trial import ExperimentRef

_OURS = "benchhouse"  # is always there


def package_problems(file: ScenarioFile, experiment: ExperimentRef) -> list[Problem]:
    """Local packages that are not there, and that the package which provides the experiment is not asked for."""
    runtime = file.scenario.runtime
    if runtime.kind != "venv" or not experiment.object:
        return []
    problems = [
        file.document.problem(("runtime", "requirements", at), f"there is no file or folder {without_extras(item)}")
        for at, item in enumerate(runtime.requirements)
        if is_local_package(item) and not Path(without_extras(item)).exists()
    ]
    name, module = experiment.distribution, experiment.object.partition(":")[0].partition(".")[0]
    if name.lower() == _OURS or brings(runtime.requirements, name, module) is not False:
        return problems
    message = f"the isolated environment would not have the package '{name}', which provides {experiment.name}"
    expected = f"add it: requirements: [{', '.join([*runtime.requirements, source_of(name)])}]"
    return [*problems, file.document.problem(("runtime", "requirements"), message, expected)]
