"""The real ado: a sweep of its own over experiments of ours, and a run of ours by it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ado_packages import install_ours

MEASURE = """
import json
from ado.modules.actuators.registry import ActuatorRegistry
from ado.schema.entity import Entity
from ado.schema.property import ConstitutivePropertyDescriptor
from ado.schema.property_value import ConstitutivePropertyValue
from ado.schema.reference import ExperimentReference

registry = ActuatorRegistry.globalRegistry()
catalog = registry.catalogForActuatorIdentifier("benchhouse")
reference = ExperimentReference(
    actuatorIdentifier="benchhouse", experimentIdentifier="sums", experimentVersion="1.0.0"
)
first = ConstitutivePropertyDescriptor(identifier="first")
points = [
    Entity(constitutive_property_values=(ConstitutivePropertyValue(property=first, value=value),)) for value in (1, 2)
]
actuator = registry.actuatorForIdentifier("benchhouse")()
request = actuator.execute(points, reference, requesterid="test", requestIndex=0)
versions = sorted(item.version for item in catalog.experiments if item.identifier == "sums")
print(json.dumps([versions, [result.model_dump(mode="json") for result in request.measurements]]))
"""
SCENARIO = """\
scenario: by-ado
experiment: sums
version: "2.0"
workload: {first: [1, 2]}
parallel: 2
"""
ADO = Path(sys.executable).with_name("ado")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A home with our cache, and `sums` installed in two versions."""
    root = tmp_path_factory.mktemp("ado-home")
    install_ours(root / "site")
    return root


def surroundings(root):
    return os.environ | {
        "HOME": str(root),
        "XDG_CONFIG_HOME": str(root / "config"),
        "PYTHONPATH": str(root / "site"),
        "BENCH_CACHE_DIR": str(root / "cache"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def test_the_actuator_in_ado_measures_points_with_metadata_failures_and_versions(house):
    """As a sweep of ado would, but in the process of the caller: Ray does not start."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], cwd=house, env=surroundings(house), capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    versions, (good, bad) = json.loads(done.stdout.splitlines()[-1])
    assert versions == ["1.0.0", "2.0.0"]
    assert good["measurements"][0]["value"] == 3
    assert good["metadata"]["metadata"] == {"said": "by 1.0"}
    assert good["metadata"]["distribution"] == "sums-1 1.0"
    assert bad["reason"].startswith("ArithmeticError: two is too much\nTraceback")
    assert (bad["metadata"]["type"], bad["metadata"]["version"]) == ("ArithmeticError", "1.0")


@pytest.mark.timeout(600)
@pytest.mark.slow("the real ado imports its libraries, starts Ray and ends it")
def test_a_scenario_runs_as_an_operation_of_ado_and_leaves_our_evidence(house, tmp_path, bench):
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    done = subprocess.run(
        [sys.executable, "-m", "benchhouse", "run", "--engine", "ado", "--json", "scenario.yaml"], cwd=tmp_path,
        env=surroundings(house), capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    steps = [line.partition("ado: ")[2] for line in done.stderr.splitlines() if line.startswith("ado: ")]
    assert re.fullmatch(r"random_walk\S+ measures 2 points \.\.\.", steps[-2]), steps
    assert steps[0].startswith("starting") and steps[1].endswith("Ray starts ...") and "ends Ray" in steps[-1]
    told = json.loads(done.stdout)
    assert told["outcomes"] == {"succeeded": 1, "error": 1}
    assert told["failures"][0]["code"] == "ArithmeticError"
    metas = [json.loads(path.read_bytes()) for path in (tmp_path / "results").glob("by-ado/*/meta.json")]
    assert sorted(meta["custom"].get("said", "") for meta in metas) == ["", "by 2.0"]
    assert bench("verify").code == 0
    assert "Success! Created operation" in next(tmp_path.glob(".bench/runs/*/ado/1/ado.log")).read_text()
