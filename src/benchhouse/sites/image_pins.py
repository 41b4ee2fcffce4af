"""Read the digests of registry images, write them into the workspace's lock, and compare them with it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchhouse.evidence.writing import now
from benchhouse.http.registry import RegistrySilent, fetch_digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.image import ImageReference, Pin
from benchhouse.sites.image_lock import changing, read_lock

_TO_PIN = (
    "pin it where the registry can be reached and bring images.lock.yaml; or name the digest: "
    "bench images pin NAME:TAG@sha256:..."
)
_TO_CHECK = "nothing is wrong with the lock: check it again where the registry can be reached"


@dataclass(frozen=True)
class PinnedReference:
    """An image of a registry, and what is known of its digest."""

    reference: str
    """NAME:TAG."""
    digest: str
    """The pinned digest, sha256:...; empty if it is not pinned."""
    state: Literal["pinned", "kept", "updated", "unchanged", "moved", "failed"]
    """The result. kept: as before; updated: to the tag's current digest; unchanged, moved: checked; failed:
    `message`"""
    current: str = ""
    """moved: the tag's current digest."""
    source: str = ""
    """The registry that reported it, `recipe` for a recipe's digest, `given` for one that a user gave."""
    pinned: str = ""
    """Time of the pin, UTC."""
    message: str = ""
    hint: str = ""


def pin(
    path: Path,
    references: Sequence[ImageReference],
    known: Mapping[str, Pin],
    note: Callable[[str], None],
    *,
    update: bool = False,
) -> list[PinnedReference]:
    """Pin each reference. Those in the lock or in `known` are requested from registries only to `update` them.

    If a registry does not answer, the pin stays unchanged. Nothing is written if nothing is new.
    """
    before, ask = {**known, **read_lock(path).images}, _Asking(note, _TO_PIN)
    results = [_pinned(reference, before.get(reference.tagged), ask, update) for reference in references]
    fresh = [item for item in results if item.state in ("pinned", "updated")]
    if fresh:
        with changing(path) as pins:
            pins |= {item.reference: Pin(digest=item.digest, source=item.source, pinned=item.pinned) for item in fresh}
    return results


def _pinned(reference: ImageReference, before: Pin | None, ask: "_Asking", update: bool) -> PinnedReference:
    key = reference.tagged
    if before and not reference.digest and not update:
        return _told(key, before, "kept")
    try:
        digest = reference.digest or ask(reference)
    except BenchError as error:
        return PinnedReference(key, before.digest if before else "", "failed", message=error.message, hint=error.hint)
    if before and before.digest == digest:
        return _told(key, before, "kept")
    pin = Pin(digest=digest, source="given" if reference.digest else reference.host, pinned=now())
    return _told(key, pin, "updated" if before else "pinned")


def _told(key: str, pin: Pin, state: Literal["pinned", "kept", "updated"]) -> PinnedReference:
    return PinnedReference(key, pin.digest, state, source=pin.source, pinned=pin.pinned)


def check(references: Sequence[ImageReference], note: Callable[[str], None]) -> list[PinnedReference]:
    """Check with the registries whether each tag still has its pinned digest; write nothing."""
    ask = _Asking(note, _TO_CHECK)
    return [_check_one(reference, ask) for reference in references]


def _check_one(reference: ImageReference, ask: "_Asking") -> PinnedReference:
    key, digest = reference.tagged, reference.digest
    try:
        current = ask(reference)
    except BenchError as error:
        return PinnedReference(key, digest, "failed", message=error.message, hint=error.hint)
    return PinnedReference(key, digest, "unchanged" if current == digest else "moved", current, reference.host)


class _Asking:
    """Requests digests from registries; one that did not answer is not requested again."""

    def __init__(self, note: Callable[[str], None], offline: str) -> None:
        self._note, self._offline, self._silent = note, offline, dict[str, RegistrySilent]()

    def __call__(self, reference: ImageReference) -> str:
        if silent := self._silent.get(reference.host):
            raise silent
        self._note(f"asking {reference.host} for {reference.path}:{reference.tag}")
        try:
            return fetch_digest(reference, self._offline)
        except RegistrySilent as error:
            self._silent[reference.host] = error
            raise
