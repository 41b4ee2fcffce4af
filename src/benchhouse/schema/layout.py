"""All file and folder names of a workspace."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folder:
    """A folder whose files have fixed names."""

    path: Path


class Inside:
    """An attribute of a `Folder`: the path of the file or folder with this name in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Folder, _: type[Folder]) -> Path:
        return folder.path / self._name


class TrialFolder(Folder):
    """The files of one trial folder, sealed or not."""

    spec = Inside("trial.json")
    effective_config = Inside("effective_config.yaml")
    meta = Inside("meta.json")
    metrics = Inside("metrics.json")
    metrics_csv = Inside("metrics.csv")
    samples = Inside("samples.csv")
    histograms = Inside("histograms.json")
    packages = Inside("packages.json")
    services = Inside("services.json")  # servers of a running trial; removed when it is sealed
    logs = Inside("logs")
    artifacts = Inside("artifacts")
    profiles = Inside("artifacts/profiles")  # output of profilers
    raw_evidence = Inside("raw_evidence.jsonl")  # scheduler events, validation probes, profiler reports; if any
    telemetry = Inside("telemetry")
    telemetry_summary = Inside("telemetry/summary.json")
    elsewhere = Inside(".elsewhere")  # of a running trial: folders of its servers on other nodes, by name
    manifest = Inside("manifest.json")

    @property
    def sealed(self) -> bool:
        return self.manifest.is_file()


class RunFolder(Folder):
    """The ledger of one run."""

    record = Inside("run.json")
    scenario = Inside("scenario.yaml")
    benchmark = Inside("benchmark.yaml")
    contract = Inside("contract.yaml")  # the contract of the run, if it has one
    approval = Inside("approval.json")  # the approval to exceed the submitter's budget, if there is one
    events = Inside("events.jsonl")
    lock = Inside("owner.lock")
    carried = Inside("carried")  # names the cluster job that runs the whole run
    worker_logs = Inside("worker_logs")
    jobs = Inside("jobs")  # submissions to a batch system, one numbered folder each, if jobs outlive the orchestrator
    waits = Inside("waits.jsonl")  # the cluster's reasons for slots that waited for a place
    job_logs = Inside("logs")  # output of batch jobs; a link if the site stores logs elsewhere
    services = Inside("services")  # folders of the servers that are attached to the run, by name
    pods = Inside("pods")  # existing servers on Kubernetes and the pods behind them, one file per server

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def job_name(self) -> str:
        """The prefix of the names of all its jobs."""
        return f"bench-{self.run_id}-"


class EvaluationFolder(Folder):
    """The files of an evaluation, which is several runs that were planned together."""

    record = Inside("evaluation.json")
    journal = Inside("runs.jsonl")  # each run, before it starts and when it has ended
    lock = Inside("owner.lock")
    log = Inside("evaluation.log")  # output of the process that runs it

    @property
    def evaluation_id(self) -> str:
        return self.path.name


class SubmissionFolder(Folder):
    """A Slurm array: the files that connect the submitter with its tasks on other nodes."""

    frame = Inside("frame.json")  # the fields of trial.json that all its trials share
    tasks = Inside("tasks.jsonl")  # one line per task: a list of the differing fields, one object per trial
    index = Inside("tasks.index")  # the offset of each line of `tasks`, and the end of the last: eight bytes each
    script = Inside("job.sh")
    job = Inside("job.json")
    begun = Inside("begun")  # an empty file INDEX.JOB for each task that has started, with its Slurm job id

    def job_of(self, index: str) -> str:
        """Return the id in the names of a task's logs; empty if it has not started."""
        return next((path.suffix[1:] for path in self.begun.glob(f"{index}.*")), "")

    @property
    def number(self) -> int:
        return int(self.path.name)


class ImportFolder(Folder):
    """.bench/imports/DIGEST: a file of another tool, as it was read."""

    scenario = Inside("scenario.yaml")
    reading = Inside("reading.json")
    samples = Inside("samples.f64")  # all values of all cases: doubles, little-endian
    original = Inside("original")  # a folder with the unchanged file
    run = Inside("run")  # the id of the run made from it


class WorkspaceFolder(Folder):
    """A folder that holds scenarios, results, reports, and the hidden `.bench` state."""

    state = Inside(".bench")
    runs = Inside(".bench/runs")
    evaluations = Inside(".bench/evaluations")  # runs that were planned together, one folder per evaluation
    services = Inside(".bench/services")  # folders of free-standing servers, by id
    imports = Inside(".bench/imports")  # files of other tools, by digest
    warehouse = Inside(".bench/warehouse")
    uncollected = Inside(".bench/uncollected")  # an empty file for each run that has started and is not in the tables
    monitors = Inside(".bench/monitors")
    baseline_journal = Inside(".bench/baselines.jsonl")
    selftest_journal = Inside(".bench/selftests.jsonl")
    regression_journal = Inside(".bench/regressions.jsonl")
    alarm_journal = Inside(".bench/alarms.jsonl")
    notice_journal = Inside(".bench/notices.jsonl")
    deposit_journal = Inside(".bench/deposits.jsonl")  # stores and packets that hold evidence of runs
    dead_letters = Inside(".bench/dead-letters.jsonl")  # documents that a search engine rejected, with its reason
    shared_journal = Inside(".bench/shared.jsonl")  # what was delivered to the destinations in workspace.yaml
    followed = Inside(".bench/followed.json")  # state of following the team's store by `bench serve`
    token_journal = Inside(".bench/tokens.jsonl")  # digests of tokens of `bench serve`; readable only by its owner
    audit_journal = Inside(".bench/audit.jsonl")  # writes through `bench serve`
    server_state = Inside(".bench/serve.db")  # sessions, and answers by idempotency key
    approval_journal = Inside(".bench/approvals.jsonl")  # requests, approvals, uses, refusals, and revocations
    approval_uses = Inside(".bench/approvals")  # the run that used each approval, one file per approval
    approval_key = Inside(".bench/approval_key")  # the key with which a server or agent signs people's decisions
    scans = Inside(".bench/scans")  # results of package scans, and their parts lists, by digest of the lock
    schedules = Inside(".bench/schedules.db")  # schedules, their slots, and the lease of the agent
    github = Inside(".bench/github.db")  # deliveries of webhooks, commands in comments, and their answers
    results = Inside("results")
    reports = Inside("reports")
    claims = Inside("claims")  # published numbers, one file each; their evidence is never pruned
    claim_policy = Inside("claims.yaml")
    benchmarks = Inside("benchmarks")
    recipes = Inside("recipes")
    site = Inside("site.yaml")
    image_lock = Inside("images.lock.yaml")
    settings = Inside("workspace.yaml")
    alarms = Inside("alarms.yaml")
    trusted = Inside("trusted.yaml")
    approvals = Inside("approvals")  # requests and signed approvals
    signatures = Inside("signatures")  # of distributions; in a nexus, of its packages

    @property
    def root(self) -> Path:
        return self.path

    def run(self, run_id: str) -> RunFolder:
        return RunFolder(self.runs / run_id)

    def evaluation(self, evaluation_id: str) -> EvaluationFolder:
        return EvaluationFolder(self.evaluations / evaluation_id)

    def trial(self, scenario: str, trial_id: str) -> TrialFolder:
        return TrialFolder(self.results / scenario / trial_id)

    def partial(self, scenario: str, trial_id: str, attempt: int) -> TrialFolder:
        return TrialFolder(self.results / scenario / ".partial" / f"{trial_id}.{attempt}")

    def superseded(self, scenario: str, trial_id: str, attempt: int) -> TrialFolder:
        """Return the folder to which an attempt is moved when a later attempt replaces it."""
        return TrialFolder(self.results / scenario / f"{trial_id}.attempt-{attempt}")
