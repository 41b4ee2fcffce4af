"""Images that servers may be started from: pinned by the workspace's lock, and asked for where a site demands it."""

from collections.abc import Mapping

from benchhouse.processes.programs import locate
from benchhouse.schema.errors import BenchError
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.service import TrialService
from benchhouse.schema.site import Site


def with_pins(services: Mapping[str, TrialService], digests: Mapping[str, str]) -> dict[str, TrialService]:
    """Those that are to be started, with the digests of the lock; of a server that runs nothing can be changed."""
    return {
        name: service.model_copy(update={"recipe": service.recipe.with_pin(digests)})
        if service.recipe and not service.use.server
        else service
        for name, service in services.items()
    }


def needs_image(recipe: Recipe, parameters: Mapping[str, str]) -> bool:
    """Whether it is started from its image: nobody names a program, and none of the recipe's is on this machine."""
    return "program" not in parameters and not locate(recipe.program)


def refusal(recipe: Recipe, parameters: Mapping[str, str], site: Site) -> BenchError | None:
    """Why the site does not let it start: it would come from an image that nobody pinned; None where it may."""
    if site.images.pinned != "required" or recipe.pinned_image or not recipe.published:
        return None
    if not needs_image(recipe, parameters):
        return None
    return BenchError(
        f"{recipe.name}: the image {recipe.published} has no digest, and the site '{site.site}' demands one",
        f"bench images pin {recipe.published}",
    )


def used_images(services: Mapping[str, TrialService]) -> dict[str, str]:
    """The pinned images of those that are started from one, by the name of the service; without those that a recipe
    names itself, which are part of the plan."""
    images = {}
    for name, service in services.items():
        recipe = service.recipe
        if recipe is None or service.use.server or recipe.image or not recipe.pinned_image:
            continue
        if needs_image(recipe, service.parameters):
            images[name] = recipe.pinned_image
    return images
