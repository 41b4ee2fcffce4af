"""Images that servers may be started from: pinned by the workspace's lock, and required if a site demands pins."""

from collections.abc import Mapping

from benchhouse.processes.programs import locate
from benchhouse.schema.errors import BenchError
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.service import TrialService
from benchhouse.schema.site import Site


def with_pins(services: Mapping[str, TrialService], digests: Mapping[str, str]) -> dict[str, TrialService]:
    """Return the services, with the digests of the lock in those to be started. Running servers can't be changed."""
    return {
        name: service.model_copy(update={"recipe": service.recipe.with_pin(digests)})
        if service.recipe and not service.use.server
        else service
        for name, service in services.items()
    }


def needs_image(recipe: Recipe, parameters: Mapping[str, str]) -> bool:
    """Return whether it is started from its image: no program is named, and none of the recipe's is on this machine."""
    return "program" not in parameters and not locate(recipe.program)


def refusal(recipe: Recipe, parameters: Mapping[str, str], site: Site) -> BenchError | None:
    """Return an error if the site forbids the start because the image is not pinned; None if it is allowed."""
    if site.images.pinned != "required" or recipe.pinned_image or not recipe.published:
        return None
    if not needs_image(recipe, parameters):
        return None
    return BenchError(
        f"{recipe.name}: the image {recipe.published} has no digest, and the site '{site.site}' demands one",
        f"bench images pin {recipe.published}",
    )


def used_images(services: Mapping[str, TrialService]) -> dict[str, str]:
    """Return the pinned images of services that are started from one, by service name. Images that a recipe names
    itself are left out, because they are part of the plan."""
    images = {}
    for name, service in services.items():
        recipe = service.recipe
        if recipe is None or service.use.server or recipe.image or not recipe.pinned_image:
            continue
        if needs_image(recipe, service.parameters):
            images[name] = recipe.pinned_image
    return images
