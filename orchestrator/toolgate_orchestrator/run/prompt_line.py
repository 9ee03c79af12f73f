"""The prompt of a chat on a terminal: line editing, history of this chat, pasting of several lines.

Enter sends, Alt-Enter begins a new line; Ctrl-C clears, Ctrl-D on an empty line leaves. The history
is kept in memory only: prompts may hold secrets. The one door to prompt_toolkit.
"""

from collections.abc import Callable

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.output.vt100 import Vt100_Output

__all__ = ["HOW_TO_LEAVE", "PromptLine"]

HOW_TO_LEAVE = "Ctrl-D or /quit leaves."


class PromptLine:
    """Asks the person at the terminal for the next prompt."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        output = create_output(always_prefer_tty=True)
        if isinstance(output, Vt100_Output):
            # Nothing here needs the cursor's position, and the answer to that question can get lost
            # among keys that were typed during a turn.
            output.enable_cpr = False
        self._session: PromptSession[str] = PromptSession(
            "> ",
            multiline=True,
            prompt_continuation="  ",
            key_bindings=self._bindings(),
            enable_suspend=True,
            output=output,
        )

    async def next(self) -> str | None:
        """What was typed or pasted; None when the person leaves."""
        try:
            return await self._session.prompt_async(handle_sigint=False, set_exception_handler=False)
        except EOFError:
            return None

    def interrupt(self) -> None:
        """Clear the line; where it is empty, say how to leave."""
        application = self._session.app
        if not application.is_running:
            return
        if application.current_buffer.text:
            application.current_buffer.reset()
            application.invalidate()
        else:
            run_in_terminal(lambda: self._say(HOW_TO_LEAVE))

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("enter")
        def _send(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @bindings.add("escape", "enter")
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("c-c")
        def _clear(event: KeyPressEvent) -> None:
            self.interrupt()

        return bindings
