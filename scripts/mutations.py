"""All small changes of a source file that its tests should notice: mutmut's operators, and two of our own.

Not changed: annotations, aliases of types, decorators, text with a space (messages: tests of wording are brittle),
which arguments the exception of a `raise` gets, and those of _ASIDE.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper
from mutmut.mutation.mutators import mutation_operators, operator_arg_removal, operator_match, operator_string


@dataclass(frozen=True)
class Mutation:
    """One change: `text` in place of the bytes from `start` to `end`. `before` and `after` are the changed lines."""

    module: str
    before: str
    after: str
    start: int
    end: int
    text: bytes

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text + source[self.end :]


def _rename_string(node: cst.SimpleString) -> Iterable[cst.CSTNode]:
    """Another name or key. One variant: upper and lower case say little more than that."""
    if not (node.quote.startswith('"""') or " " in node.raw_value):
        yield from list(operator_string(node))[:1]


def _negate(node: cst.If) -> Iterable[cst.CSTNode]:
    inner = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), inner))


def _drop_call(node: cst.Expr) -> Iterable[cst.CSTNode]:
    """A call for its effect alone, such as fsync, is left out."""
    if isinstance(node.value, cst.Call | cst.Await):
        yield cst.Pass()


_OPERATORS = [
    *(pair for pair in mutation_operators if pair[1] not in (operator_string, operator_match)),
    (cst.SimpleString, _rename_string),
    (cst.If, _negate),
    (cst.Expr, _drop_call),
]


# Words about a field, a guard against a mistake of ours, and what is so anyway where tests run.
_ASIDE = ("description", "strict", "encoding")


def _is_aside(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value in _ASIDE


def _is_alias(node: cst.CSTNode) -> bool:
    """`Row = Mapping[str, Any]`: capitalised, as no constant is."""
    if not isinstance(node, cst.Assign) or not isinstance(node.targets[0].target, cst.Name):
        return False
    is_variable = isinstance(node.value, cst.Call) and getattr(node.value.func, "value", "") == "TypeVar"
    return is_variable or re.match("[A-Z][a-z]", node.targets[0].target.value) is not None


class _Sites(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (ByteSpanPositionProvider,)

    def __init__(self) -> None:
        self.changes: list[tuple[int, int, cst.CSTNode]] = []
        self.raised: set[cst.CSTNode] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator) or _is_alias(node):
            return False
        if isinstance(node, cst.If) and isinstance(node.test, cst.Name) and node.test.value == "TYPE_CHECKING":
            return False
        if isinstance(node, cst.Raise) and node.exc:
            self.raised.add(node.exc)
        for kind, operator in _OPERATORS:
            if isinstance(node, kind) and not (operator is operator_arg_removal and node in self.raised):
                for mutated in operator(node):
                    self._note(node, mutated)
        return not _is_aside(node)

    def _note(self, node: cst.CSTNode, mutated: cst.CSTNode) -> None:
        if any(_is_aside(arg) and arg not in mutated.children for arg in node.children):
            return
        if isinstance(node, cst.If) and isinstance(mutated, cst.If):
            node, mutated = node.test, mutated.test  # the body is none of its business
        if span := self.get_metadata(ByteSpanPositionProvider, node, None):
            self.changes.append((span.start, span.start + span.length, mutated))


def mutations_of(file: Path, module: str) -> list[Mutation]:
    source = file.read_bytes()
    wrapper = MetadataWrapper(cst.parse_module(source))
    sites = _Sites()
    wrapper.visit(sites)
    code_of = wrapper.module.code_for_node
    return [_mutation(source, module, start, end, code_of(node)) for start, end, node in sites.changes]


def _mutation(source: bytes, module: str, start: int, end: int, text: str) -> Mutation:
    first, last = source.rfind(b"\n", 0, start) + 1, source.find(b"\n", end)
    old = source[first:last].decode().splitlines()
    new = (source[first:start] + text.encode() + source[end:last]).decode().splitlines()
    while len(old) > 1 < len(new) and old[0] == new[0]:
        del old[0], new[0]
    while len(old) > 1 < len(new) and old[-1] == new[-1]:
        del old[-1], new[-1]
    return Mutation(module, _on_one_line(old), _on_one_line(new), start, end, text.encode())


def _on_one_line(lines: list[str]) -> str:
    return re.sub(r"\s+", " ", " ".join(lines)).strip()
