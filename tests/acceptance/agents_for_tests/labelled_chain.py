"""Three agents above one another, each in a process of its own that its parent's tool starts.

    python labelled_chain.py URL NAMESPACE ENDING PLACE

The lowest one fetches a page and ends. The middle one knows its parent alone; once its tool has returned, it
ends at once or kills itself, as ENDING says (`returns`, `dies`). The top one then sends mail until that is
denied, and prints why; after `MOST_S` seconds it prints `sent`.
"""

import asyncio
import os
import signal
import sys
import time

from toolgate_orchestrator import Guard

MOST_S = 10
PATIENCE_MS = 8000
REQUIRED = ("provenance", "outgoing-mail")
BELOW = {"top": "middle", "middle": "lowest"}
ABOVE = {below: above for above, below in BELOW.items()}


async def run(url: str, namespace: str, ending: str, place: str) -> None:
    """Do what the agent at this place does."""
    settings = {"redis": url, "namespace": namespace, "patience_ms": PATIENCE_MS}
    async with Guard(agent=place, required=REQUIRED, **settings) as guard:

        @guard.tool
        async def fetch() -> str:
            return "a page"

        @guard.tool
        async def hand_on() -> str:
            words = (sys.executable, __file__, url, namespace, ending, BELOW[place])
            running = await asyncio.create_subprocess_exec(*words)
            await running.wait()
            if (place, ending) == ("middle", "dies"):
                os.kill(os.getpid(), signal.SIGKILL)
            return "done"

        @guard.tool
        async def send_mail() -> str:
            return "sent"

        at = guard.at(place, place, parent=ABOVE.get(place))
        with guard.turn(at, request="go"):
            if place == "lowest":
                await fetch()
            else:
                await hand_on()
            if place == "top":
                print(await try_to_send(send_mail), flush=True)


async def try_to_send(send_mail) -> str:
    """Send mail until that is denied. Return why."""
    until = time.monotonic() + MOST_S
    while time.monotonic() < until:
        try:
            await send_mail()
        except Exception as error:  # noqa: BLE001 - the test looks at what it says
            return str(error)
        await asyncio.sleep(0.05)
    return "sent"


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
