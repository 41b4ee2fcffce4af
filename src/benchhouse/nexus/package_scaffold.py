"""Create the first files of a nexus: a package, a model in it, and a benchmark of either. Nothing is overwritten."""

import json
import re
from pathlib import Path

from benchhouse.catalog.nexus import INSTANCES, Nexus, NexusModel, Package
from benchhouse.documents.problems import did_you_mean
from benchhouse.nexus import packages
from benchhouse.nexus.experiments import ExperimentDetails, describe, installed
from benchhouse.nexus.scaffold import to_fill_in, write_new
from benchhouse.runs import preparation
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.names import can_name_a_folder
from benchhouse.sites import places

_PACKAGE = """\
# A package of the nexus. Check it:  bench packages validate {name}
package:
  name: {name}
  # Python packages with experiments that benchmarks of this package run; all of them must install together. What comes
  # with Benchhouse itself (bench list experiments) need not be named.
  benchmark_packages: []
  #  - requirement_specifier: ./packages/{name}/benchmark_packages/bench-mine    # from the nexus' root
  #    experiments: [mine]
  #  - requirement_specifier: git+https://example.org/lab/evals.git@v1.2
  #    experiments: [seg-eval]
"""

_MODEL = """\
# The target of every benchmark below this folder: it is not named again there.
model:
  id: {model}
  owner: {owner}
"""

_BENCHMARK = """\
# A benchmark leaves its target open. Run it for a model:  bench new benchmark NAME --package P --model M --uses {full}
benchmark: {name}
description: Say what this measures, and why.
experiment: {experiment}
version: {version}
workload:
{workload}
limits: {{wall: 10m}}
"""

_USING = """\
# Run it:   bench run {path}
# The target is {model}, as ../../model.yaml says.
scenario: {scenario}
uses: {uses}
{target}repetitions: 5
seed: 1
"""

_OWN = """\
# Run it:   bench run {path}
# The target is {model}, as ../../model.yaml says.
scenario: {scenario}
description: Say what this measures, and why.
experiment: {experiment}
version: {version}
{target}workload:
{workload}
repetitions: 5
seed: 1
limits: {{wall: 10m}}
"""

_NOT_INSTALLED = """\
# The experiment {experiment} is not installed here, so it is not known what else its target needs. Install it:
#   nexus get benchmark-requirements {package} > requirements.txt && pip install -r requirements.txt
"""


def package(workspace: WorkspaceFolder, name: str, nexus: str | Path | None) -> Path:
    """Create `packages/<name>` of the nexus; if there is none, the workspace becomes one."""
    _refuse_odd(name, "package")
    root = Path(nexus) if nexus else places.nexus(None, workspace.root) or places.near(workspace.root)
    path = root / "packages" / name / "nexus.yaml"
    write_new(path, _PACKAGE.format(name=name))
    return path


def model(workspace: WorkspaceFolder, package_name: str, model_id: str, owner: str, nexus: str | Path | None) -> Path:
    """Create `models/<model>` of a package; the folder is named after the last part of the id."""
    package = packages.pick(packages.load(workspace, nexus), package_name)
    folder = re.sub(r"[^A-Za-z0-9._-]+", "-", model_id.rpartition("/")[2]).lstrip("._-")[:100]
    if not folder or not model_id.isprintable():
        raise BenchError(f"{model_id!r} can't name a model", "an id such as org/name")
    path = package.path / "models" / folder / "model.yaml"
    write_new(path, _MODEL.format(model=json.dumps(model_id, ensure_ascii=False), owner=json.dumps(owner)))
    return path


def benchmark(
    workspace: WorkspaceFolder,
    name: str,
    package_name: str,
    model_name: str | None,
    chosen: str,
    uses: str | None,
    nexus: str | Path | None,
) -> Path:
    """Create a benchmark of a package, for others to use, or of a model: a scenario of an experiment or `uses`."""
    _refuse_odd(name, "benchmark")
    whole = packages.load(workspace, nexus)
    package = packages.pick(whole, package_name)
    if model_name is None:
        if uses:
            raise BenchError("--uses is for a model's benchmark", "name the model too: --model ID")
        path = package.path / INSTANCES / name / "benchmark.yaml"
        values = {"name": name, "full": f"{package.name}/{name}", "experiment": chosen}
        write_new(path, _BENCHMARK.format(**values, **_experiment_values(describe(workspace, chosen))))
        return path
    model = _pick_model(package, model_name)
    path = package.path / "models" / model.name / INSTANCES / name / "scenario.yaml"
    values = {"path": str(path), "model": model.entry.id, "scenario": f"{model.name}-{name}"[:100]}
    if uses:
        text = _USING.format(**values, uses=uses, target=_target_of_used(workspace, whole, uses))
    else:
        details = describe(workspace, chosen)
        text = _OWN.format(**values, **_experiment_values(details), experiment=chosen, target=_target(details))
    write_new(path, text)
    return path


def _experiment_values(details: ExperimentDetails) -> dict[str, str]:
    workload = "  executions: 10" if details.name == "command" else to_fill_in(details.workload)
    return {"version": json.dumps(details.version), "workload": workload}


def _target_of_used(workspace: WorkspaceFolder, nexus: Nexus, uses: str) -> str:
    """Return the target's keys, or how to install the experiment if only a `nexus.yaml` names it."""
    experiment = preparation.shelf(workspace, workspace.root).find(uses).experiment
    owner = next((package for package in nexus.packages if package.names(experiment)), None)
    if owner is None or any(item.name == experiment for item in installed()):
        return _target(describe(workspace, uses))
    return _NOT_INSTALLED.format(experiment=experiment, package=owner.name)


def _target(details: ExperimentDetails) -> str:
    """Return the required inputs of the target except the one for the model, which comes from the folder."""
    if details.name == "command":
        return 'target: {argv: [sleep, "0.01"]}\n'
    from benchhouse.plan.model_target import NAMES

    others = [item for item in details.target if item.name not in (*NAMES, "name") and item.required]
    return f"target:\n{to_fill_in(others)}\n" if others else ""


def _pick_model(package: Package, name: str) -> NexusModel:
    """Return the model with this id or folder. Raise BenchError if there is none."""
    for model in package.models:
        if name in (model.entry.id, model.name):
            return model
    guess = did_you_mean(name, [known for model in package.models for known in (model.entry.id, model.name)])
    hint = f"did you mean '{guess}'?" if guess else f"add it: bench new model {package.name} {name}"
    raise BenchError(f"the package '{package.name}' has no model '{name}'", hint)


def _refuse_odd(name: str, what: str) -> None:
    try:
        can_name_a_folder(name)
    except ValueError as error:
        raise BenchError(f"{name!r} can't name a {what}", str(error)) from error
