"""Runs one trial, from trial.json to a sealed folder: fork the experiment, enforce its limits, clean up, write."""

import contextlib
import errno
import json
import math
import os
import signal
import socket
import stat
import sys
import time
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from benchhouse.evidence.folder import (
    MOST_BYTES,
    MOST_FILES,
    LinkedFile,
    blank_secrets,
    read_spec,
    seal,
    tidy,
    write_metrics_csv,
)
from benchhouse.evidence.writing import after, clock_change, now, write_fresh
from benchhouse.processes import tree
from benchhouse.processes.cgroups import Cage
from benchhouse.processes.owned_names import Scratch
from benchhouse.processes.process_identity import LEFTOVERS, TAG
from benchhouse.processes.quotas import usable_cores
from benchhouse.processes.services import end_of
from benchhouse.schema.artifacts import measured_model
from benchhouse.schema.components import EXPERIMENT
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.secrets import blanker, echoes, make_up, secret_values
from benchhouse.schema.service import SECRET, Addresses, read_state
from benchhouse.schema.telemetry import TelemetrySummary
from benchhouse.schema.trial import MEASURED, Attempt, Failure, Guarantee, Meta, Outcome, TrialSpec, TrialWarning
from benchhouse.worker import batch, node, nodes
from benchhouse.worker.experiment import STOPS, ExperimentEnd, TrialSession, end_elsewhere, follow
from benchhouse.worker.monitors.node_monitors import NodeMonitors
from benchhouse.worker.monitors.watch import TrialMonitor
from benchhouse.worker.output import Capture
from benchhouse.worker.raw_evidence import raw_evidence
from benchhouse.worker.results import Handover, metrics_file
from benchhouse.worker.shared_process import Done, SharedProcess, SharedProcessHolder
from benchhouse.worker.stream import Redact
from benchhouse.worker.topology import topology

CANCELLED = 143  # exit code of a worker that was stopped: nothing is sealed, the trial must be run again
# for a server's batch job to report that it has started, in addition to the start timeout of the server
_JOB_BEGINS_S = 120.0
_CLOCK_SET = "the clock of this machine was set meanwhile, or it slept: times of day do not fit together"
_APART = "nodes of this trial have another time of day than the experiment's"
_MOST_RESULT_BYTES = 256 << 20
_CANCELLED_S = 2.0  # for servers on other nodes to end: the batch system allows only this much time

_packages = LinkedFile()  # shared by all trials that this worker seals


class Cancelled(BaseException):
    """The worker received SIGTERM or SIGINT."""


def run_trial(
    path: Path,
    scratch: Scratch | None = None,
    measured: Callable[[], None] = lambda: None,
    sharing: SharedProcessHolder | None = None,
) -> int:
    """Run the trial of a folder. Return 0 if it was sealed, whatever its outcome.

    `measured` is called when the experiment no longer runs and only writing and sealing remain. If `scratch` is given,
    the caller must renew or remove it, and likewise the process that `sharing` holds afterwards. Without `sharing`, no
    process outlives its trial.
    """
    folder = TrialFolder(path)
    spec = read_spec(folder)
    _wait_for_attached(spec)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # everything created here is removed below, or not created at all
    for number in STOPS:
        signal.signal(number, _cancel)
    tree.become_subreaper()
    tree.forget_usage()
    os.environ[TAG] = spec.trial_id
    os.environ[SECRET] = make_up()
    known = ChainMap(_attached_secrets(spec), os.environ)
    made_up = [f"${name}" for name in known if name.startswith(SECRET)]
    secrets = secret_values([spec.model_dump(mode="json"), made_up], known, spec.folder)
    redact = blanker(secrets)
    capture = Capture.begin(path, spec.trial_id, spec.logs.cap, redact=redact)
    place = scratch or Scratch(f"{LEFTOVERS}-{spec.trial_id[:8]}")
    shared = sharing.take(spec) if sharing else None
    cage = shared.cage if shared else Cage.build(f"{LEFTOVERS}-{spec.trial_id[:8]}", spec.limits)
    if sharing and not shared and sharing.may_share(spec):
        shared = SharedProcess(spec, cage)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        return _run(
            TrialSession(spec, folder, capture, place, cage, shared, redact, echoes(secrets)), measured, sharing
        )
    except Cancelled:
        return CANCELLED
    finally:
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)
        end_elsewhere(folder, _CANCELLED_S)
        if sharing is None or sharing.process is None:
            cage.kill()
            tree.kill_descendants(grace_s=0.0)
            cage.remove()
        if scratch is None:
            place.remove()


@dataclass(frozen=True)
class Conclusion:
    """How a trial ended: the contents of meta.json, except what was requested and where it ran."""

    outcome: Outcome
    failure: Failure | None
    warnings: list[TrialWarning]
    started: str
    ended: str
    duration_s: float
    usage: dict[str, Any]
    custom: dict[str, Any]
    guarantees: list[Guarantee]


def _run(session: TrialSession, measured: Callable[[], None], sharing: SharedProcessHolder | None) -> int:
    spec, folder, capture, shared = session.spec, session.folder, session.capture, session.shared
    files = (folder.spec, folder.effective_config)
    originals = {file: file.read_text(encoding="utf-8") for file in files if file.exists()}
    capture.note("info", "trial started", attempt=spec.attempt, experiment=spec.experiment.name)
    others = NodeMonitors(spec.monitors or None, spec.trial_id)
    others.start(nodes.names() if spec.resources.nodes > 1 else ())
    started, clock = now(), time.monotonic()
    watch = TrialMonitor(spec.monitors or None, started, clock, others)
    ended = follow(session, watch)
    duration_s = time.monotonic() - clock
    usage = _usage(session.cage, ended.done)
    others.end()
    others.close()
    end_elsewhere(folder)
    left: list[str] = []
    if not (sharing and shared and ended.done and sharing.keep(shared, folder)):
        if shared:
            shared.close(alive=ended.done is not None)
        left = tree.kill_descendants(grace_s=0.5)
    measured()
    capture.drain(limit_s=1.0)
    handover = _handover(session.scratch.result, session.redact)
    outcome, failure = _judge(ended, handover, spec)
    limits = spec.limits
    incomplete, tidied = capture.trouble, tidy(folder.path, limits.files or MOST_FILES, limits.disk or MOST_BYTES)
    if tidied.refused:
        message = f"{tidied.refused} (everything but its logs was removed)"
        outcome, failure = "failed", Failure(code="folder_limit", message=message)
    telemetry = watch.write(folder.telemetry, handover.phases)
    handover.energy_metrics(telemetry, watch.missing_energy_reason)
    blanked = blank_secrets([folder.artifacts, folder.samples, folder.histograms, folder.telemetry], session.secrets)
    over = after(started, time.monotonic() - clock)
    change = clock_change(over)
    noticed = {
        "left_processes": f"ended by the worker: {', '.join(left[:10])}" if left else "",
        "logs_incomplete": incomplete,
        "artifacts_changed": ", ".join(tidied.changed[:10]),
        "telemetry_incomplete": watch.trouble,
        "abnormal_node": telemetry.abnormal.says if telemetry and telemetry.abnormal else "",
        "clocks_apart": f"{_APART}: {watch.clocks}; their series are shifted" if watch.clocks else "",
        "secret_blanked": f"a secret was in {', '.join(blanked[:10])}" if blanked else "",
        "clock_set": f"{_CLOCK_SET} ({change})" if change else "",
        "limit_not_enforced": ", ".join([*session.cage.not_enforced, *_limited_here_alone(spec)]),
    }
    warnings = [
        *handover.warnings,
        *(TrialWarning(code=code, message=session.redact(text)) for code, text in noticed.items() if text),
    ]
    if failure:
        failure = failure.model_copy(update={"log_tail": capture.tail(EXPERIMENT, 20)})
    guarantees = _guarantees(session, telemetry, handover)
    if outcome == "succeeded" and (refused := _refusal(spec, guarantees)):
        outcome, failure = "invalid", refused
    capture.note("info", "trial ended", outcome=outcome, duration_s=round(duration_s, 6))
    capture.close()
    if outcome not in MEASURED:
        handover.measurements = []  # a trial that was cut short measured nothing; its samples stay as evidence
        handover.quantile_definitions = {}
    end = Conclusion(outcome, failure, warnings, started, over, duration_s, usage, handover.custom, guarantees)
    meta = _meta(session, end)
    numbers = metrics_file(spec, meta, handover, telemetry, min(spec.limits.cpus or math.inf, usable_cores()))
    for file, model in ((folder.meta, meta), (folder.metrics, numbers)):
        write_fresh(file, model.model_dump_json(indent=2, by_alias=True) + "\n")
    write_metrics_csv(folder.metrics_csv, spec, handover.measurements)
    if raw := raw_evidence(spec, meta, folder):
        write_fresh(folder.raw_evidence, raw)
    for file, text in originals.items():
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            write_fresh(file, text)  # as requested, even if the experiment changed the file
    if folder.artifacts.is_dir() and not any(folder.artifacts.iterdir()):
        folder.artifacts.rmdir()
    folder.services.unlink(missing_ok=True)
    _packages.write(folder.packages, node.packages_text())
    final = TrialFolder(seal(folder, spec, outcome))
    _packages.sealed_in(final.packages)
    return 0


def _limited_here_alone(spec: TrialSpec) -> list[str]:
    """Return the limits that only hold on the first node: CPU time on other nodes of a gang is not counted."""
    return ["cpu (on the first node alone)"] if spec.limits.cpu is not None and nodes.are_slots() else []


def _judge(ended: ExperimentEnd, handover: Handover, spec: TrialSpec) -> tuple[Outcome, Failure | None]:
    """Return the outcome, with the same names for every executor."""
    limits = spec.limits
    if ended.stopped_by == "wall":
        return "timeout", Failure(code="wall_limit", message=f"ended after {limits.wall:g} s of wall-clock time")
    if ended.stopped_by == "job":
        return "timeout", Failure(code="job_time", message="the time of its batch job was nearly over")
    if ended.stopped_by == "cpu" or ended.signal == signal.SIGXCPU:
        return "timeout", Failure(code="cpu_limit", message=f"ended after {limits.cpu or 0:g} s of CPU time")
    beyond = "the machine has no more memory"
    if batch.job():
        beyond = "its batch job, or the node, has no more memory; ask for more: resources: {memory: 16GB}"
    memory = f"the limit is {limits.memory} bytes" if limits.memory else beyond
    if handover.out_of_memory or ended.oom_kills > handover.oom_kills_overcome:
        trace = handover.failure.traceback if handover.failure else ""
        said = handover.failure.message if handover.failure and not trace else ""  # such as which rank it was
        return "out_of_memory", Failure(
            code="memory_limit", message="; ".join(filter(None, [memory, said])), traceback=trace
        )
    if handover.failure:
        from_experiment = not handover.failure.traceback
        return ("failed" if from_experiment else "error"), handover.failure
    if handover.finished:
        return ("invalid", handover.invalid) if handover.invalid else ("succeeded", None)
    if ended.signal:
        name = signal.Signals(ended.signal).name
        message = f"the experiment's process was killed by {name}"
        outside = ended.signal == signal.SIGKILL  # a process does not do this to itself: blame the machine
        return "error", Failure(code=name, message=message, retryable=outside)
    code = os.waitstatus_to_exitcode(ended.status)
    return "error", Failure(code="exit", message=f"the experiment's process exited with code {code} and no result")


def _handover(path: Path, redact: Redact) -> Handover:
    """Return the experiment's result, with any secrets in its messages and metadata redacted."""
    once = cache(redact)  # rows of measurements repeat the same names and units
    try:
        return Handover.model_validate(_redacted(json.loads(_read_result(path)), once))
    except (OSError, ValueError, RecursionError):
        return Handover()


def _read_result(path: Path) -> bytes:
    """Return the content of the result file. Raises OSError if the experiment made it a pipe, a link, or too large."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as file:  # noqa: PTH123 - by its handle
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_RESULT_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return file.read()


def _redacted(value: Any, redact: Redact) -> Any:
    """Redact each text separately: in the encoded whole, a secret that contains a quote would look different and
    pass."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): _redacted(item, redact) for key, item in value.items()}
    return [_redacted(item, redact) for item in value] if isinstance(value, list) else value


def _meta(session: TrialSession, end: Conclusion) -> Meta:
    spec, shared, failure = session.spec, session.shared, end.failure
    where = socket.gethostname()
    placed = batch.placed(spec.executor, where)
    attempt = Attempt(
        attempt=spec.attempt,
        outcome=end.outcome,
        reason=failure.message if failure else "",
        started=end.started,
        ended=end.ended,
        host=where,
        job=placed.get("id"),
    )
    return Meta(
        trial_id=spec.trial_id,
        run_id=spec.run_id,
        scenario=spec.scenario,
        outcome=end.outcome,
        failure=failure,
        warnings=end.warnings,
        attempts=[*spec.previous_attempts, attempt],
        started=end.started,
        ended=end.ended,
        duration_s=end.duration_s,
        timestamp=end.started,
        host=where,
        placed=placed,
        partition=os.environ.get("SLURM_JOB_PARTITION") or spec.partition,
        slurm_job_id=batch.job(),
        slurm_node_list=os.environ.get("SLURM_JOB_NODELIST"),
        slurm=batch.described(spec.submitted, end.started),
        container_digest=spec.container_digest,
        container_enter_s=node.enter_s(),
        code_digest=spec.code_digest,
        git_commit=spec.source.get("commit"),
        git_dirty=spec.source.get("dirty"),
        seed=spec.seed,
        experiment=spec.experiment,
        package_lock_digest=node.lock_digest(),
        python=sys.version.split()[0],
        hardware=node.hardware(),
        topology=topology(os.path.dirname(spec.final)),  # noqa: PTH120
        dataset=spec.dataset,
        model=measured_model(spec.target, spec.parameters, spec.artifacts),
        drivers=node.drivers(),
        limits={"asked": spec.limits.model_dump(exclude_none=True), "enforced_by": session.cage.enforced},
        usage=end.usage,
        trials_before=shared.trials - 1 if shared else None,
        guarantees=end.guarantees,
        custom=end.custom,
    )


def _guarantees(session: TrialSession, telemetry: TelemetrySummary | None, handover: Handover) -> list[Guarantee]:
    """Return the guarantees of the contract, each observed or not; empty without a contract."""
    spec, shared = session.spec, session.shared
    if not spec.contract:
        return []
    from benchhouse.worker.guarantees import TrialObservations, observe  # imports the models of contracts

    place = topology(os.path.dirname(spec.final))  # noqa: PTH120
    threads, slurm = place.cpu.threads or os.cpu_count() or 1, batch.described(None, "")
    repeated = bool(shared and shared.trials > 1)
    loose = ", ".join(session.cage.not_enforced)
    return observe(
        TrialObservations(spec, telemetry, threads, node.lock_digest(), handover.custom, slurm, repeated, loose)
    )


def _refusal(spec: TrialSpec, guarantees: list[Guarantee]) -> Failure | None:
    """Return why the contract rejects a trial; None if every guarantee was observed."""
    if all(item.observed for item in guarantees):
        return None
    from benchhouse.worker.guarantees import refusal

    return refusal(spec, guarantees)


def _usage(cage: Cage, done: Done | None) -> dict[str, Any]:
    """Return the resource use, from the cgroup if it counts, otherwise from rusage of the ended children.

    `source` names which of the two. For a shared process that stays alive (`done`), its own account of this trial is
    used.
    """
    counted, children = cage.usage(), tree.tree_usage()
    by_cgroup = counted.get("cpu_s") is not None
    cpu_s, largest = children["cpu_user_s"] + children["cpu_system_s"], children["max_rss_bytes"]
    source = "cgroup (memory includes page cache)" if by_cgroup else "rusage (largest process)"
    peak = counted.get("peak_memory_bytes")
    if done:
        cpu_s, largest = done.cpu_s, max(largest, done.peak_rss_bytes)
        source = f"{'cgroup' if by_cgroup else 'rusage'} since the trial began (memory: largest process)"
        peak = None  # a cgroup only knows the peak of all trials
    return {
        "cpu_s": counted["cpu_s"] if by_cgroup else cpu_s,
        "peak_memory_bytes": peak if peak is not None else largest,
        "max_rss_bytes": largest,
        "throttled_s": counted.get("throttled_s"),
        "oom_kills": counted.get("oom_kills"),
        "source": source,
    }


def _attached_secrets(spec: TrialSpec) -> dict[str, str]:
    """Return the generated secrets of attached services, in the form of environment variables."""
    secrets: list[str] = []
    for service in spec.services.values():
        for folder in service.folders:
            with contextlib.suppress(OSError, ValueError):
                addresses = Addresses.model_validate_json(folder.endpoints.read_bytes())
                secrets += [server.places.get("secret", "") for server in addresses.servers]
    return {f"{SECRET}_{at}_SECRET": secret for at, secret in enumerate(secrets)}


def _wait_for_attached(spec: TrialSpec) -> None:
    """Wait until the servers in their own batch jobs are up, or known to have failed; the experiment reads which.

    This comes first: the secrets in their addresses must be known before any text of the trial is written.
    """
    for name, service in spec.services.items():
        if service.recipe is None:
            continue
        deadline = time.monotonic() + service.recipe.ready.timeout + _JOB_BEGINS_S
        for folder in service.folders:
            while (state := read_state(folder)) and state.phase == "starting" and not end_of(name, folder):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)


def _cancel(signum: int, frame: FrameType | None) -> None:
    raise Cancelled
