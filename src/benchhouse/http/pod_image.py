"""Check whether a cluster has the image of its pods, on its nodes or in its registry, before a pod is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchhouse.http.registry import NoSuchImage, fetch_architectures
from benchhouse.schema.errors import BenchError
from benchhouse.schema.image import ImageReference, parse_reference
from benchhouse.schema.kubernetes import KubernetesSite

_ARCH = "kubernetes.io/arch"


@dataclass(frozen=True)
class ImageAnswer:
    """The result of a check; `text` is a warning for `there`, and the reason for `unknown`."""

    state: Literal["there", "missing", "unknown"]
    text: str = ""
    hint: str = ""


def probe_image(image: str, site: KubernetesSite, nodes: Sequence[Mapping[str, Any]]) -> ImageAnswer:
    """Return whether the image is available on `nodes`, those that may get the pods, or in its registry.

    `nodes` is empty if listing them is forbidden. The registry is queried without an account. If pods have one
    (`pull_secrets`), the registry may hide images from this process that they can pull.
    """
    try:
        reference = parse_reference(image)
    except ValueError as error:
        return ImageAnswer("missing", str(error), "write kubernetes: {image: registry/name@sha256:...}")
    if _has(nodes, {image, _as_on_nodes(reference)}):
        return ImageAnswer("there", f"nodes have {image}")
    if reference.host == "localhost":  # a name for images outside any registry
        return ImageAnswer("unknown", f"no node is seen to have {image}")
    machines = _machines(site, nodes)
    try:
        built = fetch_architectures(reference, validate_static=bool(machines))
    except NoSuchImage as error:
        if site.pull_secrets:
            return ImageAnswer("unknown", f"{error.message}, or shows it only to who has an account")
        return ImageAnswer("missing", error.message, "check its name, or push it there")
    except BenchError as error:
        return ImageAnswer("unknown", f"whether {image} is there can't be asked from here: {error.message}")
    return _compared(image, built, machines)


def _as_on_nodes(reference: ImageReference) -> str:
    return (
        f"{reference.name}@{reference.digest}" if reference.digest else f"{reference.name}:{reference.tag or 'latest'}"
    )


def _has(nodes: Sequence[Mapping[str, Any]], names: set[str]) -> bool:
    return any(
        names.intersection(image.get("names") or ()) for node in nodes for image in node["status"].get("images") or ()
    )


def _machines(site: KubernetesSite, nodes: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the architectures that the image must support; empty if nodes of any architecture may join."""
    if chosen := site.node_selector.get(_ARCH):
        return frozenset({chosen})
    return frozenset() if site.autoscaled else frozenset(node["status"]["nodeInfo"]["architecture"] for node in nodes)


def _compared(image: str, built: frozenset[str], machines: frozenset[str]) -> ImageAnswer:
    if not built or machines <= built:
        return ImageAnswer("there", f"the registry has {image}")
    made, have = ", ".join(sorted(built)), ", ".join(sorted(machines))
    choose = f"node_selector: {{{_ARCH}: {min(machines & built or built)}}}"
    if machines & built:
        return ImageAnswer("there", f"{image} is for {made} only, and nodes are {have}", choose)
    hint = f"build it for {have}, or choose other nodes: {choose}"
    return ImageAnswer("missing", f"{image} is for {made}, and nodes are {have}", hint)
