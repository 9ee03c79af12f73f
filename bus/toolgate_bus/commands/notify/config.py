"""Config file of `toolgate notify`: receivers, routes, causes. Pure; `receivers` reads the files it names."""

from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from toolgate_bus.config.check import StrictModel
from toolgate_bus.ruling.conditions.patterns import Unknown, compile_pattern

Cause = Literal["held", "budget", "change"]
Severity = Literal["info", "warning", "critical"]
ChangeEvent = Literal[
    "config:pushed", "config:undone", "rollout:started", "rollout:advanced", "rollout:done", "rollout:undone"
]
ALERTS: Final = {
    "gone": "ToolgateSchedulerGone and ToolgateRequiredSchedulerSilent",
    "failing_open": "ToolgateFailingOpen",
    "revisions": "ToolgateSchedulerRevisionsDiffer",
}
"""Alerts that took the place of causes, by the cause."""
Seconds = Annotated[float, Field(gt=0, le=604_800, allow_inf_nan=False)]
Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="a name of 1 to 64 of A-Z a-z 0-9 _ . -")
]
Text = Annotated[str, Field(min_length=1, max_length=2048)]
Threshold = Annotated[int, Field(ge=1, le=100)]


def _check_cause(cause: Any) -> Any:
    if isinstance(cause, str) and cause in ALERTS:
        raise ValueError(
            f"notify no longer reports `{cause}`; Alertmanager does, by {ALERTS[cause]} of "
            "deploy/prometheus/rules/toolgate-alerts.yml"
        )
    return cause


def _check_kind(kind: Any) -> Any:
    if kind == "slack":
        raise ValueError("write `kind: apprise`; an address https://hooks.slack.com/… may stay as it is")
    return kind


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


def check_webhook_url(url: str) -> None:
    """Raise ValueError, which does not show the address, if a webhook cannot be there."""
    try:
        check_url(url)
    except ValueError as error:
        raise ValueError(f"{error}; slack://, mailto:// and other services need `kind: apprise`") from None


Url = Annotated[Text, AfterValidator(check_url)]


class Receiver(StrictModel):
    """Webhook or service. Give one of `url`, `url_file`, `url_env`, and at most one of the keys."""

    kind: Annotated[Literal["json", "apprise"], BeforeValidator(_check_kind)] = "json"
    """`json` posts the whole notification to your webhook, signed if there is a key. `apprise` sends its text
    to any service that apprise knows."""
    url: Text | None = None
    """Address: `https://…` for `json`; `slack://…`, `mailto://…` and so on for `apprise`. If it is a secret,
    give `url_file` or `url_env` instead."""
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
    """Maximum seconds to wait for an answer, from connecting on."""

    @model_validator(mode="after")
    def _consistent(self) -> "Receiver":
        if sum(one is not None for one in (self.url, self.url_file, self.url_env)) != 1:
            raise ValueError("one of url, url_file, url_env says where it is")
        if self.key_file is not None and self.key_env is not None:
            raise ValueError("key_file or key_env, not both")
        if self.kind == "apprise" and (self.key_file or self.key_env or self.ca_file):
            raise ValueError("key_file, key_env and ca_file are for `kind: json`")
        if self.kind == "json" and self.url is not None:
            check_webhook_url(self.url)
        return self


class NotifyRoute(StrictModel):
    """Route of incidents to receivers. A key that is left out matches every incident."""

    receivers: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)]
    """Names of the receivers that are told."""
    causes: (
        Annotated[tuple[Annotated[Cause, BeforeValidator(_check_cause)], ...], Field(min_length=1)] | None
    ) = None
    """Causes that match: `held`, `budget`, `change`."""
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


class ChangeCause(StrictModel):
    """Settings for changes of rules, and rollouts that undid themselves."""

    events: tuple[ChangeEvent, ...] = ("rollout:undone", "config:undone")
    """Events to tell. Others: `config:pushed`, `rollout:started`, `rollout:advanced`, `rollout:done`."""


class CauseSettings(StrictModel):
    """Settings of each cause. Routes choose the causes that are told."""

    held: HeldCause = HeldCause()
    """Calls that wait for a person: `warning`."""
    budget: BudgetCause = BudgetCause()
    """Budgets that passed a threshold: `warning`, at 100 % `critical`."""
    change: ChangeCause = ChangeCause()
    """Changes of rules: `info`; an undone rollout: `critical`."""

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        for cause in value if isinstance(value, dict) else ():
            _check_cause(cause)
        return value


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
