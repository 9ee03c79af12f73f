"""How the modules of a sub-agent's session are found: ours without a look at all that is installed."""

from typing import Any

import pytest
from amplifier_core import AmplifierSession
from toolgate_orchestrator.commands.host.installed_modules import offers_of
from toolgate_orchestrator.commands.host.sub_agents import InstalledModuleLoader

pytestmark = pytest.mark.pure

PLAN = {
    "session": {"orchestrator": "loop-events", "context": "context-simple"},
    "providers": [{"module": "provider-scripted", "config": {"turns": [{"text": "hello"}]}}],
    "tools": [{"module": "tool-calculator"}],
}


async def test_a_session_of_our_own_modules_is_set_up_without_a_look_at_what_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offers = offers_of()

    def look(**_: Any) -> Any:
        raise AssertionError("looked at everything that is installed")

    session = AmplifierSession(PLAN)
    session.coordinator.loader = InstalledModuleLoader(session.coordinator, offers)
    monkeypatch.setattr("importlib.metadata.entry_points", look)
    async with session:
        assert await session.execute("hi") == "hello"
        assert list(session.coordinator.get("tools")) == ["calculate"]


@pytest.mark.parametrize("module", ["tool-nowhere", "tool-calculator"])
async def test_what_is_not_ours_alone_is_left_to_the_kernel(module: str) -> None:
    offers = {
        name: {**points, "elsewhere": next(iter(points.values()))} for name, points in offers_of().items()
    }
    session = AmplifierSession(PLAN)
    loader = InstalledModuleLoader(session.coordinator, offers)
    asked = []

    async def load(_: Any, module_id: str, *others: Any) -> None:
        asked.append(module_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("amplifier_core.loader.ModuleLoader.load", load)
        await loader.load(module)
    assert asked == [module]
