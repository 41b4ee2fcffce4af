"""Fields of a scenario that its executor or its runtime would pass over: refused where nobody chose that, else told."""

from collections.abc import Iterator

from benchhouse.documents.problems import Problem
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.schema.site import Site

_BARE = ("process", "venv")  # runtimes that enter no container


def unused_field_problems(file: ScenarioFile) -> Iterator[Problem]:
    """What would run elsewhere than the file says, though no line and no option asks for that.

    On this machine an image is only told of (`unused_fields`): a scenario for a cluster is tried out on a laptop.
    """
    scenario, runtime = file.scenario, file.scenario.runtime
    nobody_chose = "kind" not in runtime.model_fields_set  # not the scenario, the command line nor the site
    if scenario.executor != "local" and runtime.kind in _BARE and nobody_chose:
        images = {("runtime", "image"): runtime.image, ("artifacts", "container"): scenario.artifacts.container}
        message = f"jobs on {scenario.executor} would not run in this image: nothing says what enters it"
        expected = "--runtime apptainer, or runtime: {kind: apptainer} here, or runtime: apptainer in the site profile"
        expected = f"{expected}; to run outside of it: --runtime process"
        yield from (file.document.problem(loc, message, expected) for loc, image in images.items() if image)
    together, parallel = scenario.slurm.together, scenario.parallel
    if scenario.executor == "slurm" and "parallel" in scenario.model_fields_set and together > parallel:
        message = f"{together} trials of a task at a time are more than parallel: {parallel}"
        yield file.document.problem(("slurm", "together"), message, f"at most {parallel}")
    if scenario.executor == "ray" and scenario.ray.runtime_env and runtime.kind != "process":
        message = f"trials run in the Python that Ray makes of this, not in the runtime '{runtime.kind}'"
        yield file.document.problem(("ray", "runtime_env"), message, "either ray.runtime_env or runtime")


def unused_fields(file: ScenarioFile, site: Site) -> list[str]:
    """A note that names what has no effect here; empty where all has one."""
    scenario = file.scenario
    fields: dict[str, object] = {
        name: getattr(scenario, name) for name in ("partition", "account", "qos") if scenario.executor != "slurm"
    }
    if scenario.runtime.kind in _BARE:
        fields |= {"runtime.image": scenario.runtime.image, "artifacts.container": scenario.artifacts.container}
        fields |= {"binds": scenario.binds}
        fields |= {"modules of the site": site.modules if scenario.executor != "slurm" else ()}
    where = f"with executor '{scenario.executor}' and runtime '{scenario.runtime.kind}'"
    where = "on this machine" if scenario.executor == "local" else where
    unused = ", ".join(name for name, value in fields.items() if value)
    return [f"no effect {where}: {unused}"] if unused else []
