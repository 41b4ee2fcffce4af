"""Registries of container images, queried by the protocol of Docker and OCI: digests and architectures of tags."""

import re
from typing import Any
from urllib.parse import urlencode, urlsplit

from benchhouse.http.client import HttpClient, NoAnswer, Response
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.image import HUB, ImageReference

_CLIENT = HttpClient(timeout_s=30.0, proxy=True, redirects=True)
_SOON = HttpClient(timeout_s=5.0, proxy=True, redirects=True)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MACHINE = re.compile(r"(?!unknown$)[a-z0-9]{1,20}")  # an attestation has "unknown"
_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_NO_SUCH = ("MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND")  # a registry's error codes; a web page has none
_HINTS = {
    401: "it lets in only who has an account: name the digest yourself, NAME:TAG@sha256:...",
    403: "it lets in only who has an account: name the digest yourself, NAME:TAG@sha256:...",
    404: "check name and tag: it has none such",
    429: "it was asked too often from here: try again later",
}


class RegistrySilent(BenchError):  # noqa: N818 - what happened, in two words
    """A registry that can't be reached at all: requests for other images would fail, too."""


class NoSuchImage(BenchError):  # noqa: N818
    """The registry reports that it has no image of that name."""


def is_plain(host: str) -> bool:
    """Return whether the registry is on this machine, where it uses HTTP without TLS."""
    return host.partition(":")[0] in ("localhost", "127.0.0.1")


def fetch_digest(reference: ImageReference, offline: str) -> str:
    """Return the digest of the manifest that NAME:TAG is now, of the index if there are several architectures. Raise
    BenchError, with the hint `offline` if the registry does not answer."""
    repository = _Repository(reference.at(""), _CLIENT)
    try:
        answer = repository.manifest("HEAD")
    except NoAnswer as error:
        raise RegistrySilent(
            f"the registry {repository.host} gives no answer: {error.reason}", offline, Exit.TRIAL_FAILED
        ) from error
    if not answer.ok:
        hint = _HINTS.get(answer.status, "try again later")
        what = f"{repository.host} does not say what {reference.path}:{reference.tag or 'latest'} is"
        raise BenchError(f"{what}: it answers {answer.status} {answer.reason}".rstrip(), hint, Exit.TRIAL_FAILED)
    digest = str(answer.headers.get("Docker-Content-Digest", ""))
    if not _DIGEST.fullmatch(digest):
        hint = "name the digest yourself, NAME:TAG@sha256:..."
        raise BenchError(
            f"{repository.host} gives no digest of {reference.path}:{reference.tag}", hint, Exit.TRIAL_FAILED
        )
    return digest


def fetch_architectures(reference: ImageReference, *, validate_static: bool = True) -> frozenset[str]:
    """Return the architectures (amd64, arm64) of the image; empty if unknown, or without `validate_static`.

    Raise NoSuchImage if the registry has none of that name, BenchError if it does not report them, within seconds. Only
    reading the manifest counts as a pull, if a registry counts these.
    """
    repository = _Repository(reference, _SOON)
    try:
        answer = repository.manifest("GET" if validate_static else "HEAD")
        if answer.status == 404 and _is_not_found(answer if validate_static else repository.manifest("GET")):
            raise NoSuchImage(f"the registry {repository.host} has no {str(reference).partition('/')[2]}")
        if not answer.ok:
            raise BenchError(f"the registry {repository.host} answers {answer.status} {answer.reason}".rstrip())
        return _machines(repository, answer.json()) if validate_static else frozenset()
    except NoAnswer as error:
        raise RegistrySilent(f"the registry {repository.host} gives no answer: {error.reason}") from error


def _is_not_found(answer: Response) -> bool:
    try:
        return answer.status == 404 and any(error["code"] in _NO_SUCH for error in answer.json()["errors"])
    except (NoAnswer, KeyError, TypeError):
        return False


def _machines(repository: "_Repository", manifest: Any) -> frozenset[str]:
    """Return the architectures listed in an index, or that in the configuration of a single image."""
    try:
        if "manifests" in manifest:
            platforms = [item.get("platform") or {} for item in manifest["manifests"]]
        else:
            (digest,) = _DIGEST.findall(manifest["config"]["digest"])
            platforms = [repository.ask("GET", f"blobs/{digest}", "*/*").json()]
        named = [str(item.get("architecture")) for item in platforms if item.get("os", "linux") == "linux"]
    except (KeyError, TypeError, ValueError, AttributeError):
        return frozenset()
    return frozenset(name for name in named if _MACHINE.fullmatch(name))


class _Repository:
    """The repository of one image, accessed without an account."""

    def __init__(self, reference: ImageReference, client: HttpClient) -> None:
        self.reference, self.client = reference, client
        self.host = "registry-1.docker.io" if reference.host == HUB else reference.host
        self._token = ""

    def manifest(self, method: str) -> Response:
        return self.ask(method, f"manifests/{self.reference.digest or self.reference.tag or 'latest'}", _ACCEPT)

    def ask(self, method: str, what: str, accept: str) -> Response:
        url = f"{'http' if is_plain(self.host) else 'https'}://{self.host}/v2/{self.reference.path}/{what}"
        headers = {"Accept": accept} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
        answer = self.client.request(method, url, headers=headers)
        if answer.status == 401 and not self._token and (token := self._request_token(answer)):
            self._token = token
            return self.ask(method, what, accept)
        return answer

    def _request_token(self, refusal: Response) -> str:
        """Return the anonymous token for reading public images; empty if the registry requires a login."""
        challenge = dict(re.findall(r'(\w+)="([^"]*)"', refusal.headers.get("WWW-Authenticate", "")))
        realm = urlsplit(challenge.get("realm", ""))
        if realm.scheme != "https" and not (is_plain(self.host) and is_plain(realm.netloc)):
            return ""
        scope = challenge.get("scope") or f"repository:{self.reference.path}:pull"
        query = {"service": challenge.get("service", ""), "scope": scope}
        answer = self.client.get(f"{challenge['realm']}?{urlencode(query)}")
        granted = answer.json() if answer.ok else {}
        return str(granted.get("token") or granted.get("access_token") or "") if isinstance(granted, dict) else ""
