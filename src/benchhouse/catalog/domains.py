"""Compare domains of properties: which values they contain, whether two overlap, which value represents a region."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchhouse.schema.ado import PropertyDomain

MISSING: Final = object()
_MOST_LISTED = 10_000
_ROUNDING = 1e-9


def same(a: Any, b: Any) -> bool:
    """Return whether values are equal in the sense of files: 1 equals 1.0, but neither true nor '1'."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def holds(domain: PropertyDomain | None, value: Any) -> bool:
    """Return whether the value is in the domain; a range includes its lower end, but not its upper end."""
    if domain is None:
        return True
    if domain.values is not None:
        return any(same(value, item) for item in domain.values)
    if domain.variable_type == "BINARY_VARIABLE_TYPE":
        return value in (0, 1)
    if domain.domain_range is None:
        return domain.variable_type not in ("CONTINUOUS_VARIABLE_TYPE", "DISCRETE_VARIABLE_TYPE") or _is_number(value)
    low, high = domain.domain_range
    return _is_number(value) and low <= value < high and (domain.interval is None or _steps(value, domain))


def listed(domain: PropertyDomain | None) -> list[Any] | None:
    """Return the values one by one; None if they cannot be listed."""
    if domain is None:
        return None
    if domain.values is not None:
        return list(domain.values)
    if domain.variable_type == "BINARY_VARIABLE_TYPE":
        return [0, 1]
    if domain.domain_range is None or domain.interval is None:
        return None
    low, high = domain.domain_range
    count = (high - low) / domain.interval
    if count > _MOST_LISTED:
        return None
    steps = (low + step * domain.interval for step in range(int(count) + 1))
    return [whole(value) for value in steps if value < high - domain.interval * _ROUNDING]


def apart(a: PropertyDomain | None, b: PropertyDomain | None) -> bool:
    """Return whether no value is in both; False if that cannot be determined."""
    for domain, other in ((a, b), (b, a)):
        if (values := listed(domain)) is not None:
            return not any(holds(other, value) for value in values)
    if a is None or b is None or a.domain_range is None or b.domain_range is None:
        return False
    return a.domain_range[1] <= b.domain_range[0] or b.domain_range[1] <= a.domain_range[0]


def stand_in(domains: Sequence[PropertyDomain]) -> Any:
    """Return the first listed value in all domains, otherwise the lower end of the range; MISSING if there is none."""
    starts = [domain.domain_range[0] for domain in domains if domain.domain_range is not None]
    offered = [values for domain in domains if (values := listed(domain)) is not None]
    candidates = min(offered, key=len) if offered else [whole(max(starts))] if starts else []
    return next((value for value in candidates if all(holds(domain, value) for domain in domains)), MISSING)


def look_up(identifier: str, target: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
    """Return an input's value in an instance, by the names that scenarios use; MISSING if it has none.

    `target.x` is an input of the target and `workload.x` a parameter; plain `x` is a parameter if there is one.
    """
    if identifier.startswith("target."):
        return _inside(target, identifier.removeprefix("target."))
    if identifier.startswith("workload."):
        return _inside(parameters, identifier.removeprefix("workload."))
    value = _inside(parameters, identifier)
    return _inside(target, identifier) if value is MISSING else value


def whole(value: float) -> float | int:
    """Return 100.0 as 100, the way people write it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _inside(data: Mapping[str, Any], name: str) -> Any:
    if name in data:
        return data[name]
    head, dot, rest = name.partition(".")
    inner = data.get(head)
    return _inside(inner, rest) if dot and isinstance(inner, Mapping) else MISSING


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _steps(value: float, domain: PropertyDomain) -> bool:
    assert domain.domain_range is not None and domain.interval is not None
    steps = (value - domain.domain_range[0]) / domain.interval
    return abs(steps - round(steps)) < _ROUNDING * max(1.0, abs(steps))
