"""List the test files that a change can break, each with the reason; `make affected` runs them.

    python scripts/affected_tests.py [--base COMMIT] [--run]

Compares the working tree with COMMIT (by default where this branch left origin/main, or HEAD~1 on main itself). Imports
come from grimp, and from the same kind of reading in tests/. Three things connect code without an import statement:

- A verb: a test that calls `bench("report")` or `lab.bench("report")` uses `benchhouse.cli.verbs.report`.
- A composition root: `Workspace` imports what a verb needs in that verb's method, so a module depends only on the
  methods that it names.
- A program or plugin that is named in a string: "benchhouse.worker", or the name of an entry point in a test.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
ROOTS = (
    "benchhouse",
    "benchhouse.api",
    "benchhouse.api.workspace",
    "benchhouse.api.groups",
    "benchhouse.api.run",
    "benchhouse.cli",
)
# A trial that no test names otherwise runs with these.
DEFAULT_PLUGINS = ("benchhouse.executors.local", "benchhouse.runtimes.process")
# A test that mentions one of these runs the verbs that its string constants name.
STARTS_BENCH = {"bench", "lab", "Lab", "BENCH", "slurm", "kubernetes"}
STARTS_TRIALS = "benchhouse.runs.execution"
WHOLE_SUITE = re.compile(
    r"pyproject\.toml|uv\.lock|tests/(conftest|laboratory|warm_bench|costs)\.py|scripts/(run-tests|make-venv)\.sh|hatch_build\.py"
)


class Names(ast.NodeVisitor):
    """The names in one syntax tree: imports, attributes, identifiers, and the words and texts of string constants."""

    def __init__(self, tree: ast.AST) -> None:
        self.imports: set[str] = set()
        self.attributes: set[str] = set()
        self.identifiers: set[str] = set()
        self.words: set[str] = set()
        self.texts: set[str] = set()
        self.visit(tree)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.imports.update(alias.name for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.imports.add(node.module or "")
        self.imports.update(f"{node.module}.{alias.name}" for alias in node.names)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not (isinstance(node.value, ast.Name) and node.value.id in self.imports):  # such as `time.time`
            self.attributes.add(node.attr)
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self.identifiers.add(node.arg)

    def visit_Name(self, node: ast.Name) -> None:
        self.identifiers.add(node.id)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.texts.add(node.value)
            self.words.update(re.findall(r"[\w.-]+", node.value))
            self.texts.update(re.findall(r"bench (\w+)", node.value))


class Dependencies:
    """The direct dependencies of each module and of each test file, and the chains between them."""

    def __init__(self) -> None:
        graph = grimp.build_graph(
            "benchhouse", exclude_type_checking_imports=True, cache_dir=str(ROOT / ".import_linter_cache")
        )
        self.modules = graph.modules
        self.plugins = _plugins(self.modules)
        self.exports = _exports()
        self.methods = self._methods_of_roots()
        self.needs: dict[str, set[str]] = {}
        for name in self.modules:
            names = Names(ast.parse(_file_of(name).read_text()))
            imported = graph.find_modules_directly_imported_by(name)
            self.needs[name] = (imported | self._named_modules(names) | {name.rpartition(".")[0]}) - {name, *ROOTS, ""}
            if name not in ROOTS and imported & set(ROOTS):
                self.needs[name] |= self._needed_methods(names)
        self.needs[STARTS_TRIALS].update(DEFAULT_PLUGINS)
        self.tests = self._read_tests()

    def _named_modules(self, names: Names) -> set[str]:
        """Return the modules that string constants name, such as the argument of `python -m`."""
        return names.words & self.modules - set(ROOTS)

    def _needed_methods(self, names: Names) -> set[str]:
        return set().union(*(self.methods.get(attribute, ()) for attribute in names.attributes))

    def _methods_of_roots(self) -> dict[str, set[str]]:
        """Return what each method of the composition roots imports, by the method's name."""
        methods: dict[str, set[str]] = defaultdict(set)
        for name in ROOTS:
            for node in ast.walk(ast.parse(_file_of(name).read_text())):
                if isinstance(node, ast.FunctionDef):
                    methods[node.name] |= (Names(node).imports & self.modules) - set(ROOTS)
        return methods

    def _read_tests(self) -> list[str]:
        """Add each file in tests/ to `needs`, and return those that hold tests."""
        files = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "tests").rglob("*.py"))}
        # Test files import helpers as `services.triton`, and as `made_up` from the folders that conftest.py adds.
        helpers = {
            ".".join(Path(name).with_suffix("").parts[start:]): name
            for name in files
            if not Path(name).name.startswith("test_")
            for start in (1, 2)
        }
        fixtures = _shared_fixtures(files["tests/conftest.py"], helpers)
        for name, path in files.items():
            names = Names(ast.parse(path.read_text()))
            imports = names.imports | {self.exports[found] for found in names.imports & self.exports.keys()}
            mentioned = names.identifiers | names.attributes
            needs = (imports & self.modules - set(ROOTS)) | self._named_modules(names)
            needs |= {helpers[found] for found in imports & helpers.keys()}
            needs |= {fixtures[word] for word in mentioned & fixtures.keys()}
            if imports & set(ROOTS):
                needs |= self._needed_methods(names)
            if Path(name).name.startswith("test_"):
                needs |= {self.plugins[word] for word in names.words & self.plugins.keys()}
                if mentioned & STARTS_BENCH or "subprocess" in imports:
                    needs |= {verb for text in names.texts if (verb := verb_module(text)) in self.modules}
            conftest = f"{Path(name).parent}/conftest.py"
            if conftest in files and conftest not in (name, "tests/conftest.py"):
                needs.add(conftest)
            self.needs[name] = needs
        return [name for name in files if Path(name).name.startswith("test_")]

    def why(self, test: str, changed: set[str]) -> list[str] | None:
        """Return the shortest chain from a test file to something that changed, or None."""
        previous: dict[str, str] = {test: ""}
        queue = deque([test])
        while queue:
            name = queue.popleft()
            if name in changed:
                chain = [name]
                while previous[chain[-1]]:
                    chain.append(previous[chain[-1]])
                return chain[::-1]
            for found in sorted(self.needs.get(name, ())):
                if found not in previous:
                    previous[found] = name
                    queue.append(found)
        return None


def verb_module(verb: str) -> str:
    return f"benchhouse.cli.verbs.{verb}{'_' if verb in ('import', 'list', 'time') else ''}"


def _exports() -> dict[str, str]:
    """Return the module behind each name that `benchhouse` itself exports."""
    nodes = ast.walk(ast.parse(_file_of("benchhouse").read_text()))
    return {
        f"benchhouse.{alias.asname or alias.name}": str(node.module)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _plugins(modules: set[str]) -> dict[str, str]:
    """The module of each built-in entry point, by the entry point's name."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    found = {name: value.partition(":")[0] for group in groups.values() for name, value in group.items()}
    return {name: module for name, module in found.items() if module in modules}


def _shared_fixtures(conftest: Path, helpers: dict[str, str]) -> dict[str, str]:
    """The helper file of each fixture that the top conftest.py imports, by the fixture's name."""
    return {
        alias.name: helpers[node.module]
        for node in ast.parse(conftest.read_text()).body
        if isinstance(node, ast.ImportFrom) and node.module in helpers
        for alias in node.names
    }


def _file_of(module: str) -> Path:
    path = ROOT / "src" / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def default_base() -> str:
    """Return the commit where this branch left origin/main, or HEAD~1 if it has not left it."""
    base = git("merge-base", "HEAD", "origin/main").strip()
    return base if base and base != git("rev-parse", "HEAD").strip() else "HEAD~1"


def changed_files(base: str) -> list[str]:
    return sorted(
        {*git("diff", "--name-only", base).split("\n"), *git("ls-files", "-o", "--exclude-standard").split("\n")} - {""}
    )


def changed_nodes(path: str, dependencies: Dependencies) -> Iterator[str]:
    """Yield the modules and test files that a changed file stands for; nothing for a file that no test can notice."""
    parts = Path(path)
    if parts.parts[:2] == ("src", "benchhouse"):
        # A file that is not Python, such as a style sheet or a recipe, counts as a change of its package.
        folder = parts if parts.suffix == ".py" else parts.parent / "__init__.py"
        yield ".".join(folder.with_suffix("").parts[1:]).removesuffix(".__init__")
    elif parts.parts[0] == "tests" and path in dependencies.needs:
        yield path
    else:  # data, scripts, examples, docs: whatever names the file or its folder
        words = {parts.name, parts.stem, *(part for part in parts.parts[1:-1] if len(part) > 4)}
        for name in sorted(dependencies.needs):
            if name.startswith("tests/") and any(word in (ROOT / name).read_text() for word in words if len(word) > 4):
                yield name
        if parts.suffix == ".md" or parts.parts[0] in ("docs", "examples"):
            yield from (name for name in dependencies.tests if name.startswith("tests/docs/"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="", help="compare with this commit")
    parser.add_argument("--run", action="store_true", help="run these tests")
    options = parser.parse_args()
    base = options.base or default_base()
    files = changed_files(base)
    if whole := [path for path in files if WHOLE_SUITE.fullmatch(path)]:
        print(f"{whole[0]} changed: the whole suite is affected")
        selected = ["tests"]
    else:
        dependencies = Dependencies()
        changed = {node for path in files for node in changed_nodes(path, dependencies)}
        chains = {test: chain for test in dependencies.tests if (chain := dependencies.why(test, changed))}
        for test, chain in chains.items():
            print(f"{test}: {' -> '.join(chain[1:]) or 'changed'}")
        print(
            f"{len(chains)} of {len(dependencies.tests)} test files can break: {len(files)} files changed since {base}"
        )
        selected = list(chains)
    if not options.run or not selected:
        return 0
    sys.stdout.flush()
    environment = os.environ | {"TESTS": " ".join(selected)}
    return subprocess.run([ROOT / "scripts" / "run-tests.sh"], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
