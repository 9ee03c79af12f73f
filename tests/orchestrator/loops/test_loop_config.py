"""The config of loop-events: what is wrong in it is named, and nothing is mounted."""

from typing import Any

import pytest
from amplifier_core import testing
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.loops.events import LoopEvents, mount
from toolgate_orchestrator.turn.session_tree import enter_lineage, place_of

pytestmark = pytest.mark.pure


def coordinator_of_tests() -> Any:
    make: Any = testing.MockCoordinator
    return make()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (
            {"max_iteration": 3},
            "max_iteration: unknown key; allowed: .*default_provider, .*; did you mean max_iterations",
        ),
        ({"max_iterations": 0}, "max_iterations: .*at least 1"),
        ({"max_iterations": "many"}, "max_iterations"),
        ({"extended_thinking": "perhaps"}, "extended_thinking"),
        ({"parallel_tools": True}, "parallel_tools: .*one after another.*; loop-basic"),
        ({"toolgate": {"patience": 3}}, "toolgate.patience"),
        ({"toolgate": {"required": ["in-process"]}}, "toolgate.required"),
        ({"toolgate": {"redact": {"patterns": ["("]}}}, "toolgate.redact.patterns"),
    ],
)
async def test_what_is_wrong_is_refused_by_name(config: dict[str, Any], named: str) -> None:
    coordinator = coordinator_of_tests()
    with pytest.raises(ConfigError, match=named):
        await mount(coordinator, config)
    assert coordinator.mount_points.get("orchestrator") is None


async def test_a_server_address_that_can_never_work_is_refused_when_mounting() -> None:
    with pytest.raises(ConfigError):
        await mount(coordinator_of_tests(), {"toolgate": {"redis": "http://nowhere"}})


async def test_a_session_names_the_wrong_key(agent: Any) -> None:
    with pytest.raises(RuntimeError, match="max_iteration: unknown key"):
        async with agent(config={"max_iteration": 3}):
            pass


def test_everything_documented_is_accepted() -> None:
    loop = LoopEvents(
        {
            "max_iterations": 20,
            "default_provider": "anthropic",
            "extended_thinking": True,
            "parallel_tools": False,
            "toolgate": {"namespace": "team", "labels": {"env": "test"}, "required": ["policy"]},
        }
    )
    assert loop.settings.max_iterations == 20
    assert loop.settings.toolgate.required == ("policy",)


def test_none_of_the_settings_is_needed() -> None:
    settings = LoopEvents().settings
    assert (settings.max_iterations, settings.default_provider, settings.extended_thinking) == (
        -1,
        None,
        False,
    )


async def test_the_mounted_loop_is_closed_by_the_cleanup_that_mount_gives() -> None:
    coordinator = coordinator_of_tests()
    cleanup = await mount(coordinator, {})
    assert isinstance(coordinator.mount_points["orchestrator"], LoopEvents)
    await cleanup()


def test_sub_agents_know_the_root_of_their_tree() -> None:
    class Coordinator:
        def __init__(self, session_id: str, parent_id: str | None) -> None:
            self.session_id, self.parent_id = session_id, parent_id

    root, child, grandchild = Coordinator("r", None), Coordinator("c", "r"), Coordinator("g", "c")
    entered = [enter_lineage(each, None) for each in (root, child, grandchild)]
    assert [place_of(each).root for each in (root, child, grandchild)] == ["r", "r", "r"]
    for _, leave in entered:
        leave()
    assert place_of(grandchild).root == "c"
