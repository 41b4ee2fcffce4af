"""The contract of a run, read and checked before anything runs, and stored with the run's ledger."""

from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.documents.document import Document
from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.plan.contract import Contract, contradictions
from benchhouse.schema.contract import BenchmarkRun
from benchhouse.schema.contract_rules import misfits, settle
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.guarantees import COMMIT

if TYPE_CHECKING:
    from benchhouse.runs.prepared_run import PreparedRun


def read_contract(path: Path) -> Contract:
    """Return a contract and the verdict on it. Every mistake is raised with its place in the file."""
    return contract_of(load_yaml(path))


def contract_of(document: Document) -> Contract:
    """Return the contract in a document that was read before."""
    contract = validated(document, BenchmarkRun)
    if problems := [document.problem(*misfit) for misfit in misfits(contract)]:
        raise ProblemsError(problems)
    return Contract(contract, document, settle(contract))


def govern(prepared: "PreparedRun", path: Path) -> Contract:
    """Return the contract in `path`. Raise BenchError if it contradicts the scenario or is rejected."""
    contract = read_contract(path)
    if problems := contradictions(contract, prepared.file, prepared.plan):
        raise ProblemsError(problems)
    if contract.settled.verdict == "rejected":
        message = f"the contract {path} is {contract.settled.sentence()}"
        raise BenchError(message, f"see: bench contracts validate {path}", Exit.CLAIM_NOT_SAFE)
    return contract


def check_source(contract: Contract, source: dict[str, object]) -> str:
    """Return a warning if the checkout is not the pinned commit, otherwise ''. Raise if the contract rejects that."""
    pinned = contract.terms.provenance.git_commit
    commit = str(source.get("commit") or "unknown") + (" (dirty)" if source.get("dirty") else "")
    if COMMIT not in contract.demands or pinned == commit:
        return ""
    line, column = contract.document.position(("provenance", "gitCommit"))
    says = f"{contract.document.path}:{line}:{column}: the contract pins commit {pinned}, the checkout is at {commit}"
    if contract.terms.execution_policy.on_missing_guarantee == "reject":
        raise BenchError(says, "check that commit out, without changes, or pin another one", Exit.CLAIM_NOT_SAFE)
    return says
