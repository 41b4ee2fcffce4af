"""Every file and folder name of a workspace, in one place."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrialFolder:
    """The files of one trial folder, sealed or not."""

    path: Path

    @property
    def spec(self) -> Path:
        return self.path / "trial.json"

    @property
    def effective_config(self) -> Path:
        return self.path / "effective_config.yaml"

    @property
    def meta(self) -> Path:
        return self.path / "meta.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def metrics_csv(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def samples(self) -> Path:
        return self.path / "samples.csv"

    @property
    def histograms(self) -> Path:
        return self.path / "histograms.json"

    @property
    def packages(self) -> Path:
        return self.path / "packages.json"

    @property
    def services(self) -> Path:
        """Servers of a trial that runs; gone when it is sealed."""
        return self.path / "services.json"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def telemetry(self) -> Path:
        return self.path / "telemetry"

    @property
    def telemetry_summary(self) -> Path:
        return self.telemetry / "summary.json"

    @property
    def elsewhere(self) -> Path:
        """While it runs: folders of its servers on other nodes, by name."""
        return self.path / ".elsewhere"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def sealed(self) -> bool:
        return self.manifest.is_file()


@dataclass(frozen=True)
class RunFolder:
    """The ledger of one run."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def record(self) -> Path:
        return self.path / "run.json"

    @property
    def scenario(self) -> Path:
        return self.path / "scenario.yaml"

    @property
    def benchmark(self) -> Path:
        return self.path / "benchmark.yaml"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def lock(self) -> Path:
        return self.path / "owner.lock"

    @property
    def carried(self) -> Path:
        """Names the cluster's job that carries the whole run."""
        return self.path / "carried"

    @property
    def worker_logs(self) -> Path:
        return self.path / "worker_logs"

    @property
    def jobs(self) -> Path:
        """What was handed to a batch system, one numbered folder a submission; there only where jobs outlive us."""
        return self.path / "jobs"

    @property
    def job_logs(self) -> Path:
        """What the batch system's jobs printed."""
        return self.path / "logs"

    @property
    def services(self) -> Path:
        """Folders of the servers that are attached to the run, by name."""
        return self.path / "services"


@dataclass(frozen=True)
class WorkspaceFolder:
    """A folder that holds scenarios, results, reports and the hidden `.bench` state."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / ".bench"

    @property
    def runs(self) -> Path:
        return self.state / "runs"

    @property
    def services(self) -> Path:
        """Folders of servers that were started by themselves, by id."""
        return self.state / "services"

    @property
    def warehouse(self) -> Path:
        return self.state / "warehouse"

    @property
    def monitors(self) -> Path:
        return self.state / "monitors"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def claims(self) -> Path:
        """Published numbers, one file each; what they rest on is never pruned."""
        return self.root / "claims"

    @property
    def claim_policy(self) -> Path:
        return self.root / "claims.yaml"

    @property
    def benchmarks(self) -> Path:
        return self.root / "benchmarks"

    @property
    def recipes(self) -> Path:
        return self.root / "recipes"

    @property
    def site(self) -> Path:
        return self.root / "site.yaml"

    @property
    def alarms(self) -> Path:
        return self.root / "alarms.yaml"

    def run(self, run_id: str) -> RunFolder:
        return RunFolder(self.runs / run_id)

    def trial(self, scenario: str, trial_id: str) -> TrialFolder:
        return TrialFolder(self.results / scenario / trial_id)

    def partial(self, scenario: str, trial_id: str, attempt: int) -> TrialFolder:
        return TrialFolder(self.results / scenario / ".partial" / f"{trial_id}.{attempt}")

    def superseded(self, scenario: str, trial_id: str, attempt: int) -> TrialFolder:
        """Where the folder of an attempt goes when a later attempt takes its place."""
        return TrialFolder(self.results / scenario / f"{trial_id}.attempt-{attempt}")
