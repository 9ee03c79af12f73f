"""Which Amplifier modules are installed, by entry point (group `amplifier.modules`).

A module id that two distributions offer is refused by both names: the kernel would take whichever
it finds first. Modules in packages named `amplifier_module_<id>` count too, as they do for the kernel.
"""

import importlib.util
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from toolgate_bus.errors import ConfigError

__all__ = ["GROUP", "check_installed", "is_installed", "is_ours", "offers_of"]

GROUP = "amplifier.modules"
_OURS = "toolgate_orchestrator."

Offers = Mapping[str, Mapping[str, EntryPoint]]
"""Module id to the distributions that offer it, each with its entry point."""


def offers_of(points: Iterable[EntryPoint] | None = None) -> Offers:
    """Every offered module, by id and distribution."""
    offers: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=GROUP) if points is None else points:
        dist = point.dist.name if point.dist is not None else point.value
        offers.setdefault(point.name, {}).setdefault(dist.lower().replace("_", "-"), point)
    return offers


def is_installed(module: str, offers: Offers) -> bool:
    """Whether the kernel would find a module by its id alone."""
    if module in offers:
        return True
    package = f"amplifier_module_{module.replace('-', '_')}"
    return package.isidentifier() and importlib.util.find_spec(package) is not None


def is_ours(module: str, offers: Offers) -> bool:
    """Whether a module is one of Toolgate's own, which take a `toolgate:` config."""
    return any(point.value.startswith(_OURS) for point in offers.get(module, {}).values())


def check_installed(modules: Iterable[str], offers: Offers) -> None:
    """Raise one ConfigError that names every module that is missing or offered twice."""
    wanted = list(dict.fromkeys(modules))
    missing = [module for module in wanted if not is_installed(module, offers)]
    twice = [
        f"module {module!r} is offered by {' and by '.join(sorted(offers[module]))}: uninstall one"
        for module in wanted
        if len(offers.get(module, ())) > 1
    ]
    lines = [f"not installed: {', '.join(missing)} (pip install what offers them)"] if missing else []
    if lines or twice:
        raise ConfigError("\n".join([*lines, *twice]))
