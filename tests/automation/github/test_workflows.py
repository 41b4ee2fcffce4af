"""The shipped workflows, executed by the real `act` without containers; actions of GitHub's own are fakes in a folder.

`zizmor` looks for what strangers could use.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from services.fake_github import TOKEN, fake_github

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "github"
FAKES = Path(__file__).parents[2] / "services" / "fake_actions"
BIN = Path(sys.executable).parent
SPEED = "scenario: speed\nexperiment: command\nworkload: {argv: [sleep, '%s'], executions: 1}\nrepetitions: 3\n"


def test_zizmor_finds_nothing():
    files = [ROOT / "action.yml", EXAMPLES / "benchmarks.yml", EXAMPLES / "benchmarks-report.yml"]
    done = subprocess.run([BIN / "zizmor", "--offline", "--no-progress", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class Act:
    """A repository of a team, and the folders that stand for GitHub's cache and artefacts."""

    def __init__(self, root: Path) -> None:
        self.root, self.repo, self.store = root, root / "repo", root / "store"
        (self.repo / ".github" / "workflows").mkdir(parents=True)
        (self.repo / "benchmarks").mkdir()
        for name in ("benchmarks.yml", "benchmarks-report.yml"):
            shutil.copy(EXAMPLES / name, self.repo / ".github" / "workflows")
        shutil.copytree(FAKES, root / "actions")
        (root / "actions" / "benchhouse").mkdir()
        shutil.copy(ROOT / "action.yml", root / "actions" / "benchhouse")
        self.git("init", "-q", "-b", "main")
        self.git("remote", "add", "origin", "https://github.com/team/bench.git")

    def git(self, *arguments: str) -> None:
        names = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
        subprocess.run(["git", *names, *arguments], cwd=self.repo, check=True)

    def commit(self, seconds: float) -> None:
        (self.repo / "benchmarks" / "speed.yaml").write_text(SPEED % seconds)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "speed")

    def run(self, workflow: str, event: str, payload: dict, **variables: str) -> subprocess.CompletedProcess[str]:
        (self.root / "event.json").write_text(json.dumps(payload))
        text = (self.repo / ".github" / "workflows" / workflow).read_text() + (ROOT / "action.yml").read_text()
        local = []
        for used in sorted(set(re.findall(r"uses: ([\w-]+/[\w-]+)(?:/\w+)?(@\S+)", text))):
            local += ["--local-repository", f"{used[0]}{used[1]}={self.root / 'actions' / used[0].split('/')[1]}"]
        given = variables | {"FAKE_REPO": str(self.repo), "FAKE_STORE": str(self.store)}
        given["PATH"] = f"{BIN}:{os.environ['PATH']}"
        options = [item for name, value in given.items() for item in ("--env", f"{name}={value}")]
        home = {"HOME": str(self.root), "XDG_CACHE_HOME": str(self.root / "cache"), "XDG_CONFIG_HOME": str(self.root)}
        return subprocess.run(
            [BIN / "act", event, "-W", f".github/workflows/{workflow}", "-e", self.root / "event.json", "--pull=false",
             "-P", "ubuntu-latest=-self-hosted", "--no-skip-checkout", "-s", f"GITHUB_TOKEN={TOKEN}", *local, *options],
            cwd=self.repo, env=os.environ | given | home, capture_output=True, text=True, timeout=250,
        )  # fmt: skip


@pytest.mark.slow("act executes three workflows, which install and run bench")
@pytest.mark.timeout(900)
def test_a_pull_request_of_a_fork_is_measured_in_one_workflow_and_reported_by_another(tmp_path):
    act = Act(tmp_path)
    act.commit(0.05)
    pushed = act.run("benchmarks.yml", "push", {"ref": "refs/heads/main", "repository": {"default_branch": "main"}})
    assert pushed.returncode == 0, pushed.stdout[-3000:] + pushed.stderr[-2000:]
    assert (act.store / "cache").is_dir()
    act.git("checkout", "-q", "-b", "slower")
    act.commit(0.5)
    kept = sorted(path.name for path in (act.store / "cache").rglob("*"))
    pull = {"number": 7, "head": {"ref": "slower", "sha": "a" * 40}, "base": {"ref": "main"}}
    slower = act.run("benchmarks.yml", "pull_request", {"number": 7, "pull_request": pull})
    assert slower.returncode != 0 and "judgement=regression" in slower.stdout, slower.stdout[-3000:]
    assert sorted(path.name for path in (act.store / "cache").rglob("*")) == kept  # a pull request is no baseline
    assert (act.store / "artefacts" / "benchhouse" / "change.svg").is_file()
    done = {"id": 5, "event": "pull_request", "head_sha": "a" * 40, "head_branch": "slower",
            "head_repository": {"full_name": "mallory/bench", "owner": {"login": "mallory"}}}  # fmt: skip
    with fake_github() as fake:
        fake.pulls = [{"number": 7, "head": {"label": "mallory:slower", "sha": "a" * 40}}]
        told = act.run("benchmarks-report.yml", "workflow_run", {"workflow_run": done}, GITHUB_API_URL=fake.api)
        assert told.returncode == 0, told.stdout[-3000:]
        assert [run["conclusion"] for run in fake.check_runs] == ["failure"]
        (comment,) = fake.said()
        assert "A regression" in comment and "code of a fork" in comment
