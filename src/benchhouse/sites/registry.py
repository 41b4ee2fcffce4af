"""What a tag stands for now, asked of its registry as Docker's and OCI's protocol say."""

import re
from urllib.parse import urlencode

from benchhouse.http.client import HttpClient, NoAnswer, Response
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.image import HUB, Reference

_CLIENT = HttpClient(timeout_s=30.0, proxy=True, redirects=True)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_HINTS = {
    401: "it lets in only who has an account: name the digest yourself, NAME:TAG@sha256:...",
    403: "it lets in only who has an account: name the digest yourself, NAME:TAG@sha256:...",
    404: "check name and tag: it has none such",
    429: "it was asked too often from here: try again later",
}


class RegistrySilent(BenchError):  # noqa: N818 - what happened, in two words
    """A registry that can't be reached at all: to ask it again for another image is in vain."""


def is_plain(host: str) -> bool:
    """Whether the registry is on this machine, where it speaks HTTP without TLS."""
    return host.partition(":")[0] in ("localhost", "127.0.0.1")


def ask_digest(reference: Reference, offline: str) -> str:
    """Of the manifest that NAME:TAG is now; of all architectures, where it has several. Raises BenchError, with the
    hint `offline` where the registry gives no answer."""
    tag = reference.tag or "latest"
    host = "registry-1.docker.io" if reference.host == HUB else reference.host
    url = f"{'http' if is_plain(host) else 'https'}://{host}/v2/{reference.path}/manifests/{tag}"
    what = f"{host} does not say what {reference.path}:{tag} is"
    try:
        answer = _ask(url, reference.path)
    except NoAnswer as error:
        raise RegistrySilent(
            f"the registry {host} gives no answer: {error.reason}", offline, Exit.TRIAL_FAILED
        ) from error
    if not answer.ok:
        hint = _HINTS.get(answer.status, "try again later")
        raise BenchError(f"{what}: it answers {answer.status} {answer.reason}".rstrip(), hint, Exit.TRIAL_FAILED)
    digest = str(answer.headers.get("Docker-Content-Digest", ""))
    if not _DIGEST.fullmatch(digest):
        hint = "name the digest yourself, NAME:TAG@sha256:..."
        raise BenchError(f"{host} gives no digest of {reference.path}:{tag}", hint, Exit.TRIAL_FAILED)
    return digest


def _ask(url: str, repository: str) -> Response:
    headers = {"Accept": _ACCEPT}
    answer = _CLIENT.request("HEAD", url, headers=headers)
    if answer.status == 401 and (token := _token(answer, repository)):
        answer = _CLIENT.request("HEAD", url, headers=headers | {"Authorization": f"Bearer {token}"})
    return answer


def _token(refusal: Response, repository: str) -> str:
    """Registries let anybody read public images, with a token that anybody gets; empty where it takes a login."""
    challenge = dict(re.findall(r'(\w+)="([^"]*)"', refusal.headers.get("WWW-Authenticate", "")))
    if not challenge.get("realm", "").startswith("https://"):
        return ""
    scope = challenge.get("scope") or f"repository:{repository}:pull"
    query = {"service": challenge.get("service", ""), "scope": scope}
    answer = _CLIENT.get(f"{challenge['realm']}?{urlencode(query)}")
    granted = answer.json() if answer.ok else {}
    return str(granted.get("token") or granted.get("access_token") or "") if isinstance(granted, dict) else ""
