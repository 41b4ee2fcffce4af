"""Find fields of a scenario that its executor or runtime would ignore: an error if unintended, otherwise a note."""

from collections.abc import Iterator

from benchhouse.documents.document import Loc
from benchhouse.documents.problems import Problem, did_you_mean
from benchhouse.plan.axes import TARGETS
from benchhouse.plan.expand import Plan
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.schema.quoting import quote
from benchhouse.schema.site import Site

SLURM_WORDS = ("partition", "account", "qos")
"""Keys of a scenario that only Slurm uses."""
_OF_EXECUTORS = ("slurm", "dask", "ray", "spark", "kubernetes")  # keys with the settings of the executor of that name
_BARE = ("process", "venv")  # runtimes that do not use a container


def unused_field_problems(file: ScenarioFile) -> Iterator[Problem]:
    """Yield problems for trials that would run elsewhere than the file states, without a line or option that requests
    it.

    On this machine an image gets only a note (`unused_fields`): scenarios for a cluster are tried out on a laptop.
    """
    scenario, runtime = file.scenario, file.scenario.runtime
    nobody_chose = "kind" not in runtime.model_fields_set  # not set by scenario, command line, or site
    if scenario.executor != "local" and runtime.kind in _BARE and nobody_chose:
        images = {("runtime", "image"): runtime.image, ("artifacts", "container"): scenario.artifacts.container}
        message = f"jobs on {scenario.executor} would not run in this image: nothing says what enters it"
        expected = "--runtime apptainer, or runtime: {kind: apptainer} here, or runtime: apptainer in the site profile"
        expected = f"{expected}; to run outside of it: --runtime process"
        yield from (file.document.problem(loc, message, expected) for loc, image in images.items() if image)
    if scenario.executor != "slurm" and file.document.value(("executor",)) == scenario.executor:
        for name in SLURM_WORDS:  # if the executor was overridden, `unused_fields` names them
            if getattr(scenario, name):
                message = f"{name} is Slurm's, and executor: {scenario.executor} has none"
                yield file.document.problem((name,), message, "leave out one of them", key=True)
    together, parallel = scenario.slurm.together, scenario.parallel
    if scenario.executor == "slurm" and "parallel" in scenario.model_fields_set and together > parallel:
        message = f"{together} trials of a task at a time are more than parallel: {parallel}"
        yield file.document.problem(("slurm", "together"), message, f"at most {parallel}")
    if scenario.executor == "ray" and scenario.ray.runtime_env and runtime.kind != "process":
        message = f"trials run in the Python that Ray makes of this, not in the runtime '{runtime.kind}'"
        yield file.document.problem(("ray", "runtime_env"), message, "either ray.runtime_env or runtime")


def slurms_resources(file: ScenarioFile, plan: Plan) -> Iterator[Problem]:
    """Yield problems for resources that only Slurm can provide, if another executor is used."""
    executor = file.scenario.executor
    wanted = [] if executor == "slurm" else plan.all_resources
    if tasks := next((item.ntasks for item in wanted if item.ntasks not in (None, 1)), None):
        message = f"{tasks} tasks: {executor} starts a trial once, only Slurm has tasks"
        yield _at(file, "ntasks", message, "leave it out, or --executor slurm")
    if asked := next((item for item in wanted if item.gres), None):
        instead = f"`gpus: {asked.gpus}`" if asked.gpus else "leave it out"
        yield _at(file, "gres", f"gres: {asked.gres}: only Slurm has these", f"{instead}, or --executor slurm")


def unknown_models(file: ScenarioFile, plan: Plan) -> Iterator[Problem]:
    """Yield problems for licenses of models that no trial uses."""
    licences = file.scenario.artifacts.models
    models = {str(name) for part in plan.plans for name in _models(part)} if licences else set()
    for name in licences.keys() - models:
        known, guess = ", ".join(sorted(models)) or "no trial names a model", did_you_mean(name, models) or ""
        message = f"no trial of this scenario is about a model {quote(name)}"
        yield file.document.problem(("artifacts", "models", name), message, known, guess, key=True)


def _models(plan: Plan) -> Iterator[object]:
    """Yield the values of `model` in target and workload, fixed or varied."""
    yield from (side.get("model") for side in (plan.target, plan.parameters) if side.get("model"))
    for block in plan.space.blocks:
        for at, key in enumerate(block.keys):
            if key in ("model", "target.model"):
                yield from (row[at] for row in block.rows)
            elif key == TARGETS:
                yield from (row[at]["model"] for row in block.rows if "model" in row[at])


def _at(file: ScenarioFile, key: str, message: str, expected: str) -> Problem:
    """Return the problem at the scenario's own line, or at the top if its experiment or benchmark sets the value."""
    loc: Loc = ("resources", key)
    return file.document.problem(loc if file.document.value(loc) is not None else (), message, expected)


def unused_fields(file: ScenarioFile, site: Site) -> list[str]:
    """Return a note that names the fields without effect; empty if there are none."""
    scenario = file.scenario
    fields: dict[str, object] = {name: getattr(scenario, name) for name in SLURM_WORDS if scenario.executor != "slurm"}
    fields |= {name: name in scenario.model_fields_set for name in _OF_EXECUTORS if name != scenario.executor}
    if scenario.runtime.kind in _BARE:
        fields |= {"runtime.image": scenario.runtime.image, "artifacts.container": scenario.artifacts.container}
        fields |= {"binds": scenario.binds}
        fields |= {"modules of the site": site.modules if scenario.executor != "slurm" else ()}
    where = f"with executor '{scenario.executor}' and runtime '{scenario.runtime.kind}'"
    where = "on this machine" if scenario.executor == "local" else where
    unused = ", ".join(name for name, value in fields.items() if value)
    return [f"no effect {where}: {unused}"] if unused else []
