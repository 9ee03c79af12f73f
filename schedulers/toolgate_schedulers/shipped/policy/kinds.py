r"""Named kinds of texts that a rule masks: keys and tokens, private keys, cards, mail addresses. Pure.

Each kind finds the parts of one text. All but `cards` are patterns of the linear engine; `cards` are numbers
whose check digit is right, with separators or without.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from toolgate_bus.ruling.conditions.patterns import compile_pattern

Kind = Literal["api keys", "private keys", "cards", "mail addresses", "secrets"]
MARKS: Final[dict[Kind, str]] = {
    "api keys": "api key",
    "private keys": "private key",
    "cards": "card",
    "mail addresses": "mail address",
    "secrets": "secret",
}
"""Name in the mark for each kind."""
_WORD: Final = r"[A-Za-z0-9_-]"
_CODE: Final = "%(?:25)?[0-9A-Fa-f]{2}"
_START: Final = rf"(?:\b|_|{_CODE}|\x1b?\[[0-9;]*[mK])"
"""Where a key may begin: with a word, or behind `_`, a code of a link (`%3D`), or a colour of a terminal."""
_IS: Final = rf"['\"]?(?:[\s,'\"]+value['\"]?)?\s{{0,8}}(?:=>|:=|[=:|]|{_CODE})[\s\['\"|>-]{{0,12}}"
"""What may stand between a name and its value: also in tables, and in maps of a name and a value."""
_AWS: Final = (
    "(?:aws[ _-]?(?:secret|session)?[ _-]?(?:access)?[ _-]?(?:key|token)(?:[ _-]?id)?"
    "|secret[ _-]?access[ _-]?key|(?:session|security)[ _-]?token)"
)
# (Digits are told apart only where they must be, so that all kinds together fit into one program.)
API_KEYS: Final = (
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}",
    # Behind a blank or a comma alone, words may follow: so what follows has the length of a secret.
    rf"(?i){_AWS}(?:(?:{_IS}|>)[A-Za-z0-9/+%][A-Za-z0-9/+=%]{{15,}}|[\s,'\"]{{1,8}}[A-Za-z0-9/+%]{{40,}})",
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    rf"gl(?:pat|ptt|dt|rt|soat|cbt)-{_WORD}{{20,}}",
    rf"{_START}sk-{_WORD}{{20,}}",
    rf"{_START}[rsp]k_(?:live|test)_[A-Za-z0-9]{{10,}}",
    rf"{_START}whsec_[A-Za-z0-9+/=]{{20,}}",
    rf"xox[a-z]-{_WORD}{{10,}}",
    rf"xapp-{_WORD}{{10,}}",
    r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9+/_-]{20,}",
    rf"AIza{_WORD}{{35}}",
    r"ya[0-9]{2}\.[A-Za-z0-9_-]{20,}",
    rf"GOCSPX-{_WORD}{{20,}}",
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"(?i)\bbearer\s{1,8}[A-Za-z0-9._~+/-]{16,}=*",
    rf"(?i)\bauthorization{_IS}(?:basic|token|apikey)\s{{1,8}}[A-Za-z0-9._~+/=:-]{{8,}}",
    r"(?i)\bbasic\s{1,8}[A-Za-z0-9+/]{8,}={1,2}",
    rf"{_START}npm_[A-Za-z0-9]{{30,}}",
    rf"{_START}pypi-{_WORD}{{50,}}",
    rf"{_START}hf_[A-Za-z0-9]{{30,}}",
    rf"{_START}SG\.{_WORD}{{16,}}\.{_WORD}{{16,}}",
    rf"{_START}(?:SK|AC)[0-9a-f]{{32}}\b",
    rf"{_START}do[opr]_v[0-9]_[0-9a-f]{{64}}",
    r"(?i)\bAccountKey=[A-Za-z0-9+/]{40,}=*",
    rf"{_START}(?:bot)?[0-9]{{8,10}}(?::|{_CODE})AA{_WORD}{{33}}",
    r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{0,256}:[^\s/'\"]{1,256}@",
)
"""Keys and tokens of AWS, GitHub, GitLab, OpenAI, Anthropic, Stripe, Slack, Google, npm, PyPI, Hugging Face,
SendGrid, Twilio, DigitalOcean, Azure, Telegram; JSON Web Tokens, headers, passwords in links."""
_DASH: Final = r"(?:-|&#45;|%2D)"
_BLANK: Final = r"(?:[\s+]|%20)"
_DASHES: Final = rf"{_DASH}{{4}}(?:{_DASH}|{_BLANK})?"
_ARMOUR: Final = rf"[A-Z0-9\s+%]*PRIVATE{_BLANK}KEY(?:{_BLANK}BLOCK)?(?:{_DASH}|{_BLANK})?{_DASH}{{4}}"
_BEGIN: Final = rf"{_DASHES}BEGIN{_ARMOUR}"
_END: Final = rf"{_DASHES}END{_ARMOUR}"
_LAST_LINE: Final = compile_pattern(_END)
_MENTIONED: Final = re.compile(rf"{_BEGIN}['\"`]\s?[a-z)]")
"""First line of a private key in code that looks for keys: words follow behind a quotation mark."""
SECRETS_OF_JWK: Final = ("d", "k", "p", "q", "dp", "dq", "qi", "oth")
"""Members of a JSON Web Key, which has `kty`, that make it a private one."""
_MEMBERS: Final = r"(?:[^{}]|\{[^{}]*\})*"
_KIND: Final = r"['\"]kty['\"]"
_SECRET: Final = rf"['\"](?:[dkpq]|d[pq]|qi)['\"]\s*:\s*['\"]{_WORD}{{16,}}"
PRIVATE_KEYS: Final = (
    rf"{_BEGIN}(?s:.*?)(?:{_END}|\Z)",
    r"PuTTY-User-Key-File-[0-9](?s:.*)",
    r"AGE-SECRET-KEY-[0-9][A-Z0-9]{50,}",
    rf"\{{{_MEMBERS}(?:{_KIND}{_MEMBERS}{_SECRET}|{_SECRET}{_MEMBERS}{_KIND}){_MEMBERS}\}}?",
)
"""Of OpenSSL, OpenSSH, PGP, SSH2 (which has blanks in its first line), PuTTY, age; the last is of a JWK."""
NAMES_OF_KEYS: Final = re.compile(r"(?i)key|token|authorization")
"""Names in a map that tell more of the text behind them than they do by themselves."""
_NO_MAIL: Final = r"\s@,;:<>()\[\]\"/?=&|{}`*\\"
"""Characters around a mail address. Letters of an address may be of any language, with marks of their own."""
_NO_HOST: Final = rf"{_NO_MAIL}.。．｡%!#'’"
_TOP: Final = rf"[^{_NO_HOST}0-9][^{_NO_HOST}]*"
"""Last part of a host: no number, as in `package@1.2.3`."""
_LOCAL: Final = rf"[^{_NO_MAIL}]+(?:\{{[^{_NO_MAIL}]*\}}[^{_NO_MAIL}]*)*"
"""Part before the `@`. Braces are of it if they are closed in it."""
_AT: Final = rf"(?:(?:[@＠﹫]|%(?:25)*40|&#0*64;|&#[xX]0*40;|&commat;)[^{_NO_HOST}]|=40[^{_NO_HOST}0-9])"
"""The `@`, and the first character of the host. Behind `=40` it is no digit: `id=4012.html` is no address."""
_DOT: Final = r"(?:[.。．｡]|%(?:25)*2[eE]|&#0*46;)"
MAIL_ADDRESSES: Final = (rf"{_LOCAL}{_AT}[^{_NO_HOST}]*{_DOT}(?:[^{_NO_HOST}]+{_DOT})*{_TOP}",)
PATTERNS: Final[dict[Kind, tuple[str, ...]]] = {
    "api keys": API_KEYS,
    "private keys": PRIVATE_KEYS,
    "mail addresses": MAIL_ADDRESSES,
}


def is_open(kind: Kind | None, found: str) -> bool:
    """Return whether a part goes on behind the end of its text: a private key whose end is not there."""
    return kind == "private keys" and found[0] in "-&%" and not is_closed(found)


def is_closed(text: str) -> bool:
    """Return whether a text has the last line of a private key."""
    return _LAST_LINE.search(text)


def is_mentioned(found: str) -> bool:
    """Return whether the beginning of a private key is only spoken of."""
    return _MENTIONED.match(found) is not None


_CARD_DIGITS: Final = range(13, 20)
_ISSUERS: Final = re.compile(r"4|5[0-8]|2[2-7]|3[0-9]|6")
"""First digits of the numbers of cards."""
_SIGNS: Final = r" ./_\u00a0\u2000-\u200d\u202f\u2060\u3000\ufeff"
_LINES: Final = r"\u2010-\u2015\u2212\u00b7\u2022-"
"""Dashes and dots that may have a space on each side."""
_CODES: Final = r"&nbsp;|&#160;|%2\d"
_BETWEEN: Final = rf"(?:[{_SIGNS}]| ?[{_LINES}] ?|{_CODES})?"
"""What may stand between the digits of a card's number."""
# (The look ahead only saves work: it says which characters the next twelve are.)
_RUN: Final = re.compile(rf"\d(?=[\d{_CODES}{_SIGNS}{_LINES}]{{12}})(?:{_BETWEEN}\d){{12,}}")
DIGITS_AT_END: Final = re.compile(rf"\d(?:{_BETWEEN}\d)*(?:{_BETWEEN}\Z|\S*\Z)")
"""End of a text that may be the beginning of a card's number."""
_GROUP: Final = re.compile(rf"{_CODES}|(\d+)")


class Group(NamedTuple):
    """Digits without a separator between them."""

    start: int
    digits: str


def find_cards(text: str) -> Iterator[tuple[int, int] | None]:
    """Yield the places of card numbers in a text, and None for each number that was tried and is none.

    A number begins and ends where a group of digits does. Numbers may overlap: one that is right by chance,
    such as an order's and the first half of a card's, hides nothing of the card's.
    """
    for run in _RUN.finditer(text):
        found = _GROUP.finditer(text, max(0, run.start() - 1), run.end())  # in `%204111` the number is 4111
        groups = [Group(one.start(), _as_ascii(one[1])) for one in found if one[1]]
        for at in range(len(groups)):
            if _ISSUERS.match("".join(one.digits for one in groups[at : at + 2])):
                yield from _find_from(groups[at : at + _CARD_DIGITS.stop])


def _as_ascii(digits: str) -> str:
    return digits if digits.isascii() else "".join(str(int(one)) for one in digits)


def _find_from(groups: Sequence[Group]) -> Iterator[tuple[int, int] | None]:
    digits = ""
    for start, more in groups:
        digits += more
        if len(digits) >= _CARD_DIGITS.stop:
            return
        if len(digits) in _CARD_DIGITS:
            yield (groups[0].start, start + len(more)) if _is_checked(digits) else None


def _is_checked(digits: str) -> bool:
    """Return whether the last digit is right (ISO/IEC 7812), and the digits are not all the same."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        number = int(digit) * (1 + place % 2)
        total += number - 9 if number > 9 else number
    return total % 10 == 0 and len(set(digits)) > 1
