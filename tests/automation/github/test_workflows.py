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
import yaml
from services.fake_github import TOKEN, fake_github
from tables import check_table

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "github"
FAKES = Path(__file__).parents[2] / "services" / "fake_actions"
BIN = Path(sys.executable).parent
SPEED = "scenario: speed\nexperiment: command\nworkload: {argv: [sleep, '%s'], executions: 1}\nrepetitions: 3\n"


FILES = [ROOT / "action.yml", ROOT / "report" / "action.yml", *sorted(EXAMPLES.glob("benchmarks*.yml"))]
INSTALLED = ["pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "scripts/install-from-checkout.sh",
             "scripts/locked-requirements.txt"]  # fmt: skip
PRIVILEGED = {"workflow_run", "pull_request_target", "issue_comment", "issues"}
"""Events whose workflow has the rights of the repository, whoever wrote the event."""
WRITES = {"benchmarks-report.yml": {"checks", "pull-requests"}}


def test_zizmor_finds_nothing():
    done = subprocess.run([BIN / "zizmor", "--offline", "--no-progress", *FILES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def steps(document: dict) -> list[dict]:
    """All steps of a workflow or of an action."""
    jobs = document["jobs"].values() if "jobs" in document else [document["runs"]]
    return [step for job in jobs for step in job["steps"]]


@check_table("path", FILES)
def test_every_action_is_pinned_by_its_commit_and_no_script_has_an_expression_inside(path):
    found = steps(yaml.safe_load(path.read_text()))
    assert [step["uses"] for step in found if not re.search(r"@[0-9a-f]{40}$", step.get("uses", "@" + 40 * "0"))] == []
    assert [step["run"] for step in found if "${{" in step.get("run", "")] == []
    assert [step["run"] for step in found if re.search(r"\bpip\b|\bcurl\b|\bwget\b", step.get("run", ""))] == []


@check_table("path", [path for path in FILES if path.parent == EXAMPLES])
def test_a_workflow_has_the_least_rights_and_one_that_may_write_runs_nothing_of_a_pull_request(path):
    workflow = yaml.safe_load(path.read_text())
    jobs = workflow["jobs"].values()
    rights = [workflow["permissions"], *(job.get("permissions", {}) for job in jobs)]
    assert {name for given in rights for name, right in given.items() if right == "write"} == WRITES.get(
        path.name, set()
    )
    assert all(right in ("read", "write") for given in rights for right in given.values())
    for step in steps(workflow):
        if "actions/checkout@" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False
    if PRIVILEGED & {*workflow[True]}:  # YAML 1.1 reads the key `on` as true
        assert not any("checkout" in step.get("uses", "") for step in steps(workflow))
        assert not any("run" in step for step in steps(workflow)), "only actions that are pinned by a commit"


def test_the_requirements_of_the_actions_are_those_of_the_lock(tmp_path):
    requirements = ROOT / "scripts" / "locked-requirements.txt"
    uv = shutil.which("uv", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    if not uv:
        pytest.skip("needs uv")
    header = requirements.read_text().splitlines()[1]
    command = [uv, *header.removeprefix("#").split()[1:-1], tmp_path / "made.txt", "--quiet", "--offline"]
    subprocess.run(command, cwd=ROOT, check=True)
    made = (tmp_path / "made.txt").read_text().splitlines()
    assert requirements.read_text().splitlines()[2:] == made[2:], f"run: {header.removeprefix('#').strip()}"
    assert all("==" in line or line.lstrip().startswith(("--hash=", "#")) for line in made)


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
        for name in ("action.yml", "report/action.yml", *INSTALLED):
            copy = root / "actions" / "benchhouse" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
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
        text = (self.repo / ".github" / "workflows" / workflow).read_text() + "".join(
            path.read_text() for path in FILES[:2]
        )
        local = []
        for used in sorted(set(re.findall(r"uses: ([\w-]+/[\w-]+)(?:/\w+)?(@\S+)", text))):
            local += ["--local-repository", f"{used[0]}{used[1]}={self.root / 'actions' / used[0].split('/')[1]}"]
        given = variables | {"FAKE_REPO": str(self.repo), "FAKE_STORE": str(self.store)}
        given["PIP_DRY_RUN"] = "1"  # what is to be installed is here; pip checks that it is
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
