"""A function written for ado is called as its package wrote it: by its own version, and without ado's engine."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # imports ado

PACKAGE = '''
from ado.modules.actuators.custom_experiments import custom_experiment
from ado.schema.domain import PropertyDomain
from ado.schema.property import ConstitutiveProperty

@custom_experiment(
    required_properties=[ConstitutiveProperty(identifier="n", propertyDomain=PropertyDomain(values=[1, 2, 4]))],
    output_property_identifiers=["out"],
    version="1.2.0",
)
def doubled(n):
    """Twice n."""
    return {"out": 2 * n, "extra": "kept"}
'''
LOAD = """
import sys
from benchhouse.catalog.ado_experiments import load_ado
from benchhouse.schema.trial import ExperimentRef

def ref(version="1.2.0"):
    return ExperimentRef(
        name="custom_experiments.doubled", version=version, object="package:doubled", distribution="package",
        distribution_version="1.0", bridge="ado",
    )
"""


USE = """
found = load_ado(ref())
print(found.name, found.version, [metric.name for metric in found.metrics])
class Ctx:
    def metadata(self, **more): print(more)
    def warn(self, *words): print(words)
print(found.call({}, {"n": 4}, Ctx()))
import ray
print(ray.is_initialized())
from benchhouse.schema.errors import BenchError
try:
    load_ado(ref("2.0.0"))
except BenchError as error:
    print(error)
"""


def test_a_function_is_called_without_starting_ray_and_another_version_is_refused(tmp_path):
    (tmp_path / "package.py").write_text(PACKAGE)
    done = subprocess.run(
        [sys.executable, "-c", LOAD + USE], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    *lines, refusal = done.stdout.splitlines()
    assert lines == ["custom_experiments.doubled 1.2.0 ['out']", "{'extra': 'kept'}", "{'out': 8}", "False"]
    assert "custom_experiments.doubled 1.2.0, not custom_experiments.doubled 2.0.0" in refusal
