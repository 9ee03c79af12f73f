"""The screen of `toolgate demo`: at most 23 lines of 80 columns, written from top to bottom.

Nothing moves the cursor, so that a pipe, a dumb terminal and a screen get the same lines.
"""

import asyncio
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.text import Text
from toolgate_bus.commands.terminal import Terminal
from toolgate_bus.protocol.events import Decision
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.telemetry.printable import visible

from toolgate_orchestrator.commands.demo.job import CURRENCY, ROLES
from toolgate_orchestrator.commands.demo.keyboard import Keyboard

WIDTH: Final = 80
NEXT_STEPS: Final = (
    ("write an agent:", "toolgate init sandbox && cd sandbox"),
    ("start its rules:", "toolgate scheduler run policy --config rules.yaml"),
    ("in another terminal:", 'cd sandbox && toolgate run "Tidy up" --plan plan.yaml'),
)
"""Commands to try after the demo, each with its purpose."""
_ANSWER_S: Final = 5.0
"""Seconds that a person has to answer, before the demo answers for them."""
_CALL: Final = 31
"""Columns of a call; its outcome stands right of it."""
_BAR: Final = 15
"""Columns of the bar that shows money."""
_MARGIN: Final = "   "


class DemoView:
    """Screen of the demo. It moves at the pace of a reader, or waits for Enter with `step`."""

    def __init__(
        self, console: Terminal, keyboard: Keyboard, *, pace_s: float = 0.0, step: bool = False
    ) -> None:
        self._console, self._keyboard, self._pace_s, self._step = console, keyboard, pace_s, step
        self._calls = self._spent = 0
        self._answer = ""
        self._is_line_open = False

    def show_title(self) -> None:
        """Say what this is, before anything is started."""
        self._line("Toolgate demo: three schedulers decide on an agent's tool calls before they run", "bold")

    async def show_opening(self, processes: Sequence[tuple[str, int]]) -> None:
        """Show each process that takes part: name, process id, role."""
        for name, pid in processes:
            self._line(
                Text.assemble((f"  {visible(name):<10} ", "cyan"), f"pid {pid:<7} {ROLES.get(name, '')}")
            )
        self._line()
        await self._wait(1.5)

    async def show_call(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Show a call that the LLM chose."""
        self._calls += 1
        self._put(Text.assemble(f"{self._calls}  ", (f"{_short_call(tool, arguments):<{_CALL}} ", "bold")))
        await self._wait(1.0)

    async def request_approval(
        self,
        prompt: str,
        options: Sequence[str],
        timeout: float,  # noqa: ASYNC109 - the kernel's protocol
        default: str,
    ) -> str:
        """Ask the person about the call on the screen; the demo says yes if nobody answers."""
        self._line("ASKS A PERSON", "bold magenta")
        self._put(f"{_MARGIN}policy: {visible(prompt.partition(chr(10))[0])} ")
        if not self._keyboard.is_there:
            self._line("(no terminal: the demo answers)")
            self._answer = "The demo says yes."
            return options[0]
        seconds = None if self._step else _ANSWER_S * self._pace_s
        self._keyboard.forget_keys()
        self._put("Press y or n" + (": " if seconds is None else f" (y after {seconds:g} s): "))
        key = await self._keyboard.press("yn", seconds)
        self._line(key or "y")
        self._answer = {"y": "You say yes.", "n": "You say no."}.get(key, "No answer: the demo says yes.")
        return options[-1] if key == "n" else options[0]

    async def show_decision(self, decision: Decision, spent: int, limit: int) -> None:
        """Show the outcome of a call, its scheduler and the reason; `spent` and `limit` are in millionths."""
        outcome, why = _outcome(decision)
        answer, self._answer = self._answer, ""
        rows = [Text.assemble(f"{_MARGIN}{answer:<{_CALL}} ", outcome) if answer else outcome]
        if why and not answer:
            wrapped = textwrap.wrap(
                visible(why), WIDTH, initial_indent=_MARGIN, subsequent_indent=_MARGIN * 2
            )
            rows += map(Text, wrapped)
        if spent != self._spent:
            self._spent = spent
            rows.append(_money(spent, limit))
        for row in rows[:-1]:
            self._line(row)
        if self._step:
            self._keyboard.forget_keys()
            self._put(rows[-1].append("  [Enter]", style="dim"))
            await self._keyboard.press("\n", None)
            self._line()
        else:
            self._line(rows[-1])
            await self._wait(1.2)

    def show_next_steps(self, activate: str) -> None:
        """Show commands to try; `activate` is the line that puts `toolgate` on PATH, if one is needed."""
        self._line()
        after = f", after  {activate}" if activate else ""
        self._line(f"The demo has ended its processes. Try next{after}:", "bold")
        for purpose, command in NEXT_STEPS:
            self._line(Text.assemble(f"  {purpose:<21} ", (command, "bold")))

    def end_line(self) -> None:
        """End an unfinished line, for a demo that breaks off."""
        if self._is_line_open:
            self._line()

    async def _wait(self, paces: float) -> None:
        await asyncio.sleep(paces * self._pace_s)

    def _put(self, text: str | Text) -> None:
        self._console.print(text, markup=False, soft_wrap=True, end="")
        self._is_line_open = True

    def _line(self, text: str | Text = "", style: str | None = None) -> None:
        self._console.print(text, style=style, markup=False)
        self._is_line_open = False


def _outcome(decision: Decision) -> tuple[Text, str]:
    """Return the outcome of the call, and the scheduler behind it with its reason."""
    first, _, _ = (decision.reason or decision.why).partition(". ")
    why = f"{decision.scheduler}: {first.rstrip('.')}."
    if not decision.allowed:
        return Text("DENIED", style="bold red"), why
    if decision.outcome == "modify":
        runs = _short_call(decision.tool_name, decision.tool_input)
        return Text.assemble(("REPLACED", "bold yellow"), f" by {runs}"), why
    return Text.assemble(("RUNS", "bold green"), "" if decision.asked_user else ": all three allow it"), ""


def _money(spent: int, limit: int) -> Text:
    filled = round(_BAR * spent / limit)
    amounts = f"{format_amount(spent)} of {format_amount(limit, CURRENCY)}"
    return Text.assemble(
        f"{_MARGIN}cost-aware: {amounts} spent  ", ("#" * filled, "yellow"), "." * (_BAR - filled)
    )


def _short_call(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the tool and its shortest argument: a path or an address rather than a text."""
    return visible(f"{tool} {min(map(str, arguments.values()), key=len, default='')}")
