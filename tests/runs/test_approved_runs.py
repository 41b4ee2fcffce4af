"""A plan beyond its submitter's budget: asked for, approved by another's key, used once; and every way to cheat."""

import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from benchhouse.api.workspace import Workspace
from benchhouse.evidence.writing import after, now
from benchhouse.runs.approval import NeedsApprovalError, admit
from benchhouse.runs.approval_files import ApprovalFiles, copy_text
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.preparation import Where, prepare_text
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.records import create_run, resume_run
from benchhouse.runs.signed_files import signed_text
from benchhouse.runs.ssh_signatures import sign
from benchhouse.runs.trust_file import account
from benchhouse.schema.approval import NAMESPACE, Approval, SignedApproval
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.resources import Budget

SCENARIO = "scenario: big\nexperiment: command\nworkload: {argv: ['true']}\nrepetitions: 5\n"
TRUSTED = """
people:
  ada: {{role: approve, keys: ["{ada}"]}}
  cy: {{role: approve, keys: ["{cy}"], budget: {{trials: 3}}}}
  bob: {{keys: ["{bob}"]}}
  server: {{vouches: true, keys: ["{server}"]}}
budget: {{trials: 3}}
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ada", "bob", "cy", "eve", "server"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    return folder


@dataclass
class Team:
    ws: Workspace
    keys: Path
    prepared: dict[str, PreparedRun] = field(default_factory=dict)

    def plan(self, *more: str, who: str = "bob"):
        text = "\n".join([SCENARIO, *more])
        if text not in self.prepared:
            self.prepared[text] = prepare_text(self.ws.folder, text, "s.yaml", self.ws.root, Where())
        return replace(self.prepared[text], submitter=who)

    def refusal(self, *more: str, who: str = "bob") -> NeedsApprovalError:
        with pytest.raises(NeedsApprovalError) as refused:
            create_run(self.ws.folder, self.plan(*more, who=who), Path("s.yaml"))
        assert self.ws.runs() == []
        return refused.value

    def approve(self, name: str, key: str = "ada", **more):
        return self.ws.approvals.approve(name, key=self.keys / key, **more)

    def forge(self, name: str, key: str, *, namespace: str = NAMESPACE, request=None, **more) -> None:
        """An approval that says what it likes, signed by whoever."""
        files, made = ApprovalFiles(self.ws.folder), now()
        asked = files.request(name).model_copy(update=request or {})
        fields = {"approved_by": "ada", "signed_by": "ada", "time": made, "expires": after(made, 60.0)}
        approval = Approval.model_validate({"request": asked} | fields | more)
        signature = sign(approval.signed_bytes(), self.keys / key, namespace)
        files.keep(SignedApproval(approval=approval, signature=signature))

    def file(self, name: str) -> Path:
        return self.ws.folder.approvals / f"{name}.json"


@pytest.fixture
def team(tmp_path, keys):
    public = {path.stem: path.read_text().strip() for path in keys.glob("*.pub")}
    (tmp_path / "trusted.yaml").write_text(TRUSTED.format(**public))
    return Team(Workspace(tmp_path), keys)


def test_an_approval_is_for_one_run_which_is_held_to_it_and_may_go_on_until_it_is_revoked(team):
    refused = team.refusal()
    assert (refused.exit_code, [str(item) for item in refused.over]) == (
        Exit.NEEDS_APPROVAL, ["trials: 5, 2 more than the 3 allowed"],
    )  # fmt: skip
    assert f"bench approve {refused.request}" in refused.hint
    assert team.refusal().request == refused.request, "asked again, it is the same request"
    assert [item.name for item in team.ws.approvals.waiting()] == [refused.request]
    approved = team.approve(refused.plan_digest[:8], reason="for the release")
    assert (approved.state, approved.approved_by, approved.signed_by) == ("approved", "ada", "ada")
    ledger = create_run(team.ws.folder, team.plan(), Path("s.yaml"))
    record = ledger.record
    assert (record.submitter, record.approval, record.budget) == ("bob", refused.request, Budget(trials=5))
    assert team.ws.approvals.show(refused.request).run_id == ledger.folder.run_id
    with pytest.raises(NeedsApprovalError, match=f"it was used by run {ledger.folder.run_id}"):
        create_run(team.ws.folder, team.plan(), Path("s.yaml"))
    resumed, prepared = resume_run(team.ws.folder, ledger.folder.run_id)
    assert admit(team.ws.folder, prepared, resumed).approval.approval.approved_by == "ada"
    team.file(refused.request).unlink()
    admit(team.ws.folder, prepared, resumed)  # its own copy counts
    ApprovalFiles(team.ws.folder).keep(admit(team.ws.folder, prepared, resumed).approval)
    assert team.ws.approvals.revoke(refused.request, by="ada").state == "void"
    (team.ws.folder.approvals / f"{refused.request}.revoked.json").unlink()  # the journal knows it, too
    with pytest.raises(NeedsApprovalError, match="revoked by ada"):
        admit(team.ws.folder, prepared, resumed)
    actions = [line.action for line in team.ws.approvals.log()]
    assert actions == ["asked", "refused", "refused", "approved", "used", "asked", "refused", "revoked", "refused"]


def test_an_approval_covers_the_files_that_the_scenario_names(team):
    """Each of them is rewritten after the approval: the run that was approved does not start with another one."""
    root = team.ws.root
    texts = {
        "argv": ("workload: {argv: [./a.sh, b.csv], cwd: .}", ["a.sh", "b.csv"]),
        "shell": ("workload: {shell: 'bash a.sh < b.csv'}", ["a.sh", "b.csv"]),
        "axis": ("workload: {argv: [bash], stdin: [a.sh, b.csv]}", ["a.sh", "b.csv"]),
        "environment": (f"environment: {{SETTINGS: {root}/b.csv}}", ["b.csv"]),
        "elsewhere": ("workload: {argv: [sub/c.sh], cwd: tools}", ["tools/sub/c.sh"]),
    }
    (root / "tools" / "sub").mkdir(parents=True)
    for name, (more, files) in texts.items():
        for file in files:
            for path in files:
                (root / path).write_text("1")
                (root / path).chmod(0o755)
            text = SCENARIO.replace(
                "workload: {argv: ['true']}\n", "" if "workload" in more else "workload: {argv: ['true']}\n"
            )
            plan = replace(prepare_text(team.ws.folder, f"{text}{more}\n", "s.yaml", root, Where()), submitter="bob")
            with pytest.raises(NeedsApprovalError) as refused:
                admit(team.ws.folder, plan)
            team.approve(refused.value.request)
            (root / file).write_text("2")
            with pytest.raises(NeedsApprovalError, match=f"another file {file} than was approved"):
                admit(team.ws.folder, plan)
            (root / file).write_text("1")
            assert admit(team.ws.folder, plan).approval, (name, file)
            team.ws.approvals.revoke(refused.value.request, by="ada")


def test_one_account_is_one_person_under_whichever_name(team, monkeypatch):
    """Started without a server or agent that knows who asks, a request is made by the account that started it."""
    monkeypatch.setenv("BENCH_AS", "bob")
    name = team.refusal(who="").request
    assert team.ws.approvals.show(name).asked_by == "bob"
    with pytest.raises(BenchError, match="requested it, under whichever name"):
        team.approve(name)
    team.forge(name, "ada", request={"account": ""}, account=account())
    assert "signed it, and starts this run" in team.refusal(who="").message
    team.forge(name, "ada", account="ada@elsewhere")
    assert admit(team.ws.folder, team.plan(who="")).approval.approval.approved_by == "ada"


def test_a_request_that_has_changed_since_it_was_shown_is_not_approved(team):
    name = team.refusal().request
    shown = team.ws.approvals.show(name).request_digest
    changed = ApprovalFiles(team.ws.folder).request(name).model_copy(update={"budget": Budget(trials=500)})
    (team.ws.folder.approvals / f"{name}.request.json").write_text(signed_text(changed))
    with pytest.raises(BenchError, match="has changed since it was shown"):
        team.approve(name, shown=shown)
    assert team.approve(name, shown=team.ws.approvals.show(name).request_digest).budget["trials"] == 500


def test_a_forged_approval_starts_nothing(team):
    name = team.refusal().request

    def says(words: str, **asked) -> None:
        assert words in team.refusal(**asked).message

    team.approve(name)
    good = team.file(name).read_bytes()
    for at in range(0, len(good), 101):
        team.file(name).write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        team.refusal()
    team.file(name).write_bytes(good.replace(b",", b", ", 1))
    says("was changed")
    team.file(name).write_bytes(good)
    says("it is for bob, and this is asked by eve", who="eve")
    with pytest.raises(NeedsApprovalError, match="another environment"):
        admit(team.ws.folder, team.plan("environment: {A: '1'}"))
    with pytest.raises(NeedsApprovalError, match="another resources"):
        admit(team.ws.folder, team.plan("resources: {cpus: 2}"))
    with pytest.raises(NeedsApprovalError, match="another price"):
        admit(team.ws.folder, team.plan("price_per_hour: 0.01"))
    assert "needs approval" in team.refusal("seed: 7").message
    for key, more, words in (
        ("eve", {}, "not signed by a key that ada has"),
        ("bob", {"approved_by": "bob", "signed_by": "bob"}, "bob may not approve"),
        ("eve", {"approved_by": "eve", "signed_by": "eve"}, "eve may not approve"),
        ("cy", {"signed_by": "cy"}, "cy may not sign for ada"),
        ("ada", {"namespace": "git"}, "not signed by a key that ada has"),
        ("ada", {"expires": now()}, "it expired on"),
        ("server", {"approved_by": "bob", "signed_by": "server"}, "bob may not approve"),
        ("ada", {"request": {"budget": Budget(trials=4)}}, "more than was approved: trials: 5"),
        ("ada", {"request": {"executor": "slurm"}}, "it is for slurm at local"),
        ("ada", {"request": {"plan_digest": "0" * 64}}, "it is for plan 000000000000"),
    ):
        team.forge(name, key, **more)
        says(words)
    team.file(name).write_text(copy_text(SignedApproval(approval=_read(team, name).approval, signature="")))
    says("not signed by a key that ada has")
    assert team.ws.runs() == []


@pytest.mark.parametrize(
    ("other", "words"),
    [("partition: large", "another queue"), ("partition: small\nslurm: {exclusive: true}", "another settings of the")],
)
def test_an_approval_is_for_the_queue_that_was_asked_for(team, other, words):
    asked = team.plan("executor: slurm\npartition: small")
    with pytest.raises(NeedsApprovalError) as refused:
        admit(team.ws.folder, asked)
    team.approve(refused.value.request)
    with pytest.raises(NeedsApprovalError, match=words):
        admit(team.ws.folder, team.plan(f"executor: slurm\n{other}"))
    assert admit(team.ws.folder, asked).approval.approval.request.name == refused.value.request


def test_two_approvals_for_two_plans_of_one_scenario_name_open_one_plan_each(team):
    names = [team.approve(team.refusal(*more).request).name for more in ((), ("seed: 7",))]
    files = [team.file(name).read_bytes() for name in names]
    for name, other in zip(names, reversed(files), strict=True):
        team.file(name).write_bytes(other)
    for more in ((), ("seed: 7",)):
        assert "is an approval of another name" in team.refusal(*more).message
    for name, own in zip(names, files, strict=True):
        team.file(name).write_bytes(own)
    for name, more in zip(names, ((), ("seed: 7",)), strict=True):
        ledger = create_run(team.ws.folder, team.plan(*more), Path("s.yaml"))
        assert ledger.record.approval == name
        with pytest.raises(NeedsApprovalError, match="was used by run"):
            create_run(team.ws.folder, team.plan(*more), Path("s.yaml"))


def test_an_approval_by_a_key_that_ended_is_void(team):
    name = team.refusal().request
    assert team.approve(name).state == "approved"
    ada = (team.keys / "ada.pub").read_text().strip()
    path = team.ws.folder.trusted
    rules = path.read_text()
    path.write_text(f'{rules}key_ends: [{{key: "{ada}", until: 2020-01-01, why: lost}}]\n')
    standing = team.ws.approvals.verify(name)
    assert (standing.holds, standing.says) == (False, "the key of ada counts no more since 2020-01-01: lost")
    assert "counts no more since" in team.refusal().message
    path.write_text(f'{rules}key_ends: [{{key: "{ada}", until: 2999-01-01, why: a guest}}]\n')
    create_run(team.ws.folder, team.plan(), Path("s.yaml"))


def test_a_revocation_that_is_damaged_voids_its_approval_alone(team):
    name = team.approve(team.refusal().request).name
    (team.ws.folder.approvals / f"{name}.revoked.json").write_text("<<<<<<< HEAD\n")
    (standing,) = team.ws.approvals.list()
    assert standing.state == "void" and standing.says.startswith("nobody can say whether it was revoked:")
    refused = team.refusal()
    assert "nobody can say whether it was revoked" in refused.message and refused.request != name
    team.approve(refused.request)
    assert create_run(team.ws.folder, team.plan(), Path("s.yaml")).record.approval == refused.request


def test_the_use_of_an_approval_is_on_record_whoever_was_killed(team):
    name = team.approve(team.refusal().request).name
    ledger = create_run(team.ws.folder, team.plan(), Path("s.yaml"))
    journal = team.ws.folder.approval_journal
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]))  # killed before it was said
    _, prepared = resume_run(team.ws.folder, ledger.folder.run_id)
    for _ in range(2):
        admit(team.ws.folder, prepared, ledger)
    used = [(line.name, line.run_id) for line in team.ws.approvals.log() if line.action == "used"]
    assert used == [(name, ledger.folder.run_id)]


def test_a_reason_with_any_line_break_stays_on_record(team):
    name = team.approve(team.refusal().request, reason="one\u2028two\x85three").name
    team.ws.approvals.revoke(name, by="ada", reason="\u2029")
    assert [line.action for line in team.ws.approvals.log()][-2:] == ["approved", "revoked"]


def _read(team, name) -> SignedApproval:
    team.forge(name, "ada")
    return SignedApproval.model_validate_json(team.file(name).read_bytes())


def test_nobody_approves_what_they_asked_for(team):
    name = team.refusal(who="cy").request
    with pytest.raises(BenchError, match="cy asked for"):
        team.approve(name, "cy")
    team.forge(name, "cy", approved_by="cy", signed_by="cy")
    assert "nobody approves what they asked for" in team.refusal(who="cy").message
    with pytest.raises(BenchError, match="nobody's key"):
        team.approve(name, "eve")
    assert team.approve(name, "ada").state == "approved"


def test_a_server_vouches_for_whom_it_knows_and_the_approval_says_so(team):
    name = team.refusal().request
    with pytest.raises(BenchError, match="no key to vouch with"):
        team.ws.approvals.approve(name, by="ada", door="bench serve")
    for suffix in ("", ".pub"):
        path = Path(f"{team.ws.folder.approval_key}{suffix}")
        path.write_bytes(Path(f"{team.keys / 'server'}{suffix}").read_bytes())
        path.chmod(0o600)
    with pytest.raises(BenchError, match="bob may not approve"):
        team.ws.approvals.approve(name, by="bob", door="bench serve")
    approved = team.ws.approvals.approve(name, by="ada", door="bench serve")
    assert (approved.says, approved.door) == ("approved by ada, as server vouches", "bench serve")
    first = team.file(name).read_bytes()
    again = team.ws.approvals.approve(name, by="ada", door="bench serve")  # killed before it answered
    assert again == approved and team.file(name).read_bytes() == first
    run = create_run(team.ws.folder, team.plan(), Path("s.yaml"))
    assert Ledger(run.folder).record.approval == name
    assert team.ws.approvals.approve(name, by="ada", door="bench serve").run_id == run.folder.run_id
    with pytest.raises(NeedsApprovalError, match="was used by run"):
        create_run(team.ws.folder, team.plan(), Path("s.yaml"))
    assert team.ws.approvals.approve(name, by="ada", door="bench serve", for_s=60.0).state == "approved"


def test_an_approved_run_that_expired_asks_again_and_goes_on_by_the_new_approval(team):
    name = team.refusal().request
    team.forge(name, "ada", expires=after(now(), 1.5))
    ledger = create_run(team.ws.folder, team.plan(), Path("s.yaml"))
    _, prepared = resume_run(team.ws.folder, ledger.folder.run_id)
    ApprovalFiles(team.ws.folder).keep(_expired(team, name))
    ledger.folder.approval.write_bytes(team.file(name).read_bytes())
    with pytest.raises(NeedsApprovalError, match="expired") as refused:
        admit(team.ws.folder, prepared, ledger)
    again = refused.value.request
    assert again != name
    assert team.approve(again).budget == {"trials": 5}
    assert admit(team.ws.folder, prepared, ledger).approval.approval.request.name == again
    assert ledger.record.approval == again and team.ws.approvals.show(again).run_id == ledger.folder.run_id


def _expired(team, name) -> SignedApproval:
    team.forge(name, "ada", expires=after(now(), -1.0))
    return SignedApproval.model_validate_json(team.file(name).read_bytes())
