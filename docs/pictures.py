"""Draw the pictures that show real parts at work: docs/pictures/{demo,explained,tree,slots}.svg.

    python docs/pictures.py              all of them, in about a minute
    python docs/pictures.py demo tree    these

Each shows what a command prints while real schedulers and agents run on a private server. Ids and times
differ each time. They are replaced, so that a picture changes only if its command has changed. A picture
follows the reader's colours and fetches nothing. The other pictures of the folder are drawn by hand.
"""

import asyncio
import contextvars
import fcntl
import io
import itertools
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any, Final

from rich.terminal_theme import TerminalTheme
from rich.text import Text
from toolgate_bus.commands.terminal import Terminal
from toolgate_bus.server.embedded import private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator import Call, Caller, Guard
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes

FOLDER: Final = Path(__file__).resolve().with_name("pictures")
TOOLGATE: Final = (sys.executable, "-m", "toolgate_bus")
ROWS: Final = 24
COLUMNS: Final = 80
LOOK_S: Final = 30.0
"""Longest wait until a command shows what the picture is about, in seconds."""
RULES: Final = "rules:\n  - {tools: delete_file, action: deny, reason: deleting is for people}\n"
POOLS: Final = """\
pools:
  - name: search
    tools: web_search
    limit: 4
    wait_s: 300
    share: {by: "label:team", weights: {gold: 2, silver: 1}, default: 1}
"""
ASKED_BY: Final = ("gold", "silver", "gold", "bronze", "gold", "gold", "silver", "bronze", "gold", "silver")
"""Teams of the calls that want a slot, in their order."""

_ANSI: Final = [(0, 0, 0), (176, 32, 32), (21, 115, 66), (138, 94, 0)]
_ANSI += [(30, 80, 180), (130, 40, 140), (0, 105, 120), (70, 84, 100)]
_BRIGHT: Final = [(139, 148, 158), (255, 138, 128), (111, 211, 155), (228, 186, 92)]
_BRIGHT += [(134, 168, 255), (219, 150, 230), (104, 205, 220), (230, 235, 241)]
LIGHT: Final = TerminalTheme((255, 255, 255), (23, 33, 43), _ANSI, _ANSI)
DARK: Final = TerminalTheme((22, 27, 34), (230, 235, 241), _BRIGHT, _BRIGHT)
SCREEN: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}" \
role="img" aria-labelledby="title desc">
  <title id="title">@TITLE@</title>
  <desc id="desc">@TEXT@</desc>
  <style>
    .page {{ fill: #ffffff; stroke: #c8d0da }}
    .s-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px }}
    {styles}
    @media (prefers-color-scheme: dark) {{
    .page {{ fill: #161b22; stroke: #3b4553 }}
    @DARK@
    }}
  </style>
  <defs>
    {lines}
  </defs>
  <rect class="page" x=".5" y=".5" width="99.9%" height="99.8%" rx="8"/>
  <g transform="translate(8, 16)">
    {backgrounds}
    <g class="s-matrix">
    {matrix}
    </g>
  </g>
</svg>
"""
BARS: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" aria-labelledby="title desc" \
font-family="system-ui, sans-serif" font-size="14">
  <title id="title">Slots of a pool, by tenant</title>
  <desc id="desc">{text}</desc>
  <style>
    .page {{ fill: #ffffff; stroke: #c8d0da }}
    .has {{ fill: #2f5fd0 }}
    .waits {{ fill: none; stroke: #6b7a8c; stroke-dasharray: 4 3 }}
    text {{ fill: #17212b }}
    .head {{ font-weight: 600 }}
    .small {{ font-size: 12px; fill: #465464 }}
    @media (prefers-color-scheme: dark) {{
      .page {{ fill: #161b22; stroke: #3b4553 }}
      .has {{ fill: #86a8ff }}
      .waits {{ stroke: #8593a5 }}
      text {{ fill: #e6ebf1 }}
      .small {{ fill: #b3bfcc }}
    }}
  </style>
  <rect class="page" x=".5" y=".5" width="759" height="{inner}" rx="8"/>
  {parts}
</svg>
"""


# ---------------------------------------------------------------- screens


def draw_demo() -> str:
    """Draw the screen of `toolgate demo` at a terminal, at which a person presses y."""
    screen, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inner)
    with subprocess.Popen([*TOOLGATE, "demo"], env=_environment(), start_new_session=True, **streams):
        os.close(inner)
        written, pressed = b"", False
        while piece := _read(screen):
            written += piece
            if not pressed and b"Press y or n" in written:
                pressed = True
                os.write(screen, b"y")
    os.close(screen)
    text = written.decode().replace("\r\n", "\n")
    ids = itertools.count(4101)
    text = re.sub(r"(?<=pid )\d+ *", lambda found: str(next(ids)).ljust(len(found[0])), text)
    return _draw_screen(
        _lines(text, until="The demo has ended"),
        "The screen of toolgate demo",
        "Three schedulers decide on five tool calls of an agent. write_file is replaced by write_file in "
        "reports. The first credit_check runs, the second one exceeds the budget. delete_file is denied by a "
        "rule. For send_mail a person is asked, who presses y, and it runs.",
    )


async def draw_explained() -> str:
    """Draw what `toolgate decisions show` prints about a denied call."""
    async with _schedulers(("policy", RULES)) as url:

        def ask() -> None:
            with Guard(redis=url, required=["policy"]) as guard:
                at = guard.at("7c1e5a90", "clerk")
                guard.run_sync(
                    Call("delete_file", {"path": "todo.txt"}, ["delete_file"], at),
                    lambda *_: "gone",
                    denied=lambda ruling: ruling.refusal,
                )

        await asyncio.to_thread(ask)
        found = await _look(url, "decisions", until=lambda lines: bool(lines))
        text = await _run("decisions", "show", found[0]["id"], "--redis", url)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*( UTC)?", "2026-11-28 14:05:09 UTC", text)
    text = re.sub(r"\d+(\.\d+)? ms", "2.1 ms", text).replace(
        found[0]["id"], "4f2a91c07d3e4b5c8f60a1b2c3d4e5f6"
    )
    return _draw_screen(
        _lines(text),
        "One decision, explained",
        "toolgate decisions show says which agent wanted to call delete_file, that policy said deny and why, "
        "that the call did not run, by which rule, and which words the agent was told.",
    )


async def draw_tree() -> str:
    """Draw what `toolgate agents` prints while a tree of four agents works."""
    async with _schedulers(("policy", RULES)) as url:
        done = threading.Event()
        team = threading.Thread(target=_work, args=(url, done))
        team.start()
        try:
            await _look(url, "agents", until=lambda lines: "read_page" in str(lines) and len(lines) == 4)
            text = await _run("agents", "--redis", url)
        finally:
            done.set()
            await asyncio.to_thread(team.join)
    return _draw_screen(
        _lines(re.sub(r"\b\d+ s\b", "2 s", text)),
        "A tree of agents, as toolgate agents shows it",
        "The lead delegates to a researcher and a writer. The researcher was denied one call, and delegates "
        "to a reader. Each row has the agent, its session, what it does now, its turns, calls, vetoes, what "
        "it spent, and its age.",
    )


def _work(url: str, done: threading.Event) -> None:
    """Let four agents work until it is done."""
    with Guard(redis=url, required=["policy"], cost=lambda result: result) as guard:

        def call(at: Caller, tool: str, execute: Callable[[], Any] = lambda: "0.02") -> None:
            guard.run_sync(Call(tool, {}, [tool], at), lambda *_: execute(), denied=lambda ruling: None)

        def wait() -> str:
            done.wait()
            return "0.02"

        def helper(session: str, agent: str, *tools: str, then: Callable[[], Any] = wait) -> None:
            at = guard.at(session, agent)
            with guard.turn(at):
                for tool in tools[:-1]:
                    call(at, tool)
                call(at, tools[-1], then)

        def read() -> None:
            helper("b7d04e12", "reader", "web_search", "read_page")

        def research() -> None:
            helper("c81e7b2d", "researcher", "web_search", "delete_file", "delegate", then=read)

        lead = guard.at("4f2a91c0", "lead")
        with guard.turn(lead):
            helpers: Sequence[Callable[[], None]] = (
                research,
                lambda: helper("d93f6a55", "writer", "write_file"),
            )
            threads = [
                threading.Thread(target=contextvars.copy_context().run, args=(call, lead, "delegate", one))
                for one in helpers
            ]
            for one in threads:
                one.start()
                time.sleep(0.3)  # the first one stands above the second in the list
            for one in threads:
                one.join()


# ---------------------------------------------------------------- slots


async def draw_slots() -> str:
    """Draw which tenants have the slots of a pool, and which wait, from `toolgate queue --json`."""
    async with _schedulers(("slots", POOLS)) as url:
        done = threading.Event()
        with Guard(redis=url, required=["slots"]) as guard:

            def search(number: int, team: str) -> None:
                at = guard.at(f"s-{number}", "clerk", labels={"team": team})
                guard.run_sync(
                    Call("web_search", {}, ["web_search"], at),
                    lambda *_: done.wait(),
                    denied=lambda ruling: None,
                )

            threads = [threading.Thread(target=search, args=one) for one in enumerate(ASKED_BY)]
            for count, one in enumerate(threads, 1):
                one.start()
                await _look(url, "queue", until=lambda pools, count=count: _count(pools) == count)
            (pool,) = await _look(url, "queue", until=bool)
            done.set()
            for one in threads:
                await asyncio.to_thread(one.join)
    return _draw_bars(pool)


def _count(pools: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(pool["held"]) + len(pool["waiting"]) for pool in pools)


def _draw_bars(pool: Mapping[str, Any]) -> str:
    tenants = list(dict.fromkeys(ASKED_BY))
    held = {one: sum(call["tenant"] == one for call in pool["held"]) for one in tenants}
    waiting = {one: [call["place"] for call in pool["waiting"] if call["tenant"] == one] for one in tenants}
    weights = {call["tenant"]: call["weight"] for call in (*pool["held"], *pool["waiting"])}
    used = f"{len(pool['held'])} of {pool['limit']} slots in use"
    head = f"{pool['name']}: {used}, {len(pool['waiting'])} calls wait"
    parts = [f'<text class="head" x="20" y="34">{escape(head)}</text>']
    for row, tenant in enumerate(tenants):
        y = 54 + 46 * row
        parts.append(f'<text class="head" x="20" y="{y + 16}">{escape(tenant)}</text>')
        parts.append(f'<text class="small" x="20" y="{y + 32}">weight {weights[tenant]:g}</text>')
        for place, label in enumerate([""] * held[tenant] + [str(one) for one in waiting[tenant]]):
            x = 110 + 50 * place
            kind = "waits" if label else "has"
            parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="44" height="34" rx="5"/>')
            if label:
                parts.append(f'<text x="{x + 22}" y="{y + 22}" text-anchor="middle">{label}</text>')
    y = 54 + 46 * len(tenants)
    legend = "Filled: a call that has a slot. Dashed: a call that waits, with its place in the queue."
    parts.append(f'<text class="small" x="20" y="{y + 16}">{legend}</text>')
    told = "; ".join(
        f"{one} has {held[one]} and waits at {', '.join(map(str, waiting[one])) or 'no place'}"
        for one in tenants
    )
    return BARS.format(height=y + 36, inner=y + 35, text=escape(f"{head}. {told}."), parts="\n  ".join(parts))


# ---------------------------------------------------------------- what they share


@asynccontextmanager
async def _schedulers(*wanted: tuple[str, str]) -> AsyncIterator[str]:
    """Run schedulers by these configurations on a private server; give its URL."""
    with private_server() as server, tempfile.TemporaryDirectory() as folder:
        specs = []
        for name, config in wanted:
            file = Path(folder) / f"{name}.yaml"
            file.write_text(config, encoding="utf-8")
            specs.append(SchedulerSpec(name, file))
        async with scheduler_processes(specs, BusSettings(redis=server.url)):
            yield server.url


async def _look(url: str, command: str, *, until: Callable[[list[Any]], bool]) -> list[Any]:
    """Run a command until its JSON lines are as wanted, and return them. Raise TimeoutError."""
    async with asyncio.timeout(LOOK_S):
        while True:
            said = await _run(command, "--json", "--redis", url)
            lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
            if until(lines):
                return lines


async def _run(*words: str) -> str:
    """Return what a command of `toolgate` prints, with the colours of a terminal."""
    child = await asyncio.create_subprocess_exec(
        *(*TOOLGATE, *words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    )
    said, _ = await child.communicate()
    return said.decode()


def _environment() -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TOOLGATE_REDIS_URL")
    }
    return kept | {"TERM": "xterm-256color", "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the last program at this terminal has ended
        return b""


def _lines(text: str, until: str = "") -> Text:
    """Return a screen's lines, up to the one that begins with `until`."""
    lines = Text.from_ansi(text.rstrip()).split("\n", allow_blank=True)
    kept = list(itertools.takewhile(lambda line: not until or not line.plain.startswith(until), lines))
    while kept and not kept[-1].plain.strip():
        kept.pop()
    return Text("\n").join(kept)


def _draw_screen(screen: Text, title: str, text: str) -> str:
    frame = SCREEN.replace("@TITLE@", escape(title)).replace("@TEXT@", escape(text))
    dark = _export(screen, DARK, "{styles}").replace("{", "{{").replace("}", "}}")
    drawn = _export(screen, LIGHT, frame.replace("@DARK@", dark))
    return re.sub(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', _with_margin, drawn, count=1)


def _with_margin(size: re.Match[str]) -> str:
    return f'viewBox="0 0 {float(size[1]) + 16:g} {float(size[2]) + 28:g}"'


def _export(screen: Text, theme: TerminalTheme, frame: str) -> str:
    out = Terminal(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
    )
    out.print(screen)
    return out.export_svg(title="", theme=theme, code_format=frame, unique_id="s")


DRAWN: Final[Mapping[str, Callable[[], Any]]] = {
    "demo": draw_demo,
    "explained": draw_explained,
    "tree": draw_tree,
    "slots": draw_slots,
}


def main() -> None:
    """Draw the named pictures, or all."""
    names = sys.argv[1:] or [*DRAWN]
    if unknown := set(names) - DRAWN.keys():
        raise SystemExit(f"{', '.join(sorted(unknown))}: take any of {', '.join(DRAWN)}")
    for name in names:
        drawn = DRAWN[name]()
        text = asyncio.run(drawn) if asyncio.iscoroutine(drawn) else drawn
        lines = (line.rstrip() for line in text.splitlines())
        (FOLDER / f"{name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"docs/pictures/{name}.svg", file=sys.stderr)  # noqa: T201 - a command


if __name__ == "__main__":
    main()
