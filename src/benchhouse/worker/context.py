"""The context passed to an experiment: it collects values, facts, and warnings, and rejects undeclared metrics."""

import math
import re
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from benchhouse.analysis.summary import NANOSECONDS
from benchhouse.catalog.entries import find_plug, load_object, plug
from benchhouse.evidence.data_cache import DataCache
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Direction, Experiment, ExperimentFailed, Metric
from benchhouse.schema.histogram import Histogram
from benchhouse.worker import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from benchhouse.schema.recipe import Recipe, Service
    from benchhouse.schema.service import TrialService
    from benchhouse.worker.trial_services import TrialServices


@dataclass
class MetricWindow:
    """All values of one metric in one window, in the order of emission."""

    metric: Metric
    window: str
    values: array  # type: ignore[type-arg]  # of doubles
    histogram: Histogram | None = None  # of nanoseconds, instead of values
    errors: "Mapping[str, float]" = field(default_factory=dict)  # uncertainty of figures, by stat
    beyond: "Collection[str]" = ()  # stats whose uncertainty is above the limit


@dataclass
class TrialContext:
    experiment: Experiment
    trial_id: str
    repetition: int
    seed: int
    workdir: Path
    artifacts_folder: Path
    cache: DataCache
    series: dict[tuple[str, str], MetricWindow] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    invalidities: list[tuple[str, str]] = field(default_factory=list)
    phases: list[tuple[str, int, int]] = field(default_factory=list)
    per_energy: list[tuple[Metric, float]] = field(default_factory=list)
    oom_kills_overcome: int = 0
    make_services: "Callable[[], TrialServices] | None" = None
    version_of: "Callable[[Recipe, str | None], str]" = lambda recipe, program: ""
    """Returns the version of a server's program; `program` is the one that the scenario names, or None."""
    image_pins: "Mapping[str, str]" = field(default_factory=dict)
    cpus: int = 1
    nodes: list[str] = field(default_factory=nodes.names)
    declared: dict[str, Metric] = field(default_factory=dict)
    _services: "TrialServices | None" = None

    @property
    def artifacts(self) -> Path:
        """The artifacts folder, created at first use: most trials store nothing there."""
        self.artifacts_folder.mkdir(exist_ok=True)
        return self.artifacts_folder

    def emit(
        self, name: str, value: float, unit: str | None = None, *, direction: Direction | None = None, window: str = ""
    ) -> None:
        try:
            if isinstance(value, str | bytes):
                raise TypeError  # "12" would pass for a number
            number = float(value)
        except OverflowError:
            number = math.inf
        except (TypeError, ValueError):
            self.fail("not_a_number", f"metric '{name}' was given {value!r}, a {type(value).__name__}")
        if not math.isfinite(number):
            self.fail("not_finite", f"metric '{name}' was given {number}: a measurement is a finite number")
        self._series(name, unit, direction, str(window)).values.append(number)

    def emit_all(self, name: str, values: "Iterable[float]", *, window: str = "") -> None:
        try:
            numbers = values if isinstance(values, array) and values.typecode == "d" else array("d", values)
        except (TypeError, ValueError, OverflowError) as error:
            self.fail(
                "not_a_number", f"metric '{name}' was given a {type(values).__name__} of more than numbers: {error}"
            )
        if not all(map(math.isfinite, numbers)):
            wrong = next(number for number in numbers if not math.isfinite(number))
            self.fail("not_finite", f"metric '{name}' was given {wrong}: a measurement is a finite number")
        if numbers:
            self._series(name, None, None, str(window)).values.extend(numbers)

    def _series(self, name: str, unit: str | None, direction: Direction | None, window: str) -> MetricWindow:
        """Return the window to which values of a metric are added."""
        series = self.series.get((name, window))
        if series is None:
            self._refuse_mixture(name, histogram=False)
            series = self.series[name, window] = MetricWindow(self._declared(name, unit, direction), window, array("d"))
        elif series.histogram is not None:
            self._refuse_mixture(name, histogram=False)
        elif unit is not None and unit != series.metric.unit:
            self.fail("unit_mismatch", f"metric '{name}' was given in {unit}; its unit is {series.metric.unit}")
        return series

    def declare(self, metric: Metric) -> None:
        self.declared[metric.name] = metric

    def distribution(self, name: str, histogram: Histogram, window: str = "") -> None:
        if not isinstance(histogram, Histogram):
            self.fail("not_a_histogram", f"metric '{name}' was given a {type(histogram).__name__}, not a Histogram")
        self._refuse_mixture(name, histogram=True)
        metric = self._declared(name, None, None, otherwise="ns")
        if metric.unit not in NANOSECONDS:
            units = ", ".join(NANOSECONDS)
            self.fail("unit_mismatch", f"metric '{name}' is in {metric.unit}; a histogram needs one of {units}")
        window = str(window)
        if not histogram.n:
            return
        series = self.series.setdefault((name, window), MetricWindow(metric, window, array("d"), Histogram()))
        assert series.histogram is not None
        series.histogram.merge(histogram)

    def bound(self, name: str, errors: "Mapping[str, float]", beyond: "Collection[str]" = ()) -> None:
        for (known, _), series in self.series.items():
            if known == name:
                series.errors, series.beyond = errors, beyond

    def _refuse_mixture(self, name: str, *, histogram: bool) -> None:
        """Fail if a metric is both emitted and counted: its percentiles must have one definition."""
        for (known, _), series in self.series.items():
            if known == name and (series.histogram is not None) != histogram:
                self.fail("mixed_distribution", f"metric '{name}' was given both as values and as a histogram")

    def _declared(self, name: str, unit: str | None, direction: Direction | None, otherwise: str = "1") -> Metric:
        """Return the declared metric, or one made from the arguments; `otherwise` is its unit if neither names one."""
        metric = self.declared.get(name) or self.experiment.metric(name)
        if metric is None and self.experiment.strict_metrics and self.experiment.metrics:
            declared = ", ".join(item.name for item in self.experiment.metrics)
            self.fail("undeclared_metric", f"metric '{name}' is not declared by {self.experiment.name} ({declared})")
        if metric is None:
            try:
                return Metric(name=name, unit=unit or otherwise, direction=direction)
            except ValueError:
                self.fail("bad_metric_name", f"{name!r} is not a metric name: letters, digits and _ . @ -")
        if unit is not None and unit != metric.unit:
            self.fail("unit_mismatch", f"metric '{name}' was given in {unit}; it is declared in {metric.unit}")
        return metric

    def metadata(self, **items: Any) -> None:
        self.facts.update(items)

    def phase(self, name: str, begin_ns: int, end_ns: int) -> None:
        name, begin_ns, end_ns = str(name), int(begin_ns), int(end_ns)
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,49}", name):
            self.fail("bad_phase", f"{name!r} is not a phase's name: small letters, digits, _ and -")
        if end_ns < begin_ns:
            self.fail("bad_phase", f"phase '{name}' ends before it begins")
        self.phases.append((name, begin_ns, end_ns))

    def energy_per(self, name: str, amount: float) -> None:
        if not (math.isfinite(amount) and amount > 0):
            self.fail("not_finite", f"metric '{name}' is energy / {amount}: an amount is a finite number above 0")
        self.per_energy.append((self._declared(name, None, None, otherwise="J"), float(amount)))

    def overcame_oom_kills(self, count: int) -> None:
        self.oom_kills_overcome += count

    def warn(self, code: str, message: str) -> None:
        if (warning := (str(code), str(message))) not in self.warnings:
            self.warnings.append(warning)

    def invalid(self, code: str, message: str) -> None:
        if (reason := (str(code), str(message))) not in self.invalidities:
            self.invalidities.append(reason)

    def fail(self, code: str, message: str, *, retryable: bool = False) -> NoReturn:
        raise ExperimentFailed(str(code), str(message), retryable)

    def driver(self, name: str) -> Any:
        try:
            driver = find_plug("drivers", name, self.experiment.drivers)
        except BenchError as error:
            self.fail("no_such_driver", f"{error.message} ({error.hint})")
        return load_object(driver.object)

    def service(self, recipe: "str | Recipe") -> "Service":
        known: Recipe = plug("recipes", recipe) if isinstance(recipe, str) else recipe
        known = known.with_pin(self.image_pins)
        started = self._started().start(known)
        self._warn_exposed()
        facts = {"recipe": started.recipe, "start_s": started.start_s}
        facts |= known.image_facts(started.image) or {"version": self.version_of(known, None)}
        self.facts.setdefault("services", {})[started.name] = facts
        return started

    def on_node(self, node: str) -> list[str]:
        return nodes.command_on(node, self.cpus)

    def start_services(self, wanted: "Mapping[str, TrialService]") -> dict[str, list[str]]:
        """Start or find the services of the scenario. Return their endpoints by name."""
        if not wanted:
            return {}
        endpoints, facts = self._started().begin(wanted)
        self._warn_exposed()
        self.facts.setdefault("services", {}).update(facts)
        for name, about in facts.items():
            recipe = wanted[name].recipe
            if recipe and about["mode"] == "embedded" and not about.get("image"):
                about["version"] = self.version_of(recipe, wanted[name].parameters.get("program"))
            if "unhealthy" in about:
                self.warn("server_unhealthy", f"{name} did not answer when the trial began: {about['unhealthy']}")
        return endpoints

    def _warn_exposed(self) -> None:
        for name in self._started().exposed:
            self.warn("exposed", f"{name} listens on the network of the nodes and asks for no password")

    def end_services(self) -> str:
        """End all started services. Return how one had ended on its own, otherwise an empty text."""
        if self._services is None:
            return ""
        for compared in self._services.pods.compare():
            self.facts["services"][compared.name].update(compared.facts)
            if compared.code:
                self.warn(compared.code, compared.message)
        return self._services.close()

    def _started(self) -> "TrialServices":
        if self._services is None:
            assert self.make_services is not None
            self._services = self.make_services()
        return self._services

    def in_order(self) -> list[MetricWindow]:
        """Return the emitted metrics, most important first: those requested by the user, then the experiment's as
        declared."""
        places = {metric.name: at for at, metric in enumerate(self.experiment.metrics)}
        return sorted(self.series.values(), key=lambda item: places.get(item.metric.name, -1))

    def accept(self, returned: Any) -> None:
        """Record what a function returned: numbers are metrics, everything else is metadata."""
        if returned is None:
            return
        if not isinstance(returned, dict):
            self.fail("bad_return", f"the experiment returned a {type(returned).__name__}; expected a dict or nothing")
        for name, value in returned.items():
            number = _number(value)
            if number is None:
                self.facts[str(name)] = value
            else:
                self.emit(str(name), number)


def _number(value: Any) -> float | None:
    """Return a number, also one of NumPy's; None for booleans, text, and containers."""
    if isinstance(value, bool | str | bytes | list | tuple | dict) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
