"""Schedulers that answer as the call they are asked about tells them to.

The argument `rules` maps a scheduler's name to what it does: `{"action": "deny", "reason": …}` and
the other verdicts, or `{"do": "hang" | "raise" | "nonsense" | "die"}`; `{"do": "set", "arguments": …}` has
these arguments in the call, whatever else is in it; `after` waits first. Without a rule they say continue. A
modify's own arguments bring the rules for its verify phase.

Every question is noted in the file that TOOLGATE_TEST_LOG names, one line each: what, scheduler, pid,
decision id, phase, tool.
"""

import asyncio
import os
import signal
from pathlib import Path

from toolgate_schedulers import AskUser, Continue, Deny, Hold, Modify, ToolSelecting, scheduler

VERDICTS = {"continue": Continue, "deny": Deny, "modify": Modify, "ask_user": AskUser, "hold": Hold}


def note(what, name, call):
    """One line of the log; a single short write to a file opened for appending is atomic."""
    if "TOOLGATE_TEST_LOG" in os.environ:
        line = f"{what} {name} {os.getpid()} {call.id} {call.phase} {call.tool_name}\n"
        with Path(os.environ["TOOLGATE_TEST_LOG"]).open("a") as log:
            log.write(line)


def verdict(rule):
    """The verdict that a rule spells out."""
    fields = {key: value for key, value in rule.items() if key not in ("action", "after", "then")}
    return VERDICTS[rule["action"]](**fields)


async def obey(name, call):
    """Answer by the call's rule for this scheduler."""
    note("asked", name, call)
    rule = call.tool_input.get("rules", {}).get(name, {"action": "continue"})
    await asyncio.sleep(rule.get("after", 0))
    match rule.get("do"):
        case "hang":
            await asyncio.sleep(3600)
        case "raise":
            raise RuntimeError("told to")
        case "nonsense":
            return "yes, why not"
        case "set":
            wanted = {**call.tool_input, **rule["arguments"]}
            note("decided", name, call)
            return Continue() if wanted == call.tool_input else Modify(tool=call.tool_name, arguments=wanted)
        case "die":
            die_once(rule["mark"])
            return Continue()
    note("decided", name, call)
    return verdict(rule)


def die_once(mark):
    """kill -9 of oneself, the first time that anybody gets here."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@scheduler(name="alpha", priority=10)
async def alpha(call: ToolSelecting):
    """The one with the lowest priority."""
    return await obey("alpha", call)


@scheduler(name="beta", priority=20)
async def beta(call: ToolSelecting):
    """The one in the middle."""
    return await obey("beta", call)


@scheduler(name="watcher", priority=99, shadow=True)
async def watcher(call: ToolSelecting):
    """One that is never merged."""
    return await obey("watcher", call)


@scheduler(name="gamma", priority=30)
async def gamma(call: ToolSelecting):
    """The one with the highest priority; it can hold, and says how that ended."""
    first = await obey("gamma", call)
    yield first
    if isinstance(first, Hold):
        final = call.tool_input["rules"]["gamma"]["then"]
        try:
            await asyncio.sleep(final.get("after", 0))
        except asyncio.CancelledError:
            note("withdrawn", "gamma", call)
            raise
        yield verdict(final)


class Giver:
    """One that is asked last, about the call that is about to run."""

    name, priority, tools, phases = "giver", 5, ("*",), ("admit",)

    async def decide(self, call: ToolSelecting):
        """Answer by the call's rule."""
        return await obey("giver", call)
