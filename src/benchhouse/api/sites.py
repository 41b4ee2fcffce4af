"""`ws.sites`: profiles of machines and clusters."""

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchhouse.api.verb_group import VerbGroup
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import now, write_text
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.kubernetes import NamespaceRequest
from benchhouse.schema.site import Site, SiteCheck
from benchhouse.sites import places
from benchhouse.sites.kubernetes_manifests import namespace_manifests
from benchhouse.sites.kubernetes_probes import is_wanted
from benchhouse.sites.probes import ProbedSite, probe
from benchhouse.sites.profiles import load_site, shipped

_DURATIONS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True)
class SiteSummary:
    """A short description of a site profile."""

    site: str
    """Name of the profile; `(this workspace)` for the workspace's own."""
    executor: str
    """Default executor of jobs; empty: this machine."""
    description: str
    to_confirm: int
    """Number of its values that must be confirmed on the site."""
    used: bool
    """Whether it is used when no profile is named."""
    file: str


class Sites(VerbGroup):
    """Site profiles: those that are shipped, and the workspace's own `site.yaml`."""

    def profiles(self) -> list[SiteSummary]:
        """Return all profiles, with the one in use marked."""
        named = os.environ.get("BENCH_SITE")
        own = self._folder.site.is_file()
        files = [("(this workspace)", self._folder.site)] if own else []
        profiles = []
        for name, path in [*files, *shipped().items()]:
            site = load_site(path)
            used = name == named if named else path == self._folder.site if own else name == "local"
            open_values = len(site.to_confirm)
            profiles.append(SiteSummary(name, site.executor or "", site.description, open_values, used, str(path)))
        return profiles

    def profile(self, site: str | None = None) -> Site:
        """Return a profile by name or file, by default the one in use. `profile_text` converts it to the text of a
        file."""
        return places.site(self._folder, site)

    def check(
        self, *, network: bool = False, job: bool = False, write: str | os.PathLike[str] | None = None
    ) -> SiteCheck:
        """Examine this machine: Slurm, Kubernetes, modules, containers, folders, quotas, clocks.

        `network` also checks whether PyPI and Docker Hub can be reached. `job` also runs short jobs that look for
        Apptainer on a compute node and check the volume from a pod. `write` saves the results as a profile, in a file
        that must not exist yet.
        """
        site = places.site(self._folder)
        probed, host = probe(self._folder, site, network, job), socket.gethostname()
        profile = _profile(probed, host, site)
        checked = SiteCheck(host=host, time=now(), findings=probed.findings, profile=profile)
        if write is not None:
            _write_profile(checked.profile, Path(write))
        return checked

    def manifests(self, **request: Any) -> list[dict[str, Any]]:
        """Return Kubernetes manifests of a team's namespace, for an admin. `request` has the fields of
        `NamespaceRequest`.

        Fields that are not given come from the profile in use, and otherwise from the defaults.
        """
        site = places.site(self._folder)
        told = site.kubernetes
        known = {
            "namespace": told.namespace,
            "claim": told.volume.claim if told.volume else None,
            "gpu_resource": told.gpu_resource,
            "egress": site.network.egress,
        }
        given = {key: value for key, value in request.items() if value is not None}
        merged = {key: value for key, value in known.items() if value is not None} | given
        if "namespace" not in merged:
            raise BenchError("no namespace is named", "give --namespace, or name one in the site profile: kubernetes:")
        try:
            return namespace_manifests(NamespaceRequest.model_validate(merged))
        except ValidationError as error:
            problem = error.errors()[0]
            option = str(problem["loc"][0]).replace("_", "-")
            raise BenchError(f"--{option}: {problem['msg'].removeprefix('Value error, ')}") from error


def _profile(probed: ProbedSite, host: str, site: Site) -> Site:
    """Return the site as a profile. `to_confirm` names what could not be determined."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", probed.cluster or host).strip("-.") or "here"
    return Site.model_validate(
        {
            "site": name,
            "description": f"Written by `bench site check` on {host}.",
            "executor": "slurm" if probed.slurm else "kubernetes" if is_wanted(site) else None,
            "runtime": probed.runtime,
            "modules": site.modules if probed.runtime else (),
            "slurm": probed.slurm,
            "kubernetes": probed.kubernetes,
            "folders": probed.folders,
            "network": {} if probed.egress is None else {"egress": probed.egress},
            "to_confirm": tuple(probed.to_confirm),
        }
    )


def _write_profile(site: Site, path: Path) -> None:
    """Write a profile that reads back as the same. An existing file is never overwritten."""
    if path.exists():
        raise BenchError(f"{path} exists already", "a profile that somebody wrote is not overwritten: move it first")
    text = profile_text(site)
    assert Site.model_validate(parse_yaml(text, str(path)).data) == site
    try:
        write_text(path, text)
    except OSError as error:
        raise unwritable(path, error) from error


def profile_text(site: Site) -> str:
    """Return a profile as YAML, without default values."""
    return dump_yaml(_for_people(site.model_dump(mode="json", exclude_defaults=True)))


def manifest_text(manifests: list[dict[str, Any]]) -> str:
    """Return manifests as YAML for `kubectl apply -f -`."""
    return "---\n".join(dump_yaml(manifest) for manifest in manifests)


def _for_people(value: Any, key: str = "") -> Any:
    """Return times as `2d` and sizes as `4000MiB` if that is exact, and other values unchanged."""
    if isinstance(value, dict):
        return {name: _for_people(item, name) for name, item in value.items()}
    if key in ("time", "max_time", "keep_logs") and value:
        unit, seconds = next((item for item in _DURATIONS if value % item[1] == 0), ("", 0))
        return f"{value / seconds:.0f}{unit}" if seconds else value
    if key in ("memory", "size") and value:
        unit, size = next((item for item in (("GB", 10**9), ("MiB", 2**20)) if value % item[1] == 0), ("", 0))
        return f"{value // size}{unit}" if size else value
    return value
