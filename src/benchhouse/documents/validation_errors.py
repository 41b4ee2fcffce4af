"""Convert pydantic's errors into problems in terms of the file; their only wording."""

import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import MOST_PROBLEMS, Problem, ProblemsError, did_you_mean
from benchhouse.schema.quoting import describe, printable, quote, shorten

if TYPE_CHECKING:  # pydantic is slow to import, and not needed for a file that can't be read
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_WANTED = {
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of sensible size", "float_type": "a number", "float_parsing": "a number",
    "decimal_type": "a number", "decimal_parsing": "a number", "finite_number": "a finite number",
    "bool_type": "true or false", "bool_parsing": "true or false", "string_type": "text", "path_type": "a path",
    "list_type": "a list", "tuple_type": "a list", "set_type": "a list", "frozen_set_type": "a list",
    "iterable_type": "a list", "sequence_type": "a list", "dict_type": "a mapping", "mapping_type": "a mapping",
    "model_type": "a mapping", "model_attributes_type": "a mapping", "dataclass_type": "a mapping",
    "none_required": "nothing (null)", "date_type": "a date", "date_parsing": "a date",
    "date_from_datetime_parsing": "a date", "datetime_type": "a date and time", "datetime_parsing": "a date and time",
    "datetime_from_date_parsing": "a date and time", "time_type": "a time", "time_parsing": "a time",
    "time_delta_type": "a duration", "time_delta_parsing": "a duration", "url_type": "a URL", "url_parsing": "a URL",
    "uuid_type": "a UUID", "uuid_parsing": "a UUID", "bytes_type": "text",
}  # fmt: skip
_BOUNDS = {
    "greater_than": ("gt", "more than {}"), "greater_than_equal": ("ge", "at least {}"),
    "less_than": ("lt", "less than {}"), "less_than_equal": ("le", "at most {}"),
    "multiple_of": ("multiple_of", "a multiple of {}"),
}  # fmt: skip
_LENGTHS = {
    "too_short": ("min_length", "at least {} item(s)"), "too_long": ("max_length", "at most {} item(s)"),
    "string_too_short": ("min_length", "at least {} character(s)"),
    "string_too_long": ("max_length", "at most {} character(s)"),
}  # fmt: skip
_MOST_FINDINGS = 10 * MOST_PROBLEMS  # errors of pydantic, which reports each branch of a union
_NOT_TEXT = ("true", "false", "yes", "no", "on", "off", "null")  # not read as text without quotes


@dataclass(frozen=True)
class _Finding:
    """A pydantic error, with its `loc` split into the path in the file and the union branches that pydantic tried."""

    error: "ErrorDetails"
    path: tuple[str | int, ...]
    branches: tuple[tuple[int, str], ...]  # (how much of `path` came before the union, the branch's label)
    shape: Any  # the annotation that `path` leads to
    parent: Any  # the annotation one step before
    at_key: bool = False

    @property
    def wanted(self) -> str:
        """The expected shape, if the value has the wrong shape; otherwise empty."""
        if self.error["type"] in ("literal_error", "enum"):
            return str(self.error["ctx"]["expected"])
        return _WANTED.get(self.error["type"], "")


_Read = TypeVar("_Read", bound="BaseModel")


def validated(document: Document, model: type[_Read]) -> _Read:
    """Return the document as that model; raise ProblemsError with every mistake in its place."""
    from pydantic import ValidationError

    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise ProblemsError(from_pydantic(error, document, model)) from error


def from_pydantic(
    error: "ValidationError",
    document: "Document",
    model: Any,
    belongs: "Callable[[ErrorDetails, Loc], bool]" = lambda item, path: True,
) -> list[Problem]:
    """Convert pydantic's errors about `document.data` to problems; `model` is what the data was validated against.

    For a union, only the branch that fits best is reported; if none fits, one problem names them all. `belongs` gets
    each error and its path, and excludes errors of other files and those already reported. At most MOST_PROBLEMS are
    returned.
    """
    traced = (_trace(item, document.data, model) for item in error.errors(include_url=False, include_input=False))
    findings = (finding for finding in traced if belongs(finding.error, finding.path))
    groups = _settle(list(islice(findings, _MOST_FINDINGS)), 0)
    return list(islice((problem for group in groups for problem in _explain(group, document)), MOST_PROBLEMS))


def _trace(error: "ErrorDetails", data: Any, model: Any) -> _Finding:
    """Follow `loc` through data and annotations together, which distinguishes keys from names of branches."""
    path: list[str | int] = []
    branches: list[tuple[int, str]] = []
    shape, parent, at_key = model, None, False
    for step, part in enumerate(error["loc"]):
        shape = _bare(shape)
        if part == "[key]" and step == len(error["loc"]) - 1:
            at_key = True
        elif _is_union(shape) and (_names(shape, part) or not _has(data, part)):
            branches.append((len(path), str(part)))
            shape = next((member for member in _members(shape) if _names(member, part)), None)
        elif _has(data, part):
            path.append(part)
            shape, parent, data = _inside(shape, part), shape, data[part]
        elif hasattr(shape, "model_fields"):  # a missing key
            shape, parent = _inside(shape, part), shape
    return _Finding(error, tuple(path), tuple(branches), shape, parent, at_key)


def _settle(findings: list[_Finding], depth: int) -> list[list[_Finding]]:
    """Return groups that become one problem each: single findings, or the conflicting shapes of one union."""
    settled = [[finding] for finding in findings if len(finding.branches) <= depth]
    unions: dict[tuple[str | int, ...], dict[str, list[_Finding]]] = {}
    for finding in findings:
        if len(finding.branches) > depth:
            before, label = finding.branches[depth]
            unions.setdefault(finding.path[:before], {}).setdefault(label, []).append(finding)
    for path, tried in unions.items():
        fitting = [branch for branch in tried.values() if not any(f.path == path and f.wanted for f in branch)]
        if fitting:
            settled += _settle(min(fitting, key=_misfit), depth + 1)
        else:
            settled.append([finding for branch in tried.values() for finding in branch if finding.wanted])
    return settled


def _misfit(branch: list[_Finding]) -> tuple[int, int, int]:
    """Return the sort key of a union's branches: fewest unknown keys, then fewest problems, then the deepest."""
    unknown = sum(finding.error["type"] == "extra_forbidden" for finding in branch)
    return unknown, len(branch), -max(len(finding.path) for finding in branch)


def _explain(group: list[_Finding], document: "Document") -> list[Problem]:
    finding = group[0]
    error, path, ctx = finding.error, finding.path, finding.error.get("ctx", {})
    value, kind = path[-1] if finding.at_key else document.value(path), error["type"]
    wanted = list(dict.fromkeys(f.wanted for f in group if f.wanted))
    key = str(error["loc"][-1]) if error["loc"] else ""
    if kind == "extra_forbidden":
        keys = _keys(finding.parent)
        expected = f"one of {', '.join(keys)}" if keys else ""
        meant = did_you_mean(key, keys) or ""
        return [document.problem(path, f"unknown key {quote(key)}", expected, meant, key=True)]
    if kind == "missing":
        field = _field(finding.parent, key)
        expected = str(getattr(field, "description", None) or "")
        if get_origin(choice := getattr(field, "annotation", None)) is Literal:
            expected = f"one of {', '.join(map(str, get_args(choice)))}. {expected}".rstrip()
        return [document.problem(path, f"missing key '{key}'{_within(path)}", expected, key=True)]
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return [_explain_tag(finding, document)]
    if wanted:
        options = [option for text in wanted for option in re.findall(r"'([^']*)'", text)]
        meant = (did_you_mean(value, options) or "") if isinstance(value, str) else ""
        message = f"expected {' or '.join(wanted)}, found {describe(value)}"
        number = "text" in wanted and isinstance(value, int | float)
        hint = f'text in quotes: "{document.written(path)}"' if number else ""
        if "a list" in wanted and isinstance(value, str) and value and not finding.at_key:
            plain = re.fullmatch(r"[A-Za-z_./][\w ./=+-]*", value) and value.lower() not in _NOT_TEXT
            item = shorten(printable(value))
            hint = f"a list, e.g. [{item}]" if plain else f'a list, e.g. ["{item}"]'
        plural = f"{path[-1]}s" if path else ""
        if isinstance(value, list) and plural in _keys(finding.parent):
            meant = plural
        return [document.problem(path, message, hint, meant, key=finding.at_key)]
    return [document.problem(path, _plain_message(error, ctx, value), key=finding.at_key)]


def _explain_tag(finding: _Finding, document: "Document") -> Problem:
    ctx, path = finding.error.get("ctx", {}), finding.path
    key = str(ctx.get("discriminator", "kind")).strip("'")
    value = document.value(path)
    if not key.isidentifier():  # a function chose the branch, not a key
        return document.problem(path, "none of the known variants fits this", str(ctx.get("expected_tags", "")))
    if not isinstance(value, dict) or key not in value:
        tags = [tag for member in _members(_bare(finding.shape)) for tag in _tags(member, key)]
        expected = f"one of {', '.join(tags)}" if tags else ""
        return document.problem(path, f"missing key '{key}'{_within(path)}", expected, key=True)
    tags = re.findall(r"'([^']*)'", str(ctx.get("expected_tags", "")))
    tag = value[key]
    message = f"unknown {key} {quote(tag) if isinstance(tag, str) else describe(tag)}"
    return document.problem((*path, key), message, f"one of {', '.join(tags)}", did_you_mean(str(tag), tags) or "")


def _plain_message(error: "ErrorDetails", ctx: dict[str, Any], value: Any) -> str:
    kind = error["type"]
    if kind in ("value_error", "assertion_error") and "error" in ctx:
        return str(ctx["error"]) or error["msg"].partition(", ")[2]
    if kind in _BOUNDS:
        name, phrase = _BOUNDS[kind]
        return f"expected {phrase.format(ctx[name])}, found {describe(value)}"
    if kind in _LENGTHS:
        name, phrase = _LENGTHS[kind]
        count = len(value) if isinstance(value, str | list | dict) else ctx.get("actual_length", "another number")
        return f"expected {phrase.format(ctx[name]).replace('(s)', '' if ctx[name] == 1 else 's')}, found {count}"
    if kind == "string_pattern_mismatch":
        return f"{describe(value)} does not match the pattern {ctx['pattern']}"
    message = re.sub(r"^(Value error|Assertion failed), ", "", error["msg"])
    expected = re.sub(r"^Input should (be )?(a valid )?", "", message)
    return message if expected == message else f"expected {expected}, found {describe(value)}"


def _within(path: tuple[str | int, ...]) -> str:
    """Return ` in load.stages[0]`; empty at the top of the file."""
    dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return f" in {shorten(printable(dotted))}" if dotted else ""


# ---- annotations ----------------------------------------------------------------------------------------------


def _bare(shape: Any) -> Any:
    """Return the annotation without Annotated, Optional, type aliases, and root models around it."""
    while True:
        if get_origin(shape) is Annotated:
            shape = get_args(shape)[0]
        elif hasattr(shape, "__value__"):
            shape = shape.__value__
        elif getattr(shape, "__pydantic_root_model__", False):
            shape = shape.model_fields["root"].annotation
        elif _is_union(shape) and len(_members(shape)) == 1:
            shape = _members(shape)[0]
        else:
            return shape


def _is_union(shape: Any) -> bool:
    return get_origin(shape) in (Union, types.UnionType)


def _members(shape: Any) -> list[Any]:
    shape = get_args(shape)[0] if get_origin(shape) is Annotated else shape
    return [member for member in get_args(shape) if member is not type(None)] if _is_union(shape) else [shape]


def _names(shape: Any, label: str | int) -> bool:
    """Return whether pydantic may call this annotation, or a member of it, by `label`."""
    shape = _bare(shape)
    if _is_union(shape):
        nested = str(label).startswith("tagged-union[")
        return nested or any(_names(member, label) for member in _members(shape))
    if hasattr(shape, "model_fields"):
        known = {tag for name in shape.model_fields for tag in _tags(shape, name)}
        return label == shape.__name__ or label in known or f" {shape.__name__}]" in str(label)
    name = getattr(get_origin(shape) or shape, "__name__", "").lower()
    return bool(name) and re.match(rf"{name}\b|.*\W{name}\b", str(label)) is not None


def _tags(shape: Any, key: str) -> list[str]:
    field = _field(_bare(shape), key)
    annotation = getattr(field, "annotation", None)
    return [str(value) for value in get_args(annotation)] if get_origin(annotation) is Literal else []


def _has(data: Any, part: str | int) -> bool:
    if isinstance(data, dict):
        return part in data
    return isinstance(data, list) and isinstance(part, int) and 0 <= part < len(data)


def _inside(shape: Any, part: str | int) -> Any:
    if hasattr(shape, "model_fields"):
        return getattr(_field(shape, str(part)), "annotation", None)
    inner = [arg for arg in get_args(shape) if arg is not Ellipsis]
    if get_origin(shape) is tuple and isinstance(part, int) and len(inner) > 1:
        return inner[part] if part < len(inner) else None
    return inner[-1] if inner else None


def _field(shape: Any, key: str) -> Any:
    """Return the model's field that a file calls `key`; None if there is none."""
    fields = getattr(shape, "model_fields", {})
    return next((field for name, field in fields.items() if key in (_written(name, field), name)), None)


def _keys(shape: Any) -> list[str]:
    return [_written(name, field) for name, field in getattr(shape, "model_fields", {}).items()]


def _written(name: str, field: Any) -> str:
    alias = field.validation_alias or field.alias
    return alias if isinstance(alias, str) else name
