"""The files of the page, and the page for who has not signed in. Read once, from the package."""

import hashlib
from html import escape
from importlib.resources import files
from typing import Final, NamedTuple

__all__ = ["OPEN", "Asset", "assets", "sign_in_page"]

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
OPEN: Final = frozenset(("style.css", "icon.svg", "theme.js"))
"""What the sign-in page needs."""


class Asset(NamedTuple):
    """A file of the page."""

    body: bytes
    type: str
    tag: str
    """Names these bytes: `ETag`."""


def assets() -> dict[str, Asset]:
    """Every file by its name."""
    found = {}
    for file in (files("toolgate_schedulers.commands.console") / "static").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in _TYPES:
            body = file.read_bytes()
            found[file.name] = Asset(body, _TYPES[kind], f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return found


def sign_in_page(page: Asset, user: str, problem: str = "") -> str:
    """The sign-in page, with what was wrong."""
    told = f'<p class="problem" role="alert">{escape(problem)}</p>' if problem else ""
    text = page.body.decode()
    return text.replace("<!-- problem -->", told).replace("<!-- user -->", escape(user, quote=True))
