"""BenchmarkRun contracts: promised before a run, rendered from a scenario or a run, or checked from a file."""

import builtins
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchhouse.api.verb_group import VerbGroup
from benchhouse.claims import contracts
from benchhouse.claims.contracts import RunEvidence
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.evidence.folder import read_meta
from benchhouse.runs.contracts import contract_of, read_contract
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.preparation import Where, prepare, prepare_text
from benchhouse.schema.contract import BenchmarkRun
from benchhouse.schema.contract_rules import UNKNOWN, Settled
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder


@dataclass(frozen=True)
class ContractTemplate:
    """A template for a contract."""

    contract: str
    benchmark_class: str
    workload: str
    metrics: list[str]
    min_replicates: int


@dataclass(frozen=True)
class RenderedContract:
    """The contract that a scenario or run amounts to, and what its publisher has to confirm."""

    contract: BenchmarkRun
    to_confirm: list[str]


@dataclass(frozen=True)
class CheckedContract:
    """A contract without mistakes, and its status: accepted, downgraded, or rejected."""

    contract: BenchmarkRun
    settled: Settled


class Contracts(VerbGroup):
    """The BenchmarkRun contracts of a workspace."""

    def list(self) -> builtins.list[ContractTemplate]:
        """Return the contract templates, by benchmark class and kind of workload."""
        return [
            ContractTemplate(
                name,
                contract.intent.benchmark_class,
                contract.intent.workload_type,
                [*contract.metrics.training, *contract.metrics.inference],
                contract.trials.min_replicates,
            )
            for name, contract in contracts.templates().items()
        ]

    def show(self, name: str) -> BenchmarkRun:
        """Return the contract template with this name."""
        return contracts.template(name)

    def text(self, contract: BenchmarkRun) -> str:
        """Return a contract as YAML."""
        return contracts.as_yaml(contract)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of all contracts."""
        return BenchmarkRun.model_json_schema(by_alias=True)

    def validate(self, path: Path) -> CheckedContract:
        """Check a contract file. Raises BenchError with the place of every mistake."""
        contract = read_contract(path)
        return CheckedContract(contract.terms, contract.settled)

    def validate_text(self, text: str, name: str = "<contract>") -> CheckedContract:
        """Check the text of a contract. Errors refer to it by `name`."""
        contract = contract_of(parse_yaml(text, name))
        return CheckedContract(contract.terms, contract.settled)

    def render(self, what: str) -> RenderedContract:
        """Return the contract that a scenario file or a run amounts to."""
        folder = self._workspace.folder
        if Path(what).suffix in (".yaml", ".yml") or Path(what).is_file():
            return RenderedContract(*contracts.contract_of_plan(prepare(folder, Path(what)).plan, RunEvidence()))
        run = folder.run(self._workspace[what].id)
        record = Ledger(run).record
        try:
            text = run.scenario.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise BenchError(
                f"run {run.run_id} has no {run.scenario.name} any more, of which its contract is rendered",
                "bench contracts render SCENARIO.yaml: the file that it was run from",
            ) from error
        prepared = prepare_text(folder, text, str(run.scenario), record.folder, Where())
        evidence = self._evidence(run.run_id, record.scenario)
        return RenderedContract(*contracts.contract_of_plan(prepared.plan, evidence))

    def _evidence(self, run_id: str, scenario: str) -> RunEvidence:
        metas = []
        for path in sorted((self._workspace.folder.results / scenario).glob("*/manifest.json")):
            try:
                meta = read_meta(TrialFolder(path.parent))
            except (OSError, ValueError):
                continue
            if meta.run_id == run_id:
                metas.append(meta)
        if not metas:
            return RunEvidence()
        last = metas[-1]
        return RunEvidence(
            (last.git_commit or UNKNOWN) + (" (dirty)" if last.git_dirty else ""),
            last.package_lock_digest,
            frozenset(meta.host for meta in metas),
            frozenset(meta.container_digest for meta in metas if meta.container_digest),
        )
