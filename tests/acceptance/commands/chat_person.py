"""A person at a pseudo-terminal, and Amplifier modules for the agent that they talk with."""

import os
import re
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CTRL_C, CTRL_D, UP, ESCAPE = "\x03", "\x04", "\x1b[A", "\x1b"
SEQUENCES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])|\x08")
AT_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.executable, [sys.executable, '-m', 'toolgate_bus.commands.main', *sys.argv[1:]])"
)
MODULES = """
import asyncio, os
from pathlib import Path
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, ToolResult

HERE = Path(__file__).parent

class Slow:
    name = "slow"
    description = "Waits until it is told to go on.\\nNot much else."
    input_schema = {"type": "object"}

    async def execute(self, input):
        (HERE / "started").touch()
        while not (HERE / "go").exists():
            await asyncio.sleep(0.01)
        (HERE / "finished").touch()
        return ToolResult(output="slept well")

class Echo:
    name = "echo"

    def get_info(self):
        return ProviderInfo(id="echo", display_name="Echo")

    async def list_models(self):
        return []

    def parse_tool_calls(self, response):
        return []

    async def complete(self, request, **options):
        said = [message.content for message in request.messages if message.role == "user"]
        return ChatResponse(content=[TextBlock(text=f"{len(said)}: [{ascii(said[-1])}]")])

class Stubborn:
    async def execute(self, prompt, context, providers, tools, hooks, **more):
        await hooks.emit("tool:pre", {"tool": "stubborn", "input": {}})
        while not (HERE / "go").exists():
            await asyncio.sleep(0.01)
        await hooks.emit("tool:post", {"tool": "stubborn", "result": "some text"})
        return f"heard {prompt}"

async def stubborn(coordinator, config=None):
    await coordinator.mount("orchestrator", Stubborn())

async def slow(coordinator, config=None):
    await coordinator.mount("tools", Slow(), name="slow")
    return (HERE / "cleaned").touch

async def echo(coordinator, config=None):
    await coordinator.mount("providers", Echo(), name="echo")
"""


class Modules:
    """The distribution of the modules, and what the tool and the loop are told and tell."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "chat_modules.py").write_text(MODULES)
        info = directory / "chat_modules-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chat-modules\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            "[amplifier.modules]\ntool-slow = chat_modules:slow\nprovider-echo = chat_modules:echo\n"
            "loop-stubborn = chat_modules:stubborn\n"
        )

    @property
    def path(self) -> str:
        """PYTHONPATH with it."""
        return os.pathsep.join([str(self.directory), *filter(None, [os.environ.get("PYTHONPATH")])])

    def go(self) -> None:
        """Let the slow tool finish."""
        (self.directory / "go").touch()

    @property
    def started(self) -> bool:
        """Whether the slow tool is running; its line is shown before it is."""
        return (self.directory / "started").exists()

    @property
    def cleaned(self) -> bool:
        """Whether the session was closed, and its modules with it."""
        return (self.directory / "cleaned").exists()

    @property
    def finished(self) -> bool:
        """Whether the slow tool came to its end."""
        return (self.directory / "finished").exists()


class Person:
    """Somebody at the other end of the terminal."""

    def __init__(self, screen: int, running: Any) -> None:
        self.screen, self.running = screen, running
        self.raw = ""
        self._seen = 0

    @property
    def shown(self) -> str:
        """Everything that was shown so far, without the sequences that only place it."""
        return SEQUENCES.sub("", self.raw).replace("\r", "")

    def types(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def sees(self, text: str, within: float = 20.0) -> str:
        """Wait until this is shown, after what was seen before; gives what came up to it."""
        deadline = time.monotonic() + within
        while (found := self.shown.find(text, self._seen)) < 0:
            if not self._more(deadline - time.monotonic()):
                pytest.fail(f"never saw {text!r} after {self._seen}: {self.shown!r}")
        before, self._seen = self.shown[self._seen : found], found + len(text)
        return before

    def watches_until(self, happened: Callable[[], bool], within: float = 20.0) -> None:
        """Read the screen until something that does not show there has happened."""
        deadline = time.monotonic() + within
        while not happened():
            if time.monotonic() > deadline:
                pytest.fail(f"never happened: {self.shown!r}")
            self._more(0.02)

    def asks(self, prompt: str) -> None:
        """Wait for the prompt line and send this."""
        self.sees(">")
        self.types(f"{prompt}\r")

    def presses_until(self, key: str, text: str) -> None:
        """Press a key, again if nothing comes of it (the history is loaded behind the prompt)."""
        for _ in range(20):
            self.types(key)
            if self._more(1.0) and text in self.shown[self._seen :]:
                return
        pytest.fail(f"{key!r} never brought {text!r}: {self.shown!r}")

    def leaves(self) -> int:
        """Ctrl-D at the prompt; the exit code."""
        self.sees(">")
        self.types(CTRL_D)
        return self.ended()

    def ended(self) -> int:
        """Read to the end; the exit code."""
        while self._more(20.0):
            pass
        code: int = self.running.wait()
        return code

    def _more(self, within: float) -> bool:
        if within <= 0 or not select.select([self.screen], [], [], within)[0]:
            return False
        try:
            read = os.read(self.screen, 65_536)
        except OSError:  # EIO: nobody has the terminal any more
            return False
        self.raw += read.decode("utf-8", "replace")
        return bool(read)
