"""Schedulers that rule on results as the call tells them to.

The argument `rules` maps a scheduler's name to what it does with the result: `"mask TEXT"`, `"replace TEXT"`,
`"deny"`, `"ask"`, `"hang"`, `"hold"` (and no answer), `"continue"`; a list of two has first what it does,
then what it does when it is asked again. Every question is noted as in `obedient`.
"""

import asyncio

from obedient import note
from toolgate_schedulers import AskUser, Continue, Deny, Hold, Mask, MaskedPart, Replace, scheduler


def rule_of(name, call):
    """What this scheduler is to do now."""
    rule = call.tool_input.get("rules", {}).get(name, "continue")
    return rule[call.again] if isinstance(rule, list) else rule


async def rule(name, call):
    """Answer by the call's rule for this scheduler."""
    note("again" if call.again else "asked", name, call)
    what, _, text = rule_of(name, call).partition(" ")
    if what == "hang":
        await asyncio.sleep(3600)
    if what == "mask" and (at := call.result.find(text)) >= 0:
        return Mask(parts=[MaskedPart("", at, at + len(text), "secret")], reason=f"found {text}")
    if what == "replace":
        return Replace(result=text)
    if what == "deny":
        return Deny(reason="it is not for you")
    return AskUser(prompt="show it?") if what == "ask" else Continue()


@scheduler(name="left", phases=["result"])
async def left(call):
    """One."""
    return await rule("left", call)


@scheduler(name="right", priority=5, phases=["result"])
async def right(call):
    """Another, of a higher priority."""
    return await rule("right", call)


@scheduler(name="holder", phases=["result"])
async def holder(call):
    """One that may hold."""
    note("asked", "holder", call)
    if rule_of("holder", call) == "hold":
        yield Hold(seconds=0.3)
        await asyncio.sleep(3600)
    yield Continue()


@scheduler(name="calls_only")
async def calls_only(call):
    """One that rules on calls alone."""
    note("asked", "calls_only", call)
    return Continue()
