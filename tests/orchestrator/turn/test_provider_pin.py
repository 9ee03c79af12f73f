"""The pin says which mounted provider answers a conversation, and never lets a history change vendors."""

from typing import Any

import pytest
from amplifier_core import ProviderInfo
from four_loops import LOOPS
from toolgate_orchestrator.turn.llm.provider_pin import ProviderPin

pytestmark = pytest.mark.pure


class Vendor:
    """As much of a provider as is asked about its vendor."""

    def __init__(self, vendor: str | None = "anthropic", priority: int = 100) -> None:
        self.vendor, self.priority = vendor, priority

    def get_info(self) -> ProviderInfo:
        if self.vendor is None:
            raise RuntimeError("nobody knows")
        return ProviderInfo(id=self.vendor, display_name="provider of a test")


class Mounted:
    """A coordinator's providers."""

    def __init__(self, **providers: Vendor) -> None:
        self.providers = providers

    def get(self, point: str) -> Any:
        return self.providers if point == "providers" else None


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_pinned_provider_answers_until_it_is_unpinned(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    first, second = llm(), llm([says("second")])
    second.name, first.priority, second.priority = "other", 1, 99
    async with agent(llm=first, loop=loop) as a:
        await a.session.coordinator.mount("providers", second, name="other")
        second.get_info = first.get_info
        pin = a.session.coordinator.get_capability("conversation.provider_pin")
        assert (pin.available(), pin.current()) == (["llm", "other"], None)
        assert pin.pin("other") == "other"
        assert await a.ask() == "second"
        assert (pin.unpin(), pin.unpin()) == ("other", None)
        assert await a.ask() == "done"


async def test_a_pinned_provider_that_is_gone_is_an_error_and_nobody_answers_in_its_place(
    agent: Any, llm: Any
) -> None:
    async with agent(llm=llm()) as a:
        coordinator = a.session.coordinator
        coordinator.get_capability("conversation.provider_pin").pin("llm")
        await coordinator.unmount("providers", "llm")
        await coordinator.mount("providers", llm(), name="survivor")
        with pytest.raises(
            RuntimeError, match=r"conversation\.provider_pin.*'llm'.*not mounted; mounted: survivor"
        ):
            await a.ask()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "name a provider"),
        ("nowhere", "not mounted; mounted: a, b, g, mute"),
        ("g", r"anthropic.*gemini.*not supported yet.*could not go on.*of the same vendor: a, b$"),
        ("mute", "does not tell its vendor: get_info"),
    ],
)
def test_what_cannot_be_pinned_is_said_and_leaves_the_pin_as_it_is(name: str, why: str) -> None:
    pin = ProviderPin(
        Mounted(a=Vendor(priority=1), b=Vendor("Anthropic"), g=Vendor("gemini"), mute=Vendor(None))
    )
    pin.pin("b")
    with pytest.raises(ValueError, match=why):
        pin.pin(name)
    assert pin.current() == "b"


def test_whoever_answers_already_can_be_pinned_without_a_vendor() -> None:
    assert ProviderPin(Mounted(mute=Vendor(None))).pin("mute") == "mute"


def test_a_stale_pin_is_taken_off_before_another_is_put_on() -> None:
    mounted = Mounted(a=Vendor(), b=Vendor())
    pin = ProviderPin(mounted)
    pin.pin("b")
    del mounted.providers["b"]
    with pytest.raises(ValueError, match=r"unpin\(\)"):
        pin.pin("a")
    assert pin.unpin() == "b"
    assert pin.pin("a") == "a"
