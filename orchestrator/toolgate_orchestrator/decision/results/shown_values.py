"""A result as JSON, with all that may be shown of it.

An LLM may get what a value holds, what it is dumped as, or its text: that is for the framework to choose.
"""

import dataclasses
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from types import FunctionType
from typing import Any, Final

from pydantic import BaseModel
from toolgate_bus.protocol.json_values import MAX_BYTES, same_json

from toolgate_orchestrator.decision.question.plain_values import PlainReading
from toolgate_orchestrator.decision.question.question import UnreadableQuestion
from toolgate_orchestrator.decision.question.written_size import is_huge

_PLAINLY_WRITTEN: Final = frozenset(
    {
        *("builtins", "collections", "datetime", "decimal", "enum", "ipaddress", "pathlib", "uuid"),
        *("pydantic", "pydantic_core"),
    }
)
"""Packages whose classes write no more in their text than they hold."""
_TEXT: Final = "its text"
"""Name under which the text of a value stands beside what it holds."""
_MAX_TEXTS: Final = 1 << 20
"""Characters of texts of their own that values have: each may stand in that of another. One beyond them has
no plain form."""
_DUMP: Final = "its dump"
"""Name of what a model is dumped as, if that is no map."""
_DATACLASS: Final = "__dataclass_fields__"
_MADE: Final = "__create_fn__."
"""Where `dataclass` makes methods of a class."""
_WORDS: Final = ("__repr_args__", "__repr_str__", "__repr_name__")
"""What pydantic calls to write a value."""
_WORD: Final = re.compile(r"\w+")
_MAX_FIELDS: Final = 100
"""Most fields that are looked for in a text. A text of more of them is shown as it is."""
_WRITTEN_ALIKE: Final = frozenset((int, float, bool, type(None), bytes))
"""Types of keys that have one text."""
_MODES: Final = ("json", "python")
_WHOLE: Final = ""
_MODELS: Final = frozenset({"model", "dataclass"})
_FIELDS: Final = frozenset({"dataclass-field", "computed-field"})
_NO_SCHEMAS: Final = frozenset({"metadata", "serialization", "default", "expected", "cls", "config"})
"""Keys of a schema of pydantic below which no schemas stand, or whose schemas were looked at."""


def to_shown(value: Any) -> Any:
    """Return the plain form of a result with all that may be shown of it: computed fields, its own text.

    What reads otherwise where it is shown than where it is held becomes a list of both. Nothing is consumed:
    an iterator stays as it is.
    """
    return _ShownReading().read(value, 0)


class _ShownReading(PlainReading):
    """Reading of a value that is shown."""

    __slots__ = ("_room",)

    def __init__(self) -> None:
        super().__init__()
        self._room = _MAX_TEXTS

    def read_odd(self, value: Any, kind: Any, depth: int) -> Any:
        """See PlainReading."""
        contents = _find_contents(value, kind)
        if contents is None:
            fields = plain = super().read_odd(value, kind, depth)
        else:
            held = {one.name: getattr(value, one.name) for one in dataclasses.fields(kind)}
            fields = self.read(held, depth)
            plain = [fields, self.read(contents, depth)]
        if plain is value:
            return value
        writers = _find_writers(kind, fields)
        if writers and self._room <= 0:
            return value
        dumps = _find_dumps(value, kind)
        if self._left <= 0:  # so long that its end is cut off in any case, whatever else it shows
            return plain
        if (dumps or writers) and is_huge(value, chars=MAX_BYTES):
            self._left = 0  # nobody writes it, so the result is withheld: no more need be read
            return value
        if hasattr(kind, "__pydantic_decorators__"):
            plain = self._add_shown_fields(plain, value, kind, dumps, depth)
        texts = {write(value) for write in writers}
        self._room -= sum(map(len, texts))
        if texts and issubclass(kind, BaseModel) and not _has_own_words(kind):
            with suppress(Exception):  # a field's own code may raise anything
                texts -= {BaseModel.__str__(value), BaseModel.__repr__(value)}  # they have fields alone
        text = "\n".join(sorted(text for text in texts if _says_more(text, value, fields)))
        if not text or text == plain:
            return plain
        return {**plain, _free_name(plain, _TEXT): text} if type(plain) is dict else [plain, text]

    def read_items(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        """See PlainReading. Each key is a text here, and of two that read alike both stay."""
        found: dict[str, Any] = {}
        for key, child in items:
            plain = self.read(key, depth + 1)
            name = _free_name(found, plain if type(plain) is str else self._write_key(key, plain))
            found[name] = self.read(child, depth + 1)
        return found

    def _write_key(self, key: Any, plain: Any) -> str:
        """Return the text of a key, and its plain form too if that has other words."""
        has_one_text = type(key) in _WRITTEN_ALIKE
        if self._room <= 0 or (not has_one_text and is_huge((key,))):
            raise UnreadableQuestion(f"it holds a {type(key).__name__} whose text is too long")
        text = str(key)
        if not has_one_text and _words_of(held := repr(plain)) not in _words_of(text):
            text = f"{text}\n{held}"
        self._room -= len(text)
        return text

    def _add_shown_fields(
        self, plain: Any, value: Any, kind: Any, dumps: Sequence[Callable[[], Any]], depth: int
    ) -> Any:
        """Add the fields that a model computes, and what it and its fields are dumped as."""
        found = dict(plain) if type(plain) is dict else {_DUMP: plain}
        for name in kind.__pydantic_decorators__.computed_fields:
            with suppress(Exception):  # its own code may raise anything; then nobody is shown it
                found[_free_name(found, name)] = self.read(getattr(value, name), depth + 1)
        forms = dict[str, list[Any]]()
        for dump in dumps:
            with suppress(Exception):  # as above: what cannot be dumped is shown to nobody in that form
                made = dump()
                for name, one in (made if type(made) is type(plain) is dict else {_DUMP: made}).items():
                    known = forms.setdefault(name, [found[name]] if name in found else [])
                    dumped = self.read(one, depth + 1)
                    if not any(same_json(dumped, other) for other in known):
                        known.append(dumped)
        found |= {name: known[0] if len(known) == 1 else known for name, known in forms.items()}
        return found if type(plain) is dict or len(found) > 1 else found[_DUMP]


def _find_contents(value: Any, kind: Any) -> Any:
    """Return what a dataclass holds as the map or list that it is besides; None for any other value."""
    bases = [base for base in (dict, list) if issubclass(kind, base)] if hasattr(kind, _DATACLASS) else ()
    return bases[0].copy(value) if bases else None


def _find_dumps(value: Any, kind: Any) -> list[Callable[[], Any]]:
    """Return the ways to dump what a model does not dump as it is held; none for most models."""
    if issubclass(kind, BaseModel):
        own = [name for name in ("model_dump", "model_dump_json") if _is_own(getattr(kind, name))]
        if own:
            modes = [partial(value.model_dump, mode=mode) for mode in _MODES]
            return [*modes, *(getattr(value, name) for name in own)]
    if not hasattr(kind, "__pydantic_decorators__"):
        return []
    names = _dumped_otherwise(kind)
    dump = kind.__pydantic_serializer__.to_python
    include = None if _WHOLE in names else names
    return [partial(dump, value, mode=mode, include=include) for mode in _MODES] if names else []


@lru_cache(maxsize=1024)
def _dumped_otherwise(kind: Any) -> frozenset[str]:
    """Return the fields of a model that are dumped by code of somebody's own, at any place in their schema.

    `_WHOLE` stands for the model as a whole. Other models within are read by themselves.
    """
    names = set[str]()
    left: list[tuple[str | None, Any]] = [(_WHOLE, kind.__pydantic_core_schema__)]
    for name, node in left:  # it grows meanwhile; no name: what is below has the fields of this model
        if isinstance(node, list | tuple):
            left += [(name, one) for one in node]
        elif isinstance(node, dict):
            told = node.get("serialization")
            if told and ("function" not in told or _is_own(told["function"])):
                names.add(name or _WHOLE)
            is_model, is_this = node.get("type") in _MODELS, node.get("cls") is kind
            if is_model and not is_this and node["type"] == "model":
                continue
            below = None if is_model and is_this else name
            if below is None and node.get("type") in _FIELDS:
                below = node.get("name", node.get("property_name"))
            for key, one in node.items():
                if key == "fields" and isinstance(one, dict):
                    left += [(field if below is None else below, each) for field, each in one.items()]
                elif key not in _NO_SCHEMAS:
                    left.append((below, one))
        elif isinstance(node, Mapping):  # it is not built yet
            names.add(_WHOLE)
    return frozenset(names)


def _is_own(function: Any) -> bool:
    """Return whether a function is none of pydantic's own, or may call others."""
    return _package_of(function) not in _PLAINLY_WRITTEN or not isinstance(function, FunctionType)


def _find_writers(kind: Any, fields: Any) -> Sequence[Callable[[Any], str]]:
    """Return what writes values of a class in the class's own way, and not just fields that are shown."""
    if _has_own_words(kind):
        return str, repr  # pydantic writes both of these
    writers = (str, kind.__str__), (repr, kind.__repr__)
    return [
        write
        for write, own in writers
        if issubclass(kind, ChainMap)
        or (_package_of(own) not in _PLAINLY_WRITTEN and not _writes_just(fields, own, kind))
    ]


@lru_cache(maxsize=1024)
def _has_own_words(kind: Any) -> bool:
    """Return whether pydantic writes values of a class in words of the class's own."""
    return any(_package_of(getattr(kind, name, None)) not in _PLAINLY_WRITTEN for name in _WORDS)


def _writes_just(fields: Any, writer: Any, kind: Any) -> bool:
    """Return whether a `__repr__` is one that `dataclass` made, and these fields have all that it writes."""
    code = getattr(getattr(writer, "__wrapped__", None), "__code__", None)
    return (
        code is not None
        and code.co_qualname.startswith(_MADE)
        and type(fields) is dict
        and all(one.name in fields for one in dataclasses.fields(kind))
    )


def _says_more(text: str, value: Any, fields: Any) -> bool:
    """Return whether a text has words besides these fields of a value, which are shown, as `name=value`."""
    if type(fields) is dict and len(fields) <= _MAX_FIELDS:
        held = {} if isinstance(value, Mapping) else getattr(value, "__dict__", {})
        for name, plain in fields.items():
            for one in (plain, held.get(name, plain)):
                for form in (repr(one), f"'{one}'"):
                    text = text.replace(f"{name}={form}", "")
    return any(one.isalnum() for one in text.removeprefix(type(value).__qualname__))


def _words_of(text: str) -> str:
    return f" {' '.join(_WORD.findall(text))} "


def _package_of(function: Any) -> str:
    return str(getattr(function, "__module__", None) or "builtins").partition(".")[0]


def _free_name(found: dict[str, Any], name: str) -> str:
    """Return this name, or one like it that the map does not have."""
    free = name
    while free in found:
        free = f"{name} {len(found)}"
    return free
