"""The importer of a stranger that docs/how-to/import-results.md shows does what the page says."""

import json
import re
from pathlib import Path

from benchhouse.documents.foreign_file import ForeignFile

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "import-results.md"


def test_the_importer_of_the_page_reads_samples_and_says_where_a_file_is_wrong(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    room = {}
    exec(code, room)
    run = {"server": "a", "clients": 4, "p99_ms": 3.0, "latencies_ms": [1.0, 2.0, 3.0]}
    path = tmp_path / "mytool.json"
    path.write_text(json.dumps({"mytool_version": "1.2", "runs": [run]}))
    importer = room["MYTOOL"]
    assert importer.claims(path.read_bytes(), path.name)
    (case,) = importer.read(ForeignFile(path)).cases
    assert (case.target, case.settings) == ({"name": "a"}, {"clients": 4})
    assert [(item.metric.name, list(item.values)) for item in case.samples] == [("latency_ms@mytool", [1.0, 2.0, 3.0])]
