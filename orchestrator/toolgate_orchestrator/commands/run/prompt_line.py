"""The prompt of a chat on a terminal: line editing, history of this chat, pasting of several lines.

Enter sends, and Alt-Enter begins a new line. Ctrl-C clears the line, and Ctrl-D on an empty line leaves. The
history is kept in memory only, as prompts may hold secrets. Only this module uses prompt_toolkit.
"""

from collections.abc import Callable
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import is_dumb_terminal

HOW_TO_LEAVE = "Ctrl-D or /quit leaves."


class PromptLine:
    """Asks the person at the terminal for the next prompt."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._session: PromptSession[str] = PromptSession(
            "> ",
            prompt_continuation="  ",
            key_bindings=self._bindings(),
            enable_suspend=True,
            output=_output(),
        )

    async def next(self) -> str | None:
        """Return what was typed or pasted; None when the person leaves."""
        try:
            return await self._session.prompt_async(handle_sigint=False, set_exception_handler=False)
        except EOFError:
            return None

    def interrupt(self) -> None:
        """Handle SIGINT at the prompt like Ctrl-C."""
        if self._session.app.is_running:
            self._clear(self._session.app)

    def _clear(self, application: Application[Any]) -> None:
        """Clear the line; if it is empty, say how to leave."""
        if application.current_buffer.text:
            application.current_buffer.reset()
            application.invalidate()
        else:
            run_in_terminal(lambda: self._say(HOW_TO_LEAVE))

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("escape", "enter")
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("c-c")
        def _interrupt(event: KeyPressEvent) -> None:
            self._clear(event.app)

        return bindings


def _output() -> Output | None:
    """Return the terminal, even if stdout is redirected; None if it cannot place the cursor."""
    if is_dumb_terminal():
        return None
    output = create_output(always_prefer_tty=True)
    if isinstance(output, Vt100_Output):
        # Nothing here needs the cursor's position, and the terminal's answer with it could get mixed up with
        # keys that were typed during a turn.
        output.enable_cpr = False
    return output
