"""`ws.images`: container images pinned by digest, as files of a site and as names in registries."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.api.verb_group import VerbGroup
from benchhouse.catalog.recipes import find_recipe, list_recipes
from benchhouse.documents.problems import guess_hint
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.image import ImageReference, Pin, find_pinned, parse_reference, tagged
from benchhouse.sites import image_pins, images, places
from benchhouse.sites.image_lock import read_lock
from benchhouse.sites.image_pins import PinnedReference as PinnedReference
from benchhouse.sites.images import PinnedImage as PinnedImage

if TYPE_CHECKING:
    from benchhouse.api.execution import RunListener


@dataclass(frozen=True)
class LockedImage:
    """A registry image as recorded in `images.lock.yaml`."""

    reference: str
    """NAME:TAG."""
    digest: str
    """sha256:... of the manifest."""
    source: str
    """Registry that reported the digest; `given` if a person pinned it."""
    pinned: str
    """When it was pinned, UTC."""
    path: str
    """The .sif file that was pulled from it; empty if there is none."""


class Images(VerbGroup):
    """Container images: files of a site, each pinned by the digest of its bytes, and the digests of names in
    registries. `site` is a profile, by name or file."""

    def pull(
        self,
        source: str,
        *,
        name: str = "",
        licence: str = "",
        site: str | None = None,
        progress: "bool | RunListener" = False,
    ) -> PinnedImage:
        """Pull an image from a registry. A tag is resolved to its digest by the lock or, failing that, by the
        registry."""
        from benchhouse.api.execution import listener_of

        lock, note = read_lock(self._folder.image_lock), listener_of(progress).note
        return images.pull(places.site(self._folder, site), source, name, licence, lock, note)

    def build(
        self, definition: str | os.PathLike[str], *, name: str = "", licence: str = "", site: str | None = None
    ) -> PinnedImage:
        """Build an image from an Apptainer definition file, and pin it."""
        return images.build(places.site(self._folder, site), Path(definition), name, licence)

    def add(self, path: str | os.PathLike[str], *, licence: str = "") -> PinnedImage:
        """Pin an existing .sif file in its present place and state."""
        return images.add(Path(path), licence)

    def pinned(self, site: str | None = None) -> list[PinnedImage]:
        """Return all pinned images from their record, without reading their bytes."""
        return images.images(places.site(self._folder, site))

    def verify(self, site: str | None = None) -> list[PinnedImage]:
        """Read every image again. `state` shows whether it is unchanged, changed, or gone."""
        return images.verify(places.site(self._folder, site))

    def pin(self, *names: str, update: bool = False, progress: "bool | RunListener" = False) -> list[PinnedReference]:
        """Query registries for the digests of images, and record them in `images.lock.yaml` of the workspace.

        `names` are recipes, or NAME:TAG; by default every recipe that names a published image. Pinned images stay as
        they are without `update`. NAME:TAG@sha256:... is recorded as given. Raises BenchError if no registry answers.
        """
        from benchhouse.api.execution import listener_of

        published = self._published()
        references = [_reference(name, published, self._folder.recipes) for name in names]
        wanted = [reference.at("") for reference in published.values() if reference]
        references = list(dict.fromkeys(references or wanted))
        note = listener_of(progress).note
        return _heard(image_pins.pin(self._folder.image_lock, references, _known(published), note, update=update))

    def check(self, *names: str, progress: "bool | RunListener" = False) -> list[PinnedReference]:
        """Check with registries whether tags still have their pinned digests; by default all pinned tags. Nothing is
        written.

        `state` is unchanged, moved, or failed. Raises BenchError if no registry answers.
        """
        from benchhouse.api.execution import listener_of

        published = self._published()
        pins = {**_known(published), **read_lock(self._folder.image_lock).images}
        keys = [_reference(name, published, self._folder.recipes).tagged for name in names] or sorted(pins)
        for key in keys:
            if key not in pins:
                raise BenchError(f"{key} is not pinned", f"pin it: bench images pin {key}")
        references = [tagged(key).at(pins[key].digest) for key in keys]
        return _heard(image_pins.check(references, listener_of(progress).note))

    def references(self, site: str | None = None) -> list[LockedImage]:
        """Return the images that `images.lock.yaml` pins, by name, and the file that was pulled from each."""
        folder = places.images_if_known(places.site(self._folder, site))
        listed = []
        for key, pin in sorted(read_lock(self._folder.image_lock).images.items()):
            file = find_pinned(Path(folder), f"{key}@{pin.digest}") if folder else None
            listed.append(LockedImage(key, pin.digest, pin.source, pin.pinned, str(file[0]) if file else ""))
        return listed

    def published(self) -> dict[str, str]:
        """Return the image that each recipe names, by the recipe's name."""
        return {name: str(reference) for name, reference in self._published().items() if reference}

    def _published(self) -> dict[str, ImageReference | None]:
        """Return the image of each recipe, by the recipe's name; None if it names none."""
        recipes = [item.recipe for item in list_recipes(self._folder.recipes)[0]]
        return {item.name: parse_reference(item.published) if item.published else None for item in recipes}


def _reference(name: str, published: Mapping[str, ImageReference | None], recipes: Path) -> ImageReference:
    """Return the image that NAME:TAG, a recipe's name, or a recipe's file stands for."""
    if name.endswith((".yaml", ".yml")):
        recipe = find_recipe(name, recipes).recipe
        published = {name: parse_reference(recipe.published) if recipe.published else None}
    if name in published:
        if (reference := published[name]) is None:
            raise BenchError(f"the recipe {name} names no image", "its maker publishes none: see bench servers show")
        return reference.at("")
    if not set(":/@") & set(name):
        hint = f"{guess_hint(name, published)}name a recipe of `bench servers list`, or NAME:TAG"
        raise BenchError(f"there is no recipe '{name}'", hint)
    try:
        return tagged(name.removeprefix("docker://"))
    except ValueError as error:
        raise BenchError(str(error), "for example docker.io/vllm/vllm-openai:v0.11.0") from error


def _known(published: Mapping[str, ImageReference | None]) -> dict[str, Pin]:
    """Return the digests that recipes specify."""
    references = [item for item in published.values() if item and item.digest]
    return {item.tagged: Pin(digest=item.digest, source="recipe", pinned="") for item in references}


def _heard(results: list[PinnedReference]) -> list[PinnedReference]:
    """Return the results. Raises BenchError if no registry answered."""
    if results and all(item.state == "failed" for item in results):
        more = f" (and {len(results) - 1} more)" if len(results) > 1 else ""
        raise BenchError(f"{results[0].message}{more}", results[0].hint, Exit.TRIAL_FAILED)
    return results
