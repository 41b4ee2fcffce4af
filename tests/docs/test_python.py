"""The page about Python runs as it stands, and so does the notebook; a type checker has nothing to say about either."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import DOCS, ROOT, blocks
from services.on_demand import module

PAGE = DOCS / "how-to" / "use-from-python.md"


@pytest.fixture
def page_script() -> str:
    """The Python blocks of the page, one after the other."""
    shown = [block.text for block in blocks(PAGE) if block.language == "python"]
    assert len(shown) >= 6
    return "\n".join(shown)


def _environment(cache: Path) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("BENCH_")} | {
        "BENCH_CACHE_DIR": str(cache),
        "NO_COLOR": "1",
    }


def test_the_page_runs_as_it_stands(page_script, tmp_path, shared_cache):
    command = [sys.executable, "-c", page_script]
    done = subprocess.run(
        command, cwd=tmp_path, env=_environment(shared_cache), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^name=(echo|printf) [\d.]+ ms 3$", done.stdout, re.MULTILINE)
    assert "effect g" in done.stdout, "the table of a comparison"
    assert "('target_name', 'trials') [('echo', 6), ('printf', 6)]" in done.stdout
    assert "2 no experiment named 'comand' is installed did you mean 'command'?" in done.stdout
    assert len(list(tmp_path.glob("reports/greetings/*/index.html"))) == 1


def test_the_code_of_the_page_is_typed(page_script, tmp_path):
    """With our own sources, as `make check` reads them: what it has found out of those is not found out again."""
    assert (ROOT / "src" / "benchhouse" / "py.typed").is_file(), "else a type checker leaves an installed package out"
    (tmp_path / "page.py").write_text(page_script)
    command = [sys.executable, "-m", "mypy", "src/benchhouse", "benchmarks", str(tmp_path / "page.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_verbs_of_the_page_are_methods():
    from benchhouse.api.run import Run
    from benchhouse.api.workspace import Workspace

    text = PAGE.read_text()
    named = {("ws", name) for name in re.findall(r"\bws\.(\w+)", text)} | {
        ("run", name) for name in re.findall(r"\brun\.(\w+)", text)
    }
    own = {"ws": dir(Workspace), "run": [*dir(Run), "id"]}
    assert [f"{thing}.{name}" for thing, name in sorted(named) if name not in own[thing]] == []


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    nbformat, nbclient = module("notebook", "nbformat"), module("notebook", "nbclient")
    share = Path(module("notebook", "ipykernel").__file__).parents[4] / "share"
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("JUPYTER_PATH", str(share / "jupyter"))
        client.execute()  # raises where a cell fails
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _shown(cells, begins: str) -> str:
    """The HTML that the cell with this line shows at its end."""
    (cell,) = [cell for cell in cells if begins in cell.source]
    (result,) = [output for output in cell.outputs if output.output_type == "execute_result"]
    return result.data["text/html"]


@pytest.mark.parametrize(
    ("begins", "holds"),
    [
        ("ws.run(scenario, progress=True)", "6 of 6: 6 succeeded"),
        ("run.points()", "wall_ms mean (ms)"),
        ("ws.compare(", "change, interval"),
        ("ws.query(", "trials"),
        ("ws.trace(", "every step holds"),
        ("run.report()", "index.html"),
    ],
)
def test_answers_show_themselves_as_tables(executed, begins, holds):
    cells = [cell for cell in executed if begins in cell.source][:1]
    html = _shown(cells, begins)
    assert holds in html
    assert "<table>" in html or "<a href=" in html


def test_a_history_shows_itself_as_a_chart(executed):
    html = _shown(executed, "ws.history(")
    assert "<svg" in html and html.count("<circle") == 4


def test_progress_leaves_one_line_and_nothing_else(executed):
    (cell,) = [cell for cell in executed if "progress=True" in cell.source]
    progress, result = cell.outputs
    assert progress.output_type == "display_data" and result.output_type == "execute_result"
    assert re.search(r"6 of 6 done, \d+ s", progress.data["text/html"])
    assert "<progress" not in progress.data["text/html"], "the bar goes when the run is over"


def test_nothing_is_printed_as_an_error(executed):
    streams = [output.name for cell in executed for output in cell.outputs if output.output_type == "stream"]
    assert "stderr" not in streams
