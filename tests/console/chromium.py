"""A real headless Chromium for the tests of the page; they are skipped where there is none."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from toolgate_bus.installation import how_to_install

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
TOOLS_REQUIRED = os.environ.get("TOOLGATE_TOOLS") == "required"  # read before the tests' own world begins
PHONE = {"viewport": {"width": 375, "height": 780}, "is_mobile": True, "has_touch": True}
PATIENCE_MS = 20_000
CUT_OFF = """() => [...document.querySelectorAll("td, tbody th")].filter((cell) => {
  if (!cell.checkVisibility()) return false;
  const at = cell.getBoundingClientRect();
  return at.right > innerWidth || at.left < 0 || cell.scrollWidth > cell.clientWidth + 1;
}).map((cell) => `${cell.dataset.label}: ${cell.textContent.slice(0, 40)}`)"""
"""The cells of tables that do not stand in the window as a whole."""


def _missing(what: str) -> None:
    if TOOLS_REQUIRED:
        pytest.fail(f"{what}, and TOOLGATE_TOOLS=required")
    pytest.skip(what)


@asynccontextmanager
async def browser() -> AsyncIterator[Any]:
    """A browser, `await browser.new_page()`."""
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        _missing(f"playwright is not here ({how_to_install('dev')})")
    if not PROGRAM:
        _missing("chromium is not on PATH (Debian: apt-get install chromium)")
    async with async_playwright() as play:
        started = await play.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        try:
            yield started
        finally:
            await started.close()


class Page:
    """A page of the console, and what went wrong on it."""

    def __init__(self, page: Any, root: str) -> None:
        self.page, self._root = page, root
        self.wrong: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on(
            "console", lambda said: self.wrong.append(said.text) if "Content Security" in said.text else None
        )
        page.on("request", lambda asked: None if asked.url.startswith(root) else self.wrong.append(asked.url))

    async def go(self, view: str) -> None:
        """Show a view."""
        await self.page.evaluate(f"location.hash = {view!r}")
        await self.page.locator(f"#view-{view}").wait_for(state="visible")

    async def width(self) -> tuple[int, int]:
        """How wide the content is, and the window."""
        seen = await self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        return seen[0], seen[1]


@asynccontextmanager
async def opened(browser_: Any, url: str, **options: Any) -> AsyncIterator[Page]:
    """The page behind an address, in a browser profile of its own."""
    context = await browser_.new_context(**options)
    try:
        page = Page(await context.new_page(), url.partition("?")[0])
        await page.page.goto(url)
        yield page
    finally:
        await context.close()


def rows(page: Any, more: str = "") -> Any:
    """The decisions that are listed on the page."""
    return page.page.locator(f"#rows .row{more}")
