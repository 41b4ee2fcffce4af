"""Run the code cells of a notebook in the shell of a notebook kernel, and print what each cell shows as JSON.

python run_notebook.py NOTEBOOK [OLD NEW]...      each OLD is replaced with NEW in the sources, to make the run smaller

There is no server and no kernel protocol: the shell alone decides what a cell shows.
"""

import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config


class NotebookShell(InteractiveShell):
    """Libraries recognize a notebook by this attribute."""

    kernel = "none"


def run_cell(shell: InteractiveShell, source: str) -> dict[str, object]:
    with capture_output() as captured:
        ran = shell.run_cell(source)
    ran.raise_error()
    result = {} if ran.result is None else shell.display_formatter.format(ran.result)[0]
    displays = [output.data.get("text/html", "") for output in captured.outputs]
    return {"source": source, "displays": displays, "result": result.get("text/html", ""), "stderr": captured.stderr}


def main(notebook: str, *replacements: str) -> None:
    content = json.loads(Path(notebook).read_text(encoding="utf-8"))
    sources = ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]
    for old, new in zip(replacements[::2], replacements[1::2], strict=True):
        assert any(old in source for source in sources), f"no cell has {old!r}"
        sources = [source.replace(old, new) for source in sources]
    shell = NotebookShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    print(json.dumps([run_cell(shell, source) for source in sources]))


if __name__ == "__main__":
    main(*sys.argv[1:])
