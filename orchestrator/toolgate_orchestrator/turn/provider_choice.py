"""Which of the mounted providers answers this turn.

Asked for by name, else the configured default, else the lowest priority number, else the first
mounted. It calls no provider.
"""

from collections.abc import Mapping
from typing import Any

from toolgate_bus.errors import ConfigError

__all__ = ["choose_provider", "model_of"]

_UNRANKED = float("inf")


def choose_provider(
    providers: Mapping[str, Any], default: str | None = None, wanted: str | None = None
) -> tuple[str, Any]:
    """Mount name and provider; raises ConfigError that lists the mounted ones."""
    if not providers:
        raise ConfigError("no provider is mounted: add one under `providers:` in the mount plan")
    named = wanted or default
    if named:
        return _by_name(providers, named, "the request" if wanted else "default_provider")
    name = min(providers, key=lambda each: _priority(providers[each]))
    return name, providers[name]


def model_of(provider: Any) -> str | None:
    """The model a provider would use, where it says so."""
    for attribute in ("model", "default_model"):
        model = getattr(provider, attribute, None)
        if isinstance(model, str) and model:
            return model
    return None


def _by_name(providers: Mapping[str, Any], named: str, who: str) -> tuple[str, Any]:
    for name in (named, named.removeprefix("provider-")):
        if name in providers:
            return name, providers[name]
    raise ConfigError(
        f"{who} names provider {named!r}, which is not mounted; mounted: {', '.join(providers)}"
    )


def _priority(provider: Any) -> float:
    """The attribute counts before the config; anything that is no number counts as none."""
    config = getattr(provider, "config", None)
    configured = config.get("priority") if isinstance(config, Mapping) else None
    for value in (getattr(provider, "priority", None), configured):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return _UNRANKED
