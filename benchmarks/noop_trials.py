"""What a trial costs that does nothing, beside a Python interpreter that starts and imports pydantic.

Each round runs 200 no-op trials by one `bench run` (planned, forked, caged, sealed, collected, summed up: start-up of
`bench` and of the worker host included), then starts `python -c "import pydantic"` 200 times, and the same with
`from pydantic import BaseModel` (`import pydantic` alone is lazy; whoever uses it pays the latter).
CPU time is user + system of all ended descendants (RUSAGE_CHILDREN): orchestrator, host, workers and experiments are
each reaped by their parent, so nothing escapes; --check-accounting compares that with a cgroup's own counter.

Then 50 runs of one trial each, one after the other: CPU seconds of a run, and the wall time of the slowest beside the
median, as something that waits at the end of a run shows there and in no CPU time.

    python benchmarks/noop_trials.py [--trials 200] [--rounds 3] [--runs 50] [--json]
    python benchmarks/noop_trials.py --peer ado --ado-python /path/to/python     50 no-op points by ado as well

Exits 1 when a trial costs more than 1.5 times the plain import (median over the rounds), a run of one trial more than
1.5 CPU seconds (median), or the slowest of these runs takes more than twice the median wall time.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BAR = 1.5
ONE_RUN_S = 1.5
SLOWEST = 2.0
ADO_POINTS = 50
NOOP = "def noop(n: int):\n    return {'x': n}\n"
ADO_NOOP = """
from ado.modules.actuators.custom_experiments import custom_experiment
from ado.schema.domain import PropertyDomain, VariableTypeEnum
from ado.schema.property import ConstitutiveProperty


@custom_experiment(
    required_properties=[
        ConstitutiveProperty(
            identifier="n",
            propertyDomain=PropertyDomain(
                variableType=VariableTypeEnum.DISCRETE_VARIABLE_TYPE, domainRange=[0, 1000], interval=1
            ),
        )
    ],
    output_property_identifiers=["x"],
)
def noop(n):
    return {"x": n}
"""


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def package(folder: Path, name: str, code: str, entry_points: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def run_trials(root: Path, trials: int, parallel: int) -> float:
    """CPU seconds a trial."""
    environment = os.environ | {"PYTHONPATH": str(root / "site"), "BENCH_CACHE_DIR": str(root / "cache")}
    values = {"range": {"from": 1, "to": trials, "step": 1}} if trials > 1 else 1
    scenario = {"scenario": "noop", "experiment": "noop", "workload": {"n": values}, "parallel": parallel}
    (root / "noop.yaml").write_text(json.dumps(scenario))
    command = [sys.executable, "-m", "benchhouse", "-C", str(root), "run", "--new", "--json", str(root / "noop.yaml")]
    before = cpu_s()
    done = subprocess.run(command, env=environment, check=True, capture_output=True)
    used = cpu_s() - before
    assert json.loads(done.stdout)["outcomes"] == {"succeeded": trials}
    return used / trials


def run_single(root: Path, runs: int) -> dict[str, Any]:
    """Runs of one trial each: CPU seconds, and wall times."""
    used, walls = [], []
    for _ in range(runs):
        began = time.monotonic()
        used.append(run_trials(root, 1, 1))
        walls.append(time.monotonic() - began)
    median, slowest = statistics.median(walls), max(walls)
    return {
        "runs_of_one_trial": runs,
        "one_run_cpu_s": statistics.median(used),
        "one_run_wall_s": median,
        "slowest_run_wall_s": slowest,
        "slowest_to_median": slowest / median,
    }


def run_imports(code: str, times: int) -> float:
    """CPU seconds a start."""
    before = cpu_s()
    for _ in range(times):
        subprocess.run([sys.executable, "-c", code], check=True)
    return (cpu_s() - before) / times


@contextlib.contextmanager
def own_cgroup() -> Iterator[Path | None]:
    """This process in a CPU-counting cgroup of its own, where that can be had (v1 cpuacct as root)."""
    home = Path("/sys/fs/cgroup/cpuacct")
    folder = home / f"noop-trials-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        yield None
        return
    try:
        yield folder
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        for inner in [*folder.rglob("*"), folder]:
            if inner.is_dir():
                inner.rmdir()


def check_accounting(root: Path, trials: int, parallel: int) -> dict[str, Any]:
    """The same run, counted by the kernel for a cgroup that holds the whole tree."""
    with own_cgroup() as folder:
        if folder is None:
            return {"accounting": "no cpuacct cgroup can be made here"}
        before, own = int((folder / "cpuacct.usage").read_text()), time.process_time()
        by_rusage = run_trials(root, trials, parallel) * trials
        by_cgroup = (int((folder / "cpuacct.usage").read_text()) - before) / 1e9 - (time.process_time() - own)
    return {"rusage_s": by_rusage, "cgroup_s": by_cgroup, "rusage_of_cgroup": by_rusage / by_cgroup}


def run_ado(python: str, root: Path) -> float:
    """CPU seconds a point of an operation over a custom experiment; its store lies in a home of its own."""
    package(root / "ado", "ado_noop", ADO_NOOP, "[ado.custom_experiments]\nado_noop = ado_noop\n")
    domain = {"values": list(range(ADO_POINTS))}
    space = {
        "entitySpace": [{"identifier": "n", "propertyDomain": domain}],
        "experiments": [{"actuatorIdentifier": "custom_experiments", "experimentIdentifier": "noop"}],
    }
    parameters = {
        "numberEntities": "all", "batchSize": 10, "singleMeasurement": True,
        "samplerConfig": {"mode": "sequential", "samplerType": "generator"},
    }  # fmt: skip
    operation = {
        "operation": {
            "module": {"operatorName": "random_walk", "operationType": "explore"}, "parameters": parameters,
        },
        "spaces": ["SPACE"],
    }  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(root / "ado"), "HOME": str(root), "XDG_CONFIG_HOME": str(root / "c")}
    ado = [str(Path(python).parent / "ado")]
    (root / "space.yaml").write_text(json.dumps(space))
    before = cpu_s()
    words = ""
    for verb, name in (("space", "space.yaml"), ("operation", "operation.yaml")):
        if verb == "operation":
            found = [word.strip("'\",.") for word in words.split() if word.strip("'\",.").startswith("space-")]
            assert found, words
            (root / "operation.yaml").write_text(json.dumps(operation | {"spaces": [found[-1]]}))
        else:
            subprocess.run([*ado, "context", "local"], env=environment, check=False, capture_output=True)
            extra = ["--new-sample-store"]
            before = cpu_s()
        command = [*ado, "create", verb, "-f", str(root / name), *(extra if verb == "space" else [])]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root)
        words = done.stdout + done.stderr
        if done.returncode:
            raise SystemExit(f"ado failed:\n{words[-3000:]}")
    return (cpu_s() - before) / ADO_POINTS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=50, help="Runs of one trial each.")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--check-accounting", action="store_true")
    parser.add_argument("--peer", choices=["ado"])
    parser.add_argument("--ado-python", help="A Python that has ado-core.")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.peer and not given.ado_python:
        parser.error("--peer ado needs --ado-python PATH")
    figures: dict[str, Any] = {"trials": given.trials, "rounds": given.rounds, "bar": BAR}
    with tempfile.TemporaryDirectory(prefix="noop-trials-") as name:
        root = Path(name)
        package(root / "site", "noop", NOOP, "[benchhouse.experiments]\nnoop = noop:noop\n")
        run_trials(root, 2, 1)  # the catalog's cache and the page cache are warm for all
        rows = [
            {
                "trial_ms": run_trials(root, given.trials, given.parallel) * 1e3,
                "import_ms": run_imports("import pydantic", given.trials) * 1e3,
                "base_model_ms": run_imports("from pydantic import BaseModel", given.trials) * 1e3,
            }
            for _ in range(given.rounds)
        ]
        figures |= run_single(root, given.runs)
        if given.check_accounting:
            figures |= check_accounting(root, given.trials, given.parallel)
        if given.peer:
            figures["ado_point_ms"] = run_ado(given.ado_python, root) * 1e3
            ours = run_trials(root, ADO_POINTS, 1) * 1e3
            figures |= {"ours_of_50_ms": ours, "ado_to_ours": figures["ado_point_ms"] / ours}
    for key in rows[0]:
        figures[key] = statistics.median(row[key] for row in rows)
    figures["ratio"] = statistics.median(row["trial_ms"] / row["import_ms"] for row in rows)
    figures["ratio_base_model"] = statistics.median(row["trial_ms"] / row["base_model_ms"] for row in rows)
    passed = (
        figures["ratio"] <= BAR and figures["one_run_cpu_s"] <= ONE_RUN_S and figures["slowest_to_median"] <= SLOWEST
    )
    if given.json:
        print(json.dumps(figures | {"passed": passed, "all_rounds": rows}, indent=2))
    else:
        for key, value in figures.items():
            print(f"{key:22} {value:.4g}" if isinstance(value, float) else f"{key:22} {value}")
        print(
            f"{'passed' if passed else 'MISSED'}: {figures['ratio']:.2f} times `import pydantic`, at most {BAR}; "
            f"a run of one trial {figures['one_run_cpu_s']:.2f} CPU-s, at most {ONE_RUN_S}; "
            f"the slowest {figures['slowest_to_median']:.2f} times the median, at most {SLOWEST:g}"
        )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
