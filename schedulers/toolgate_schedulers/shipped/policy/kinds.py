r"""Named kinds of texts that a rule masks: keys and tokens, private keys, cards, mail addresses. Pure.

Each kind finds the parts of one text. All but `cards` are patterns of the linear engine; `cards` are numbers
whose check digit is right, with separators or without.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

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
_AWS: Final = (
    "(?:aws_?(?:secret|session)?_?(?:access)?_?(?:key|token)(?:_id)?|secret_?access_?key|session_?token)"
)
API_KEYS: Final = (
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}",
    rf"(?i){_AWS}['\"]?\s{{0,8}}[=:]\s{{0,8}}['\"]?[A-Za-z0-9/+=]{{16,}}",
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    rf"gl(?:pat|ptt|dt|rt|soat|cbt)-{_WORD}{{20,}}",
    rf"\bsk-{_WORD}{{20,}}",
    r"\b[rsp]k_(?:live|test)_[A-Za-z0-9]{10,}",
    r"\bwhsec_[A-Za-z0-9+/=]{20,}",
    rf"xox[a-z]-{_WORD}{{10,}}",
    rf"xapp-{_WORD}{{10,}}",
    r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9+/_-]{20,}",
    rf"AIza{_WORD}{{35}}",
    r"ya29\.[A-Za-z0-9_-]{20,}",
    rf"GOCSPX-{_WORD}{{20,}}",
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"(?i)\bbearer\s{1,8}[A-Za-z0-9._~+/-]{16,}=*",
    r"(?i)\bauthorization['\"]?\s{0,8}[=:][\s\['\"]{0,12}(?:basic|token|apikey)\s{1,8}[A-Za-z0-9._~+/=:-]{8,}",
    r"(?i)\bbasic\s{1,8}[A-Za-z0-9+/]{8,}={1,2}",
    r"\bnpm_[A-Za-z0-9]{30,}",
    rf"\bpypi-{_WORD}{{50,}}",
    r"\bhf_[A-Za-z0-9]{30,}",
    rf"\bSG\.{_WORD}{{16,}}\.{_WORD}{{16,}}",
    r"\b(?:SK|AC)[0-9a-f]{32}\b",
    r"\bdo[opr]_v1_[0-9a-f]{64}",
    r"(?i)\bAccountKey=[A-Za-z0-9+/]{40,}=*",
    rf"\b[0-9]{{8,10}}:AA{_WORD}{{33}}",
    r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{0,256}:[^\s/'\"]{1,256}@",
)
"""Keys and tokens of AWS, GitHub, GitLab, OpenAI, Anthropic, Stripe, Slack, Google, npm, PyPI, Hugging Face,
SendGrid, Twilio, DigitalOcean, Azure, Telegram; JSON Web Tokens, headers, passwords in links."""
_ARMOUR: Final = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?[- ]----"
_END: Final = re.compile("----[- ]END ")
PRIVATE_KEYS: Final = (
    rf"----[- ]BEGIN {_ARMOUR}(?s:.*?)(?:----[- ]END {_ARMOUR}|\Z)",
    r"PuTTY-User-Key-File-[0-9](?s:.*)",
    r"AGE-SECRET-KEY-1[A-Z0-9]{50,}",
    r"(?:^|[\s{,'\"])[dk]['\"]?\s{0,8}:\s{0,8}['\"]?[A-Za-z0-9_-]{43,}",
)
"""Of OpenSSL, OpenSSH, PGP, SSH2 (which has blanks in its first line), PuTTY, age; the last is of a JWK."""
NAMES_OF_KEYS: Final = re.compile(r"(?i)key|token|authorization|^[dk]$")
"""Names in a map that tell more of the text behind them than it does by itself."""
_NO_MAIL: Final = r"\s@,;:<>()\[\]\"/?=&|{}`*\\"
"""Characters around a mail address. Letters of an address may be of any language, with marks of their own."""
_NO_HOST: Final = rf"{_NO_MAIL}.。．｡%!#'’"
_TOP: Final = rf"[^{_NO_HOST}0-9][^{_NO_HOST}]*"
"""Last part of a host: no number, as in `package@1.2.3`."""
_AT: Final = r"(?:@|＠|%40|&#64;|&#[xX]40;|&commat;)"
MAIL_ADDRESSES: Final = (rf"[^{_NO_MAIL}]+{_AT}(?:[^{_NO_HOST}]+[.。．｡])+{_TOP}",)
PATTERNS: Final[dict[Kind, tuple[str, ...]]] = {
    "api keys": API_KEYS,
    "private keys": PRIVATE_KEYS,
    "mail addresses": MAIL_ADDRESSES,
}


def is_open(kind: Kind | None, found: str) -> bool:
    """Return whether a part goes on behind the end of its text: a private key whose end is not there."""
    return kind == "private keys" and found.startswith("----") and not _END.search(found)


def is_closed(text: str) -> bool:
    """Return whether a text has the last line of a private key."""
    return _END.search(text) is not None and "PRIVATE KEY" in text


_CARD_DIGITS: Final = range(13, 20)
_ISSUERS: Final = re.compile(r"4|5[0-8]|2[2-7]|3[0-9]|6")
"""First digits of the numbers of cards."""
_BETWEEN: Final = r"(?:[./_\u00a0\u2007\u202f]| ?[\u2010-\u2015\u2212-] ?| )?"
"""What may stand between the digits of a card's number."""
# (The look ahead only saves work: it says which characters the next twelve are.)
_RUN: Final = re.compile(
    rf"\d(?=[\d ./_\u00a0\u2007\u202f\u2010-\u2015\u2212-]{{12}})(?:{_BETWEEN}\d){{12,}}"
)
DIGITS_AT_END: Final = re.compile(rf"\d(?:{_BETWEEN}\d)*(?: ?[\u2010-\u2015\u2212-] ?\Z|\S*\Z)")
"""End of a text that may be the beginning of a card's number."""
_GROUP: Final = re.compile(r"\d+")


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
        groups = [Group(run.start() + one.start(), _as_ascii(one[0])) for one in _GROUP.finditer(run[0])]
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
