"""What a tag of an image stands for now: asked of its registry, as Docker's and OCI's protocol say."""

import json
import re
import urllib.error
import urllib.request
from urllib.parse import urlencode

from benchhouse.schema.errors import BenchError, Exit

_ANSWER_S = 30.0
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
        try:
            found = _head(url, headers)
        except urllib.error.HTTPError as refused:
            if refused.code != 401:
                raise
            found = _head(url, headers | {"Authorization": f"Bearer {_token(refused, repository)}"})
    except (OSError, ValueError) as error:
        raise BenchError(
            f"{host} does not say what {repository}:{tag} is: {error}",
            "check the name; where there is no network, bring the .sif by other means: bench images add FILE.sif",
            Exit.TRIAL_FAILED,
        ) from error
    if not _DIGEST.fullmatch(found):
        raise BenchError(f"{host} gives no digest of {repository}:{tag}", "name it: docker://NAME@sha256:...")
    return found


def _head(url: str, headers: dict[str, str]) -> str:
    request = urllib.request.Request(url, headers=headers, method="HEAD")  # noqa: S310 - http or https, as made above
    with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
        return str(answer.headers.get("Docker-Content-Digest", ""))


def _token(refused: urllib.error.HTTPError, repository: str) -> str:
    """Registries let anybody read public images, with a token that anybody gets."""
    asked = dict(re.findall(r'(\w+)="([^"]*)"', refused.headers.get("WWW-Authenticate", "")))
    if not asked.get("realm", "").startswith("https://"):
        raise ValueError("it asks for a login")
    query = {"service": asked.get("service", ""), "scope": asked.get("scope") or f"repository:{repository}:pull"}
    with urllib.request.urlopen(f"{asked['realm']}?{urlencode(query)}", timeout=_ANSWER_S) as answer:  # noqa: S310
        said = json.load(answer)
    return str(said.get("token") or said.get("access_token") or "")
