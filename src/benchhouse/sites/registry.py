"""What a tag of an image stands for now: asked of its registry, as Docker's and OCI's protocol say."""

import re
from urllib.parse import urlencode

from benchhouse.http.client import HttpClient, NoAnswer, Response
from benchhouse.schema.errors import BenchError, Exit

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
_HUB = "registry-1.docker.io"


def pin(source: str) -> tuple[str, str]:
    """`docker://NAME[:TAG]` with its digest in place of the tag, and the digest."""
    name = source.removeprefix("docker://")
    base, at, wanted = name.partition("@")
    if at:
        if not _DIGEST.fullmatch(wanted):
            raise BenchError(f"{source!r} has no whole digest", "write docker://NAME@sha256: and 64 hexadecimal digits")
        return f"docker://{_untagged(base)}@{wanted}", wanted
    tag = base.rpartition("/")[2].partition(":")[2] or "latest"
    found = _ask(*_place(_untagged(base)), tag)
    return f"docker://{_untagged(base)}@{found}", found


def is_plain(source: str) -> bool:
    """Whether the registry is on this machine, where it speaks HTTP without TLS."""
    host = source.removeprefix("docker://").partition("/")[0].partition(":")[0]
    return host in ("localhost", "127.0.0.1")


def _untagged(name: str) -> str:
    path, slash, last = name.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}"


def _place(name: str) -> tuple[str, str]:
    """Registry and repository; a name without a host is one of Docker Hub's."""
    host, slash, rest = name.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return host, rest
    return _HUB, name if slash else f"library/{name}"


def _ask(host: str, repository: str, tag: str) -> str:
    url = f"{'http' if is_plain(host) else 'https'}://{host}/v2/{repository}/manifests/{tag}"
    headers = {"Accept": _ACCEPT}
    try:
        answer = _CLIENT.request("HEAD", url, headers=headers)
        if answer.status == 401:
            token = _token(answer, repository)
            answer = _CLIENT.request("HEAD", url, headers=headers | {"Authorization": f"Bearer {token}"})
        if not answer.ok:
            raise ValueError(f"it answers {answer.status} {answer.reason}".rstrip())
    except (NoAnswer, ValueError) as error:
        reason = error.reason if isinstance(error, NoAnswer) else str(error)
        raise BenchError(
            f"{host} does not say what {repository}:{tag} is: {reason}",
            "check the name; where there is no network, bring the .sif by other means: bench images add FILE.sif",
            Exit.TRIAL_FAILED,
        ) from error
    digest = str(answer.headers.get("Docker-Content-Digest", ""))
    if not _DIGEST.fullmatch(digest):
        raise BenchError(f"{host} gives no digest of {repository}:{tag}", "name it: docker://NAME@sha256:...")
    return digest


def _token(refusal: Response, repository: str) -> str:
    """Registries let anybody read public images, with a token that anybody gets."""
    challenge = dict(re.findall(r'(\w+)="([^"]*)"', refusal.headers.get("WWW-Authenticate", "")))
    if not challenge.get("realm", "").startswith("https://"):
        raise ValueError("it asks for a login")
    query = {
        "service": challenge.get("service", ""),
        "scope": challenge.get("scope") or f"repository:{repository}:pull",
    }
    granted = _CLIENT.get(f"{challenge['realm']}?{urlencode(query)}").json()
    return str(granted.get("token") or granted.get("access_token") or "")
