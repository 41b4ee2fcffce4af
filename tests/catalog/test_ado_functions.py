"""A function written for ado is called without ado's engine; whoever wants more of ado gets the real one."""

import subprocess
import sys

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
from benchhouse.catalog.ado_call import load_ado
from benchhouse.schema.trial import ExperimentRef

def ref(version="1.2.0"):
    return ExperimentRef(
        name="custom_experiments.doubled", version=version, object="package:doubled", distribution="package",
        distribution_version="1.0", bridge="ado",
    )
"""


def run(tmp_path, code, package=PACKAGE):
    (tmp_path / "package.py").write_text(package)
    done = subprocess.run(
        [sys.executable, "-c", LOAD + code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_function_is_loaded_and_called_without_ados_engine(tmp_path):
    said = run(
        tmp_path,
        """
found = load_ado(ref())
print(found.name, found.version, [metric.name for metric in found.metrics])
class Ctx:
    def metadata(self, **more): print(more)
    def warn(self, *words): print(words)
print(found.call({}, {"n": 4}, Ctx()))
print([name for name in ("ray", "numpy", "ado.core", "rich", "typer") if name in sys.modules])
""",
    )
    assert said == ["custom_experiments.doubled 1.2.0 ['out']", "{'extra': 'kept'}", "{'out': 8}", "[]"]


def test_what_is_more_than_a_call_comes_from_ado_itself(tmp_path):
    said = run(
        tmp_path,
        """
load_ado(ref())
import inspect, pickle
from package import doubled
print(doubled.__name__, doubled.__doc__, list(inspect.signature(doubled).parameters))
print(pickle.loads(pickle.dumps(doubled)) is doubled, doubled._is_custom_experiment)
print("ado.core" in sys.modules, doubled._experiment.identifier, "ado.core" in sys.modules)
print(doubled(n=2)["out"])
try:
    doubled(n=3)
except ValueError as error:
    print("refused by ado")
from ado.modules.actuators.custom_experiments import custom_experiment, get_custom_experiments_catalog
print([found.identifier for found in get_custom_experiments_catalog().experiments], custom_experiment.__module__)
""",
    )
    assert [line for line in said if not line.startswith("The entity")] == [  # ado says why it refuses
        "doubled Twice n. ['n']", "True True", "False doubled True", "4", "refused by ado",
        "['doubled'] ado.modules.actuators.custom_experiments",
    ]  # fmt: skip


def test_ados_own_list_has_what_was_decorated_before_it_was_asked_for(tmp_path):
    said = run(
        tmp_path,
        """
load_ado(ref())
import ado.modules.actuators.custom_experiments as stand_in
print([found.identifier for found in stand_in.get_custom_experiments_catalog().experiments])
""",
    )
    assert said == ["['doubled']"]


def test_another_version_is_refused_in_the_words_of_the_description(tmp_path):
    said = run(
        tmp_path,
        """
from benchhouse.schema.errors import BenchError
try:
    load_ado(ref("2.0.0"))
except BenchError as error:
    print(error)
""",
    )
    assert said == [
        "found custom_experiments.doubled 1.2.0, not custom_experiments.doubled 2.0.0: was the package changed?"
    ]


def test_domains_know_numbers_of_numpy_where_a_package_brings_it(tmp_path):
    package = PACKAGE.replace("values=[1, 2, 4]", "values=[numpy.int64(1), numpy.float64(2.5)]")
    said = run(
        tmp_path,
        """
load_ado(ref())
from ado.schema import domain
import numpy
print(isinstance(numpy.int64(3), domain.np.generic), isinstance(3, domain.np.generic), domain.np.isnan is numpy.isnan)
""",
        f"import numpy\n{package}",
    )
    assert said == ["True False True"]
