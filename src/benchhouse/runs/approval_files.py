"""Requests and approvals as files of the workspace, which a pull request may add; their uses and their record."""

import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from benchhouse.documents.problems import did_you_mean
from benchhouse.evidence import journals
from benchhouse.evidence.writing import now, write_text
from benchhouse.processes.durable import link_in_place, make_folders
from benchhouse.processes.owned_names import temporary_name
from benchhouse.runs.signed_files import UnreadableError, read_signed, signed_text
from benchhouse.runs.trust_file import login
from benchhouse.schema.approval import Approval, ApprovalRecord, ApprovalRequest, Revocation, SignedApproval
from benchhouse.schema.errors import BenchError, NotFoundError, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.model import Model
from benchhouse.schema.quoting import quote

_REQUEST = re.compile(r"([0-9a-f]{16}-[1-9][0-9]{0,5})\.request\.json")


@dataclass(frozen=True)
class ApprovalFiles:
    """The approval files of one workspace."""

    workspace: WorkspaceFolder

    def names(self, plan_digest: str = "") -> list[str]:
        """Return the names of all requests, or of those for a plan, in the order of the requests."""
        folder = self.workspace.approvals
        matches = (_REQUEST.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
        names = [match[1] for match in matches if match and match[1].startswith(plan_digest[:16])]
        return sorted(names, key=lambda name: (name.partition("-")[0], int(name.partition("-")[2])))

    def find(self, name: str) -> str:
        """Return the request of that name, or the only one for the plan of that digest. Raise BenchError."""
        names = self.names()
        if name in names:
            return name
        of_plan = [item for item in names if len(name) >= 6 and item.startswith(name[:16])]
        if len(name) > 16:
            of_plan = [item for item in of_plan if self.request(item).plan_digest.startswith(name)]
        if len(of_plan) == 1:
            return of_plan[0]
        if of_plan:
            raise BenchError(
                f"{len(of_plan)} requests are for the plan {name[:12]}", f"name one: {', '.join(of_plan[-10:])}"
            )
        hint = did_you_mean(name, names) or "see: bench approvals list"
        raise NotFoundError(f"no request for approval is called {quote(name[:80])}", hint)

    def request(self, name: str) -> ApprovalRequest:
        request = read_signed(self._path(name, "request"), ApprovalRequest)
        if request is None:
            raise NotFoundError(f"no request for approval is called {quote(name)}", "see: bench approvals list")
        if request.name != name or not name.startswith(request.plan_digest[:16]):
            raise UnreadableError(f"{self._path(name, 'request')} is a request of another name")
        return request

    def approval(self, name: str) -> SignedApproval | None:
        signed = read_signed(self._path(name), SignedApproval)
        if signed is not None and signed.approval.request.name != name:
            raise UnreadableError(f"{self._path(name)} is an approval of another name")
        return signed

    def ask(self, request: ApprovalRequest) -> ApprovalRequest:
        """Store a new request under the next free name of its plan."""
        number = max((int(name.partition("-")[2]) for name in self.names(request.plan_digest)), default=0)
        folder = self.workspace.approvals
        try:
            make_folders(folder)
            while True:
                number += 1
                named = request.model_copy(update={"name": f"{request.plan_digest[:16]}-{number}"})
                if _put_first(self._path(named.name, "request"), signed_text(named)):
                    return named
        except OSError as error:
            raise unwritable(folder, error) from error

    def keep(self, signed: SignedApproval) -> Path:
        """Write an approval, replacing an earlier one of the same request."""
        return self._write(self._path(signed.approval.request.name), signed)

    def revoke(self, name: str, revocation: Revocation) -> Path:
        return self._write(self._path(name, "revoked"), revocation)

    def revocation(self, approval: Approval) -> str:
        """Return who revoked an approval and when; empty if it is not revoked. Raise if the file can't be read.

        If the file was removed, the journal still has the revocation.
        """
        digest = approval.digest()
        kept = read_signed(self._path(approval.request.name, "revoked"), Revocation)
        if kept is not None and kept.approval == digest:
            return f"{kept.revoked_by} on {kept.time[:16]} UTC"
        for line in self.records():
            if line.action == "revoked" and line.approval == digest:
                return f"{line.who} on {line.time[:16]} UTC"
        return ""

    def use(self, approval: Approval, run_id: str) -> str:
        """Return the one run that an approval is for: this one, if no other has used it."""
        marker = self.workspace.approval_uses / approval.digest()
        try:
            make_folders(marker.parent)
            return run_id if _put_first(marker, run_id) else marker.read_text(encoding="utf-8")
        except OSError as error:
            raise unwritable(marker, error) from error

    def used_by(self, approval: Approval) -> str:
        """Return the run that used an approval; empty if there is none."""
        try:
            return (self.workspace.approval_uses / approval.digest()).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def is_recorded_as_used(self, approval: Approval) -> bool:
        """Return whether the record has its use."""
        digest = approval.digest()
        return any(line.action == "used" and line.approval == digest for line in self.records())

    def record(self, line: ApprovalRecord) -> None:
        """Append a line, synced."""
        journals.append(self.workspace.approval_journal, line, "ask again")

    def records(self) -> list[ApprovalRecord]:
        """Return all lines of the record, oldest first."""
        return journals.read(self.workspace.approval_journal, ApprovalRecord)[0]

    def _path(self, name: str, kind: str = "") -> Path:
        return self.workspace.approvals / (f"{name}.{kind}.json" if kind else f"{name}.json")

    def _write(self, path: Path, item: Model) -> Path:
        try:
            make_folders(path.parent)
            write_text(path, signed_text(item))
        except OSError as error:
            raise unwritable(path, error) from error
        return path


def line_of(request: ApprovalRequest, action: str, who: str, **more: object) -> ApprovalRecord:
    """Return a line of the record about this request."""
    names = ("name", "plan_digest", "scenario", "executor", "site", "budget")
    fields = {name: getattr(request, name) for name in names} | {"login": login()}
    return ApprovalRecord.model_validate(fields | {"time": now(), "action": action, "who": who} | more)


def approved_line(signed: SignedApproval, action: str, who: str, **more: object) -> ApprovalRecord:
    """Return a line of the record about this approval."""
    approval = signed.approval
    about = {"approval": approval.digest(), "approved_by": approval.approved_by, "signed_by": approval.signed_by}
    return line_of(approval.request, action, who, **(about | {"door": approval.door} | more))


def read_copy(path: Path) -> SignedApproval | None:
    """Return the approval of a run as it was when the run began; None if there is none."""
    return read_signed(path, SignedApproval)


def copy_text(signed: SignedApproval) -> str:
    return signed_text(signed)


def _put_first(path: Path, text: str) -> bool:
    """Write a file, whole, unless it exists. Return whether it was written."""
    temporary = path.with_name(temporary_name(f"{path.name}.{secrets.token_hex(4)}"))  # two threads may write at once
    write_text(temporary, text)
    try:
        link_in_place(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True
