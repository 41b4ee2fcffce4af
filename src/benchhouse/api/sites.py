"""`ws.sites` and `ws.images`: profiles of machines and clusters, and container images pinned by digest."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.api.groups import VerbGroup
from benchhouse.schema.site import Site, SiteCheck
from benchhouse.sites import check, images, places
from benchhouse.sites.check import SiteSummary, profile_text
from benchhouse.sites.images import PinnedImage

if TYPE_CHECKING:
    from benchhouse.api.execution import RunListener

__all__ = ["Images", "PinnedImage", "SiteSummary", "Sites", "profile_text"]


class Sites(VerbGroup):
    """Site profiles: those that are shipped, and the workspace's own `site.yaml`."""

    def profiles(self) -> list[SiteSummary]:
        """All profiles, with the one in use marked."""
        return check.list_sites(self._folder)

    def profile(self, site: str | None = None) -> Site:
        """A profile by name or file, by default the one in use; `profile_text` makes a file of it."""
        return places.site(self._folder, site)

    def check(self, *, network: bool = False, write: str | os.PathLike[str] | None = None) -> SiteCheck:
        """Examine this machine: Slurm, modules, containers, folders, quotas, clocks.

        `network` also asks whether PyPI and Docker Hub can be reached. `write` keeps the answers as a profile, in a
        file that must not exist yet.
        """
        checked = check.check_site(self._folder, network)
        if write is not None:
            check.write_profile(checked.profile, Path(write))
        return checked


class Images(VerbGroup):
    """Container images of a site, each pinned by the digest of its bytes. `site` is a profile by name or file."""

    def pull(
        self,
        source: str,
        *,
        name: str = "",
        licence: str = "",
        site: str | None = None,
        progress: "bool | RunListener" = False,
    ) -> PinnedImage:
        """Pull an image from a registry; a tag is resolved to its digest, and that is pinned."""
        from benchhouse.api.execution import listener_of

        return images.pull(places.site(self._folder, site), source, name, licence, listener_of(progress).note)

    def build(
        self, definition: str | os.PathLike[str], *, name: str = "", licence: str = "", site: str | None = None
    ) -> PinnedImage:
        """Build an image from an Apptainer definition file, and pin it."""
        return images.build(places.site(self._folder, site), Path(definition), name, licence)

    def add(self, path: str | os.PathLike[str], *, licence: str = "") -> PinnedImage:
        """Pin an existing .sif file, where it is, as it is now."""
        return images.add(Path(path), licence)

    def pinned(self, site: str | None = None) -> list[PinnedImage]:
        """All pinned images, from their record; their bytes are not read."""
        return images.images(places.site(self._folder, site))

    def verify(self, site: str | None = None) -> list[PinnedImage]:
        """Read every image again; `state` says whether it is unchanged, changed or gone."""
        return images.verify(places.site(self._folder, site))
