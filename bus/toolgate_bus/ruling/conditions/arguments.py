r"""Reads arguments at a path, in every possible way, and maps arguments as `arguments:` says. Pure.

A path is names with dots between (`user.address.zip`, `items.0.price`). A number steps to one element of a
list, a name into each of them: in `{"to": [{"email": "ann@example.com"}]}` each address is at "to.email".

An LLM may also write a key that has the dots in it (`{"order.amount": 1, "order": {"amount": 5000}}`). Which
of the two a tool takes is unknown here: `readings` returns both. `order\.amount` is that key only. It is
unknown, too, whether a tool reads a text that looks like JSON (`{"order": "{\"amount\": 5000}"}`) as JSON.

A replacement's arguments map target argument to source: `$.path` in the call's own arguments, `$` for all of
them, or `{value: …}`. If the call does not have a source, its target argument is left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol import placeholders

MISSING: Any = type("Missing", (), {"__repr__": lambda _self: "MISSING"})()
"""Value that stands for a missing argument."""
UNSEEN: Any = type("Unseen", (), {"__repr__": lambda _self: "UNSEEN"})()
"""Value for a path that leads through a value that was not sent, or through a text that may be JSON."""


class Each(tuple[Any, ...]):
    """Values at a path that leads through a list: one of each element, or MISSING."""

    __slots__ = ()


BLANK: Final = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\ufeff"
"""Characters that tools drop before they read a text as JSON."""
_BEGINS: Final = frozenset(("{", "[", '"', "`"))
"""First characters of JSON, and of a block of code in Markdown, in which LLMs like to send JSON."""
_MAX_COUNT: Final = 64
"""Maximum number of readings of one path."""


def readings(path: str, arguments: Mapping[str, Any]) -> Sequence[Any]:
    """Return the readings of a path: a value, `Each`, MISSING or UNSEEN; then those at keys with dots."""
    if placeholders.stands_for_all(arguments):
        return (UNSEEN,)
    names, other = path_names(path)
    if len(names) == 1:
        return (arguments.get(names[0], MISSING),)
    found = [_at(names, arguments)]
    if other:
        for value in _at_dotted(names, arguments):
            found.append(value)
            if len(found) > _MAX_COUNT:
                return (UNSEEN,)
    return found


def find(path: str, value: Any) -> Any:
    """Return the value at a path, or MISSING. Keys with dots count if the path itself leads nowhere."""
    if not isinstance(value, Mapping):
        return MISSING
    here = (one for one in readings(path, value) if one is not MISSING)
    found = next(here, MISSING)
    return MISSING if found is UNSEEN or type(found) is Each else found


def find_only_name(path: str) -> str | None:
    """Return the name of a path that has only one, which can be read in one way; else None."""
    names, _ = path_names(path)
    return names[0] if len(names) == 1 else None


@lru_cache(maxsize=4096)
def path_names(path: str) -> tuple[tuple[str, ...], bool]:
    r"""Return the names of a path, and whether it may be read in other ways: keys with dots."""
    escaped = path.replace(r"\.", "\0")
    names = tuple(name.replace("\0", ".") for name in escaped.split("."))
    return names, escaped == path


def _at(names: Sequence[str], value: Any) -> Any:
    for number, name in enumerate(names):
        if isinstance(value, list | tuple) and not is_index(name):
            return _at_each(names[number:], value)
        value = _step(name, value)
        if value is MISSING or value is UNSEEN:
            return value
    return value


def _at_each(names: Sequence[str], elements: Sequence[Any]) -> Any:
    found: list[Any] = []
    for element in elements:
        one = _at(names, element)
        found += one if type(one) is Each else (one,)
    return Each(found) if found else MISSING


def _at_dotted(names: Sequence[str], value: Any) -> Iterator[Any]:
    """Yield the values at keys that have some of the dots in them."""
    if isinstance(value, list | tuple) and not is_index(names[0]):
        for element in value:
            yield from _at_dotted(names, element)
        return
    for end in range(1, len(names) + 1):
        if end == 1:
            inner = _step(names[0], value)
        elif isinstance(value, Mapping):
            inner = value.get(".".join(names[:end]), MISSING)
        else:
            return
        if inner is MISSING or inner is UNSEEN:
            continue
        rest = names[end:]
        if end > 1 and (there := _at(rest, inner)) is not MISSING:
            yield there
        if len(rest) > 1:
            yield from _at_dotted(rest, inner)


def _step(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return value.get(name, MISSING)
    if isinstance(value, str):
        return UNSEEN if placeholders.hides(value) or value.lstrip(BLANK)[:1] in _BEGINS else MISSING
    if isinstance(value, Sequence) and not isinstance(value, bytes) and is_index(name):
        return value[int(name)] if int(name) < len(value) else MISSING
    return MISSING


def is_index(name: str) -> bool:
    """Return whether a name of a path steps to one element of a list."""
    # Six digits are more than any list's length, and int() of a long text is slow.
    return name.isdecimal() and len(name) < 7


def check_path(path: str) -> str:
    """Return a path unchanged. Raises ValueError, with a correction, if no arguments can have it."""
    if path.startswith("$"):
        raise ValueError(f"{path}: a path has no $ here: write {path.lstrip('$').lstrip('.') or 'its name'}")
    if path.startswith("/"):
        raise ValueError(
            f"{path}: a path is not a JSON pointer: write {path.strip('/').replace('/', '.') or 'its name'}"
        )
    if bracket := _BRACKETS.search(path):
        plain = _BRACKETS.sub(lambda one: f".{one[1]}" if one[1].strip("*") else "", path).lstrip(".")
        raise ValueError(f"{path}: {bracket[0]} is not part of a path: write {plain}")
    if "" in path_names(path)[0]:
        raise ValueError(f"{path}: has an empty name between, before or after its dots")
    return path


_BRACKETS: Final = re.compile(r"\[['\"]?([^\[\]'\"]*)['\"]?\]")
Path = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(check_path)]
"""Path as people write it."""
Name = Annotated[str, Field(min_length=1, max_length=256)]


class LiteralArgument(StrictModel):
    """An argument with a literal value: `{value: 10}`."""

    value: Any


def is_source(value: Any) -> bool:
    """Return whether a value is a source of an argument."""
    if isinstance(value, str):
        return value == "$" or (value[:2] == "$." and len(value) > 2)
    return isinstance(value, LiteralArgument) or (isinstance(value, Mapping) and set(value) == {"value"})


def _sources(arguments: Any) -> Any:
    for name, source in arguments.items() if isinstance(arguments, Mapping) else ():
        if not is_source(source):
            raise ValueError(
                f"{name}: must be $ (all arguments), $.path (one of them), or {{value: …}} for a literal"
            )
    return arguments


Arguments = Annotated[dict[Name, str | LiteralArgument], Field(max_length=256), BeforeValidator(_sources)]


def map_arguments(sources: Mapping[str, str | LiteralArgument], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the target's arguments. An argument with a missing source is left out."""
    found: dict[str, Any] = {}
    for name, source in sources.items():
        if isinstance(source, LiteralArgument):
            found[name] = source.value
        else:
            found[name] = arguments if source == "$" else find(source.removeprefix("$."), arguments)
    return {name: value for name, value in found.items() if value is not MISSING}
