"""Which Amplifier modules are installed, by entry point (group `amplifier.modules`).

A module id that two distributions offer is refused by both names: the kernel would take whichever
it finds first. Modules in packages named `amplifier_module_<id>` count too, as they do for the kernel.
"""

import difflib
import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from pydantic import BaseModel

GROUP = "amplifier.modules"
_OURS = "toolgate_orchestrator."
_LOOKED_INTO = (_OURS, "toolgate_schedulers.")

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


def own_id(module: str, offers: Offers) -> str | None:
    """The id of our own under which a module of ours is offered, too."""
    ours = {point.value for point in offers.get(module, {}).values() if point.value.startswith(_LOOKED_INTO)}
    same = (
        name
        for name, each in offers.items()
        if "-toolgate" in name and any(point.value in ours for point in each.values())
    )
    return next(same, None)


def why_unusable(module: str, offers: Offers) -> str | None:
    """Why a module cannot be mounted by its id; None where it can."""
    if len(offers.get(module, ())) > 1:
        own = own_id(module, offers)
        change = f"uninstall one, or name {own}, which nobody else offers" if own else "uninstall one"
        return f"{module} is offered by {' and by '.join(sorted(offers[module]))}: {change}"
    if is_installed(module, offers):
        return None
    kind = [one for one in offers if one.partition("-")[0] == module.partition("-")[0]]
    close = [one for one in kind if one.startswith(module)]
    close += difflib.get_close_matches(module, kind, n=1, cutoff=0.85)
    if close:
        return f"{module} is not installed; did you mean {close[0]}?"
    return f"{module} is not installed" + (f"; there is {', '.join(sorted(kind))}" if kind else "")


def config_model(module: str, offers: Offers) -> type[BaseModel] | None:
    """The model of a module's config, where it is one of Toolgate's; the others check theirs when mounted."""
    points = [point for point in offers.get(module, {}).values() if point.value.startswith(_LOOKED_INTO)]
    try:
        model = getattr(importlib.import_module(points[0].module), "config_model", None) if points else None
    except ImportError:  # an extra is not installed: the mount says which
        return None
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None
