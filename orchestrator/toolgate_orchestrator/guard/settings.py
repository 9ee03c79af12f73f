"""The settings of a guard: values, keywords and files, as one configuration of its gate."""

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

from toolgate_bus.errors import ConfigError

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.config import ToolgateConfig


SECTION: Final = "toolgate"


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
    if isinstance(found, Mapping) and SECTION in found and "required" in found:
        raise ConfigError(f"{path}: required: it is ignored beside `{SECTION}:`; move it into that section")
    section = found.get(SECTION, found) if isinstance(found, Mapping) else found
    if document.root is None or not isinstance(section, Mapping):
        raise ConfigError(f"{path}: add a section `{SECTION}:` with the settings of this guard's gate")
    return dict(section)
