"""ado is imported without Ray; whoever asks for Ray afterwards, ado included, gets the real one."""

import subprocess
import sys


def run(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_ado_comes_without_ray_and_ray_comes_when_it_is_used():
    said = run(
        """
import sys
from benchhouse.catalog.ado_without_ray import import_ado

ado = import_ado()
print([name for name in sys.modules if name.partition(".")[0] == "ray"])
print(import_ado() is ado)

@ado.custom_experiment(output_property_identifiers=["out"], ray_options={"num_cpus": 2})
def doubling(n: int):
    import ray  # an experiment may use it
    return {"out": 2 * n, "by": ray.__name__, "real": hasattr(ray, "init")}

print(doubling(n=4))
import ray
from ado.modules.actuators import measurement_queue
from ado.modules.actuators.standard import StandardActuator

print(ado.ray.remote is ray.remote, ado.ray.util.queue is sys.modules["ray.util.queue"])
print(type(ado._custom_experiment_executor_remote(doubling)).__name__)
queue = measurement_queue.MeasurementQueue
queue.__new__(queue)
print(queue.__mro__[1] is ray.util.queue.Queue, issubclass(queue, ray.util.queue.Queue))
print(hasattr(StandardActuator, "execute"))
"""
    )
    assert said == [
        "[]", "True", "{'out': 8, 'by': 'ray', 'real': True}", "True True", "RemoteFunction", "True True", "True",
    ]  # fmt: skip


def test_an_ado_that_needs_more_of_ray_is_imported_with_ray():
    said = run(
        """
import sys
from benchhouse.catalog import ado_without_ray

made = ado_without_ray._stand_ins
ado_without_ray._stand_ins = lambda: {name: module for name, module in made().items() if name != "ray.util.queue"}
ado = ado_without_ray.import_ado()
print(ado.ray is sys.modules["ray"], hasattr(ado.ray, "init"))
from ado.modules.actuators.measurement_queue import MeasurementQueue
print(issubclass(MeasurementQueue, ado.ray.util.queue.Queue))
"""
    )
    assert said == ["True True", "True"]


def test_where_ray_was_imported_before_it_is_what_ado_gets():
    code = "import ray\nfrom benchhouse.catalog.ado_without_ray import import_ado\nprint(import_ado().ray is ray)"
    assert run(code) == ["True"]
