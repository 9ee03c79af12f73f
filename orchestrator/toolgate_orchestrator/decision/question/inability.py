"""The denial that a verdict becomes if the caller cannot do what it wants. Pure.

It names the scheduler and its wish. The verdict is not ignored, as the LLM's own call would then run.
"""

from collections.abc import Collection
from typing import Final

from toolgate_bus.protocol.events import AskUser, Deny, Modify
from toolgate_bus.protocol.names import MAX_REASON
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_bus.telemetry.printable import shorten

from toolgate_orchestrator.decision.question.call import Ability

_MAX_PROMPT: Final = 200


def find_missing(can: Collection[Ability], call: ProposedCall, final: ProposedCall) -> list[Ability]:
    """Return the abilities that a caller lacks to run the final call instead of its own."""
    needed: list[Ability] = []
    if final.tool != call.tool:
        needed.append("tool")
    moved = final.agent is not None and final.agent != call.agent
    if moved or not ProposedCall("", final.arguments).same(ProposedCall("", call.arguments)):
        needed.append("arguments")
    return [ability for ability in needed if ability not in can]


def deny_change(scheduler: str, modify: Modify, tool: str, missing: Collection[Ability]) -> Deny | None:
    """Return the denial that a modify becomes if abilities are missing; None if none are."""
    if not missing:
        return None
    if modify.tool != tool:
        wanted = f"{modify.tool} to run in its place"
    elif modify.agent_target is not None:
        wanted = f"it given to {modify.agent_target}"
    else:
        wanted = "it to run with other arguments"
    return _deny(f"{scheduler} wanted {wanted}, which cannot be done here", modify)


def deny_ask(scheduler: str, asked: AskUser) -> Deny:
    """Return the denial that `ask_user` becomes where no person can be asked."""
    wanted = f"{scheduler} wanted a person asked about it (“{shorten(asked.prompt, _MAX_PROMPT)}”)"
    return _deny(f"{wanted}, but nobody can be asked here", asked)


def _deny(words: str, said: Modify | AskUser) -> Deny:
    reason = f"This call was not run: {words}{f', because: {said.reason}' if said.reason else ''}"
    told = shorten(reason.removesuffix("."), MAX_REASON - 1)
    return Deny(reason=f"{told}.", priority=said.priority, rule_name=said.rule_name)
