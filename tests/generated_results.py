"""Results of tools with secrets in them, and what schedulers say about them, each drawn from a seed.

A `ResultCase` has a result (nested JSON, text, content blocks with a structured copy, an error with a cause)
in which secrets stand in many places: as a text, within one, as a key, as a number, in JSON within a text.
Each scheduler knows some of the secrets, finds one place of each in what it is sent, and masks that place
alone. `leaks` says which secrets are in some bytes, in any form in which they could be read. Nothing here
imports the product's masks.
"""

import json
import random
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, computed_field

SCHEDULERS = ("alpha", "beta", "gamma")
ALPHABETS = ("abcdefghij0123456789", "äöüß🔑€abc", 'ab"\\\n\t/xy', "sk-0123456789", "a&<>/é🔑")
ANSWERS = (
    *("continue",) * 5,
    *("mask",) * 10,
    *("replace",) * 4,
    *("deny", "ask_user", "broken"),
)
"""What schedulers do, the usual more often."""


def write_as_go(value: Any) -> str:
    """Return JSON as Go writes it: safe within HTML."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def write_as_php(value: Any) -> str:
    """Return JSON as PHP writes it: slashes are escaped, too."""
    return json.dumps(value).replace("/", r"\/")


WRITERS = (json.dumps, lambda value: json.dumps(value, ensure_ascii=False), write_as_go, write_as_php)


@dataclass(frozen=True)
class ResultCase:
    """One result, and what each scheduler does with it, first and when it is asked again."""

    seed: int
    result: Any
    copy: Any
    """A second copy of it, as an artifact or a cause."""
    held: Any
    """The same in objects of a program, which show more than they hold."""
    secrets: tuple[str, ...]
    answers: dict[str, tuple[str, str]]
    knows: dict[str, tuple[str, ...]]
    """Secrets that each scheduler masks."""
    other: Any
    """Result with which one of them replaces it; it has secrets, too."""
    limit: int = 65_536
    redacts: bool = False
    spans: dict[str, bool] = field(default_factory=dict)
    """Whether a scheduler masks spans, or all of a text."""


def make_case(seed: int) -> ResultCase:
    """Return the case of this seed."""
    draw = random.Random(seed)
    secrets = tuple(make_secret(draw, at) for at in range(draw.randint(1, 4)))
    shape = draw.choice(("json", "json", "text", "blocks", "error"))
    result = make_result(draw, secrets, shape)
    return ResultCase(
        seed,
        result,
        make_value(draw, secrets, 2),
        make_held(random.Random(f"held {seed}"), result),
        secrets,
        {name: (draw.choice(ANSWERS), draw.choice(ANSWERS)) for name in SCHEDULERS},
        {name: tuple(draw.sample(secrets, draw.randint(0, len(secrets)))) for name in SCHEDULERS},
        make_value(draw, secrets, draw.randint(0, 2)),
        draw.choice((65_536, 65_536, 65_536, 1024)),
        draw.random() < 0.3,
        {name: draw.random() < 0.6 for name in SCHEDULERS},
    )


def make_secret(draw: random.Random, at: int) -> str:
    """Return a text of 8 to 20 characters that stands nowhere by chance; every third is a number."""
    if draw.random() < 0.3:
        return f"7{at}{draw.randint(10**8, 10**9 - 1)}"
    letters = draw.choice(ALPHABETS)
    return f"Q{at}" + "".join(draw.choice(letters) for _ in range(draw.randint(6, 18))) + f"{at}Z"


def make_result(draw: random.Random, secrets: tuple[str, ...], shape: str) -> Any:
    if shape == "text":
        return make_text(draw, secrets, 6)
    if shape == "blocks":
        value = make_value(draw, secrets, 3)
        text = json.dumps(value, ensure_ascii=draw.random() < 0.5)
        return {"content": [{"type": "text", "text": text}], "structuredContent": value, "isError": False}
    if shape == "error":
        error = RuntimeError(make_text(draw, secrets, 2))
        error.__cause__ = ValueError(make_text(draw, secrets, 2))
        return error
    return make_value(draw, secrets, 4)


def make_value(draw: random.Random, secrets: tuple[str, ...], depth: int) -> Any:
    kind = draw.choice(("map", "map", "list", "text", "scalar")) if depth else draw.choice(("text", "scalar"))
    if kind == "map":
        return {
            make_key(draw, secrets): make_value(draw, secrets, depth - 1) for _ in range(draw.randint(1, 4))
        }
    if kind == "list":
        return [make_value(draw, secrets, depth - 1) for _ in range(draw.randint(0, 4))]
    if kind == "text":
        return make_text(draw, secrets, 3)
    secret = draw.choice(secrets)
    number = int(secret) if secret.isdecimal() else draw.randint(-5, 5)
    return draw.choice((None, True, number, 0.5, number, ""))


class Parts(BaseModel):
    """A text in two parts, and as a whole where it is dumped."""

    parts: tuple[str, str]

    @computed_field
    @property
    def whole(self) -> str:
        """The text."""
        return "".join(self.parts)


@dataclass
class Letters:
    """A text letter by letter, and as a whole where it is printed."""

    letters: list[str]

    def __str__(self) -> str:
        """Return the text."""
        return "".join(self.letters)


def make_held(draw: random.Random, value: Any) -> Any:
    """Return a value with some of its texts as objects, and things in between that JSON does not have."""
    if isinstance(value, dict):
        odd = {"took": timedelta(seconds=3)} if draw.random() < 0.2 else {}
        return {name: make_held(draw, one) for name, one in value.items()} | odd
    if isinstance(value, list):
        return [make_held(draw, one) for one in value]
    if not isinstance(value, str):
        return value
    made = Parts(parts=(value[:7], value[7:])), Letters(list(value)), value.encode(), value, value
    return draw.choice(made)


def make_key(draw: random.Random, secrets: tuple[str, ...]) -> str:
    return draw.choice(secrets) if draw.random() < 0.1 else draw.choice(("a", "id", "text", "a/b", "~", ""))


def make_text(draw: random.Random, secrets: tuple[str, ...], most: int) -> str:
    parts = []
    for _ in range(draw.randint(1, most)):
        secret = draw.choice(secrets)
        inner = draw.choice(WRITERS)({"in": secret})
        parts.append(
            draw.choice(
                (
                    secret,
                    secret,
                    f" {secret}.",
                    inner,
                    json.dumps([inner]),
                    "some words",
                    "🔑 ",
                    "x" * draw.randint(0, 400),
                )
            )
        )
    return "".join(parts)


# ------------------------------------------------------------------ what a scheduler does


def find_places(value: Any, secret: str, path: str = "") -> list[tuple[str, int, int, bool]]:
    """Return where this secret stands in clear: path, its begin and end, and whether that is all of it."""
    if isinstance(value, str):
        at = value.find(secret)
        return [] if at < 0 else [(path, at, at + len(secret), value.strip() == secret)]
    if isinstance(value, dict):
        items = [(name.replace("~", "~0").replace("/", "~1"), one) for name, one in value.items()]
    elif isinstance(value, list):
        items = [(str(at), one) for at, one in enumerate(value)]
    else:
        return [(path, -1, -1, True)] if str(value) == secret else []
    return [place for name, one in items for place in find_places(one, secret, f"{path}/{name}")]


def masks_of(case: ResultCase, scheduler: str, result: Any) -> list[tuple[str, int | None, int | None, str]]:
    """Return the parts that a scheduler masks: one place of each secret that it knows and can see."""
    return [part for part, _ in _draw_masks(case, scheduler, result)]


def hidden_by(case: ResultCase, scheduler: str, result: Any) -> set[str]:
    """Return the secrets that these masks hide: a span of one, or a text or number that is one."""
    return {secret for _, secret in _draw_masks(case, scheduler, result) if secret}


def _draw_masks(
    case: ResultCase, scheduler: str, result: Any
) -> list[tuple[tuple[str, int | None, int | None, str], str]]:
    draw = random.Random(f"{case.seed} {scheduler}")
    found: list[tuple[tuple[str, int | None, int | None, str], str]] = []
    for secret in case.knows[scheduler]:
        if places := find_places(result, secret):
            path, start, end, is_all = draw.choice(places)
            name = draw.choice(("", "api key", secret))
            if start >= 0 and case.spans[scheduler]:
                found.append(((path, start, end, name), secret))
            else:  # of a longer text that is hidden as a whole, no part is known
                found.append(((path, None, None, name if is_all else ""), secret if is_all else ""))
    return found


# ------------------------------------------------------------------ what may be read


def leaks(data: Any, secrets: set[str]) -> list[str]:
    """Return those of the secrets that can be read in a value or in bytes, in whatever form."""
    text = data.decode(errors="replace") if isinstance(data, bytes) else "\n".join(every_text(data))
    # Other writers of JSON escape as they like.
    plain = re.sub(r"\\+u00([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), text.replace("\\/", "/"))
    return [secret for secret in sorted(secrets) if any(form in text + plain for form in forms(secret))]


def every_text(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for name, one in value.items() for text in (str(name), *every_text(one))]
    if isinstance(value, list | tuple):
        return [text for one in value for text in every_text(one)]
    return [str(value)]


def forms(secret: str) -> set[str]:
    """Return a secret as it stands in clear, and as JSON writes it, to three levels of JSON within JSON."""
    found = {secret}
    for _ in range(3):
        found |= {json.dumps(one, ensure_ascii=plain)[1:-1] for one in found for plain in (True, False)}
    return found
