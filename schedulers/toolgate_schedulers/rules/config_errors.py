"""What may stand at a place of a configuration, in words for whoever wrote something else there. Pure.

Read from the model: types, bounds, choices, keys. A `description` of a field or type is taken as it is.
"""

import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

__all__ = ["allowed"]


class _Place(NamedTuple):
    """A type, and what narrows it down."""

    annotation: Any
    narrowed: tuple[Any, ...] = ()


def allowed(model: type[BaseModel], path: Sequence[Any]) -> str:
    """What is allowed at the path of a pydantic error; empty where nothing can be said of it."""
    said = (_words(place) for place in _places(_Place(model), list(path)))
    return " or ".join(dict.fromkeys(words for words in said if words))


def _places(place: _Place, path: list[Any]) -> Iterator[_Place]:
    """The types that may stand at the end of a path."""
    annotation, origin = place.annotation, get_origin(place.annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        yield from _places(_Place(inner, (*place.narrowed, *more)), path)
    elif origin in (Union, types.UnionType) and _description(place) is None:
        for one in get_args(annotation):
            yield from _places(_Place(one, place.narrowed), path)
    elif not path:
        yield place
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if (field.alias or name) == path[0]:
                yield from _places(_Place(field.annotation, (field, *field.metadata)), path[1:])
    elif origin is tuple and isinstance(path[0], int):
        yield from _places(_Place(get_args(annotation)[0]), path[1:])
    elif origin is dict:
        yield from _places(_Place(get_args(annotation)[1]), path[1:])
    else:  # which one of a union was tried: no step
        yield from _places(place, path[1:])


def _words(place: _Place) -> str:
    annotation, origin = place.annotation, get_origin(place.annotation)
    if (description := _description(place)) is not None:
        return description
    if origin is Literal:
        return ", ".join(map(repr, get_args(annotation)))
    if origin is tuple:
        return f"a list{_counted(place, 'items')}"
    if origin is dict:
        return "a mapping"
    if not isinstance(annotation, type):
        return ""
    if issubclass(annotation, BaseModel):
        keys = (field.alias or name for name, field in annotation.model_fields.items())
        return f"a mapping of {', '.join(keys)}"
    plain = {bool: "true or false", str: f"a text{_counted(place, 'characters')}"}
    plain |= {int: f"a whole number{_range(place)}", float: f"a number{_range(place)}"}
    return plain.get(annotation, "")


def _description(place: _Place) -> str | None:
    return next((one.description for one in _infos(place) if one.description), None)


def _counted(place: _Place, of: str) -> str:
    least, most = _bound(place, "min_length"), _bound(place, "max_length")
    if most is not None:
        return f" of {least or 0} to {most} {of}"
    return "" if not least else f" of at least {least} {of}"


def _range(place: _Place) -> str:
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    bounds = ((word, _bound(place, name)) for name, word in words.items())
    return "".join(f" {word} {bound}" for word, bound in bounds if bound is not None)


def _bound(place: _Place, name: str) -> Any:
    found = (getattr(one, name, None) for one in _narrowing(place))
    return next((bound for bound in found if bound is not None), None)


def _narrowing(place: _Place) -> Iterable[Any]:
    for one in place.narrowed:
        yield from one.metadata if isinstance(one, FieldInfo) else (one,)


def _infos(place: _Place) -> Iterable[FieldInfo]:
    return (one for one in place.narrowed if isinstance(one, FieldInfo))
