r"""Named kinds of texts that a rule masks: keys and tokens, private keys, cards, mail addresses. Pure.

Each kind finds the parts of one text, as it stands: `written_texts` reads what links, HTML and mails write in
another way. Most are patterns of the linear engine. `cards` are numbers whose check digit is right, with
separators or without.
"""

import re
from collections.abc import Iterator
from itertools import accumulate
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
_START: Final = r"(?:\b|_|\x1b?\[[0-9;]*[mK])"
"""Where a key may begin: with a word, or behind `_` or a colour of a terminal."""
_IS: Final = r"['\"]?(?:[\s,'\"]+value['\"]?)?\s{0,8}(?:=>|:=|[=:|])[\s\['\"|>-]{0,12}"
"""What may stand between a name and its value: also in tables, and in maps of a name and a value."""
_AWS: Final = (
    "(?:aws[ _-]?(?:secret|session)?[ _-]?(?:access)?[ _-]?(?:key|token)(?:[ _-]?id)?"
    "|secret[ _-]?access[ _-]?key|(?:session|security)[ _-]?token)"
)
# (Digits are told apart only where they must be, so that all kinds together fit into one program.)
API_KEYS: Final = (
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}",
    # Behind a blank or a comma alone, words may follow: so what follows has the length of a secret.
    rf"(?i){_AWS}(?:(?:{_IS}|>)[A-Za-z0-9/+][A-Za-z0-9/+=]{{15,}}|[\s,'\"]{{1,8}}[A-Za-z0-9/+]{{40,}})",
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
    rf"(?i){_START}bearer\s{{1,8}}[A-Za-z0-9._~+/-]{{16,}}=*",
    rf"(?i){_START}authorization{_IS}(?:basic|token|apikey)\s{{1,8}}[A-Za-z0-9._~+/=:-]{{8,}}",
    rf"(?i){_START}basic\s{{1,8}}(?:[A-Za-z0-9+/]{{4}}){{2,}}(?:[A-Za-z0-9+/]{{2}}=|[A-Za-z0-9+/]{{3}})=",
    rf"{_START}npm_[A-Za-z0-9]{{30,}}",
    rf"{_START}pypi-{_WORD}{{50,}}",
    rf"{_START}hf_[A-Za-z0-9]{{30,}}",
    rf"{_START}SG\.{_WORD}{{16,}}\.{_WORD}{{16,}}",
    rf"{_START}(?:SK|AC)[0-9a-f]{{32}}\b",
    rf"{_START}do[opr]_v[0-9]_[0-9a-f]{{64}}",
    rf"(?i){_START}AccountKey=[A-Za-z0-9+/]{{40,}}=*",
    rf"{_START}(?:bot)?[0-9]{{8,10}}:AA{_WORD}{{33}}",
    rf"(?i){_START}[a-z][a-z0-9+.-]{{1,20}}://[^\s/:@'\"]{{0,256}}:[^\s/'\"]{{1,256}}@",
)
"""Keys and tokens of AWS, GitHub, GitLab, OpenAI, Anthropic, Stripe, Slack, Google, npm, PyPI, Hugging Face,
SendGrid, Twilio, DigitalOcean, Azure, Telegram; JSON Web Tokens, headers, passwords in links."""
_BLANK: Final = r"[\s+]"
_DASHES: Final = rf"-{{4}}(?:-|{_BLANK})?"
_ARMOUR: Final = rf"[A-Z0-9\s+]*PRIVATE{_BLANK}KEY(?:{_BLANK}BLOCK)?(?:-|{_BLANK})?-{{4}}"
_BEGIN: Final = rf"{_DASHES}BEGIN{_ARMOUR}"
_END: Final = rf"{_DASHES}END{_ARMOUR}"
_LAST_LINE: Final = compile_pattern(_END)
_MENTIONED: Final = re.compile(rf"{_BEGIN}['\"`]\s?[a-z)]")
"""First line of a private key in code that looks for keys: words follow behind a quotation mark."""
SECRETS_OF_JWK: Final = ("d", "k", "p", "q", "dp", "dq", "qi", "oth")
"""Members of a JSON Web Key, which has `kty`, that make it a private one."""
PRIVATE_KEYS: Final = (
    rf"{_BEGIN}(?s:.*?)(?:{_END}|\Z)",
    r"PuTTY-User-Key-File-[0-9](?s:.*)",
    r"AGE-SECRET-KEY-[0-9][A-Z0-9]{50,}",
)
"""Of OpenSSL, OpenSSH, PGP, SSH2 (which has blanks in its first line), PuTTY, age."""
NAMES_OF_KEYS: Final = re.compile(r"(?i)key|token|authorization")
"""Names in a map that tell more of the text behind them than they do by themselves."""
_NO_MAIL: Final = r"\s@,;:<>()\[\]\"/?=&|{}`*\\"
"""Characters around a mail address. Letters of an address may be of any language, with marks of their own."""
_NO_HOST: Final = rf"{_NO_MAIL}.。．｡%!#'’"
_TOP: Final = rf"[^{_NO_HOST}0-9][^{_NO_HOST}]*"
"""Last part of a host: no number, as in `package@1.2.3`."""
_LOCAL: Final = rf"[^{_NO_MAIL}]+(?:\{{[^{_NO_MAIL}]*\}}[^{_NO_MAIL}]*)*"
"""Part before the `@`. Braces are of it if they are closed in it."""
_DOT: Final = "[.。．｡]"
MAIL_ADDRESSES: Final = (rf"{_LOCAL}[@＠﹫][^{_NO_HOST}]+{_DOT}(?:[^{_NO_HOST}]+{_DOT})*{_TOP}",)
PATTERNS: Final[dict[Kind, tuple[str, ...]]] = {
    "api keys": API_KEYS,
    "private keys": PRIVATE_KEYS,
    "mail addresses": MAIL_ADDRESSES,
}


class ToldElsewhere(NamedTuple):
    """A value that nothing tells but a word anywhere in its result, such as the head of its table."""

    word: re.Pattern[str]
    value: re.Pattern[str]
    """Pattern with a group `value`."""


_IS_TEXT: Final = r"['\"]\s{0,64}:\s{0,64}['\"]"
TOLD_ELSEWHERE: Final[dict[Kind, ToldElsewhere]] = {
    "api keys": ToldElsewhere(
        re.compile(rf"(?i){_AWS}"),
        re.compile(
            r"(?<![A-Za-z0-9/+])(?=[a-z0-9/+]*[A-Z])(?=[A-Z0-9/+]*[a-z])(?=[A-Za-z/+]*[0-9])"
            r"(?P<value>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
        ),
    ),
    "private keys": ToldElsewhere(
        re.compile(r"['\"]kty['\"]"),
        re.compile(
            rf"['\"](?:k{_IS_TEXT}(?={_WORD}{{8}})|(?:[dpqrt]|d[pq]|qi){_IS_TEXT}(?={_WORD}{{16}}))"
            r"(?P<value>(?:[^'\"\\]|\\.)*)"
        ),
    ),
}
"""Secret access keys of AWS, and secret members of a JSON Web Key; `r` and `t` are in its `oth`."""


def is_open(kind: Kind | None, found: str) -> bool:
    """Return whether a part goes on behind the end of its text: a private key whose end is not there."""
    return kind == "private keys" and found[0] == "-" and not is_closed(found)


def is_closed(text: str) -> bool:
    """Return whether a text has the last line of a private key."""
    return _LAST_LINE.search(text)


def is_mentioned(found: str) -> bool:
    """Return whether the beginning of a private key is only spoken of."""
    return _MENTIONED.match(found) is not None


_CARD_DIGITS: Final = range(13, 20)
_ISSUERS: Final = re.compile(r"4|5[0-8]|2[2-7]|3[0-9]|6")
"""First digits of the numbers of cards."""
_SIGNS: Final = r" ./_+\u00a0\u2000-\u200d\u202f\u2060\u3000\ufeff"
_LINES: Final = r"\u2010-\u2015\u2212\u00b7\u2022-"
"""Dashes and dots that may have a space on each side."""
_BETWEEN: Final = rf"(?:[{_SIGNS}]| ?[{_LINES}] ?)?"
"""What may stand between the digits of a card's number."""
# (The look ahead only saves work: it says which characters the next twelve are.)
_RUN: Final = re.compile(rf"\d(?=[\d{_SIGNS}{_LINES}]{{12}})(?:{_BETWEEN}\d){{12,}}")
DIGITS_AT_END: Final = re.compile(rf"\d(?:{_BETWEEN}\d)*(?:{_BETWEEN}\Z|\S*\Z)")
"""End of a text that may be the beginning of a card's number."""
_GROUP: Final = re.compile(r"\d+")


def find_cards(text: str) -> Iterator[tuple[int, int] | None]:
    """Yield the places of card numbers in a text, and None for each number that was tried and is none.

    A number begins and ends where a group of digits does. Numbers may overlap: one that is right by chance,
    such as an order's and the first half of a card's, hides nothing of the card's.
    """
    for run in _RUN.finditer(text):
        groups = list(_GROUP.finditer(text, run.start(), run.end()))
        digits = _as_ascii("".join(one[0] for one in groups))
        ends = list(accumulate(len(one[0]) for one in groups))
        sums = _CheckSums(digits)
        for at, group in enumerate(groups):
            first = ends[at] - len(group[0])
            if not _ISSUERS.match(digits, first):
                continue
            until = at + _CARD_DIGITS.stop
            for last, end in zip(groups[at:until], ends[at:until], strict=True):
                if end - first in _CARD_DIGITS:
                    yield (group.start(), last.end()) if sums.is_right(first, end) else None


def _as_ascii(digits: str) -> str:
    return digits if digits.isascii() else "".join(str(int(one)) for one in digits)


class _CheckSums:
    """Sums of digits by which each number in them is checked in one step (ISO/IEC 7812)."""

    def __init__(self, digits: str) -> None:
        self._digits = digits
        once = [int(one) for one in digits]
        twice = [(0, 2, 4, 6, 8, 1, 3, 5, 7, 9)[one] for one in once]
        even, odd = once.copy(), once.copy()
        even[::2], odd[1::2] = twice[::2], twice[1::2]
        self._sums = [0, *accumulate(even)], [0, *accumulate(odd)]
        """Of all digits before one, where every second digit counts twice: the first one, or the second."""

    def is_right(self, first: int, end: int) -> bool:
        """Return whether the last digit of a number is right, and its digits are not all the same."""
        sums = self._sums[end % 2]  # the last but one counts twice
        return (sums[end] - sums[first]) % 10 == 0 and len(set(self._digits[first:end])) > 1
