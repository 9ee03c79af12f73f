"""Shadows that would have withheld or changed a result, had they counted. No result depends on them."""

from collections.abc import Sequence

from toolgate_bus.protocol.events import Mask, ReceivedVerdict

from toolgate_orchestrator.decision.results.outgoing_result import OutgoingResult


def find_disagreeing(
    heard: Sequence[ReceivedVerdict],
    results: Sequence[OutgoingResult],
    hidden: frozenset[str],
    outcome: str,
) -> tuple[str, ...]:
    """Return the shadows among these verdicts that would have changed what became of a result.

    `results` are those that were asked about: the tool's own, and another one if a scheduler replaced it.
    `hidden` are the texts that were hidden anyway.
    """
    if outcome in ("withheld", "cancelled", "") or not any(one.shadow for one in heard):
        return ()
    asked = any(one.verdict.action == "ask_user" for one in heard if not (one.shadow or one.late))
    found = {
        one.scheduler
        for one in heard
        if one.shadow and not one.problem and _disagrees(one, results, hidden, outcome, asked=asked)
    }
    return tuple(sorted(found))


def _disagrees(
    heard: ReceivedVerdict,
    results: Sequence[OutgoingResult],
    hidden: frozenset[str],
    outcome: str,
    *,
    asked: bool,
) -> bool:
    verdict = heard.verdict
    if verdict.action == "deny":
        return True
    if verdict.action == "ask_user":
        return not asked
    if verdict.action == "replace":
        return outcome != "replaced"
    if not isinstance(verdict, Mask) or not results or (outcome == "replaced" and not heard.again):
        return False
    texts = (results[-1] if heard.again else results[0]).find_hidden(verdict)
    return not all(any(one in other for other in hidden) for one in texts)
