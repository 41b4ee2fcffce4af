"""The `github` section of workspace.yaml: repositories that may send requests, and how GitHub is reached."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from benchhouse.schema.model import Model
from benchhouse.schema.quoting import quote
from benchhouse.schema.secrets import reference

_REPOSITORY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_API = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+(?:/[A-Za-z0-9._/-]*)?")
Event = Literal["issue_comment", "push", "release", "deployment"]


def _repository(text: str) -> str:
    if not _REPOSITORY.fullmatch(text):
        raise ValueError(f"{quote(text[:60])} is no repository: write owner/name")
    return text


def _referred(text: str) -> str:
    if reference(text) is None:
        raise ValueError("a secret stays out of files: write the name of a variable with it, '$NAME'")
    return text


def _api(text: str) -> str:
    if not _API.fullmatch(text):
        raise ValueError(f"{quote(text[:60])} is no address such as https://api.github.com")
    return text.rstrip("/")


Repository = Annotated[str, AfterValidator(_repository)]
Referred = Annotated[str, AfterValidator(_referred)]


Api = Annotated[str, AfterValidator(_api)]


def _thread(text: str) -> str:
    repository, _, number = text.partition("#")
    if not (number.isascii() and number.isdigit() and 0 < int(number) < 1 << 31):
        raise ValueError(f"{quote(text[:60])} is no issue: write owner/name#12")
    return f"{_repository(repository)}#{int(number)}"


class GitHubThread(Model, strict=True):
    """An issue or pull request to which messages are posted as comments."""

    issue: Annotated[str, AfterValidator(_thread)] = Field(description="owner/name#12, of an issue or a pull request.")
    token: Referred = Field("$GITHUB_TOKEN", description="'$VARIABLE' with a token that may comment there.")
    api: Api = Field("https://api.github.com", description="Of GitHub Enterprise Server: https://HOST/api/v3.")

    @property
    def repository(self) -> str:
        return self.issue.partition("#")[0]

    @property
    def number(self) -> int:
        return int(self.issue.partition("#")[2])


class GitHubSettings(Model, strict=True):
    """Settings for pull requests and comments on GitHub."""

    repositories: list[Repository] = Field(min_length=1, description="owner/name of each that may ask; no other does.")
    webhook_secret: Referred = Field(
        "$BENCH_GITHUB_WEBHOOK_SECRET", description="'$VARIABLE' with the secret by which webhooks are signed."
    )
    token: Referred = Field("$GITHUB_TOKEN", description="'$VARIABLE' with the token by which answers are written.")
    api: Api = Field("https://api.github.com", description="Of GitHub Enterprise Server: https://HOST/api/v3.")
    events: dict[Event, list[str]] = Field(
        {"issue_comment": []},
        description="Events that are taken, each with the scenario files that it starts; issue_comment: commands.",
    )
    poll_s: float = Field(30.0, ge=1, description="Seconds between two looks of bench agent --poll.")

    def takes(self, repository: str) -> bool:
        """Return whether a repository is listed; case is ignored."""
        return repository.lower() in {name.lower() for name in self.repositories}
