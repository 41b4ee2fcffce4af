"""The reference page of the Python API: classes, methods and values of benchhouse.api, read from their source."""

import ast
import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, is_typeddict

from pydantic import BaseModel

from benchhouse.api.run import Run
from benchhouse.api.workspace import Workspace
from benchhouse.documents.problems import Problem, ProblemsError
from benchhouse.schema.errors import BenchError, Exit

_INTRO = (
    '`import benchhouse as bh; ws = bh.open(".")`. How to use it: [Use it from Python](../how-to/use-from-python.md). '
    "What a method returns is a frozen value, described below under its name. Keywords behind `**` are listed there "
    "too. Fields of `bh.Scenario` are the keys of a [scenario file](scenario.md)."
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_WIDEST = 90
_OTHER_PAGES = ("benchhouse.schema.scenario", "benchhouse.schema.site", "benchhouse.schema.layout")


@dataclass(frozen=True)
class Member:
    """A method, property or field, as its source has it."""

    name: str
    kind: str
    """method, property or field."""
    signature: str
    """`(self, ...)` of a method, the type of a field or property."""
    returns: str
    docs: str
    owner: type


def page(made: str) -> str:
    """The whole page as Markdown."""
    groups = [(item.name, _resolve(item.owner, item.signature)) for item in members(Workspace) if _is_group(item)]
    documented: dict[type, str] = {Workspace: "Workspace", Run: "Run"}
    documented |= {group: group.__name__ for _, group in groups}
    values = _values([*documented])
    names = [cls.__name__ for cls in values]
    titles = documented | {cls: _title(cls, names) for cls in values}
    lines = ["# Python API", made, _INTRO, "## `ws`: Workspace", *_class(Workspace, "ws", titles)]
    for name, group in groups:
        lines += [f"## `ws.{name}`: {group.__name__}", *_class(group, f"ws.{name}", titles)]
    lines += ["## `run`: Run", *_class(Run, "run", titles)]
    lines += ["## Values", "What methods take and return, by name."]
    for cls in sorted(values, key=lambda cls: titles[cls].lower()):
        lines += [f"### {titles[cls]}", *_value(cls, titles)]
    lines += ["## Errors", *_errors()]
    return "\n\n".join(lines) + "\n"


def _is_group(item: Member) -> bool:
    """A property of the workspace that gives an object with methods of its own, such as `ws.servers`."""
    resolved = _resolve(item.owner, item.signature) if item.kind == "property" else None
    return inspect.isclass(resolved) and resolved.__module__.startswith("benchhouse.api.")


def _class(cls: type, variable: str, titles: dict[type, str]) -> list[str]:
    lines = [_docs(cls)]
    for item in members(cls):
        if item.kind == "property" and not _is_group(item):
            lines += [f"### `{variable}.{item.name}`", f"`{item.signature}`: {item.docs}"]
        if item.kind == "method":
            call = f"{variable}[run]" if item.name == "__getitem__" else f"{variable}.{item.name}"
            given = "" if item.name == "__getitem__" else item.signature
            lines += [f"### `{call}`", f"```python\n{call}{given} -> {item.returns}\n```", item.docs]
            if see := _links(item, titles):
                lines.append(see)
    return lines


def _value(cls: type, titles: dict[type, str]) -> list[str]:
    lines = [_docs(cls)]
    own = members(cls)
    rows = [(f"`{item.name}`", f"`{item.signature}`", item.docs) for item in own if item.kind != "method"]
    if rows:
        lines.append(_table(("field", "type", "meaning"), rows))
    calls = [(item, re.sub(r"\s+", " ", item.signature)) for item in own if item.kind == "method"]
    rows = [(f"`{item.name}{call}`", f"`{item.returns}`", item.docs) for item, call in calls]
    if rows:
        lines.append(_table(("method", "returns", "what it does"), rows))
    inner = {titles[found] for item in own for found in _classes(item) if found in titles and found is not cls}
    return [*lines, f"See {', '.join(_link(name) for name in sorted(inner))}."] if inner else lines


def _errors() -> list[str]:
    lines = []
    for cls in (BenchError, ProblemsError):
        lines += [f"### bh.{cls.__name__}", _docs(cls)]
    rows = [(f"`{item.name}`", f"`{item.signature}`", item.docs) for item in members(Problem)]
    codes = [(f"`{item.name}`", str(item.value), "") for item in Exit]
    return [
        *lines,
        "### bh.Problem",
        _docs(Problem),
        _table(("field", "type", "meaning"), rows),
        "### Exit",
        f"{_docs(Exit)} See [Exit codes](exit-codes.md).",
        _table(("name", "code", ""), codes),
    ]


def _links(item: Member, titles: dict[type, str]) -> str:
    seen = {titles[cls] for cls in _classes(item) if cls in titles and cls is not item.owner}
    return f"See {', '.join(_link(name) for name in sorted(seen))}." if seen else ""


def _link(title: str) -> str:
    plain = {"Workspace": "ws-workspace", "Run": "run-run"}
    slug = plain.get(title) or re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")
    return f"[{title}](#{slug})"


def _title(cls: type, names: list[str]) -> str:
    """Its name, with its module where another has the same."""
    return cls.__name__ if names.count(cls.__name__) == 1 else f"{cls.__name__} of {cls.__module__.partition('.')[2]}"


def _values(start: list[type]) -> list[type]:
    """Every dataclass, model and dict of keywords that methods take or return, and what these hold."""
    seen, ahead = list[type](), list(start)
    while ahead:
        cls = ahead.pop()
        for item in [*members(cls), _bases(cls)]:
            for found in _classes(item):
                if found not in seen and found not in start and _is_value(found):
                    seen.append(found)
                    if found.__module__ != "benchhouse.schema.contract":  # a file format, with a JSON Schema of its own
                        ahead.append(found)
    return seen


def _bases(cls: type) -> Member:
    """What a class is made of, such as the rows of `Points(Rows[PointValue])`."""
    return Member("", "field", " ".join(ast.unparse(base) for base in _node(cls).bases), "", "", cls)


def _is_value(cls: type) -> bool:
    if not cls.__module__.startswith("benchhouse.") or cls.__name__.startswith("_") or issubclass(cls, enum.Enum):
        return False
    if cls.__module__ in _OTHER_PAGES:
        return False
    answers = cls.__module__ in ("benchhouse.api.answers", "benchhouse.api.rows")
    return answers or dataclasses.is_dataclass(cls) or issubclass(cls, BaseModel) or is_typeddict(cls)


def _classes(item: Member) -> list[type]:
    """The classes of ours that a member's types name."""
    names = _NAME.findall(f"{item.signature} {item.returns}")
    return [cls for name in dict.fromkeys(names) if inspect.isclass(cls := _resolve(item.owner, name))]


def members(cls: type) -> list[Member]:
    """Public methods, properties and fields of a class and of its bases that are ours, in the order of the source."""
    collected: dict[str, Member] = {}
    for owner in reversed([base for base in cls.__mro__ if base.__module__.startswith("benchhouse.")]):
        for item in _own_members(owner):
            collected[item.name] = item
    if is_typeddict(cls):  # its bases are plain dicts when it runs
        bases = [_resolve(cls, base.id) for base in _node(cls).bases if isinstance(base, ast.Name)]
        inherited = [item for base in bases if is_typeddict(base) for item in members(base)]
        collected = {item.name: item for item in inherited} | collected
    return list(collected.values())


def _own_members(cls: type) -> Iterator[Member]:
    body = _node(cls).body
    described: dict[str, Any] = getattr(cls, "model_fields", {})
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _public(node.target.id):
            name = node.target.id
            docs = described[name].description or "" if name in described else _comment(after)
            yield Member(name, "field", _unquoted(node.annotation), "", docs, cls)
        if isinstance(node, ast.FunctionDef) and (_public(node.name) or node.name == "__getitem__"):
            marks = {ast.unparse(mark) for mark in node.decorator_list}
            docs = ast.get_docstring(node) or ""
            if marks & {"overload", "model_validator", "classmethod"} or any("validator" in mark for mark in marks):
                continue
            returns = _unquoted(node.returns) if node.returns else "None"
            if marks & {"property", "cached_property"}:
                yield Member(node.name, "property", returns, "", docs, cls)
            elif not (node.name == "__getitem__" and cls.__name__ == "Rows"):
                yield Member(node.name, "method", _signature(node), returns, docs, cls)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from _attributes(node, cls)


def _attributes(node: ast.FunctionDef, cls: type) -> Iterator[Member]:
    """What `__init__` sets with a type: `self.rows: list[...] = ...`."""
    for line, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Attribute) and _public(line.target.attr):
            yield Member(line.target.attr, "field", _unquoted(line.annotation), "", _comment(after), cls)


def _comment(node: ast.stmt | None) -> str:
    """The text that stands behind a field."""
    said = node.value if isinstance(node, ast.Expr) else None
    return said.value if isinstance(said, ast.Constant) and isinstance(said.value, str) else ""


def _public(name: str) -> bool:
    return not name.startswith("_") and name != "model_config"


def _signature(node: ast.FunctionDef) -> str:
    """The parameters without self, one a line where they are many."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + [*given.defaults]
    shown = [_parameter(item, default) for item, default in zip(plain, defaults, strict=True)][1:]
    if len(given.posonlyargs) > 1:
        shown.insert(len(given.posonlyargs) - 1, "/")
    if given.vararg:
        shown.append("*" + _parameter(given.vararg, None))
    elif given.kwonlyargs:
        shown.append("*")
    shown += [_parameter(item, default) for item, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        shown.append("**" + _parameter(given.kwarg, None))
    line = f"({', '.join(shown)})"
    return line if len(line) < _WIDEST else "(\n    " + ",\n    ".join(shown) + ",\n)"


def _parameter(item: ast.arg, default: ast.expr | None) -> str:
    typed = f"{item.arg}: {_unquoted(item.annotation)}" if item.annotation else item.arg
    if default is None:
        return typed
    return f"{typed} = {'...' if isinstance(default, ast.Lambda) else ast.unparse(default)}"


def _unquoted(annotation: ast.expr) -> str:
    """A type without the quotes that defer it; keywords by the name of their dict."""
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    text = re.sub(r"Unpack\['?(\w+)'?\]", r"\1", str(text))
    text = re.sub(r"(?<!\[)'([\w.]+)'", r"\1", text) if "Literal" not in text else text
    return text.replace("os.PathLike[str]", "PathLike").replace("builtins.list", "list")


def _resolve(cls: type, name: str) -> Any:
    """What a name means in the module of a class, imports for type checkers included."""
    return _names(importlib.import_module(cls.__module__)).get(name)


@cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


@cache
def _names(module: ModuleType) -> dict[str, Any]:
    names = dict(vars(module))
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchhouse"):
            for alias in node.names:
                origin = importlib.import_module(node.module or "")
                names.setdefault(alias.asname or alias.name, getattr(origin, alias.name, None))
    return names


def _node(cls: type) -> ast.ClassDef:
    tree = _tree(importlib.import_module(cls.__module__))
    return next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == cls.__name__)


def _docs(cls: type) -> str:
    return ast.get_docstring(_node(cls)) or ""


def undocumented() -> list[str]:
    """Classes and methods of benchhouse.api that the page names, and that say nothing of themselves."""
    start = [Workspace, Run, *(_resolve(item.owner, item.signature) for item in members(Workspace) if _is_group(item))]
    classes = [cls for cls in [*start, *_values(start)] if cls.__module__.startswith("benchhouse.api.")]
    silent = [cls.__qualname__ for cls in classes if not _docs(cls)]
    calls = [item for cls in classes for item in members(cls) if item.kind != "field" and not item.docs]
    return sorted({*silent, *(f"{item.owner.__qualname__}.{item.name}" for item in calls)})


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("\n", " ")

    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(head + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows])
