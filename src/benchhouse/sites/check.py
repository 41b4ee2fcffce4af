"""Site profiles: which there are, what one says, and what is true of the machine we are on."""

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import now, write_text
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.site import Site, SiteCheck
from benchhouse.sites.probes import Probed, probe
from benchhouse.sites.profiles import load_site, shipped

_DURATIONS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True)
class SiteSummary:
    """A site profile, in short."""

    site: str
    """Its name; `(this workspace)` for the workspace's own."""
    executor: str
    """Where jobs go by default; empty: this machine."""
    description: str
    to_confirm: int
    """How many of its values have to be confirmed on the site."""
    used: bool
    """Whether it is the one that is used where none is named."""
    file: str


def list_sites(workspace: WorkspaceFolder) -> list[SiteSummary]:
    """The workspace's own profile, then those that are shipped."""
    named = os.environ.get("BENCH_SITE")
    own = workspace.site.is_file()
    files = [("(this workspace)", workspace.site)] if own else []
    profiles = []
    for name, path in [*files, *shipped().items()]:
        site = load_site(path)
        used = name == named if named else path == workspace.site if own else name == "local"
        profiles.append(SiteSummary(name, site.executor or "", site.description, len(site.to_confirm), used, str(path)))
    return profiles


def check_site(workspace: WorkspaceFolder, network: bool) -> SiteCheck:
    """Examine this machine; nothing that is missing is an error."""
    probed = probe(workspace, network)
    host = socket.gethostname()
    return SiteCheck(host=host, time=now(), findings=probed.findings, profile=_profile(probed, host))


def _profile(probed: Probed, host: str) -> Site:
    """The site as a profile; what could not be asked is named in `to_confirm`."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", probed.cluster or host).strip("-.") or "here"
    return Site.model_validate(
        {
            "site": name,
            "description": f"Written by `bench site check` on {host}.",
            "executor": "slurm" if probed.slurm else None,
            "runtime": "apptainer" if probed.apptainer else None,
            "slurm": probed.slurm,
            "folders": probed.folders,
            "network": {} if probed.egress is None else {"egress": probed.egress},
            "to_confirm": tuple(probed.to_confirm),
        }
    )


def write_profile(site: Site, path: Path) -> None:
    """Write a profile that reads back as the same; never over a file that is there."""
    if path.exists():
        raise BenchError(f"{path} exists already", "a profile that somebody wrote is not overwritten: move it first")
    text = profile_text(site)
    assert Site.model_validate(parse_yaml(text, str(path)).data) == site
    try:
        write_text(path, text)
    except OSError as error:
        raise unwritable(path, error) from error


def profile_text(site: Site) -> str:
    """As YAML, without what is the default anyway."""
    return dump_yaml(_for_people(site.model_dump(mode="json", exclude_defaults=True)))


def _for_people(value: Any, key: str = "") -> Any:
    """Times as `2d` and sizes as `4000MiB`, where that is exact."""
    if isinstance(value, dict):
        return {name: _for_people(item, name) for name, item in value.items()}
    if key in ("time", "max_time", "keep_logs") and value:
        unit, seconds = next((item for item in _DURATIONS if value % item[1] == 0), ("", 0))
        return f"{value / seconds:.0f}{unit}" if seconds else value
    if key in ("memory", "size") and value:
        unit, size = next((item for item in (("GB", 10**9), ("MiB", 2**20)) if value % item[1] == 0), ("", 0))
        return f"{value // size}{unit}" if size else value
    return value
