"""`/bench compare main`: against the newest run of the same scenario that measured a clean commit of a branch."""

import subprocess

import pytest
from tables import check_table

from benchhouse.api.chat import ChatActions
from benchhouse.api.workspace import Workspace
from benchhouse.automation.github.commands import CommentCommand
from benchhouse.automation.github.deliveries import CommandOrder
from benchhouse.runs.ledger import new_run_id
from benchhouse.schema.errors import NotFoundError

ORDER = CommandOrder("k", "team/bench", "ada-l", "", 7)


def git(root, *words):
    names = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", *names, *words], cwd=root, check=True, capture_output=True)


def test_a_branch_is_the_newest_clean_run_that_measured_it(tmp_path):
    (tmp_path / ".gitignore").write_text(".bench/\nresults/\n")
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(
            f"scenario: {name}\nexperiment: command\nworkload: {{argv: ['true'], executions: 1}}\n"
        )
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    workspace = Workspace(tmp_path)

    def run(name):
        return workspace.run(tmp_path / f"{name}.yaml", new=True).id

    older, wanted, other = run("a"), run("a"), run("b")
    (tmp_path / "more").touch()
    dirty = run("a")
    git(tmp_path, "checkout", "-qb", "change")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "second")
    new = run("a")
    deeds = ChatActions(workspace, lambda text: None)
    said = deeds.answer(CommentCommand("compare", "main"), "ada", ORDER, [new])
    assert f"bench compare {wanted} {new}" in said
    assert not any(name in said for name in (older, other, dirty))
    with pytest.raises(NotFoundError, match="no run of b measured a commit of 'change'"):
        deeds.answer(CommentCommand("compare", "change"), "ada", ORDER, [other])
    for nothing in ("nobody", "--all", "main..change", "refs/heads/main"):
        with pytest.raises(NotFoundError, match="neither a run nor a branch"):
            deeds.answer(CommentCommand("compare", nothing), "ada", ORDER, [new])


@check_table("name", ["x" * 300, "x" * 300 + ".yaml", "../" * 600 + "etc/passwd.yaml", "a/" * 900 + "b.yaml"])
def test_a_name_that_no_file_can_have_is_not_there(tmp_path, name):
    deeds = ChatActions(Workspace(tmp_path), lambda text: None)
    with pytest.raises(NotFoundError, match="there is no scenario file") as told:
        deeds.start(CommentCommand("run", name), new_run_id(), "ada")
    assert told.value.hint
    for verb in ("status", "stop"):
        with pytest.raises(NotFoundError, match="there is no run"):
            deeds.answer(CommentCommand(verb, name), "ada", ORDER, [])
