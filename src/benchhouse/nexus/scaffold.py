"""Create the first files of an experiment package, a scenario, or a workspace. Nothing is overwritten."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.sites.places import near

if TYPE_CHECKING:
    from benchhouse.catalog.inputs import InputKey

_NAME = re.compile(r"[a-z][a-z0-9]*([._-][a-z0-9]+)*")

_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "{dist}"
version = "0.1.0"
description = "The experiment {name} for Benchhouse"
requires-python = ">=3.11"
dependencies = ["benchhouse"]

[project.entry-points."benchhouse.experiments"]
"{name}" = "{module}:run"

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]
"""

_MODULE = '''\
"""The experiment {name}."""

import random
import time

from pydantic import BaseModel, Field

from benchhouse import Context, Metric, Resources, experiment


class Target(BaseModel, extra="forbid"):
    """What is compared."""

    name: str = Field("baseline", description="Name of the target.")


class Workload(BaseModel, extra="forbid"):
    """The frozen problem."""

    size: int = Field(10_000, gt=0, description="How many numbers to sort.")


@experiment(
    "{name}",
    version="0.1.0",
    metrics=[
        Metric(name="duration", unit="ms", direction="lower", role="latency", formula="wall time of one sort"),
        Metric(name="rate", unit="items/s", direction="higher", role="throughput", formula="size / mean duration"),
    ],
    resources=Resources(cpus=1),
)
def run(target: Target, workload: Workload, ctx: Context) -> None:
    """Replace this sentence by what the experiment measures."""
    source = random.Random(ctx.seed)
    numbers = [source.random() for _ in range(workload.size)]
    durations = []
    for _ in range(20):
        started = time.perf_counter()
        sorted(numbers)
        durations.append(time.perf_counter() - started)
        ctx.emit("duration", durations[-1] * 1000)
    ctx.emit("rate", workload.size * len(durations) / sum(durations))
    ctx.metadata(algorithm="timsort")
'''

_TEST = '''\
"""The experiment runs as users run it: `bench run`, in an empty folder."""

import json
import subprocess
import sys
from pathlib import Path

SCENARIO = Path(__file__).parent.parent / "scenario.yaml"


def test_the_scenario_runs_and_measures(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchhouse", "-C", str(tmp_path), "run", str(SCENARIO), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["outcomes"] == {{"succeeded": 6}}
    rates = [row["mean"] for row in result["points"] if row["metric"] == "rate"]
    assert rates and all(rate > 0 for rate in rates)
'''

_PACKAGE_SCENARIO = """\
scenario: {slug}
experiment: {name}
target: {{name: baseline}}
workload:
  size: [1000, 10000]
repetitions: 3
limits: {{wall: 1m}}
"""

_README = """\
# {dist}

The experiment `{name}` for Benchhouse.

    pip install -e .
    bench show {name}
    bench run scenario.yaml
"""

_SCENARIO = """\
# Run it:   bench run {path}
# Plan it:  bench plan {path}
scenario: {name}
description: Say what this compares, and why.
experiment: {experiment}

# What is compared. A list anywhere below becomes an axis.
{target}
workload:
{workload}

repetitions: 5          # trials per point; 5 or more make intervals meaningful
order: interleaved      # drift of the machine hits all points alike
seed: 1
limits: {{wall: 10m}}
"""


def experiment(name: str, into: Path) -> Path:
    """Create an installable package with one experiment, its scenario, and a test that passes."""
    if not _NAME.fullmatch(name) or len(name) > 60:
        raise BenchError(f"{name!r} can't name an experiment", "use small letters, digits and . _ - : my.experiment")
    slug = re.sub(r"[._-]+", "_", name)
    folder = near(into / f"bench-{slug.replace('_', '-')}")
    if folder.exists():
        raise BenchError(f"{folder} exists already", "choose another name, or remove it")
    values = {"name": name, "dist": folder.name, "slug": slug, "module": f"bench_{slug}"}
    files = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        "scenario.yaml": _PACKAGE_SCENARIO,
        f"src/bench_{slug}/__init__.py": _MODULE,
        f"tests/test_{slug}.py": _TEST,
    }
    for path, template in files.items():
        write_new(folder / path, template.format(**values))
    return folder


def scenario(name: str, chosen: str, folder: Path) -> Path:
    """Create a commented scenario for an installed experiment, with its required inputs to fill in."""
    from benchhouse.nexus.experiments import describe

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise BenchError(f"{name!r} can't name a scenario", "letters, digits and . _ - only")
    details = describe(WorkspaceFolder(folder.absolute()), chosen)
    path = near(folder / f"{name}.yaml")
    if chosen == "command":
        target = 'targets:\n  - {name: short, argv: [sleep, "0.01"]}\n  - {name: longer, argv: [sleep, "0.05"]}\n'
        workload = "  executions: 10"
    else:
        target = "target:\n" + (to_fill_in(details.target) if details.target else "  name: baseline") + "\n"
        workload = to_fill_in(details.workload)
    write_new(path, _SCENARIO.format(name=name, experiment=chosen, path=path, target=target, workload=workload))
    return path


def to_fill_in(inputs: "list[InputKey]") -> str:
    """Return input lines of a scenario: required ones to fill in, the others as comments with their defaults."""
    active = {item.name for item in inputs if item.required} or {item.name for item in inputs[:1]}
    lines = []
    for item in inputs:
        value = "FILL_IN" if item.required else json.dumps(item.default, default=str)
        about = f"{item.type}. {item.description}" if item.required else item.description
        lines.append(f"  {'' if item.name in active else '# '}{item.name}: {value}    # {about}")
    return "\n".join(lines) or "  {}"


def workspace(place: WorkspaceFolder) -> list[Path]:
    """Create a first scenario and a .gitignore; existing files stay unchanged."""
    made = []
    first = place.root / "scenarios" / "first.yaml"
    if not first.exists():
        made.append(scenario("first", "command", first.parent))
    ignore = place.root / ".gitignore"
    if not ignore.exists():
        write_new(ignore, ".bench/\nresults/\nreports/\nclaim-*.tar\n")
        made.append(near(ignore))
    return made


def write_new(path: Path, text: str) -> None:
    if path.exists():
        raise BenchError(f"{path} exists already", "choose another name, or remove it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path.absolute(), error) from error
