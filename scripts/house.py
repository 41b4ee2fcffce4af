"""Measure how easy the code is to read, and check each figure against its limit in scripts/house.toml.

    python scripts/house.py              print the figures; exit with code 1 if one exceeds its limit
    python scripts/house.py NAME         list the places that a figure counts, such as `vague_locals`
    python scripts/house.py --lower      lower the limits to the present figures; a limit never rises

Each limit is a ratchet on its way to the target next to it.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "benchhouse"
SETTINGS = Path(__file__).with_suffix(".toml")
LONGEST_FILE = 500

Places = list[str]


def read_sources() -> dict[Path, tuple[str, ast.Module]]:
    """Return the text and the syntax tree of every module of the package, except generated ones."""
    paths = (path for path in sorted(PACKAGE.rglob("*.py")) if not path.name.endswith("_pb2.py"))
    return {path: (text := path.read_text(encoding="utf-8"), ast.parse(text)) for path in paths}


class House:
    """The figures of the package. Each `count_*` method returns the places that its figure counts."""

    def __init__(self, settings: dict) -> None:
        self.sources = read_sources()
        self.forbidden_words = set(settings["forbidden_words"])
        self.vague_names = set(settings["vague_names"])
        self.shared_names_allowed = settings["shared_names_allowed"]
        self.odd_phrases = [re.compile(phrase) for phrase in settings["odd_phrases"]]

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
        """Yield each syntax node of these kinds with its place, `file:line`."""
        for path, (_, tree) in self.sources.items():
            for node in ast.walk(tree):
                if isinstance(node, kinds):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node

    def count_shared_class_names(self) -> Places:
        """Class definitions whose name another class has too."""
        places = defaultdict(list)
        for place, node in self.nodes(ast.ClassDef):
            places[node.name].append(f"{place}: {node.name}")
        return [
            place
            for name, found in places.items()
            if len(found) > 1 and name not in self.shared_names_allowed
            for place in found
        ]

    def count_forbidden_names(self) -> Places:
        """Modules, classes and functions with a word in their name that says nothing to an engineer."""
        named = [(str(path.relative_to(ROOT)), path.stem) for path in self.sources]
        named += [(place, node.name) for place, node in self.nodes(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)]
        return [f"{place}: {name}" for place, name in named if self.forbidden_words & words_of(name)]

    def count_vague_locals(self) -> Places:
        """Variables and parameters named by a bare participle, adverb, or preposition."""
        named = [(place, node.arg) for place, node in self.nodes(ast.arg)]
        named += [(place, node.id) for place, node in self.nodes(ast.Name) if isinstance(node.ctx, ast.Store)]
        return [f"{place}: {name}" for place, name in named if name.strip("_") in self.vague_names]

    def count_odd_sentences(self) -> Places:
        """Phrases in docstrings and comments that stop a reader whose first language is English."""
        found = []
        for path, (text, tree) in self.sources.items():
            for line, sentence in sentences_of(text, tree):
                plain = re.sub(r"`[^`]*`", "CODE", sentence)
                found += [
                    f"{path.relative_to(ROOT)}:{line}: {match.group()}"
                    for phrase in self.odd_phrases
                    for match in phrase.finditer(plain)
                ]
        return found

    def count_import_circles(self) -> Places:
        """Modules that import each other, directly or through others; imports for types count."""
        graph = grimp.build_graph("benchhouse", exclude_type_checking_imports=False)
        return [" <-> ".join(sorted(circle)) for circle in circles_of(graph)]

    def count_long_files(self) -> Places:
        return [f"{path.relative_to(ROOT)}: {lines} lines" for path, lines in self._lines() if lines > LONGEST_FILE]

    def count_files(self) -> Places:
        return [str(path.relative_to(ROOT)) for path in self.sources]

    def count_lines(self) -> Places:
        return [f"{path.relative_to(ROOT)}: {lines} lines" for path, lines in self._lines() for _ in range(lines)]

    def count_import_lines_per_1000(self) -> Places:
        """One place for each line of imports in 1,000 lines of source."""
        lines = sum(node.end_lineno - node.lineno + 1 for _, node in self.nodes(ast.Import, ast.ImportFrom))
        return ["imports"] * round(1000 * lines / sum(lines for _, lines in self._lines()))

    def _lines(self) -> list[tuple[Path, int]]:
        return [(path, text.count("\n")) for path, (text, _) in self.sources.items()]


def words_of(name: str) -> set[str]:
    """Return the words of an identifier in lower case: `SlotHandle` and `_slot_handle` have `slot` and `handle`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def sentences_of(text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, attribute docstrings, and comments of a module, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(node.value.value.split())
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(type|noqa|fmt)\b", token.string):
            yield token.start[0], token.string.lstrip("# ")


def circles_of(graph: grimp.ImportGraph) -> list[set[str]]:
    """Return the groups of modules in which each module imports each other one (Tarjan's algorithm)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    circles = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for imported in graph.find_modules_directly_imported_by(module):
            if imported not in numbers:
                visit(imported)
            if imported in stack:
                lowest[module] = min(lowest[module], lowest[imported])
        if lowest[module] == numbers[module]:
            circle = set(stack[stack.index(module) :])
            del stack[stack.index(module) :]
            if len(circle) > 1:
                circles.append(circle)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    for module in sorted(graph.modules):
        if module not in numbers:
            visit(module)
    sys.setrecursionlimit(limit)
    return circles


def lower_limits(figures: dict[str, int], limits: dict[str, int]) -> None:
    """Write each figure that is below its limit into the settings as the new limit."""
    text = SETTINGS.read_text(encoding="utf-8")
    for name, figure in figures.items():
        if figure < limits[name]:
            text = re.sub(rf"^{name} = \d+", f"{name} = {figure}", text, flags=re.MULTILINE)
    SETTINGS.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="the figure whose places are listed")
    parser.add_argument("--lower", action="store_true", help="lower the limits to the present figures")
    options = parser.parse_args()
    settings = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    limits, targets = settings["limits"], settings["targets"]
    house = House(settings)
    if options.name:
        print(*getattr(house, f"count_{options.name}")(), sep="\n")
        return 0
    figures = {name: len(getattr(house, f"count_{name}")()) for name in limits}
    for name, figure in figures.items():
        verdict = " TOO MANY" if figure > limits[name] else ""
        print(
            f"{figure:8,} {name.replace('_', ' ')} (limit {limits[name]:,}, target {targets.get(name, 0):,}){verdict}"
        )
    if options.lower:
        lower_limits(figures, limits)
    exceeded = [name for name, figure in figures.items() if figure > limits[name]]
    if exceeded:
        print(f"list the places: python scripts/house.py {exceeded[0]}", file=sys.stderr)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
