"""Config file of `toolgate notify`: receivers, routes, causes. Pure; `targets` reads the files it names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from toolgate_bus.commands.notify.incident import Cause, Severity
from toolgate_bus.config.check import StrictModel
from toolgate_bus.ruling.conditions.patterns import Unknown, compile_pattern

Seconds = Annotated[float, Field(gt=0, le=604_800, allow_inf_nan=False)]
Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="a name of 1 to 64 of A-Z a-z 0-9 _ . -")
]
Text = Annotated[str, Field(min_length=1, max_length=2048)]
Threshold = Annotated[int, Field(ge=1, le=100)]
ChangeEvent = Literal[
    "config:pushed", "config:undone", "rollout:started", "rollout:advanced", "rollout:done", "rollout:undone"
]


def _check_pattern(written: str) -> str:
    try:
        compile_pattern(written)
    except Unknown as error:
        raise ValueError(str(error)) from None
    return written


def check_url(url: str) -> str:
    """Return an address that can be posted to. Raise ValueError that does not show it."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fine = False
    if not fine or not url.isprintable() or " " in url:
        raise ValueError("must be an address, https://HOST/PATH")
    return url


Url = Annotated[Text, AfterValidator(check_url)]


class Receiver(StrictModel):
    """Webhook. Give one of `url`, `url_file`, `url_env`, and at most one of `key_file`, `key_env`."""

    kind: Literal["json", "slack"] = "json"
    """`json` posts the whole notification, signed if there is a key; `slack` posts `{"text": …}`."""
    url: Url | None = None
    """Address, `http` or `https`. If it is a secret, give `url_file` or `url_env` instead."""
    url_file: Path | None = None
    """File that holds the address."""
    url_env: Text | None = None
    """Environment variable that holds the address."""
    key_file: Path | None = None
    """File with the key that signs: `whsec_` and base64. Without a key nothing is signed."""
    key_env: Text | None = None
    """Environment variable with the key that signs."""
    ca_file: Path | None = None
    """File of certificates to trust instead of the system's."""
    timeout_s: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] = 5.0
    """Maximum seconds for one POST, from connecting to the answer's head."""

    @model_validator(mode="after")
    def _consistent(self) -> "Receiver":
        if sum(one is not None for one in (self.url, self.url_file, self.url_env)) != 1:
            raise ValueError("one of url, url_file, url_env says where it is")
        if self.key_file is not None and self.key_env is not None:
            raise ValueError("key_file or key_env, not both")
        if self.kind == "slack" and (self.key_file or self.key_env):
            raise ValueError("a key signs for kind: json; who takes Slack's texts checks none")
        return self


class NotifyRoute(StrictModel):
    """Route of incidents to receivers. A key that is left out matches every incident."""

    receivers: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)]
    """Names of the receivers that are told."""
    causes: Annotated[tuple[Cause, ...], Field(min_length=1)] | None = None
    """Causes that match: `held`, `budget`, `gone`, `failing_open`, `change`, `revisions`."""
    severities: Annotated[tuple[Severity, ...], Field(min_length=1)] | None = None
    """Severities that match: `info`, `warning`, `critical`."""
    labels: Annotated[dict[Text, Text], Field(max_length=16)] = Field(default_factory=dict)
    """Labels that an incident must have, each with a glob that its value must match."""


class HeldCause(StrictModel):
    """Settings for calls that wait for a person."""

    repeat_s: Annotated[float, Field(ge=0, le=604_800, allow_inf_nan=False)] = 600.0
    """Seconds between reminders, until somebody answers or the call expires. 0 means no reminder."""
    tell_end: bool = True
    """True to tell the end of the wait, too."""


class BudgetCause(StrictModel):
    """Settings for budgets that are spent to some part."""

    thresholds: Annotated[tuple[Threshold, ...], Field(min_length=1, max_length=16)] = (50, 80, 100)
    """Percentages of the limit at which a budget is told."""
    each: bool = False
    """True to tell accounts of single sessions and trees, too, although these are meant to be spent."""


class GoneCause(StrictModel):
    """Settings for required schedulers that are not alive."""

    after_s: Annotated[float, Field(ge=3, le=86_400, allow_inf_nan=False)] = 10.0
    """Seconds that a scheduler must be away before it is told."""


class FailingOpenCause(StrictModel):
    """Settings for calls that go on without a scheduler's verdict."""

    calls: Annotated[int, Field(ge=1, le=1000)] = 5
    """Number of such calls within `within_s` seconds from which they are told."""
    within_s: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 60.0
    """Seconds in which the calls are counted. The incident is over if there was no such call for as long."""


class ChangeCause(StrictModel):
    """Settings for changes of rules, and rollouts that undid themselves."""

    events: tuple[ChangeEvent, ...] = ("rollout:undone", "config:undone")
    """Events to tell. Others: `config:pushed`, `rollout:started`, `rollout:advanced`, `rollout:done`."""


class RevisionsCause(StrictModel):
    """Settings for replicas of one scheduler that rule by different configurations."""

    after_s: Annotated[float, Field(ge=3, le=86_400, allow_inf_nan=False)] = 60.0
    """Seconds that replicas must differ before it is told, since a restart one by one takes its time."""


class CauseSettings(StrictModel):
    """Settings of each cause. Routes choose the causes that are told."""

    held: HeldCause = HeldCause()
    """Calls that wait for a person: `warning`."""
    budget: BudgetCause = BudgetCause()
    """Budgets that passed a threshold: `warning`, at 100 % `critical`."""
    gone: GoneCause = GoneCause()
    """Required schedulers that are not alive: `critical`."""
    failing_open: FailingOpenCause = FailingOpenCause()
    """Calls that go on without a scheduler's verdict: `warning`."""
    change: ChangeCause = ChangeCause()
    """Changes of rules: `info`; an undone rollout: `critical`."""
    revisions: RevisionsCause = RevisionsCause()
    """Replicas of one scheduler that differ: `warning`."""


class RetrySettings(StrictModel):
    """Retries for a receiver that does not answer."""

    first_s: Annotated[float, Field(ge=0.01, le=600, allow_inf_nan=False)] = 1.0
    """Seconds before the second try. They double at each try; up to `first_s` random seconds are added."""
    max_s: Annotated[float, Field(ge=0.01, le=3600, allow_inf_nan=False)] = 300.0
    """Maximum seconds between two tries. A `Retry-After` of the receiver wins over it, up to an hour."""
    give_up_s: Seconds = 86_400.0
    """Age in seconds at which a notification is given up, and counted."""


class NotifyConfig(StrictModel):
    """Whole config file."""

    receivers: Annotated[dict[Name, Receiver], Field(min_length=1, max_length=64)]
    """Receivers by name."""
    routes: Annotated[tuple[NotifyRoute, ...], Field(max_length=256)] = ()
    """Routes of incidents. Every route that matches is taken. Without any, every receiver gets all."""
    console_url: Url | None = None
    """Address at which people open `toolgate console`. Notifications link to it."""
    causes: CauseSettings = CauseSettings()
    """Settings of each cause."""
    group_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 3.0
    """Seconds in which incidents are gathered into one notification."""
    labels: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    """Labels of calls that may leave in notifications. All others are left out."""
    redact: Annotated[tuple[Annotated[Text, AfterValidator(_check_pattern)], ...], Field(max_length=64)] = ()
    """Patterns whose matches are taken out of every text."""
    retry: RetrySettings = RetrySettings()
    """Retries for receivers that take nothing."""

    @model_validator(mode="after")
    def _consistent(self) -> "NotifyConfig":
        for number, route in enumerate(self.routes):
            for name in route.receivers:
                if name not in self.receivers:
                    raise ValueError(f"routes.{number}: no receiver is called {name}")
        return self


def label_values(labels: Mapping[str, str], allowed: tuple[str, ...]) -> dict[str, str]:
    """Return the labels that may leave."""
    return {name: labels[name] for name in allowed if name in labels}
