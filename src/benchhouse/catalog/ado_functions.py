"""Functions written for ado, without most of ado: whoever only calls one needs no catalogue, no engine, no validation.

ado's decorator describes a function, and its module imports nearly all of ado for that, 300 ms. A plan has been made of
that description, and its values checked by it. So where a function is only to be called, packages find a stand-in for
ado's module: it remembers what the decorator was told, and becomes the real one as soon as anybody wants more of it.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from benchhouse.catalog.ado_without_ray import ADO, import_ado
from benchhouse.catalog.stand_ins import StandIn, import_with

PREFIX = "custom_experiments."
_PROPERTIES = "ado.schema.property"  # with its domains: what nearly every decorator is told


class Decorated:
    """A function as ado's decorator would have it; what is more than its name and outputs is made by the real one."""

    def __init__(self, function: Callable[..., Any], told: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._told = told
        self._is_custom_experiment = True
        self._original_func = function

    @property
    def name(self) -> str:
        return PREFIX + self._original_func.__name__

    @property
    def version(self) -> str:
        """Empty where it has none of its own."""
        return self._told.get("version") or ""

    @property
    def outputs(self) -> Sequence[str]:
        outputs: Sequence[str] = self._told["output_property_identifiers"]
        return outputs

    @cached_property
    def real(self) -> Any:
        return import_ado().custom_experiment(**self._told)(self._original_func)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.real(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.real, name)

    def __reduce__(self) -> str:
        return str(self.__qualname__)  # pickled by its name, as functions are


def prepare_for_functions() -> None:
    """Have packages import the stand-in; nothing where ado's own module is there already."""
    if ADO in sys.modules:
        return
    parent, _, name = ADO.rpartition(".")
    package = importlib.import_module(parent)
    stand_ins = {} if "numpy" in sys.modules else {"numpy": StandIn("numpy", generic=_NumPyScalar)}
    import_with(stand_ins, _PROPERTIES)
    if ADO not in sys.modules:
        sys.modules[ADO] = _Decorators()
        setattr(package, name, sys.modules[ADO])


class _Decorators(StandIn):
    """Stands in for ado's module of decorators."""

    def __init__(self) -> None:
        super().__init__(ADO)
        self._made: list[Decorated] = []

    def custom_experiment(self, output_property_identifiers: Sequence[str], *given: Any, **told: Any) -> Any:
        if given or sys.modules.get(ADO) is not self:
            return self._real.custom_experiment(output_property_identifiers, *given, **told)
        told["output_property_identifiers"] = output_property_identifiers

        def decorate(function: Callable[..., Any]) -> Decorated:
            self._made.append(Decorated(function, told))
            return self._made[-1]

        return decorate

    @cached_property
    def _real(self) -> ModuleType:
        module = import_ado()
        for decorated in self._made:
            _ = decorated.real  # ado keeps a list of all that are decorated
        return module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"the stand-in for {ADO} has no {name}")
        return getattr(self._real, name)


class _Scalars(type):
    def __instancecheck__(cls, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        return numpy is not None and isinstance(value, numpy.generic)


class _NumPyScalar(metaclass=_Scalars):
    """`numpy.generic`, as far as it is asked whether something is one: without NumPy nothing is."""
