"""Reads links: the host and place that a browser resolves a text to, and all links within a text. Pure.

A link is read by the URL standard if other readers agree. If they do not (a backslash, a slash too few or too
many, two `@`, a space or a tab within, an encoded slash beside dots) it has no reading.

Links within a text are the parts that clients of mail and chat, Markdown and HTML make links of: anything
with a scheme and slashes, `//host`, `host.tld/path`, `mailto:` and its like, destinations of Markdown and
HTML. They are also found if written with entities, escapes, percent signs, or other letters that mean the
same.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from toolgate_bus.ruling.conditions.addresses import canonical_address
from toolgate_bus.ruling.conditions.addresses import find_addresses as find_mailboxes
from toolgate_bus.ruling.conditions.hosts import canonical_host, is_address
from toolgate_bus.ruling.conditions.top_level import FILE_ENDINGS, TOP_LEVEL

_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443, "ftp": 21, "file": 0}
"""Schemes with a host that browsers know, with their default ports."""
_DROPPED: Final = frozenset(("", "http", "https", "ftp"))
"""Schemes that do not tell places apart."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_FORBIDDEN: Final = re.compile(r"[\s\\<>\"`\x00-\x1f\x7f]")
_HOST_PORT: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{0,5}))?")
_BARE: Final = re.compile(r"[^\s/?#\\@:<>\"'`\[\]]+(?::[0-9]{1,5})?(?:[/?#].*)?")
_ENCODED: Final = re.compile("%[0-9a-fA-F]{2}")
_PRINTABLE: Final = "".join(map(chr, range(33, 127)))
_DOTS: Final = ".\u3002\uff0e\uff61"
_END: Final = r"[^\s<>\"'`|]"
MAX_LINK: Final = 4096
"""Maximum number of characters of a link in a text; the rest is read as more text."""
_HOST: Final = r"[^\s<>\"'`|/\\?\#(){}\[\],;]"
_LINK, _MORE = f"{_END}{{1,{MAX_LINK}}}", f"{_END}{{0,{MAX_LINK}}}"
_FOUND: Final = re.compile(
    rf"""(?ix)
    (?P<link> [a-z](?:[a-z0-9+.-]{{1,30}}:[/\\]{{2,}}|://){_LINK}
        | (?:https?|mailto|javascript|vbscript):{_LINK}
        | (?:ftp|file|wss?):[/\\]{_LINK}
        | data:[a-z]+/[a-z0-9.+-]+[;,]{_MORE} )
    | (?P<mail> [\w.+'&=~#$*^%!{{}}-]{{1,64}}@\w[\w-]*(?:[{_DOTS}]\w[\w-]*)+ )
    | (?<![:\w/\\])[/\\]{{2,}}(?: {_HOST}+[{_DOTS}]{_HOST}+(?:[/?\#\\]{_MORE})? )
    | (?<![\w/\\{_DOTS}@-])(?:(?<!%)|(?![0-9a-f]{{2}}))
        (?: \w[\w-]*(?:[{_DOTS}]\w[\w-]*)+ [{_DOTS}]?(?::[0-9]{{1,5}}(?![0-9.]))? (?:[/?\#\\]{_MORE})? )
    """
)
_MAY_LEAD: Final = re.compile(
    rf"[/\\]{{2}}|\w:[/\\]|\w[{_DOTS}]\w|\w@\w|[&%\\=]|\][(:]|(?:https?|mailto|script|data):", re.IGNORECASE
)
"""Parts of a text without which it has no link, in any variant of it."""
_NEXT: Final = re.compile(r"[,;)\]}](?=[a-z][a-z0-9+.-]{1,30}:[/\\]{2}|www\.)", re.IGNORECASE)
_AFTER: Final = ".,;:!?)]}*_"
_ESCAPED: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,5})\}|x([0-9a-fA-F]{2})|([!-/:-@\[-`{-~])"
    r"|0{0,4}(3a|2f|2e)[ ]?|0?(72|57|56))",  # in CSS, and in octal: the signs of a link
    re.IGNORECASE,
)
_OCTAL: Final = {"72": ":", "57": "/", "56": "."}
_DROPPED_WITHIN: Final = re.compile(r"(?<=[/\\:])[\t\r\n]+(?=[/\\])")
"""Characters that browsers leave out between the slashes of a link."""
_INVISIBLE: Final = re.compile("[\u00ad\u034f\u180e\u200b-\u200d\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_DESTINATION: Final = re.compile(
    r"""(?ix)
    \]\(\s*<?([^)>]*) | ^[ >]{0,8}\[[^\]\n]{1,999}\]:[ \t]*\n?[ \t]*<?(\S+)
    | \b(?:href|src|srcset|action|formaction|data|poster|background|cite|ping|codebase|manifest)
        \s*=\s*(?:"([^"]*)" | '([^']*)' | ([^\s"'>]+))
    """,
    re.MULTILINE,
)
_LEADS_NOWHERE: Final = re.compile(r"cid:|data:image/(?:png|jpeg|gif|webp)[;,]", re.IGNORECASE)


class Unreadable(str):
    """A text that readers resolve to different places, or to none."""

    __slots__ = ()


class ResolvedLink(NamedTuple):
    """A link as browsers resolve it."""

    scheme: str
    """Scheme in small letters; empty if the text has none."""
    user: str
    host: str
    """Host as `canonical_host` returns it; empty in a link without one (`file:///srv`)."""
    port: int | None
    """Port; None for the scheme's default."""
    path: str
    """Path that begins with a slash, or is empty. Dots are resolved, and only what must be is encoded."""
    rest: str
    """Rest of the link from the `?` or `#` on."""

    @property
    def place(self) -> str:
        """Text to compare links by: without `http`, `https` and `ftp`, and without a last slash."""
        scheme = "" if self.scheme in _DROPPED else f"{self.scheme}://"
        user = f"{self.user}@" if self.user else ""
        port = "" if self.port is None else f":{self.port}"
        return scheme + (f"{user}{self.host}{port}{self.path}{self.rest}".removesuffix("/") or "/")


def is_link(text: str) -> bool:
    """Return whether a whole text has the form of a link: a scheme and a host, `//host`, or `a.b`."""
    scheme = _SCHEME.match(text)
    if scheme is not None:
        if scheme[1].lower() in _PORTS or text.startswith(("//", "\\\\", "/\\"), scheme.end()):
            return True
        if not text[scheme.end() :].partition("/")[0].isdecimal():
            return False
    if text.startswith("//"):
        return len(text) > 2 and text[2] not in "/ "
    if not _BARE.fullmatch(text):
        return False
    host = re.split("[:/?#]", text, maxsplit=1)[0]
    has_port = text[len(host) : len(host) + 1] == ":"
    if not host.isascii():
        return has_port or any(dot in host.strip(_DOTS) for dot in _DOTS)
    named = canonical_host(host)
    return named is not None and (has_port or "." in named) and (not is_address(named) or named == host)


def read_link(text: str) -> ResolvedLink | None:
    """Return a link as browsers resolve it; None if readers disagree, or it is no link."""
    text = text.strip(" \t\r\n")
    if _FORBIDDEN.search(text):
        return None
    found = _SCHEME.match(text)
    scheme, rest = ("", text) if found is None else (found[1].lower(), text[found.end() :])
    if found is not None and scheme not in _PORTS and not rest.startswith("//"):
        if not re.split("[/?#]", rest, maxsplit=1)[0].isdecimal():
            return None  # `mailto:` and other schemes without a host
        scheme, rest = "", text  # localhost:8080/a
    if scheme or rest.startswith("//"):
        slashes = len(rest) - len(rest.lstrip("/"))
        if slashes != 2 and not (scheme == "file" and slashes == 3):
            return None
        rest = rest[2:]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, _, server = authority.rpartition("@")
    parts = _HOST_PORT.fullmatch(server)
    path = _read_path(rest[len(authority) :])
    if parts is None or "@" in user or path is None or (not scheme and parts[2] == ""):
        return None
    host = canonical_host(parts[1]) if parts[1] else ""
    port = int(parts[2]) if parts[2] else None
    if host is None or (not host and (scheme in _DROPPED or user or port)) or (port or 0) > 65535:
        return None
    return ResolvedLink(scheme, user, host, None if port == _PORTS.get(scheme, -1) else port, *path)


def read_place(text: str) -> str:
    """Return the place of a text that has the form of a link; Unreadable if it has no one place."""
    link = read_link(text)
    return Unreadable(text) if link is None else link.place


def _read_path(rest: str) -> tuple[str, str] | None:
    """Return the path of a link without dots, and the rest; None if decoding it shows more dots."""
    path = re.split("[?#]", rest, maxsplit=1)[0]
    after = spell(rest[len(path) :])
    if not path:
        return "", after
    names: list[str] = []
    whole = spell(path).split("/")[1:]
    for name in whole:
        if name == "..":
            del names[-1:]
        elif name != ".":
            names.append(name)
    if whole[-1] in (".", ".."):
        names.append("")
    path = "/" + "/".join(names)
    return None if hides_dots(path) else (path, after)


def hides_dots(path: str) -> bool:
    """Return whether a path has `.` or `..` as a name, or would have once a reader decodes it."""
    plain = path
    for _ in range(3):
        plain = unquote(plain, errors="replace")
    names = plain.replace("\\", "/").split("/")
    return any(name.partition(";")[0].strip(" ") in (".", "..") for name in names)


def spell(text: str) -> str:
    """Return a part of a link with only those characters encoded that must be."""
    if "%" in text:
        text = _ENCODED.sub(_decode_plain, text)
    return text if text.isascii() else quote(text, safe=_PRINTABLE, errors="surrogatepass")


def _decode_plain(found: re.Match[str]) -> str:
    letter = chr(int(found[0][1:], 16))
    return letter if letter.isascii() and (letter.isalnum() or letter in "-._~") else found[0].upper()


# ------------------------------------------------------------------ in a text


def find_places(text: str) -> Iterator[str]:
    """Yield the place of each link and mail address in a text; Unreadable for one that has no one place."""
    if text.isascii() and _MAY_LEAD.search(text) is None:
        return
    for variant in _variants(text):
        for _, _, places in scan(variant):
            yield from places
        for found in _DESTINATION.finditer(variant):
            yield from _of_destination(next(filter(None, found.groups()), ""))


def scan(text: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield the beginning and end of each link and address in a text, with the places that it means."""
    at = 0
    while (found := _FOUND.search(text, at)) is not None:
        written = found[0]
        joined = _NEXT.search(written)
        written = (written if joined is None else written[: joined.start()]).rstrip(_AFTER) or written
        at = max(found.start() + len(written), at + 1)
        places = _places_of(found, written)
        if places:
            yield found.start(), at, places


def _places_of(found: re.Match[str], written: str) -> tuple[str, ...]:
    if found["mail"] is not None:
        return (canonical_address(written) or Unreadable(written),)
    if found["link"] is not None:
        return _of_scheme(written)
    bare = written.lstrip("/\\")
    host = re.split(r"[/:?#\\]", bare, maxsplit=1)[0]
    tail = bare[len(host) :]
    return (read_place(written),) if _is_resolved(host, tail or written[: -len(bare)]) else ()


def _of_scheme(written: str) -> tuple[str, ...]:
    scheme = written.partition(":")[0].lower()
    if scheme == "mailto":
        return find_mailboxes(written) or (Unreadable(written),)
    if _LEADS_NOWHERE.match(written):
        return ()
    return (read_place(written),)


def _is_resolved(host: str, beside: str) -> bool:
    """Return whether clients make a link of a host without a scheme, with the slashes or path beside it."""
    last = re.split(f"[{_DOTS}]", host.rstrip(_DOTS))[-1].lower()
    if not last.isascii():
        last = (canonical_host(f"x.{last}") or "")[2:]
    if last in TOP_LEVEL:
        return bool(beside) or host.count(".") > 1 or last not in FILE_ENDINGS
    is_ip = last.isdecimal() and canonical_host(host) == host
    return is_ip and bool(beside) and not re.fullmatch("/[0-9]{1,2}", beside)


def _of_destination(written: str) -> tuple[str, ...]:
    """Return the places of a destination of Markdown or HTML that `scan` alone would not find."""
    text = re.sub(r"[\t\r\n]", "", html.unescape(written)).strip("".join(map(chr, range(33))))
    if re.match(r"[/\\]{2}", text) or (_SCHEME.match(text) and not is_link(text)):
        return _of_scheme(text)
    return tuple(place for _, _, places in scan(text) for place in places)


def _variants(text: str) -> Iterator[str]:
    """Yield the text, and the texts that clients get by decoding it."""
    yield text
    seen = {text}
    plain = text if text.isascii() else unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    escaped = _ESCAPED.sub(_unescape, plain) if "\\" in plain else plain
    decoded = html.unescape(escaped)
    for other in (plain, escaped, decoded, html.unescape(decoded), _DROPPED_WITHIN.sub("", decoded)):
        if other not in seen:
            seen.add(other)
            yield other
        if _ENCODED.search(other) and (bare := unquote(_without_links(other))) not in seen:
            seen.add(bare)
            yield bare


def _unescape(found: re.Match[str]) -> str:
    if found[6]:
        return _OCTAL[found[6]]
    return found[4] or chr(int(found[1] or found[2] or found[3] or found[5], 16))


def _without_links(text: str) -> str:
    """Return the text without its links: an encoded part of a link belongs to its own place."""
    kept, at = [], 0
    for start, end, _ in scan(text):
        kept.append(text[at:start])
        at = end
    return " ".join((*kept, text[at:]))
