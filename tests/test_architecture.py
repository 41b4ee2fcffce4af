"""The house stays a house: who imports whom, how large a file is, what a package says of itself."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "src" / "benchhouse"
PACKAGES = sorted(path.parent.name for path in HOUSE.glob("*/__init__.py"))
LONGEST = 500


def contracts() -> list[dict]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["tool"]["importlinter"]["contracts"]


def test_every_import_keeps_the_contracts():
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_every_package_has_its_place_in_the_layers():
    layers = next(item["layers"] for item in contracts() if item["type"] == "layers")
    placed = [name.strip().removeprefix("benchhouse.") for layer in layers for name in layer.split("|")]
    assert sorted(placed) == PACKAGES


def test_every_package_says_what_lives_there():
    silent = [name for name in PACKAGES if not ast.get_docstring(ast.parse((HOUSE / name / "__init__.py").read_text()))]
    assert silent == []


def test_no_file_hides_a_second_noun():
    lengths = {str(path.relative_to(HOUSE)): len(path.read_text().splitlines()) for path in HOUSE.rglob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


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
