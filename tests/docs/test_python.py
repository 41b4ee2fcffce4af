"""The code of the page about Python and the cells of the notebook run, with fewer trials than they show."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from doc_pages import DOCS, ROOT, blocks
from services.on_demand import provide

PAGE = DOCS / "how-to" / "use-from-python.md"
SCRIPT = ROOT / "examples" / "use_from_python.py"


def run_python(folder: Path, *arguments: object) -> str:
    """Return the standard output of a Python process that has a cache in the folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BENCH_")} | {
        "BENCH_CACHE_DIR": str(folder / "cache"),
        "IPYTHONDIR": str(folder / "ipython"),
        "NO_COLOR": "1",
    }
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_script_has_the_code_of_the_page():
    """`make check` checks the types of the script, so the page shows code that a type checker accepts."""
    shown = [block.text for block in blocks(PAGE) if block.language == "python"]
    assert len(shown) >= 6
    assert SCRIPT.read_text(encoding="utf-8").partition("\n\n")[2] == "\n".join(shown)
    assert (ROOT / "src" / "benchhouse" / "py.typed").is_file(), "a type checker ignores a package without this file"


def test_the_code_of_the_page_runs(tmp_path):
    script = SCRIPT.read_text(encoding="utf-8")
    for old, new in (('"executions": 5', '"executions": 1'), ('"repetitions": 3', '"repetitions": 2')):
        assert old in script
        script = script.replace(old, new)
    printed = run_python(tmp_path, "-c", script)
    assert re.search(r"^name=(echo|printf) [\d.]+ ms 2$", printed, re.MULTILINE)
    assert "effect g" in printed, "the table of a comparison is missing"
    assert "('target_name', 'trials') [('echo', 4), ('printf', 4)]" in printed
    assert "2 no experiment named 'comand' is installed did you mean 'command'?" in printed
    assert len(list(tmp_path.glob("reports/greetings/*/index.html"))) == 1


def test_verbs_of_the_page_are_methods():
    from benchhouse.api.run import Run
    from benchhouse.api.workspace import Workspace

    text = PAGE.read_text()
    named = {("ws", name) for name in re.findall(r"\bws\.(\w+)", text)} | {
        ("run", name) for name in re.findall(r"\brun\.(\w+)", text)
    }
    own = {"ws": dir(Workspace), "run": [*dir(Run), "id"]}
    assert [f"{thing}.{name}" for thing, name in sorted(named) if name not in own[thing]] == []


def test_the_notebook_shows_tables_a_chart_and_its_progress(tmp_path):
    provide("notebook", "IPython")
    smaller = ["seq 100000", "seq 1000", '"executions": 5', '"executions": 1', "repetitions=3", "repetitions=2"]
    notebook = ROOT / "examples" / "notebook.ipynb"
    runner = Path(__file__).with_name("run_notebook.py")
    printed = run_python(tmp_path, runner, notebook, *smaller, "range(3)", "range(1)")
    cells = json.loads(printed.splitlines()[-1])

    def cell_with(text: str) -> dict:
        return next(cell for cell in cells if text in cell["source"])

    tables = {
        "ws.run(scenario, progress=True)": "4 of 4: 4 succeeded",
        "run.points()": "wall_ms mean (ms)",
        "ws.compare(": "change, interval",
        "ws.query(": "trials",
        "ws.trace(": "every step holds",
        "run.report()": "index.html",
    }
    for text, shown in tables.items():
        html = cell_with(text)["result"]
        assert shown in html and ("<table>" in html or "<a href=" in html), text
    chart = cell_with("ws.history(")["result"]
    assert "<svg" in chart and chart.count("<circle") == 2
    displays = cell_with("progress=True")["displays"]
    assert len(displays) > 1, "the line of progress is drawn more than once"
    assert re.search(r"4 of 4 done, \d+ s", displays[-1])
    assert "<progress" not in displays[-1], "the bar is removed when the run is over"
    assert [cell["source"] for cell in cells if cell["stderr"]] == []
