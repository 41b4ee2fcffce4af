"""Rules for the source tree that no linter checks: circular imports, file sizes, entry points, marks of test passes."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "src" / "benchhouse"
PACKAGES = sorted(path.parent.name for path in HOUSE.glob("*/__init__.py"))
LONGEST = 500
MOST_PARAMETERS = 7


def test_every_package_has_a_docstring():
    undocumented = [
        name for name in PACKAGES if not ast.get_docstring(ast.parse((HOUSE / name / "__init__.py").read_text()))
    ]
    assert undocumented == []


def test_no_file_hides_a_second_noun():
    lengths = {str(path.relative_to(HOUSE)): len(path.read_text().splitlines()) for path in HOUSE.rglob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def _imports(tree: ast.AST, names: set[str]):
    """Modules of ours that code imports when it runs, at the top or inside a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchhouse"):
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                yield deeper if deeper in names else node.module
        yield from _imports(node, names)


def test_no_module_imports_itself_through_others():
    modules = {
        ".".join(path.relative_to(HOUSE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in HOUSE.rglob("*.py")
    }
    imports = {name: set(_imports(ast.parse(path.read_text()), set(modules))) for name, path in modules.items()}
    circles = []
    for start in imports:
        seen, ahead = set(), set(imports[start])
        while ahead:
            name = ahead.pop()
            seen.add(name)
            ahead |= imports.get(name, set()) - seen
        if start in seen:
            circles.append(start)
    assert circles == []


def test_no_function_takes_more_than_seven_parameters():
    """Except what a reader of the command line or of an experiment's declaration names one by one."""
    crowded = {}
    for path in HOUSE.rglob("*.py"):
        if path.is_relative_to(HOUSE / "cli"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                names = [item.arg for item in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                if len(names) - (names[:1] in (["self"], ["cls"])) > MOST_PARAMETERS:
                    crowded[f"{path.relative_to(HOUSE)}:{node.name}"] = len(names)
    assert crowded == {"schema/experiment.py:experiment": 10}


def test_plugs_are_registered_by_entry_point():
    with (ROOT / "pyproject.toml").open("rb") as file:
        groups = tomllib.load(file)["project"]["entry-points"]
    for group in ("drivers", "executors", "experiments", "runtimes"):
        modules = {value.partition(":")[0] for value in groups[f"benchhouse.{group}"].values()}
        assert all(name.startswith(f"benchhouse.{group}.") for name in modules)


def test_the_lock_names_only_the_public_index():
    with (ROOT / "uv.lock").open("rb") as file:
        sources = [package["source"] for package in tomllib.load(file)["package"]]
    assert {source["registry"] for source in sources if "registry" in source} == {"https://pypi.org/simple"}
    assert [source for source in sources if "registry" not in source] == [{"editable": "."}]


def test_marks_of_separate_passes_are_found_by_their_text():
    """`scripts/run-tests.sh` finds the files of these passes with grep, so a mark written otherwise would never run."""
    mark = re.compile(r"mark\.(serial|clients)\b")
    written = {path: mark.findall(path.read_text()) for path in (ROOT / "tests").rglob("*.py")}
    by_words = {path: re.findall(r"pytest\.mark\.(serial|clients)\b", path.read_text()) for path in written}
    assert [path for path in written if written[path] != by_words[path]] == []
    assert [path for path, marks in written.items() if marks and not path.name.startswith("test_")] == []
