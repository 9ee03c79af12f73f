"""The settings of a guard: values, keywords and files, as one configuration of its gate."""

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

from toolgate_bus.errors import ConfigError

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.config import ToolgateConfig


SECTION: Final = "toolgate"
PLAN_PLACES: Final = (
    (),
    ("session",),
    ("session", "orchestrator"),
    ("session", "orchestrator", "config"),
    ("orchestrator",),
    ("orchestrator", "config"),
)
"""Where a plan, or who mistakes this file for one, has keys of a gate."""


def read_settings(
    config: "ToolgateConfig | str | PathLike[str] | None", fields: Mapping[str, Any]
) -> "ToolgateConfig":
    """Return the configuration; `fields` override the value or the file. Raise ConfigError.

    A file holds the section `toolgate:`, alone or beside other sections, or only the content of that section.
    """
    # Late: a program that only names the class Guard need not wait for pydantic.
    from toolgate_orchestrator.decision.config import ToolgateConfig, parse

    if config is None:
        return parse(dict(fields), "Guard")
    if isinstance(config, ToolgateConfig):
        return parse({**config.model_dump(exclude_unset=True), **fields}, "Guard") if fields else config
    return parse({**_read(fspath(config)), **fields}, fspath(config))


def _read(path: str) -> dict[str, Any]:
    # Late: most programs say what they want in keywords.
    from pathlib import Path

    from toolgate_bus.config.document import read_document

    document = read_document(Path(path))
    found = document.value
    if isinstance(found, Mapping) and SECTION in found:
        for place in _find_ignored(found):
            words = f"it is ignored beside `{SECTION}:`; move it into that section"
            raise ConfigError(f"{path}: {place}: {words}")
    section = found.get(SECTION, found) if isinstance(found, Mapping) else found
    if document.root is None or not isinstance(section, Mapping):
        raise ConfigError(f"{path}: add a section `{SECTION}:` with the settings of this guard's gate")
    return dict(section)


def _find_ignored(found: Mapping[Any, Any]) -> Iterable[str]:
    """Yield where `required`, or a second section as plans have it, would let calls run unasked.

    Other keys may belong to the program whose file it is.
    """
    for at in PLAN_PLACES:
        level: Any = found
        for key in at:
            level = level.get(key) if isinstance(level, Mapping) else None
        for key in level if isinstance(level, Mapping) else ():
            if str(key).casefold() == "required" or (at and key == SECTION):
                yield ".".join((*at, str(key)))
