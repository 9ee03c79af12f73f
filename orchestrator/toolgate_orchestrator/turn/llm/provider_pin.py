"""The pin: chooses the mounted provider that answers this conversation, until it is taken off.

This is the capability `conversation.provider_pin`. It changes the choice, not the mounted providers. A model
of another vendor is refused: no vendor accepts a history that another one has signed.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.turn.llm.request import choose_provider

PROVIDER_PIN: Final = "conversation.provider_pin"


class ProviderPin:
    """The provider that the user chose for one session, if any."""

    def __init__(self, coordinator: Any, default: str | None = None) -> None:
        self._coordinator, self._default = coordinator, default
        self._name: str | None = None

    def available(self) -> list[str]:
        """Return the names of the mounted providers, sorted."""
        return sorted(self._providers())

    def current(self) -> str | None:
        """Return the pinned name; None if none is pinned."""
        return self._name

    def pin(self, name: str) -> str:
        """Pin a mounted provider of the same vendor. Raise ValueError for any other."""
        providers = self._providers()
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"name a provider to pin; mounted: {_names(providers)}")
        if name not in providers:
            raise ValueError(f"provider {name!r} is not mounted; mounted: {_names(providers)}")
        before = self._effective(providers)
        if name != before:
            self._check_vendor(before, name, providers)
        self._name = name
        return name

    def unpin(self) -> str | None:
        """Take the pin off, and return the name that was pinned."""
        name, self._name = self._name, None
        return name

    def _effective(self, providers: Mapping[str, Any]) -> str:
        """Return the name of the provider that answers now."""
        if self._name is not None:
            if self._name not in providers:
                raise ValueError(
                    f"the pinned provider {self._name!r} is no longer mounted, so its vendor is unknown: "
                    "call unpin() first"
                )
            return self._name
        try:
            return choose_provider(providers, self._default)[0]
        except ConfigError as error:
            raise ValueError(str(error)) from None

    def _check_vendor(self, before: str, name: str, providers: Mapping[str, Any]) -> None:
        mine, theirs = vendor_of(before, providers[before]), vendor_of(name, providers[name])
        if mine == theirs:
            return
        same = [each for each, one in providers.items() if _vendor_or_none(each, one) == mine]
        raise ValueError(
            f"from {before!r} ({mine}) to {name!r} ({theirs}): a change of vendor is not supported yet. The "
            f"history holds what {mine} signed (thinking.signature, thought_signature); {theirs} would "
            "refuse it, and the conversation could not go on. Providers of the same vendor: "
            f"{_names(dict.fromkeys(same))}"
        )

    def _providers(self) -> Mapping[str, Any]:
        mounted = self._coordinator.get("providers")
        return mounted if isinstance(mounted, Mapping) else {}


def vendor_of(name: str, provider: Any) -> str:
    """Return the vendor of a provider's models, from its `get_info().id`. Raise ValueError if there is
    none."""
    try:
        vendor = provider.get_info().id
    except Exception as error:
        raise ValueError(
            f"provider {name!r} does not tell its vendor: get_info() failed ({type(error).__name__})"
        ) from error
    if not isinstance(vendor, str) or not vendor.strip():
        raise ValueError(f"provider {name!r} does not tell its vendor: get_info() has no usable id")
    return vendor.strip().lower()


def _vendor_or_none(name: str, provider: Any) -> str | None:
    try:
        return vendor_of(name, provider)
    except ValueError:
        return None


def _names(providers: Mapping[str, Any]) -> str:
    return ", ".join(sorted(providers)) or "none"
