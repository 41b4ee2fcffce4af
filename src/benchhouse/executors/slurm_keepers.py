"""Servers that outlive a trial as jobs of a Slurm cluster: their keeper runs on a compute node, not on this machine.

Three things end a server: the stop of its run (`stop`), the job's own time limit, and a reaper, a tiny job that Slurm
starts after the last array of the run, so that nothing keeps running if no orchestrator returns.
"""

import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchhouse.executors import slurm_calls as calls
from benchhouse.executors.slurm_script import clock, partition_for, put_together, quoted, request, time_s
from benchhouse.processes.services import job_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.resources import Resources
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.service import OVER, KeeperJob, ServiceFolder, ServiceSpec, read_state
from benchhouse.schema.site import Site

_GRACE_S = 60  # extra life of a reaped server, because an orchestrator may just be submitting more trials
_END_S = 180.0


class SlurmKeepers:
    """Starts and ends servers, and submits their reaper."""

    alive = ""  # empty: the reaper ends them

    def __init__(self, scenario: Scenario, site: Site) -> None:
        self._scenario, self._site = scenario, site

    def render(self, folder: ServiceFolder, spec: ServiceSpec, python: Sequence[str]) -> str:
        """Return the exact script of the job."""
        flags = [*self._flags(_name(folder, spec), spec), f"--output={quoted(folder.log.absolute())}"]
        command = [*python, "-m", "benchhouse.worker", "--keep", str(folder.path.absolute())]
        return put_together(flags, self._site, True, f"exec {shlex.join(command)}")

    def start(self, items: Sequence[tuple[ServiceFolder, ServiceSpec]], python: Sequence[str]) -> None:
        """Submit one job, or one array for several servers. Their specs are already in the folders."""
        (folder, spec), *more = items
        name = _name(folder, spec)
        script = folder.path / "job.sh"
        script.write_text(self._array(items, python) if more else self.render(folder, spec, python), encoding="utf-8")
        job_id = calls.submit(script)
        for number, (each, _) in enumerate(items):
            job = KeeperJob(executor="slurm", job_id=f"{job_id}_{number}" if more else job_id, name=name)
            each.job.write_text(job.model_dump_json(), encoding="utf-8")

    def _flags(self, name: str, spec: ServiceSpec) -> list[str]:
        resources = spec.recipe.resources or Resources()
        resources = resources.model_copy(update={"nodes": spec.recipe.scale.nodes})
        return [
            f"--job-name={name}",
            *request(resources, self._scenario, self._site),
            *([f"--nodelist={spec.node}"] if spec.node else []),
            "--ntasks-per-node=1",
            f"--time={clock(spec.time or self._longest_s(resources))}",
            "--open-mode=append",
            "--no-requeue",  # its trials must not find a different server than at their start
        ]

    def _array(self, items: Sequence[tuple[ServiceFolder, ServiceSpec]], python: Sequence[str]) -> str:
        """Return one script for all: a task finds its folder by its number."""
        folder, spec = items[0]
        path = f"{shlex.quote(str(folder.path.absolute()).removesuffix('0'))}$SLURM_ARRAY_TASK_ID"
        flags = [*self._flags(_name(folder, spec), spec), f"--array=0-{len(items) - 1}", "--output=/dev/null"]
        command = f"exec {shlex.join([*python, '-m', 'benchhouse.worker', '--keep'])} {path}"
        return put_together(flags, self._site, True, f"{command} >> {path}/{folder.log.name} 2>&1")

    def beside(self, folder: ServiceFolder) -> list[str]:
        """Return the start of a command that runs as a step within the job, even on a full or exclusive node."""
        job = job_of(folder)
        assert job is not None
        options = ("--overlap", "--unbuffered", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--chdir=/tmp")
        return ["srun", f"--jobid={job.job_id}", *options]

    def follow(self, folder: ServiceFolder) -> None:
        """Do nothing: the keeper reports the state."""

    def gone(self, folder: ServiceFolder) -> str:
        """Return how the job ended, regardless of the server's state file; empty if it has not."""
        job = job_of(folder)
        if job is None:
            return ""
        try:
            known = calls.states([job.name]).get(job.job_id)
        except calls.UnreachableError:
            return ""
        if known is None:
            return f"job {job.job_id} is over"
        return known.ended(job.job_id) if known.state in calls.ENDED else ""

    def stop(self, folders: Sequence[ServiceFolder]) -> None:
        """Cancel the jobs of these servers and wait until none of them runs."""
        jobs = {job.job_id: job.name for folder in folders if (job := job_of(folder))}
        if not jobs:
            return
        for folder in folders:
            if folder.path.is_dir():
                folder.stop.write_text("0", encoding="utf-8")  # in case Slurm does not answer
        calls.cancel(list(jobs))
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            known = calls.states(jobs.values())
            if not any(job in known and known[job].state not in calls.ENDED for job in jobs):
                return
            time.sleep(0.2)
        raise BenchError(f"Slurm has not ended {', '.join(jobs)} within {_END_S:g} s", "look: squeue; then stop again")

    def reap(self, folders: Sequence[ServiceFolder], after: Sequence[str], name: str, script: Path) -> str:
        """Submit a job that ends the servers after these jobs, and return its id."""
        for folder in folders:
            folder.stop.unlink(missing_ok=True)  # from an earlier reaper
        flags = [
            f"--job-name={name}",
            *request(Resources(), self._scenario, self._site),
            "--ntasks=1",
            f"--time={clock(60)}",
            f"--dependency=afterany:{':'.join(after)}",
            "--output=/dev/null",
            "--no-requeue",
        ]
        lines = [f"echo {_GRACE_S} > {shlex.quote(str(folder.stop.absolute()))} || true" for folder in folders]
        script.write_text(put_together(flags, Site(), False, "\n".join(lines)), encoding="utf-8")
        return calls.submit(script)

    def _longest_s(self, resources: Resources) -> float:
        """Return the partition's time limit if the site states it, otherwise that of a job of trials."""
        site = self._site.slurm
        partition = partition_for(resources, self._scenario, self._site)
        known = site.partitions.get(partition) if partition else None
        return (known.max_time if known else None) or max(site.time, time_s(self._scenario, self._site))


def alive(services: Path) -> Iterator[tuple[ServiceFolder, KeeperJob, bool]]:
    """Yield the run's servers whose job has not ended, and whether the keeper itself has started."""
    for path in sorted(services.glob("*")):
        folder = ServiceFolder(path)
        state, job = read_state(folder), job_of(folder)
        if job and state and state.phase not in OVER:
            yield folder, job, bool(state.host)


def _name(folder: ServiceFolder, spec: ServiceSpec) -> str:
    return f"bench-{spec.run_id}-{folder.path.name}" if spec.run_id else f"bench-{folder.path.name}"
