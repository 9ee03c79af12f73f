"""Answers of hooks are read as they come, also from a registry that is not the kernel's."""

from types import SimpleNamespace
from typing import Any

import pytest
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.injections import Injections

pytestmark = pytest.mark.pure


class Terse:
    """A registry whose answers have an action, a reason and data, and nothing else."""

    def __init__(self, action: str, reason: str | None = None) -> None:
        self._answer = SimpleNamespace(action=action, reason=reason, data=None)

    async def emit(self, event: str, payload: dict[str, Any]) -> Any:
        return self._answer


@pytest.mark.parametrize(("action", "denied"), [("continue", None), ("pass", None), ("deny", "no")])
async def test_an_answer_without_a_message_for_the_user_is_read(action: str, denied: str | None) -> None:
    hooks = Hooks(Terse(action, denied), SimpleNamespace(), Injections())
    assert (await hooks.consult("tool:pre", {})).denied == denied
