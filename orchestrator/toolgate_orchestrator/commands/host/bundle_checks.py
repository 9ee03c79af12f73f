"""Checks of `toolgate doctor --bundle`: the loop that a bundle would mount, the reason, and its schedulers.

The entry-point group `toolgate.checks` contributes them. Nothing is mounted.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate_bus.commands.doctor.check import Bus, Check, Context
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet.finding import Finding, error, fine, notice, warning

from toolgate_orchestrator.commands.host.bundle import Composition, compose, lost_sections
from toolgate_orchestrator.commands.host.bundle_files import read_bundle
from toolgate_orchestrator.commands.host.checks import check_required
from toolgate_orchestrator.commands.host.installed_modules import config_model, offers_of
from toolgate_orchestrator.decision.misplaced import find_misplaced
from toolgate_orchestrator.modules.loop_origin import (
    CHANGE_LOOP,
    GUARD,
    OWN_LOOPS,
    explain_foreign_loop,
    merge_spec,
    package_of,
)
from toolgate_orchestrator.turn.loop_config import LoopConfig

SUBJECT: Final = "bundle"
MAX_COUNT: Final = 5
CHANGE_SECTION: Final = (
    "under session.orchestrator.config write `toolgate: {required: [NAME]}`; NAME must rule on its calls"
)


async def _bundle(context: Context) -> Sequence[Finding]:
    try:
        whole = compose(await read_bundle(context.bundle or ""))
    except ConfigError as wrong:
        change = "name a bundle's file or folder, or a URI that Amplifier accepts"
        return [error(SUBJECT, "bundle-wrong", str(wrong), change)]
    found = [*_lost(whole), *_unseen(whole)]
    why = explain_foreign_loop(whole.spec, by_source=True)
    if not whole.spec.get("module"):
        change = 'under session.orchestrator write `module: loop-toolgate-streaming` and `source: ""`'
        return [*found, error(SUBJECT, "bundle-loop", "no bundle names a loop: none would mount", change)]
    told = f"{_told_source(whole)} mounts: {_told_reasons(whole)}"
    if why is not None:
        make = error if GUARD in whole.hooks or _section(whole) is not None else warning
        ends = "the session is refused" if GUARD in whole.hooks else "nothing rules on its calls"
        what = f"a loop that is not Toolgate's would mount, and {ends}: {why} ({_told_reasons(whole)})"
        return [*found, make(SUBJECT, "bundle-loop", what, CHANGE_LOOP), *_guard(whole)]
    found.append(notice(SUBJECT, "bundle-loop", f"one of Toolgate's loops, {told}"))
    return [*found, *_config(whole, context), *_guard(whole), *_agents(whole)]


def _bus_of(context: Context) -> Bus:
    """Return the bus that the bundle's own `toolgate:` section names."""
    try:
        section = _section(compose(asyncio.run(read_bundle(context.bundle or "")))) or {}
    except ConfigError:  # the check itself reports it
        return Bus()
    redis, namespace = section.get("redis"), section.get("namespace")
    return Bus(redis if isinstance(redis, str) else None, namespace if isinstance(namespace, str) else None)


def _told_reasons(whole: Composition) -> str:
    """Return the layers that set module and source, in words."""
    said: dict[str, list[str]] = {}
    for key, layer in whole.named_by.items():
        said.setdefault(str(layer), []).append(f"`{key}: {whole.spec.get(key) or chr(34) * 2}`")
    return ", ".join(f"{' and '.join(each)} by {layer}" for layer, each in said.items())


def _told_source(whole: Composition) -> str:
    module, source = whole.spec["module"], whole.spec.get("source")
    if not source:
        return f"the installed {module},"
    return f"{package_of(str(source))} of {source},"


def _section(whole: Composition) -> Mapping[str, Any] | None:
    config = whole.spec.get("config")
    section = config.get("toolgate") if isinstance(config, Mapping) else None
    return section if isinstance(section, Mapping) else None


def _lost(whole: Composition) -> list[Finding]:
    found = []
    for layer in whole.layers:
        if names := lost_sections(layer):
            what = (
                f"{layer}: {', '.join(f'`{name}:`' for name in names)} is a plan's form, "
                "and has no effect in a bundle"
            )
            change = "write session: {orchestrator: {module: …, source: …, config: {toolgate: …}}}"
            found.append(error(SUBJECT, "bundle-plan-form", what, change))
        for place, words in find_misplaced(layer.content):
            what = f"{layer}: {'.'.join(map(str, place))}: {words}"
            found.append(error(SUBJECT, "bundle-misplaced", what, CHANGE_SECTION))
    return found


def _unseen(whole: Composition) -> list[Finding]:
    unseen = whole.unseen
    make = notice if whole.is_certain else warning
    found = [
        make(
            SUBJECT,
            "bundle-unseen",
            f"{layer.name} was not checked: {layer.unseen}",
            _change_unseen(whole),
        )
        for layer in unseen[:MAX_COUNT]
    ]
    if len(unseen) > MAX_COUNT:
        found.append(notice(SUBJECT, "bundle-unseen", f"and {len(unseen) - MAX_COUNT} more"))
    return found


def _change_unseen(whole: Composition) -> str:
    if whole.is_certain:
        return "nothing: a later bundle names module and source"
    return "it may name another loop: check where amplifier_foundation is installed, or include toolgate last"


def _config(whole: Composition, context: Context) -> list[Finding]:
    """Check the loop's config, and whether the schedulers that it requires are alive."""
    source = whole.spec.get("source")
    module = package_of(str(source)) if source else str(whole.spec["module"])
    model = config_model(module, offers_of())
    if model is None or not issubclass(model, LoopConfig):
        return []
    try:
        toolgate = check(model, whole.spec.get("config") or {}, module).toolgate
    except ConfigError as wrong:
        return [error(SUBJECT, "bundle-config", str(wrong), "docs/reference/plan.md lists every setting")]
    if toolgate is None:
        what = f"{module} has no `toolgate:` section: no scheduler is asked about its calls"
        return [error(SUBJECT, "bundle-unruled", what, CHANGE_SECTION)]
    found = [] if toolgate.required else [_not_required()]
    return [*found, *check_required(toolgate, context)]


def _not_required() -> Finding:
    what = "no scheduler is required: if none is alive, calls run unchecked, or the session is refused"
    return notice(SUBJECT, "bundle-nobody-required", what, CHANGE_SECTION)


def _guard(whole: Composition) -> list[Finding]:
    config = whole.hooks.get(GUARD)
    if config is None:
        what = f"{GUARD} is not among its hooks: nothing reports a loop that is not Toolgate's"
        change = f"include the behavior toolgate, or add it: hooks: [{{module: {GUARD}}}]"
        return [warning(SUBJECT, "bundle-unguarded", what, change)]
    if config.get("on_ungated") == "warn":
        what = f"{GUARD} only warns of sessions that no scheduler rules on, unless one is required"
        return [notice(SUBJECT, "bundle-guard-warns", what, "on_ungated: deny")]
    return [fine(SUBJECT, "bundle-guarded", f"{GUARD} refuses sessions that no scheduler rules on")]


def _agents(whole: Composition) -> list[Finding]:
    found = []
    for name, brought in whole.agents.items():
        why = explain_foreign_loop(merge_spec(whole.spec, brought), by_source=True)
        if why is not None:
            what = f"the agent {name} uses a loop that is not Toolgate's: {why}"
            change = "remove `orchestrator:` from its session, or use one of " + ", ".join(OWN_LOOPS)
            found.append(warning(SUBJECT, "bundle-agent", what, change))
    return found


CHECKS = (Check("bundle", SUBJECT, _bundle, frozenset({"bundle"}), _bus_of),)
