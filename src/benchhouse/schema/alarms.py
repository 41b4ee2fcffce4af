"""The format of alarms.yaml: limits of metrics, and who is notified."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, field_validator, model_validator

from benchhouse.schema.github import GitHubThread
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.names import Name
from benchhouse.schema.quantities import Share
from benchhouse.schema.schedules import Hours, TimeZone
from benchhouse.schema.secrets import exposed, reference

Happening = Literal["finished", "failed", "approval"]
State = Literal["firing", "ok", "unsure", "no data"]


def _refuse_unless_one(model: Model, names: tuple[str, ...]) -> None:
    given = [name for name in names if getattr(model, name) is not None]
    if len(given) != 1:
        raise ValueError(f"give one of {', '.join(names)}" + (f", not {' and '.join(given)}" if given else ""))


class AlarmRule(Model, strict=True):
    """An alarm: one metric of one case, its limit, and who is notified."""

    name: Name = Field(description="Name of the alarm, in messages and in the record.")
    case: str = Field(min_length=1, description="A scenario, scenario/point, or a case's id: as for `bench history`.")
    metric: str = Field(min_length=1, description="Name of the metric.")
    stat: str | None = Field(None, min_length=1, description="Which statistic of it; the usual one if not given.")
    above: float | None = Field(None, allow_inf_nan=False, description="Fires above this, in the metric's unit.")
    below: float | None = Field(None, allow_inf_nan=False, description="Fires below this, in the metric's unit.")
    worse_by: Share | None = Field(None, description="Fires when worse than the accepted baseline by more than this.")
    regressed: Literal[True] | None = Field(None, description="Fires on a regression, by the rule of `bench history`.")
    unit: str | None = Field(None, description="Unit of the limit; a value in another unit counts as no data.")
    tell: list[str] = Field(min_length=1, description="Channels and people to notify when it fires and when it clears.")

    @model_validator(mode="after")
    def _one_limit(self) -> "AlarmRule":
        _refuse_unless_one(self, ("above", "below", "worse_by", "regressed"))
        return self


class Channel(Model, strict=True):
    """One way to send notifications. An address that contains a secret is given as a variable: `$SERVING_HOOK`."""

    webhook: str | None = Field(None, description="Address to post a JSON object to; its `text` is what Slack shows.")
    alertmanager: str | None = Field(None, description="Address of a Prometheus Alertmanager.")
    apprise: str | None = Field(None, description="Variable with an address of apprise: mail, chat, pagers.")
    command: list[str] | None = Field(None, min_length=1, description="Program and arguments; the JSON on its input.")
    github: GitHubThread | None = Field(None, description="An issue or a pull request: each message is a comment.")
    quiet: Hours = Field("", description="Hours in which nothing is sent: 22:00-07:00. It comes afterwards, as one.")
    timezone: TimeZone = Field("UTC", description="Time zone of `quiet`, such as Europe/Berlin.")

    @model_validator(mode="after")
    def _one_way(self) -> "Channel":
        _refuse_unless_one(self, ("webhook", "alertmanager", "apprise", "command", "github"))
        return self

    @field_validator("webhook", "alertmanager")
    @classmethod
    def _is_an_address(cls, text: str | None) -> str | None:
        if text is None or reference(text):
            return text
        if not text.startswith(("http://", "https://")):
            raise ValueError("write an address, http://... or https://..., or a variable that holds one: $NAME")
        if exposed(text):
            raise ValueError("this address holds a secret: put it into a variable and write $NAME")
        return text

    @field_validator("command")
    @classmethod
    def _shows_no_secret(cls, words: list[str] | None) -> list[str] | None:
        if any(exposed(word) for word in words or ()):
            raise ValueError("this command holds a secret: let the program read it from its environment")
        return words

    @field_validator("apprise")
    @classmethod
    def _is_a_variable(cls, text: str | None) -> str | None:
        if text is not None and not reference(text):
            raise ValueError("such addresses hold a secret: put it into a variable and write $NAME")
        return text


class NotifiedPerson(Model, strict=True):
    """A person with their own channels; `tell` can name the person instead of each channel."""

    channels: list[str] = Field(min_length=1, description="Their own channels, which are nobody else's.")
    quiet: Hours = Field("", description="Hours in which none of them gets anything: 22:00-07:00.")
    timezone: TimeZone = Field("UTC", description="Time zone of `quiet`: where they live.")


class NotifyRule(Model, strict=True):
    """A notification about runs or approvals, in addition to alarms."""

    on: list[Happening] = Field(
        min_length=1, description="finished, failed (a run with trials that failed) or approval (a plan needs one)."
    )
    scenario: str = Field("*", min_length=1, description="Only of scenarios of this name: nightly-*.")
    tell: list[str] = Field(min_length=1, description="Channels and people to notify.")


class AlarmsFile(Model, strict=True):
    """alarms.yaml: alarms, other notifications, and the channels and people that receive them."""

    schema_version: Literal[1] = Field(1, description="Version of this file format.")
    alarms: list[AlarmRule] = Field(default_factory=empty_list, description="The alarms.")
    notify: list[NotifyRule] = Field(default_factory=empty_list, description="Runs and approvals to be notified of.")
    address: str = Field("", pattern=r"^(https?://\S+)?$", description="Of `bench serve`, for links to its pages.")
    channels: dict[Name, Channel] = Field(min_length=1, description="Channels, by name.")
    people: dict[Name, NotifiedPerson] = Field(default_factory=dict, description="People, by name.")

    def reach(self, names: Iterable[str]) -> list[str]:
        """Return the distinct channels that these names of channels and people refer to."""
        reached = [self.people[name].channels if name in self.people else [name] for name in names]
        return list(dict.fromkeys(channel for channels in reached for channel in channels))

    def quiet_hours(self, channel: str) -> tuple[str, str]:
        """Return the quiet hours of a channel, or otherwise those of its owner, with their time zone."""
        owner = next((person for person in self.people.values() if channel in person.channels), None)
        hours = self.channels[channel] if self.channels[channel].quiet or owner is None else owner
        return hours.quiet, hours.timezone


class Notice(Model):
    """A line of `.bench/notices.jsonl`: an alarm fired or cleared, was sent to a channel, or was muted."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    time: str = Field(description="When, UTC.")
    action: Literal["fired", "cleared", "told", "muted", "unmuted", "queued"] = Field(
        description="told: `channel` was notified of the line before; queued: it is to be; muted: nobody is."
    )
    alarm: str = Field(description="Name of the alarm, or what else it is about: run RUN, schedule NAME.")
    benchmark_case_id: str = Field("", description="The benchmark case.")
    target_name: str = Field("", description="The target's name.")
    metric: str = Field("", description="Name of the metric.")
    stat: str = Field("", description="Which statistic of it.")
    unit: str = Field("", description="Unit of the value.")
    run_id: str = Field("", description="The run that made it fire or clear.")
    value: float | None = Field(None, description="Mean over the run's trials; null where none succeeded.")
    low: float | None = Field(None, description="Lower end of its 95% interval; null for one trial.")
    high: float | None = Field(None, description="Upper end.")
    limit: float | None = Field(None, description="The limit, in the unit.")
    sentence: str = Field("", description="The message.")
    channel: str = Field("", description="The channel that was notified.")
    error: str = Field("", description="Why delivery failed; empty: it was delivered.")
    until: str = Field("", description="When a muted alarm is heard again, UTC; empty: when it is unmuted.")
    why: str = Field("", description="What the person said who muted it.")
    request: str = Field("", description="The request that wrote it, where it came through a server.")
