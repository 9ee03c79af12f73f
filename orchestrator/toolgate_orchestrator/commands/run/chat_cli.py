"""`toolgate chat`: a conversation with an agent from a mount plan, in one AmplifierSession.

Answers go to stdout as they are produced; the prompt, tool calls, rulings and notices to the
terminal's other stream. A script may write its prompts to stdin, a line each.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import typer
from toolgate_bus.commands.options import (
    KeysOption,
    MetricsAddressOption,
    MetricsPortOption,
    NamespaceOption,
    RedisOption,
    err_console,
)
from toolgate_bus.telemetry import tracing
from toolgate_bus.telemetry.printable import printable

from toolgate_orchestrator.commands.run.cli import PlanOption, ProviderOption, QuietOption
from toolgate_orchestrator.commands.run.live_view import LiveView
from toolgate_orchestrator.commands.run.opening import (
    OpenSession,
    in_session,
    load_plan,
    on_bus,
    read_namespace,
    serve_own_metrics,
)
from toolgate_orchestrator.commands.run.screen import Screen, ScreenOutput

if TYPE_CHECKING:
    from toolgate_orchestrator.commands.run.prompt_line import PromptLine

HELP = """\
Enter sends, Alt-Enter begins a new line, the arrow keys find what you typed before.
Ctrl-C cancels what the agent is doing: once, the running tool finishes; twice, at once.
/tools   what the agent can do
/help    this
/quit    leave, as Ctrl-D does"""

_COMMAND = re.compile(r"/[a-z]+")
_CHUNK = 65_536
_MAX_LINE = 1 << 20
_CANCEL_S = 0.5
"""Longest wait for hooks on a cancellation, in seconds, before open questions are answered with no."""


class PipedLines:
    """Lines of a file or pipe. A line above 1 MiB comes in parts. A negative descriptor has no lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read = bytearray()
        self._ended = descriptor < 0

    async def next(self) -> str | None:
        """Return the next line; None at the end of the file."""
        while not self._ended and b"\n" not in self._read and len(self._read) < _MAX_LINE:
            chunk = await self._chunk()
            self._ended = not chunk
            self._read += chunk
        if not self._read:
            return None
        end = self._read.find(b"\n", 0, _MAX_LINE) + 1 or min(len(self._read), _MAX_LINE)
        line = bytes(self._read[:end])
        del self._read[:end]
        return line.decode("utf-8", "replace").rstrip("\r\n")

    def interrupt(self) -> None:
        """Do nothing: a signal ends a script as any command, and nobody is at the prompt."""

    async def _chunk(self) -> bytes:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, readable.set)
        except (OSError, ValueError):  # a plain file or /dev/null is always readable
            return os.read(self._descriptor, _CHUNK)
        try:
            await readable.wait()
            return os.read(self._descriptor, _CHUNK)
        finally:
            loop.remove_reader(self._descriptor)


class TurnControl:
    """Meaning of Ctrl-C in a chat: it ends the turn, never the program.

    no turn runs ─▶ the prompt's affair
    1st          ─▶ graceful: running tools finish, open questions are answered with no
    2nd          ─▶ at once
    later ones   ─▶ a hint how to leave, for a loop that does not react
    """

    def __init__(self, opened: OpenSession, at_prompt: Callable[[], None]) -> None:
        self._opened, self._at_prompt = opened, at_prompt
        self._coordinator = opened.session.coordinator
        self._presses: int | None = None
        self._requests: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Make Ctrl-C end the turn during this block; then clear the cancellation in the kernel."""
        self._presses = 0
        try:
            yield
        finally:
            self._presses = None
            if self._requests:
                await asyncio.wait(self._requests)
            self._coordinator.cancellation.reset()

    def press(self) -> None:
        """Handle Ctrl-C or SIGINT."""
        if self._presses is None:
            self._at_prompt()
            return
        self._presses += 1
        if self._presses > 2:
            self._opened.view.notice("The turn has not ended yet. Ctrl-\\ ends the program.", "yellow")
            return
        immediate = self._presses == 2
        names = printable(", ".join(self._opened.listener.active_tools))
        waits = f"cancelling: {names} finishes first" if names else "cancelling"
        promise = "stopping" if immediate else f"{waits}; Ctrl-C again stops at once"
        self._opened.view.notice(promise, "yellow")
        task = asyncio.create_task(self._cancel(immediate))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _cancel(self, immediate: bool) -> None:
        """Cancel first, then answer open questions, so that the turn does not continue with that answer."""
        request = asyncio.ensure_future(self._coordinator.request_cancel(immediate=immediate))
        await asyncio.wait([request], timeout=_CANCEL_S)
        self._opened.approvals.refuse()
        await request


def chat(
    ctx: typer.Context,
    plan: PlanOption,
    provider: ProviderOption = None,
    quiet: QuietOption = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_address: MetricsAddressOption = "127.0.0.1",
) -> None:
    """Talk with an agent; schedulers on the bus rule on its tool calls: toolgate chat --plan plan.yaml

    If a call needs your approval, or a scheduler holds it for a person, the chat asks you in place. Ctrl-C
    cancels what the agent is doing: once, the running tool finishes; twice, at once. Ctrl-D leaves. /help
    tells more.

    If stdin is not a terminal, each of its lines is a prompt:

        printf 'Hello\\nAnd in French?\\n' | toolgate chat --plan plan.yaml

    Exit codes: 0 you left, or all prompts were answered; 1 a turn of a script failed, or schedulers denied a
    request to the LLM; 2 the plan or an option
    is wrong; 130 and 143 by a signal.
    """
    view = LiveView(Screen(ScreenOutput(sys.stdout), err_console))
    asked = load_plan(plan, provider)
    with (
        tracing.configure("toolgate-chat"),
        serve_own_metrics(metrics_port, metrics_address),
        on_bus(asked, redis, read_namespace(ctx, namespace), keys) as laid,
    ):
        good = in_session(laid, view, _converse, quiet=quiet)
    if not good:
        raise typer.Exit(1)


async def _converse(opened: OpenSession) -> bool:
    """Run the conversation; return False if a script's turn failed."""
    person = sys.stdin is not None and sys.stdin.isatty()
    prompts: PromptLine | PipedLines = PipedLines(sys.stdin.fileno() if sys.stdin else -1)
    if person:
        from toolgate_orchestrator.commands.run import prompt_line  # scripts do not need it

        prompts = prompt_line.PromptLine(opened.view.notice)
    control = TurnControl(opened, prompts.interrupt)
    conversation = ChatConversation(opened, prompts, control)
    if not person:
        await conversation.run()
        return not conversation.failed
    loop_name = opened.plan.orchestrator["module"]
    opened.view.notice(f"{loop_name} is listening. Type /help for help, Ctrl-D to leave.")
    loop = asyncio.get_running_loop()
    # SIGINT goes to the chat, which ends turns; SIGTERM still ends the program.
    loop.add_signal_handler(signal.SIGINT, control.press)
    try:
        await conversation.run()
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    return True


class ChatConversation:
    """A conversation: takes prompts, runs their turns, answers commands. One word after a slash is a
    command."""

    def __init__(self, opened: OpenSession, prompts: "PromptLine | PipedLines", control: TurnControl) -> None:
        self._opened, self._prompts, self._control = opened, prompts, control
        self.failed = False
        """True if any turn ended in an error, or was refused a request to its LLM."""
        self._over = False
        self._say = opened.view.notice
        self._commands: dict[str, Callable[[], None]] = {
            "/help": lambda: self._say(HELP),
            "/tools": lambda: self._say(self._tools()),
            "/quit": self._leave,
            "/exit": self._leave,
        }

    async def run(self) -> None:
        """Run until the prompts end or the person leaves."""
        while not self._over:
            prompt = await self._prompts.next()
            if prompt is None:
                return
            name = prompt.strip()
            if name in self._commands:
                self._commands[name]()
            elif _COMMAND.fullmatch(name):
                self._say(f"{name} is unknown. Commands: {', '.join(self._commands)}.")
            elif name:
                async with self._control.turn():
                    ended = await self._opened.one_turn(prompt)
                if ended.status == "cancelled":
                    self._say("cancelled")
                self.failed = self.failed or ended.problem is not None or ended.is_refused

    def _leave(self) -> None:
        self._over = True

    def _tools(self) -> str:
        lines = []
        for name, tool in (self._opened.session.coordinator.get("tools") or {}).items():
            first, _, _ = str(getattr(tool, "description", "")).strip().partition("\n")
            lines.append(f"{name}  {first}")
        return printable("\n".join(lines)) or "The plan mounts no tools."
