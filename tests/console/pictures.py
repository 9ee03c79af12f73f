"""Take pictures of the console in front of a small fleet at work.

    python tests/console/pictures.py         the pictures of docs/watch.md, into docs/pictures
    python tests/console/pictures.py DIR     every page, 1280 and 390 wide, dark and light, into DIR

The fleet is real: a server of its own, shipped schedulers as processes, and agents that make calls for a
minute. It needs Chromium and the extra `dev`. Figures differ from run to run.
"""

import asyncio
import contextlib
import json
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from subprocess import PIPE, Popen

from chromium import browser, opened
from toolgate_bus.server.embedded import private_server
from toolgate_orchestrator import Call, Caller, Guard

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "pictures"
WORK_S = 120.0
"""Seconds that the fleet works before the first picture, so that a line has points."""
VIEWS = [
    "glance", "live", "agents", "approvals", "queue", "rates", "budgets", "rules", "revisions", "roster",
]  # fmt: skip
SIZES = {1280: 800, 390: 844}
KEPT = (("glance", 1280, "light", "console"), ("glance", 390, "dark", "console-phone"))
TOOLS = ["search", "browser_open", "read_file", "write_file", "delete_file", "refund", "summarize"]
CONFIGS = {
    "policy": """
rules:
- {name: nobody deletes, tools: delete_file, action: deny, reason: deleting is for people}
- {name: own folder, tools: write_file, when: {path: "/etc/*"}, action: deny}
""",
    "approval": "rules: [{tools: refund, prompt: 'Is the customer known?'}]",
    "slots": """
pools:
- {name: browser, tools: "browser_*", limit: 1, wait_s: 300, share: {by: "label:team"}}
- {name: files, tools: [read_file, write_file], shared: {tools: "read_*"}, key: $.path}
""",
    "cost-aware": """
tools:
  search: {cost: 0.02}
  browser_open: {cost: 0.05}
  summarize: {cost: 0.04}
default: {cost: 0.005}
budgets:
- {name: daily, level: fleet, limit: 160, window: day}
- {name: team, level: "label:team", limit: 50, window: day}
- {name: each, level: session, limit: 20}
""",
}


@contextlib.contextmanager
def schedulers(url: str, folder: Path) -> Iterator[None]:
    """Run the shipped schedulers, each as a process."""
    started: list[Popen[str]] = []
    try:
        for name, text in CONFIGS.items():
            file = folder / f"{name}.yaml"
            file.write_text(text)
            words = ["scheduler", "run", name, "--config", str(file), *where(url), "--json"]
            started.append(toolgate(*words))
        for one in started:
            assert one.stdout is not None
            one.stdout.readline()
        yield
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait(20)


def where(url: str) -> tuple[str, ...]:
    """Options that name the fleet's bus."""
    return "--redis", url, "--namespace", NAMESPACE


def toolgate(*words: str) -> "Popen[str]":
    """Start the command of this checkout."""
    return Popen([sys.executable, "-m", "toolgate_bus", *words], stdout=PIPE, text=True)


class Team:
    """Agents of one team, in one orchestrator."""

    def __init__(self, url: str, team: str, chance: random.Random) -> None:
        self._chance, self._team = chance, team
        self._guard = Guard(
            agent=f"{team}-lead", redis=url, namespace=NAMESPACE, required=["policy", "slots", "approval"],
            labels={"team": team}, patience_ms=20_000, max_hold_s=600,
        )  # fmt: skip

    async def work(self, number: int) -> None:
        """One session: calls without an end, some of them by an agent that works for it."""
        lead = self._guard.at(f"{self._team}-{number}-{self._chance.getrandbits(32):08x}")
        scout = self._guard.at(f"{lead.session}-scout", f"{self._team}-scout", parent=lead)
        with self._guard.turn(lead), self._guard.turn(scout):
            await self._call_on(lead, scout)

    async def _call_on(self, lead: Caller, scout: Caller) -> None:
        while True:
            caller = self._chance.choice((lead, lead, scout))
            tool = self._chance.choices(TOOLS, (30, 10, 25, 12, 4, 0.4, 18))[0]
            path = self._chance.choice(("/srv/notes.txt", "/srv/plan.md", "/etc/hosts"))
            call = Call(tool, {"path": path, "query": "weather"}, TOOLS, caller)
            await self._guard.run(call, self._execute, denied=lambda ruling: ruling.refusal)
            await asyncio.sleep(self._chance.uniform(0.05, 0.9))

    async def _execute(self, tool: str, _arguments: object) -> str:
        await asyncio.sleep(self._chance.uniform(1.0, 4.0) if tool == "browser_open" else 0.05)
        return "done"

    def close(self) -> None:
        """End the guard."""
        self._guard.close()


@contextlib.asynccontextmanager
async def fleet(url: str) -> AsyncIterator[None]:
    """Three teams at work."""
    teams = [Team(url, name, random.Random(name)) for name in ("research", "support", "sales")]
    tasks = [asyncio.create_task(team.work(number)) for team in teams for number in range(4)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(done, Exception):
                print(f"an agent failed: {done!r}", file=sys.stderr)
        for team in teams:
            await asyncio.to_thread(team.close)


async def take(url: str, wanted: "Path | None") -> list[str]:
    """Take the pictures; gives what was wrong on the pages."""
    console = toolgate("console", "--port", "0", *where(url), "--json")
    assert console.stdout is not None
    wrong: list[str] = []
    try:
        address = json.loads(await asyncio.to_thread(console.stdout.readline))["url"]
        await asyncio.sleep(WORK_S)
        shots = KEPT if wanted is None else tuple(
            (view, width, scheme, f"{view}-{width}-{scheme}")
            for view in VIEWS for width in SIZES for scheme in ("light", "dark")
        )  # fmt: skip
        folder = wanted or ROOT / "docs" / "pictures"
        async with browser() as chromium:
            for view, width, scheme, name in shots:
                size = {"width": width, "height": SIZES[width]}
                phone = {"is_mobile": True, "has_touch": True} if width < 600 else {}
                async with opened(
                    chromium, f"{address}#{view}", viewport=size, color_scheme=scheme, **phone
                ) as page:
                    await page.page.wait_for_timeout(3000)
                    await page.page.screenshot(
                        path=folder / f"{name}.png", full_page=wanted is not None or width > 600
                    )
                    wrong += [f"{name}: {one}" for one in page.wrong]
    finally:
        console.terminate()
        await asyncio.to_thread(console.wait, 20)
    return wrong


async def main(wanted: "Path | None") -> int:
    """0 if every picture was taken and nothing was wrong on any page."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
    with (
        private_server() as server,
        tempfile.TemporaryDirectory() as folder,
        schedulers(server.url, Path(folder)),
    ):
        async with fleet(server.url):
            wrong = await take(server.url, wanted)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)))
