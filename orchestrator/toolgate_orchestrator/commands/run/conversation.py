"""A chat: one prompt after another into one session, until nobody has more to say.

A line that is one word after a slash is a command; everything else is for the agent.
"""

import re
from collections.abc import Callable

from toolgate_bus.telemetry.printable import printable

from toolgate_orchestrator.commands.run.opening import Opened
from toolgate_orchestrator.commands.run.prompts import Prompts
from toolgate_orchestrator.commands.run.turn_control import TurnControl

__all__ = ["Conversation"]

HELP = """\
Enter sends, Alt-Enter begins a new line, the arrow keys find what you typed before.
Ctrl-C cancels what the agent is doing: once, the running tool finishes; twice, at once.
/tools   what the agent can do
/help    this
/quit    leave, as Ctrl-D does"""

_COMMAND = re.compile(r"/[a-z]+")


class Conversation:
    """Takes prompts, runs their turns, answers commands."""

    def __init__(self, opened: Opened, prompts: Prompts, control: TurnControl) -> None:
        self._opened, self._prompts, self._control = opened, prompts, control
        self.failed = False
        """Whether any turn ended in an error."""
        self._over = False
        self._commands: dict[str, Callable[[], None]] = {
            "/help": lambda: self._say(HELP),
            "/tools": lambda: self._say(self._tools()),
            "/quit": self._leave,
            "/exit": self._leave,
        }

    async def run(self) -> None:
        """Go on until the prompts end, or one says so."""
        while not self._over:
            prompt = await self._prompts.next()
            if prompt is None:
                return
            if _COMMAND.fullmatch(prompt.strip()):
                self._command(prompt.strip())
            elif prompt.strip():
                await self._turn(prompt)

    async def _turn(self, prompt: str) -> None:
        async with self._control.turn():
            ended = await self._opened.one_turn(prompt)
        if ended.status == "cancelled":
            self._say("cancelled")
        self.failed = self.failed or ended.problem is not None

    def _command(self, name: str) -> None:
        command = self._commands.get(name)
        if command is None:
            self._say(f"There is no {name}; there are: {', '.join(self._commands)}.")
        else:
            command()

    def _leave(self) -> None:
        self._over = True

    def _tools(self) -> str:
        tools = self._opened.session.coordinator.get("tools") or {}
        lines = [f"{name}  {_first_line(getattr(tool, 'description', ''))}" for name, tool in tools.items()]
        return printable("\n".join(lines)) or "The plan mounts no tools."

    def _say(self, text: str) -> None:
        self._opened.view.notice(text)


def _first_line(text: object) -> str:
    return str(text).strip().partition("\n")[0]
