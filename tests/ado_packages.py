"""A small package of experiments for the real ado, as somebody else would write and install it."""

from pathlib import Path

DECORATOR = """
from ado.modules.actuators.custom_experiments import custom_experiment
from ado.schema.domain import PropertyDomain, VariableTypeEnum
from ado.schema.property import ConstitutiveProperty

def number(name, **domain):
    return ConstitutiveProperty(identifier=name, propertyDomain=PropertyDomain(**domain))
"""
ONE = (
    DECORATOR
    + """
N = number("n", variableType=VariableTypeEnum.DISCRETE_VARIABLE_TYPE, domainRange=[0, 100], interval=1)

@custom_experiment(output_property_identifiers=["double"], required_properties=[N], version="1.0.0")
def doubling(n: int, mode: str = "plain"):
    "Doubles a number."
    return {"double": 2 * n, "by": "one", "seen": [n]}

@custom_experiment(output_property_identifiers=["out"], required_properties=[N], version="1.0.0")
def raising(n: int):
    "Raises where n is odd."
    if n % 2:
        raise ArithmeticError(f"{n} is odd")
    return {"out": n}

@custom_experiment(
    output_property_identifiers=["out", "never"],
    required_properties=[
        N, number("kind", variableType=VariableTypeEnum.CATEGORICAL_VARIABLE_TYPE, values=["a", "b"]),
        number("share", variableType=VariableTypeEnum.CONTINUOUS_VARIABLE_TYPE, domainRange=[0, 1]),
        number("batch", variableType=VariableTypeEnum.DISCRETE_VARIABLE_TYPE, values=[8, 16]),
    ],
    ray_options={"num_cpus": 1.5, "memory": 2000000000, "max_retries": 3},
)
def needing(n: int, kind: str, share: float, batch: int, flag: bool = False):
    return {"out": n + share + batch}
"""
)
TWO = ONE.replace('version="1.0.0"', 'version="2.0.0"').replace(
    '"double": 2 * n, "by": "one"', '"double": n + n, "by": "two"'
)
ACTUATOR = """
from ado.modules.actuators.catalog import ExperimentCatalog
from ado.modules.actuators.standard import StandardActuator
from ado.schema.domain import PropertyDomain
from ado.schema.experiment import Experiment
from ado.schema.property import AbstractPropertyDescriptor, ConstitutiveProperty

class Halving(StandardActuator):
    "Halves."
    identifier = "halver"

    @classmethod
    def catalog(cls, actuator_configuration=None):
        n = ConstitutiveProperty(identifier="n", propertyDomain=PropertyDomain(domainRange=[0, 100], interval=1))
        halve = Experiment(
            actuatorIdentifier="halver", identifier="halve", requiredProperties=(n,), version="0.1.0",
            targetProperties=[AbstractPropertyDescriptor(identifier="half")], metadata={"description": "Half of n."},
        )
        return ExperimentCatalog(catalogIdentifier="halver", experiments={halve.identifier: halve})

    def _experiment_implementations(self):
        return {"halve": lambda n: {"half": n / 2, "rest": n % 2}}
"""


def install(folder: Path, name: str, module: str, code: str, lines: str, version: str = "1.0") -> None:
    """Write `module`.py and a dist-info with these lines of entry points: to importlib it is installed."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nFor tests.\n")
    (info / "entry_points.txt").write_text(lines)
    (info / "RECORD").write_text(f"{module}.py,,\n")


def install_all(folder: Path) -> None:
    """`doubling` in two versions by two packages, one that raises, one that asks for resources, and an actuator."""
    install(folder, "ado-one", "ado_one", ONE, "[ado.custom_experiments]\none = ado_one\n", "0.3")
    second = TWO.partition('@custom_experiment(output_property_identifiers=["out"]')[0]
    install(folder, "ado-two", "ado_two", second, "[ado.custom_experiments]\ntwo = ado_two\n", "0.4")
    install(folder, "ado-halver", "ado_halver", ACTUATOR, "[ado.actuators]\nhalver = ado_halver:Halving\n", "0.5")


OURS = """
from benchhouse import Metric, experiment

@experiment("sums", version="{version}", metrics=[Metric(name="total", unit="1")])
def sums(first: int, second: int = 2, ctx=None):
    "Adds two numbers."
    if first == 2:
        raise ArithmeticError("two is too much")
    ctx.metadata(said="by {version}")
    if first == 3:
        ctx.emit("total", first + second)
        ctx.bound("total", {{"value": 9.0}}, ["value"])
        return None
    return {{"total": first + second}}
"""


def install_ours(folder: Path) -> None:
    """`sums` in two versions, for our own catalogue: ado is to see them through our actuator."""
    for version in ("1.0", "2.0"):
        module = f"sums_{version[0]}"
        lines = f"[benchhouse.experiments]\nsums = {module}:sums\n"
        install(folder, f"sums-{version[0]}", module, OURS.format(version=version), lines, version)
