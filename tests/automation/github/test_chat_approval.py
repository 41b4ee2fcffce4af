"""A plan beyond a person's budget, approved in a thread by somebody else, on a real workspace."""

import re
import subprocess

import pytest

from benchhouse.api.chat import ChatActions
from benchhouse.api.workspace import Workspace
from benchhouse.automation.github.commands import CommentCommand
from benchhouse.automation.github.deliveries import CommandOrder
from benchhouse.runs.ledger import new_run_id
from benchhouse.schema.errors import BenchError

ORDER = CommandOrder("k", "team/bench", "ada-l", "", 7)
RUN = CommentCommand("run", "many")


def test_a_comment_approves_one_run_of_somebody_else(tmp_path):
    key = tmp_path / ".bench" / "approval_key"
    key.parent.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_name("approval_key.pub").read_text().strip()
    people = f'ada: {{role: approve, github: ada-l}}, bob: {{}}, here: {{vouches: true, keys: ["{public}"]}}'
    (tmp_path / "trusted.yaml").write_text(f"people: {{{people}}}\nbudget: {{trials: 1}}\n")
    (tmp_path / "many.yaml").write_text(
        "scenario: many\nexperiment: command\nworkload: {argv: ['true'], executions: 1}\nrepetitions: 2\n"
    )
    workspace = Workspace(tmp_path)
    deeds = ChatActions(workspace, lambda text: None)
    with pytest.raises(BenchError, match="needs approval") as refused:
        deeds.start(RUN, new_run_id(), "bob")
    name = re.search(r"bench approve (\S+)", refused.value.hint)[1]
    with pytest.raises(BenchError):
        deeds.answer(CommentCommand("approve", name), "bob", ORDER, [])
    assert name in deeds.answer(CommentCommand("approve", name), "ada", ORDER, [])
    assert workspace.approvals.show(name).approved_by == "ada"
    run_id = new_run_id()
    deeds.start(RUN, run_id, "bob")
    assert workspace[run_id].wait().status().outcomes == {"succeeded": 2}
    with pytest.raises(BenchError, match="needs approval"):
        deeds.start(RUN, new_run_id(), "bob")
