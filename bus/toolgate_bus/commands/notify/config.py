"""The file of `toolgate notify`: who is told of what, and when. Pure; `targets` reads what it points to."""

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
    """An address that can be posted to; raises ValueError that does not show it."""
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
    """A webhook. Of `url`, `url_file`, `url_env` it has one; of the key's two at most one."""

    kind: Literal["json", "slack"] = "json"
    """`json`: the whole notification, signed where there is a key; `slack`: `{"text": …}`."""
    url: Url | None = None
    """Its address, `http` or `https`; where it is a secret, one of the next two instead."""
    url_file: Path | None = None
    """A file that holds the address."""
    url_env: Text | None = None
    """An environment variable that holds the address."""
    key_file: Path | None = None
    """A file with the key that signs: `whsec_` and base64. Without a key nothing is signed."""
    key_env: Text | None = None
    """The same in an environment variable."""
    ca_file: Path | None = None
    """Certificates to trust instead of the system's."""
    timeout_s: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] = 5.0
    """Seconds for one POST, from connecting to the answer's head."""

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
    """Which incidents go to which receivers; what is left out fits all."""

    receivers: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)]
    """By name."""
    causes: Annotated[tuple[Cause, ...], Field(min_length=1)] | None = None
    """`held`, `budget`, `gone`, `failing_open`, `change`, `revisions`."""
    severities: Annotated[tuple[Severity, ...], Field(min_length=1)] | None = None
    """`info`, `warning`, `critical`."""
    labels: Annotated[dict[Text, Text], Field(max_length=16)] = Field(default_factory=dict)
    """Label to a glob that its value must match."""


class HeldCause(StrictModel):
    """A call waits for a person."""

    repeat_s: Annotated[float, Field(ge=0, le=604_800, allow_inf_nan=False)] = 600.0
    """Told again so often, in seconds, until somebody answers or it expires; 0: once."""
    tell_end: bool = True
    """Whether its end is told, too."""


class BudgetCause(StrictModel):
    """A budget is spent to some part."""

    thresholds: Annotated[tuple[Threshold, ...], Field(min_length=1, max_length=16)] = (50, 80, 100)
    """Percent of the limit."""
    each: bool = False
    """Also the accounts of each session and tree, whose purpose is to be spent."""


class GoneCause(StrictModel):
    """A required scheduler is not alive."""

    after_s: Annotated[float, Field(ge=3, le=86_400, allow_inf_nan=False)] = 10.0
    """Told when it has been away for so many seconds."""


class FailingOpenCause(StrictModel):
    """Calls go on without a scheduler's verdict."""

    calls: Annotated[int, Field(ge=1, le=1000)] = 5
    """So many calls …"""
    within_s: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 60.0
    """… within so many seconds; over when there was none for as long."""


class ChangeCause(StrictModel):
    """Somebody changed rules, or a rollout undid itself."""

    events: tuple[ChangeEvent, ...] = ("rollout:undone", "config:undone")
    """Also `config:pushed`, `rollout:started`, `rollout:advanced`, `rollout:done`."""


class RevisionsCause(StrictModel):
    """Replicas of one scheduler rule by different configurations."""

    after_s: Annotated[float, Field(ge=3, le=86_400, allow_inf_nan=False)] = 60.0
    """Told when they have for so many seconds: a restart one by one takes its time."""


class CauseSettings(StrictModel):
    """When each cause is told; which are told at all, routes say."""

    held: HeldCause = HeldCause()
    """A call waits for a person: `warning`."""
    budget: BudgetCause = BudgetCause()
    """A budget passed a threshold: `warning`, at 100 % `critical`."""
    gone: GoneCause = GoneCause()
    """A required scheduler is not alive: `critical`."""
    failing_open: FailingOpenCause = FailingOpenCause()
    """Calls go on without a scheduler's verdict: `warning`."""
    change: ChangeCause = ChangeCause()
    """Rules were changed: `info`; a rollout undone: `critical`."""
    revisions: RevisionsCause = RevisionsCause()
    """Replicas of one scheduler differ: `warning`."""


class RetrySettings(StrictModel):
    """How a receiver that does not answer is tried again."""

    first_s: Annotated[float, Field(ge=0.01, le=600, allow_inf_nan=False)] = 1.0
    """Seconds before the second try; doubled each time, with as much of chance again."""
    max_s: Annotated[float, Field(ge=0.01, le=3600, allow_inf_nan=False)] = 300.0
    """At most so many between two tries; a `Retry-After` counts before it, up to an hour."""
    give_up_s: Seconds = 86_400.0
    """A notification that is older than so many seconds is given up, and counted."""


class NotifyConfig(StrictModel):
    """The whole file."""

    receivers: Annotated[dict[Name, Receiver], Field(min_length=1, max_length=64)]
    """Name to receiver."""
    routes: Annotated[tuple[NotifyRoute, ...], Field(max_length=256)] = ()
    """Every route that fits is taken; none at all: every receiver is told everything."""
    console_url: Url | None = None
    """Where people open `toolgate console`: a link in what waits for them."""
    causes: CauseSettings = CauseSettings()
    """When each cause is told."""
    group_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 3.0
    """What comes within so many seconds goes out as one notification."""
    labels: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    """Labels of calls that may leave; no others do."""
    redact: Annotated[tuple[Annotated[Text, AfterValidator(_check_pattern)], ...], Field(max_length=64)] = ()
    """Patterns: what matches is taken out, wherever it stands."""
    retry: RetrySettings = RetrySettings()
    """How receivers that take nothing are tried again."""

    @model_validator(mode="after")
    def _consistent(self) -> "NotifyConfig":
        for number, route in enumerate(self.routes):
            for name in route.receivers:
                if name not in self.receivers:
                    raise ValueError(f"routes.{number}: no receiver is called {name}")
        return self


def label_values(labels: Mapping[str, str], allowed: tuple[str, ...]) -> dict[str, str]:
    """Those labels that may leave."""
    return {name: labels[name] for name in allowed if name in labels}
