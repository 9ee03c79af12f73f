"""Finds the installed Amplifier modules, by entry point (group `amplifier.modules`).

If two distributions offer the same module id, it is refused and both are named: the kernel would take
whichever it finds first. Modules in packages named `amplifier_module_<id>` count too, as they do for the
kernel.
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
"""Distributions that offer a module, each with its entry point, by module id."""


def offers_of(points: Iterable[EntryPoint] | None = None) -> Offers:
    """Return all offered modules, by id and distribution."""
    offers: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=GROUP) if points is None else points:
        dist = point.dist.name if point.dist is not None else point.value
        offers.setdefault(point.name, {}).setdefault(dist.lower().replace("_", "-"), point)
    return offers


def is_installed(module: str, offers: Offers) -> bool:
    """Return whether the kernel would find a module by its id alone."""
    if module in offers:
        return True
    package = f"amplifier_module_{module.replace('-', '_')}"
    return package.isidentifier() and importlib.util.find_spec(package) is not None


def is_ours(module: str, offers: Offers) -> bool:
    """Return whether a module is Toolgate's own. Such a module takes a `toolgate:` config."""
    return any(point.value.startswith(_OURS) for point in offers.get(module, {}).values())


def own_id(module: str, offers: Offers) -> str | None:
    """Return Toolgate's second id for one of its modules, which nobody else offers; None if there is none."""
    ours = {point.value for point in offers.get(module, {}).values() if point.value.startswith(_LOOKED_INTO)}
    same = (
        name
        for name, each in offers.items()
        if "-toolgate" in name and any(point.value in ours for point in each.values())
    )
    return next(same, None)


def why_unusable(module: str, offers: Offers) -> str | None:
    """Return the reason that a module cannot be mounted by its id; None if it can."""
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
    """Return the model of a module's config if the module is Toolgate's; other modules check theirs when
    mounted."""
    points = [point for point in offers.get(module, {}).values() if point.value.startswith(_LOOKED_INTO)]
    try:
        model = getattr(importlib.import_module(points[0].module), "config_model", None) if points else None
    except ImportError:  # an extra is not installed: the mount names it
        return None
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None
