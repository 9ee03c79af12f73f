"""Secrets of many kinds, the calls that hold them, and a search that knows how they may be written."""

import base64
import json
import re
import secrets
import string
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

__all__ = ["REDACT", "Planted"]

REDACT: dict[str, Any] = {
    "fields": ["password", "token", "Credentials", "pin"],
    "patterns": ["sk-[A-Za-z0-9]{20}", r"\b4\d{15}\b", "eyJ[A-Za-z0-9+/=]{20,}"],
}


def _digits(count: int) -> str:
    return "".join(secrets.choice(string.digits[1:]) for _ in range(count))


@dataclass
class Planted:
    """Every secret by the place where it was put."""

    by_name: dict[str, str] = field(default_factory=dict)

    def word(self, name: str, before: str = "", after: str = "") -> str:
        """For an argument whose name is configured."""
        return self._keep(name, f"{before}Zq{secrets.token_hex(9)}{after}")

    def key(self, name: str) -> str:
        """One that fits a pattern."""
        return self._keep(name, f"sk-{secrets.token_hex(10)}")

    def number(self, name: str, before: str = "", count: int = 12) -> int:
        """A number."""
        return int(self._keep(name, before + _digits(count)))

    def encoded(self, name: str) -> str:
        """As tokens of the web are."""
        return self._keep(name, f"eyJ{base64.b64encode(secrets.token_bytes(30)).decode()}")

    def _keep(self, name: str, secret: str) -> str:
        assert name not in self.by_name
        self.by_name[name] = secret
        return secret

    def found_in(self, content: bytes) -> set[str]:
        """The names of those that stand there, however they are written."""
        return {
            name for name, secret in self.by_name.items() if any(one in content for one in _written(secret))
        }

    # ------------------------------------------------------------------ calls

    def everywhere(self) -> dict[str, Any]:
        """The arguments of one call, with a secret wherever one can stand."""
        long = "lorem ipsum " * 200
        return {
            "label": "everywhere",
            "password": self.word("an argument"),
            "auth": {"TOKEN": self.word("nested"), "x": {"credentials": {"a": [self.word("deep"), 1]}}},
            "list": [{"password": self.word("first of a list")}, {"password": self.word("second of a list")}],
            "pin": self.number("a number"),
            "credentials": {self.word("a key in a named field"): "x"},
            "text": f"{long}{self.key('in a long text')} {long}",
            "map": {self.key("a key"): "x"},
            "card": self.number("a number that fits", "4", 15),
            "card_text": f"card {self.number('a number as text', '4', 15)}, thanks",
            "argv": ["--key", self.key("an element"), f"--jwt={self.encoded('base64')}"],
            "more": {"password": self.word("unicode", "пароль «", "» 🔑")},
            "odd": {"password": self.word("quoted", 'a"b\\c\n\t', "\x00'")},
            "url": f"https://bob:{self.key('in a url')}@example.com/?q={quote(self.key('in a query'))}",
        }

    def usual(self, name: str, **more: Any) -> dict[str, Any]:
        """A secret by the name of its argument, and one by its pattern."""
        word, key = self.word(f"{name}: named"), self.key(f"{name}: in a text")
        return {"label": name, "password": word, "text": f"use {key} for {name}", **more}


CORE = 12
"""Letters and digits in a row that are a secret by themselves."""
_ESCAPED = {0x07: "\\a", 0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x22: '\\"', 0x5C: "\\\\"}


def _monitored(raw: bytes) -> bytes:
    """As MONITOR and logs of the server write bytes."""
    return "".join(
        _ESCAPED.get(one) or (chr(one) if 0x20 <= one < 0x7F else f"\\x{one:02x}") for one in raw
    ).encode()


def _written(secret: str) -> set[bytes]:
    """The ways in which a text may be found in files and answers."""
    core = max(re.findall("[A-Za-z0-9]+", secret), key=len)
    return _ways(secret) | (_ways(core) if len(core) >= CORE else set())


def _ways(secret: str) -> set[bytes]:
    raw = secret.encode()
    ways = {
        raw,
        json.dumps(secret)[1:-1].encode(),
        json.dumps(json.dumps(secret))[3:-3].encode(),
        quote(secret).encode(),
        quote(secret, safe="").encode(),
        repr(secret)[1:-1].encode(),
        repr(raw)[2:-1].encode(),
        _monitored(raw),
        raw.hex().encode(),
        raw.hex().upper().encode(),
        secret.encode("utf-16-le"),
    }
    if secret.isdigit():  # as a number it is binary on the wire
        ways.add(int(secret).to_bytes(8, "big"))
        ways.add(_monitored(int(secret).to_bytes(8, "big")))
    for shift in range(3):  # base64 depends on where in the text it begins
        encoded = base64.b64encode(b"\0" * shift + raw)
        ways.add(encoded[4 if shift else 0 : len(encoded) // 4 * 4 - 4])
    return ways
