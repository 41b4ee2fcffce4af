"""The checks of the machine on which `bench site check` runs. Each has a time limit, and none fails."""

import contextlib
import getpass
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchhouse.http.client import HttpClient, NoAnswer
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quantities import show_bytes, show_seconds
from benchhouse.schema.site import Site, SiteFinding, State
from benchhouse.sites import container_program, kubernetes_probes, slurm_facts
from benchhouse.sites.commands import ask, installed
from benchhouse.sites.storage import mount_of, mounts, rooms

_ANSWER_S = 2.0
_HOSTS = {"PyPI": "https://pypi.org/simple/", "Docker Hub": "https://registry-1.docker.io/v2/"}
_MODULE_FILES = ("modules.sh", "lmod.sh", "z00_lmod.sh", "00-modulepath.sh")
_SKEW_S = 2.0
_OF_THE_SYSTEM = ("/proc", "/sys", "/run", "/dev", "/var", "/boot")


@dataclass
class ProbedSite:
    """Findings for people, and their consequences for a profile."""

    findings: list[SiteFinding] = field(default_factory=list)
    cluster: str = ""
    slurm: dict[str, Any] = field(default_factory=dict)
    kubernetes: dict[str, Any] = field(default_factory=dict)
    folders: dict[str, Any] = field(default_factory=dict)
    runtime: str | None = None
    egress: bool | None = None
    to_confirm: list[str] = field(default_factory=list)

    def tell(self, what: str, state: State, value: str = "", note: str = "") -> None:
        self.findings.append(SiteFinding(what=what, state=state, value=value, note=note))

    def report_clock(self, what: str, skew: str, note: str) -> None:
        """Report a clock; `skew` is empty if that clock agrees with ours."""
        self.tell(what, "missing" if skew else "good", skew or "as here", note if skew else "")


def probe(workspace: WorkspaceFolder, site: Site, network: bool, job: bool) -> ProbedSite:
    """Run all checks. `network` adds a check of the internet, `job` a job on a compute node for missing programs.

    `site` is the current profile, which supplies facts that only people know, such as modules.
    """
    probed, environ = ProbedSite(), os.environ
    _where(probed, environ)
    _slurm(probed)
    _kubernetes(probed, workspace, site, job)
    _modules(probed, environ)
    _containers(probed, site, inside=bool(environ.get("SLURM_JOB_ID")), job=job)
    _folders(probed, workspace, environ)
    _room(probed, workspace)
    _clock(probed, workspace)
    if network:
        _network(probed, environ)
    elif probed.slurm:
        probed.to_confirm.append("network.egress: whether compute nodes reach the internet was not asked")
    return probed


def _where(probed: ProbedSite, environ: Mapping[str, str]) -> None:
    job, node = environ.get("SLURM_JOB_ID"), platform.node()
    inside = f"inside job {job} on {environ.get('SLURMD_NODENAME', node)}"
    probed.tell("this node", "good", inside if job else f"{node}, not inside a job")
    mount = mount_of(Path(sys.executable))
    note = "compute nodes need it under the same path; a venv on a shared folder is safest"
    note = f"on {mount.kind}: {'compute nodes can start it' if mount.shared else note}"
    probed.tell("python", "good", f"{platform.python_version()}, {sys.executable}", note)


def _slurm(probed: ProbedSite) -> None:
    if not installed("sinfo"):
        probed.tell("slurm", "missing", "", "no sinfo here: jobs run on this machine only")
        return
    version = ask(["sinfo", "-V"])
    nodes = ask(slurm_facts.NODES) if version else None
    text = ask(slurm_facts.CONFIG) if nodes else None
    if version is None or nodes is None or text is None:
        value = (version or "sinfo").strip()
        probed.tell("slurm", "unknown", value, "its commands are here, and do not answer: try sinfo, scontrol ping")
        return
    config = slurm_facts.read_config(text)
    probed.cluster = config.get("ClusterName", "")
    probed.tell("slurm", "good", f"{version.strip()}, cluster {probed.cluster}")
    partitions, default = slurm_facts.read_partitions(nodes)
    with_gpus = [name for name, item in partitions.items() if item.gpus]
    probed.slurm = {
        "partition": default or next(iter(partitions), None),
        "gpu_partition": with_gpus[0] if with_gpus else None,
        "partitions": {name: item.model_dump(exclude_defaults=True) for name, item in partitions.items()},
    }
    for name, item in partitions.items():
        gpus = f", {item.gpus} GPUs" if item.gpus else ""
        limit = f", up to {show_seconds(item.max_time)}" if item.max_time else ", no time limit"
        has = f"{item.nodes} nodes of {item.cpus} cores, {show_bytes(item.memory or 0)}{gpus}{limit}"
        probed.tell(f"partition {name}", "good", has, "default" if name == default else "")
    if (longest := config.get("MaxArraySize", "")).isdecimal():
        probed.slurm["max_array"] = int(longest)
        probed.tell("longest array", "good", longest)
    _accounts(probed, config)
    _controller_clock(probed, config.get("as of", ""))


def _kubernetes(probed: ProbedSite, workspace: WorkspaceFolder, site: Site, job: bool) -> None:
    answers = kubernetes_probes.probe_cluster(site, workspace.root, job)
    probed.findings += answers.findings
    probed.kubernetes = answers.profile
    if kubernetes_probes.is_wanted(site):
        probed.to_confirm += answers.to_confirm


def _accounts(probed: ProbedSite, config: Mapping[str, str]) -> None:
    if "slurmdbd" not in config.get("AccountingStorageType", ""):
        probed.tell("accounting", "missing", "", "no slurmdbd: what happened to a job is known from its files only")
        return
    text = ask(slurm_facts.associations_of(getpass.getuser()))
    if text is None:
        probed.tell("accounting", "unknown", "", "slurmdbd does not answer: sacctmgr show assoc")
        probed.to_confirm.append("slurm.account, slurm.qos: slurmdbd did not answer")
        return
    own = slurm_facts.read_associations(text)
    if not own.accounts:
        note = f"{getpass.getuser()} has none: sbatch will refuse where they are enforced"
        probed.tell("accounts", "missing", "", note)
        return
    probed.tell("accounts", "good", ", ".join(own.accounts))
    qualities = slurm_facts.read_qualities(ask(slurm_facts.QUALITIES) or "")
    mine = {name: item for name, item in qualities.items() if name in own.qualities}
    if mine:
        limits = [
            f"{name} (up to {show_seconds(item.max_time)})" if item.max_time else name for name, item in mine.items()
        ]
        probed.tell("qualities", "good", ", ".join(limits))
    probed.slurm |= {
        "accounts": tuple(own.accounts),
        "account": own.accounts[0],
        "qualities": {name: item.model_dump(exclude_defaults=True) for name, item in mine.items()},
        "qos": own.default_quality if own.default_quality in mine else None,
    }
    if len(own.accounts) > 1:
        probed.to_confirm.append(f"slurm.account: which of {', '.join(own.accounts)} pays")


def _controller_clock(probed: ProbedSite, stamp: str) -> None:
    try:
        skew_s = datetime.fromisoformat(stamp).timestamp() - time.time()
    except ValueError:
        probed.tell("controller's clock", "unknown")
        return
    far = f"{abs(skew_s):.0f} s {'ahead' if skew_s > 0 else 'behind'}"
    # The timestamp has whole seconds, and has aged by the time of the answer.
    near = abs(skew_s) < _SKEW_S + 1
    probed.report_clock("controller's clock", "" if near else far, "times of events will not agree")


def _modules(probed: ProbedSite, environ: Mapping[str, str]) -> None:
    homes = (Path("/etc/profile.d"), Path("/usr/share/lmod/lmod/init"))
    files = [home / name for home in homes for name in _MODULE_FILES if (home / name).is_file()]
    if environ.get("LMOD_CMD") or environ.get("MODULESHOME") or files:
        probed.tell("module", "good", environ.get("LMOD_CMD") or environ.get("MODULESHOME") or str(files[0]))
    else:
        probed.tell("module", "missing", "", "no environment modules here; some sites have them on compute nodes only")


def _containers(probed: ProbedSite, site: Site, *, inside: bool, job: bool) -> None:
    """Find the container program. Trials run on compute nodes, so that of a login node is not conclusive."""
    program = installed("apptainer", "singularity")
    here = (ask([program, "--version"]) or program).strip() if program else container_program.on_this_node(site)
    loaded = f"with the modules {', '.join(site.modules)}" if site.modules else "and no `modules` of the site bring it"
    if inside or not probed.slurm:
        probed.runtime = "apptainer" if here else None
        probed.tell("apptainer", "good" if here else "missing", here or "", "" if here else f"not on PATH, {loaded}")
        return
    there = container_program.on_compute_node(site, probed.slurm) if job else None
    if there:
        probed.runtime = "apptainer"
        probed.tell("apptainer", "good", there, "on a compute node, by a job")
    elif there == "":
        probed.tell("apptainer", "missing", "", f"a compute node has none, {loaded}")
        probed.to_confirm.append(f"runtime: a compute node has no apptainer, {loaded}")
    else:
        probed.runtime = "apptainer" if here else site.runtime
        why = "a job got no answer: srun -n 1 hostname" if job else "whether compute nodes do: bench site check --job"
        has = f"this node has {'it' if here else 'none'}; {why}"
        probed.tell("apptainer", "good" if here else "unknown", here or "", has)
        said = f", as the profile '{site.site}' says" if site.runtime and not here else ""
        probed.to_confirm.append(f"runtime: {probed.runtime or 'unknown'}{said}; {has}")


def _folders(probed: ProbedSite, workspace: WorkspaceFolder, environ: Mapping[str, str]) -> None:
    known = mounts()
    if work := environ.get("WORK"):
        there = Path(work).is_dir()
        probed.tell("$WORK", "good" if there else "missing", work, "" if there else "no such folder")
        probed.folders = {"work": "$WORK", "containers": "$WORK/containers", "data": "$WORK/data"}
    else:
        probed.tell("$WORK", "missing", "", "export WORK=/your/large/storage; scenarios and profiles refer to it")
    named = {"workspace": workspace.root, "home": Path.home()} | ({"$WORK": Path(work)} if work else {})
    for name, path in named.items():
        mount = mount_of(path, known)
        note = "" if mount.shared else "not a network filesystem: other nodes see it only if the site makes it so"
        good = mount.shared or not probed.slurm  # a machine without Slurm has no other nodes
        probed.tell(f"{name} on", "good" if good else "unknown", f"{mount.point} ({mount.kind})", note)
    points = {str(item.point) for item in known if item.shared}
    shared = sorted(point for point in points if not point.startswith(_OF_THE_SYSTEM))
    if shared:
        probed.tell("shared folders", "good", ", ".join(shared))
        probed.folders["shared"] = tuple(shared)
    elif probed.slurm:
        probed.to_confirm.append("folders.shared: no network filesystem was found here")


def _room(probed: ProbedSite, workspace: WorkspaceFolder) -> None:
    for room in rooms(workspace.results, Site()):
        left = [show_bytes(room.size)] if room.size is not None else []
        left += [f"{room.files:,} files"] if room.files is not None else []
        probed.tell("room", "good" if room.size != 0 and room.files != 0 else "missing", ", ".join(left), room.basis)


def _clock(probed: ProbedSite, workspace: WorkspaceFolder) -> None:
    """Check the clock of the file server, which may be another machine."""
    try:
        with tempfile.NamedTemporaryFile(dir=workspace.root, prefix=".bench-clock-") as file:
            file.write(b"tick")
            file.flush()
            os.fsync(file.fileno())
            skew_s = Path(file.name).stat().st_mtime - time.time()
    except OSError as error:
        probed.tell("workspace", "missing", str(workspace.root), f"can't be written: {error.strerror or error}")
        return
    skew = "" if abs(skew_s) < _SKEW_S else f"{skew_s:+.1f} s"
    probed.report_clock("filesystem's clock", skew, "ages of files will be wrong")


def _network(probed: ProbedSite, environ: Mapping[str, str]) -> None:
    answers = {name: _answers(url) for name, url in _HOSTS.items()}
    for name, answer in answers.items():
        probed.tell(f"egress to {name}", "good" if answer else "missing", "answers" if answer else "", "from this node")
    if environ.get("SLURM_JOB_ID"):
        probed.egress = all(answers.values())
    elif probed.slurm:
        probed.to_confirm.append("network.egress: asked of this node only; inside a job: bench site check --network")


def _answers(url: str) -> bool:
    """Return whether a host answers in time. A thread, because a name lookup has no time limit."""
    heard = threading.Event()

    def call() -> None:
        with contextlib.suppress(NoAnswer):
            HttpClient(_ANSWER_S, proxy=True).request("HEAD", url)  # a refusal is an answer too
            heard.set()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    return heard.is_set()
