"""Every file and folder name of a workspace, in one place."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folder:
    """A folder whose files have names of their own."""

    path: Path


class Inside:
    """An attribute of a `Folder`: the path of what has this name in it."""

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
    profiles = Inside("artifacts/profiles")  # what a profiler wrote
    raw_evidence = Inside("raw_evidence.jsonl")  # scheduler events, validation probes, profiler reports; where any
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
    contract = Inside("contract.yaml")  # what governs it, where something does
    approval = Inside("approval.json")  # by which it may go beyond what its submitter may, where it does
    events = Inside("events.jsonl")
    lock = Inside("owner.lock")
    carried = Inside("carried")  # names the cluster job that carries the whole run
    worker_logs = Inside("worker_logs")
    jobs = Inside("jobs")  # submissions to a batch system, one numbered folder each; only where jobs outlive us
    waits = Inside("waits.jsonl")  # what a cluster said of slots that waited for a place
    job_logs = Inside("logs")  # what the jobs of the batch system printed; a link where the site keeps logs elsewhere
    services = Inside("services")  # folders of the servers that are attached to the run, by name
    pods = Inside("pods")  # of servers that were there already on Kubernetes: what is behind them, a file each

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def job_name(self) -> str:
        """How the names of all its jobs begin."""
        return f"bench-{self.run_id}-"


class EvaluationFolder(Folder):
    """The files of one evaluation: several runs that were planned as one."""

    record = Inside("evaluation.json")
    journal = Inside("runs.jsonl")  # each run, before it is begun and when it ended
    lock = Inside("owner.lock")
    log = Inside("evaluation.log")  # what the process printed that carries it out

    @property
    def evaluation_id(self) -> str:
        return self.path.name


class SubmissionFolder(Folder):
    """One array of Slurm's: the files by which the submitter and its tasks on other nodes meet."""

    frame = Inside("frame.json")  # what all its trials have in common, as in trial.json
    tasks = Inside("tasks.jsonl")  # one line a task: a list of what differs, one object a trial
    index = Inside("tasks.index")  # where each line of `tasks` begins, and where the last ends: eight bytes each
    script = Inside("job.sh")
    job = Inside("job.json")
    begun = Inside("begun")  # an empty file INDEX.JOB for each task that has begun, with the id that Slurm gave it

    def job_of(self, index: str) -> str:
        """The id that is in the names of a task's logs; empty where it has not begun."""
        return next((path.suffix[1:] for path in self.begun.glob(f"{index}.*")), "")

    @property
    def number(self) -> int:
        return int(self.path.name)


class ImportFolder(Folder):
    """.bench/imports/DIGEST: a file of another tool, as it was read."""

    scenario = Inside("scenario.yaml")
    reading = Inside("reading.json")
    samples = Inside("samples.f64")  # all values of all cases: doubles, little-endian
    original = Inside("original")  # a folder with the file, byte by byte
    run = Inside("run")  # the id of the run that is made of it


class WorkspaceFolder(Folder):
    """A folder that holds scenarios, results, reports and the hidden `.bench` state."""

    state = Inside(".bench")
    runs = Inside(".bench/runs")
    evaluations = Inside(".bench/evaluations")  # runs that were planned as one, a folder each
    services = Inside(".bench/services")  # folders of free-standing servers, by id
    imports = Inside(".bench/imports")  # files of other tools, by digest
    warehouse = Inside(".bench/warehouse")
    uncollected = Inside(".bench/uncollected")  # an empty file for each run that was begun and is not in the tables
    monitors = Inside(".bench/monitors")
    baseline_journal = Inside(".bench/baselines.jsonl")
    selftest_journal = Inside(".bench/selftests.jsonl")
    regression_journal = Inside(".bench/regressions.jsonl")
    alarm_journal = Inside(".bench/alarms.jsonl")
    notice_journal = Inside(".bench/notices.jsonl")
    deposit_journal = Inside(".bench/deposits.jsonl")  # stores and packets that hold evidence of runs
    dead_letters = Inside(".bench/dead-letters.jsonl")  # documents that a search engine refused, with its reason
    shared_journal = Inside(".bench/shared.jsonl")  # what arrived where workspace.yaml sends it
    followed = Inside(".bench/followed.json")  # how it stands with the team's store that `bench serve` follows
    token_journal = Inside(".bench/tokens.jsonl")  # digests of tokens of `bench serve`; for its owner alone
    audit_journal = Inside(".bench/audit.jsonl")  # what was written through `bench serve`
    server_state = Inside(".bench/serve.db")  # sessions, and answers by idempotency key
    approval_journal = Inside(".bench/approvals.jsonl")  # what was asked for, approved, used, refused and revoked
    approval_uses = Inside(".bench/approvals")  # the run that each approval was used for, a file each
    approval_key = Inside(".bench/approval_key")  # by which a server or an agent signs what people decide there
    scans = Inside(".bench/scans")  # what scans of packages saw, and their parts lists, by digest of the lock
    schedules = Inside(".bench/schedules.db")  # schedules, their slots and the lease of the agent
    github = Inside(".bench/github.db")  # deliveries of webhooks, commands in comments, and their answers
    results = Inside("results")
    reports = Inside("reports")
    claims = Inside("claims")  # published numbers, one file each; what they rest on is never pruned
    claim_policy = Inside("claims.yaml")
    benchmarks = Inside("benchmarks")
    recipes = Inside("recipes")
    site = Inside("site.yaml")
    image_lock = Inside("images.lock.yaml")
    settings = Inside("workspace.yaml")
    alarms = Inside("alarms.yaml")
    trusted = Inside("trusted.yaml")
    approvals = Inside("approvals")  # requests, and what was signed for them
    signatures = Inside("signatures")  # of distributions; in a nexus those of its packages

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
        """Where the folder of an attempt goes when a later attempt takes its place."""
        return TrialFolder(self.results / scenario / f"{trial_id}.attempt-{attempt}")
