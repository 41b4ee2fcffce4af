"""The format of trusted.yaml: who may do what in a workspace, and the budgets without approval. Review it like code."""

import re
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.names import Name
from benchhouse.schema.packages import Day, PackagePolicy
from benchhouse.schema.quoting import quote
from benchhouse.schema.resources import Budget
from benchhouse.schema.roles import Role, may

_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9]|-(?=[A-Za-z0-9])){0,38}(?:\[bot\])?")
_KEY = re.compile(r"(ssh-ed25519|sk-ssh-ed25519@openssh\.com|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]+=*( .*)?")


def _public_key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise ValueError(f"{quote(text[:60])} is no public key of OpenSSH: write the line of id_ed25519.pub")
    return text


PublicKey = Annotated[str, AfterValidator(_public_key)]


class TrustedPerson(Model, strict=True):
    """A person or program, and its rights."""

    role: Role = Field("run", description="read, run, approve or admin; each holds those before it.")
    registers: bool = Field(
        False, description="Whether packages and benchmarks that this person signs may run; of an admin they may."
    )
    keys: list[PublicKey] = Field(
        default_factory=empty_list, description="Public keys of OpenSSH, by which approvals and commits are known."
    )
    github: str = Field("", description="Login on GitHub, for pull requests and commands in comments.")
    vouches: bool = Field(
        False, description="Whether its key signs what others decide: of a server or an agent that knows their logins."
    )
    budget: Budget | None = Field(None, description="In place of the budget that everybody has.")

    @field_validator("github")
    @classmethod
    def _is_a_login(cls, login: str) -> str:
        if login and not _LOGIN.fullmatch(login):
            raise ValueError(f"{quote(login[:60])} is no login of GitHub")
        return login


class KeyEnd(Model, strict=True):
    """The end of a key's validity, because it expires or was lost."""

    key: PublicKey = Field(description="The key, as `keys` of its owner has it.")
    until: Day = Field(description="Last day on which its signatures count, whenever they were made.")
    why: str = Field(min_length=1, description="The reason, for people who read it later.")


class TrustedFile(Model, strict=True):
    """trusted.yaml: people and their rights, budgets, rules for packages, and keys that ended."""

    schema_version: Literal[1] = Field(1, description="Version of this file format.")
    people: dict[Name, TrustedPerson] = Field(min_length=1, description="People, by the name that records have.")
    budget: Budget | None = Field(None, description="What everybody may start without approval; none: anything.")
    packages: PackagePolicy | None = Field(None, description="What experiment packages are held to; none: nothing.")
    key_ends: list[KeyEnd] = Field(default_factory=empty_list, description="Keys that expire, or were revoked.")

    @model_validator(mode="after")
    def _each_is_one(self) -> "TrustedFile":
        """Check that a login or key belongs to one person only, so that actions can be attributed."""
        owner: dict[str, str] = {}
        for name, person in self.people.items():
            marks = [_mark(key) for key in person.keys]
            marks += [person.github.lower()] if person.github else []
            for mark in marks:
                if owner.setdefault(mark, name) != name:
                    raise ValueError(f"{quote(mark[:60])} stands for {owner[mark]} and for {name}")
        return self

    def by_github(self, login: str) -> tuple[str, TrustedPerson] | None:
        """Return the person with this GitHub login, ignoring case; None if there is none."""
        people = self.people.items()
        return next((item for item in people if login and item[1].github.lower() == login.lower()), None)

    def by_key(self, public_key: str) -> str | None:
        """Return the owner of this key; None if there is none."""
        wanted = _mark(public_key)
        return next((name for name, person in self.people.items() if wanted in map(_mark, person.keys)), None)

    def keys_of(self, name: str, today: date) -> list[str]:
        """Return the keys of a person whose signatures count on that day."""
        person = self.people.get(name)
        ended = {_mark(end.key) for end in self.ended_keys(name, today)}
        return [key for key in person.keys if _mark(key) not in ended] if person else []

    def ended_keys(self, name: str, today: date) -> Iterator[KeyEnd]:
        """Yield the ended keys of a person, with the reasons."""
        person = self.people.get(name)
        marks = {_mark(key) for key in person.keys} if person else set[str]()
        for end in self.key_ends:
            if _mark(end.key) in marks and today > date.fromisoformat(end.until):
                yield end

    def may_register(self, name: str) -> bool:
        """Return whether content that this person signs may run."""
        person = self.people.get(name)
        return bool(person and (person.registers or may(person.role, "admin")))

    def allowance(self, name: str) -> Budget | None:
        """Return the budget of a person without approval, also for people who are not in the file."""
        person = self.people.get(name)
        return person.budget if person and person.budget else self.budget


def _mark(public_key: str) -> str:
    """Return the key without its comment."""
    return " ".join(public_key.split()[:2])
