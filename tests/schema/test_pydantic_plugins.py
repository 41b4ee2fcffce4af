"""Our own processes do not look for plugins of pydantic; an experiment's process does."""

import json
import subprocess
import sys

SCRIPT = """
import json, sys
from benchhouse.schema.pydantic_plugins import leave_out_plugins, take_plugins_back
leave_out_plugins()
from pydantic import BaseModel
class Ours(BaseModel):
    a: int
print(json.dumps([Ours(a=1).a, "asked" in sys.modules]))
take_plugins_back()
class Theirs(BaseModel):
    a: int
print(json.dumps([Theirs(a=1).a, "asked" in sys.modules]))
"""


def test_a_plugin_is_asked_for_the_models_of_experiments_only(tmp_path):
    place = tmp_path / "asked-1.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: asked\nVersion: 1\n")
    (place / "entry_points.txt").write_text("[pydantic]\nasked = asked:plugin\n")
    (tmp_path / "asked.py").write_text(
        "class Plugin:\n    def new_schema_validator(self, *_, **__): return None, None, None\nplugin = Plugin()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(map(json.loads, done.stdout.splitlines())) == [[1, False], [1, True]]


def test_an_experiment_finds_pydantics_own_loader_of_plugins(lab):
    lab.bench("run", lab.scenario("mischief", workload={"act": "own_pydantic"}))
