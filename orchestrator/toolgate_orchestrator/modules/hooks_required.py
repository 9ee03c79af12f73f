"""`hooks-toolgate-required`: refuse sessions whose tool calls no scheduler would be asked about.

    mount            is the mounted loop one of Toolgate's, with a `toolgate:` section?
    session:start    the same once more; and would a call be asked about now?
    tool:pre         does this call delegate to an agent whose plan brings a foreign loop?
    execute          a tool that is called outside of any turn: the call is ruled on (`direct_calls`)

A failed check is refused (`on_ungated: deny`) or reported (`warn`). No hook can end a session of the kernel,
so the loop is replaced by one that raises the reason instead of running a turn. It checks again at each
turn, and restores the loop as soon as calls are ruled on. A child's hook knows its parent's setting, and the
child's config can only tighten it.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from amplifier_core import HookResult
from amplifier_core.events import SESSION_RESUME, SESSION_START, TOOL_PRE
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.errors import ToolgateError
from toolgate_bus.ruling.delegation import target_of
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.decision.config import Name
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.misplaced import find_misplaced
from toolgate_orchestrator.modules.direct_calls import DirectCalls
from toolgate_orchestrator.modules.loop_origin import (
    CHANGE_LOOP,
    GUARD,
    RULING_HOOKS,
    explain_foreign_loop,
    merge_spec,
)
from toolgate_orchestrator.turn.calls.selection import TOOL_SELECTING
from toolgate_orchestrator.turn.hooks.dispatch import Emitter
from toolgate_orchestrator.turn.loop import LoopBase
from toolgate_orchestrator.turn.session_tree import agents_of

__amplifier_module_type__ = "hook"

NAME: Final = GUARD
SESSION_UNGATED: Final = "session:ungated"
_log = get_logger("toolgate.required")
_FIRST: Final = -(2**31)
CHANGE_SECTION: Final = "add `toolgate: {required: [NAME]}` to session.orchestrator.config"
CHANGE_BUS: Final = (
    "start a scheduler (toolgate scheduler run NAME), require one (`required` in the `toolgate:` section), "
    "or let such sessions run (`on_ungated: warn`)"
)


class RequiredConfig(StrictModel):
    """The config of `hooks-toolgate-required`."""

    on_ungated: Literal["deny", "warn"] = "deny"
    """Reaction to a session, or a sub-agent, whose calls no scheduler would be asked about: `deny` or `warn`.
    If any scheduler is required, here or in the `toolgate:` section, it is always denied."""
    required: tuple[Name, ...] = ()
    """Schedulers that the loop itself must require, so that a lost `toolgate:` section is noticed."""


config_model = RequiredConfig


class UngatedError(ToolgateError):
    """No scheduler would be asked about the session's tool calls; the message gives the reason and the change
    to make."""


class RefusalLoop:
    """Loop in the place of a refused one: each turn raises UngatedError, until calls are ruled on."""

    def __init__(self, guard: "SessionGuard", refused: Any) -> None:
        self.refused = refused
        self._guard = guard

    async def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Run the turn with the refused loop, if its calls are ruled on by now; raise UngatedError if not."""
        if (why := await self._guard.find_fault(self.refused)) is not None:
            raise UngatedError(why)
        await self._guard.coordinator.mount("orchestrator", self.refused)
        return await self.refused.execute(*args, **kwargs)


class SessionGuard:
    """Guard of one session."""

    def __init__(self, coordinator: Any, settings: RequiredConfig) -> None:
        self.coordinator, self.settings = coordinator, settings
        self._emitter = Emitter(coordinator.hooks)
        self._logged: set[str] = set()
        self._announced: set[str] = set()

    # ------------------------------------------------------------------ the session itself

    async def check_loop(self) -> None:
        """Refuse a foreign loop, or one of Toolgate's that asks no scheduler, as soon as it is mounted."""
        loop = self._loop()
        if loop is not None and (why := self._find_stranger(loop)) is not None:
            await self._object(loop)
            self._log_once(why)

    async def check_session(self, _event: str, _data: dict[str, Any]) -> HookResult:
        """Handle the start of a session: check before the first turn that its calls are ruled on."""
        loop = self._loop()
        if loop is not None and (why := await self.find_fault(loop)) is not None:
            await self._object(loop)
            await self._announce(why)
        return HookResult()

    async def find_fault(self, loop: Any) -> str | None:
        """Return the reason that calls of this loop would run unasked, and the change to make; None if they
        are ruled on."""
        if (why := self._find_stranger(loop)) is not None:
            return why
        if self._has_own_schedulers():
            return None
        try:
            vacancy = await loop.gate.vacancy.explain()
        except Exception as error:  # noqa: BLE001 - a gate that cannot be checked counts as none
            return f"it cannot be checked whether calls are ruled on: {where(error)}"
        return None if vacancy is None else f"{vacancy}: calls would run unasked; {CHANGE_BUS}"

    def _has_own_schedulers(self) -> bool:
        """Return whether hooks of this session rule on its calls; a hook that only listens does not count."""
        hooks = self.coordinator.config.get("hooks")
        ids = [str(hook.get("module")) for hook in hooks or () if isinstance(hook, Mapping)]
        wanted = any(name.startswith(RULING_HOOKS) for name in ids)
        return wanted and self._emitter.handlers(TOOL_SELECTING) != 0

    def _loop(self) -> Any:
        loop = self.coordinator.get("orchestrator")
        return loop.refused if isinstance(loop, RefusalLoop) else loop

    def _find_stranger(self, loop: Any) -> str | None:
        """Return the reason that a mounted loop cannot ask the schedulers that it must ask; None if it
        can."""
        if not isinstance(loop, LoopBase):
            must = _names(self._section().get("required"))
            lost = f", so that {must} would not be asked" if must else ""
            return (
                f"the mounted loop is not one of Toolgate's{lost}: {_place_of(loop)}, for "
                f"{_spec_of(self.coordinator)}; {CHANGE_LOOP} "
                "(`toolgate doctor --bundle FILE` shows what names the other loop)"
            )
        for place, words in find_misplaced(self.coordinator.config or {}):
            return f"{'.'.join(map(str, place))} in the plan: {words}"
        if loop.gate is None:
            return f"{loop.name} has no `toolgate:` section and asks nobody; {CHANGE_SECTION}"
        missing = [name for name in self.settings.required if name not in loop.gate.config.required]
        if missing:
            return (
                f"{NAME} requires {_names(missing)}, but the `toolgate:` section of {loop.name} does "
                "not: in a bundle, put it under session.orchestrator.config; `orchestrators:` is ignored"
            )
        return None

    async def _object(self, loop: Any) -> None:
        """Replace the loop by one that raises the reason, unless `warn` applies."""
        if self._denies() and not isinstance(self.coordinator.get("orchestrator"), RefusalLoop):
            await self.coordinator.mount("orchestrator", RefusalLoop(self, loop))

    def _denies(self) -> bool:
        must = self.settings.required or self._section().get("required")
        return self.settings.on_ungated == "deny" or bool(must)

    def _section(self) -> Mapping[str, Any]:
        """Return the `toolgate:` section of the plan, for any loop."""
        config = _spec_mapping(self.coordinator).get("config")
        section = config.get("toolgate") if isinstance(config, Mapping) else None
        return section if isinstance(section, Mapping) else {}

    async def find_direct_fault(self) -> str | None:
        """Return the reason that a tool called outside of a loop must not run; None if it may, or is ruled
        on."""
        why = await self.find_fault(self._loop())
        if why is not None and not self._denies():
            await self._announce(why)
            return None
        return why

    def find_gate(self) -> Gate | None:
        """Return the loop's gate, which rules on such a call; None if the loop asks no scheduler."""
        loop = self._loop()
        return loop.gate if isinstance(loop, LoopBase) else None

    # ------------------------------------------------------------------ its sub-agents

    async def check_delegation(self, _event: str, data: dict[str, Any]) -> HookResult:
        """Handle a tool call: refuse to delegate to an agent whose plan brings a foreign loop."""
        config = self.coordinator.config
        agents, arguments = config.get("agents"), data.get("tool_input")
        name = target_of(arguments, agents_of(config)) if isinstance(arguments, Mapping) else None
        if name is None:
            return HookResult()
        overlay = agents[name].get("session") if isinstance(agents[name], Mapping) else None
        named = overlay.get("orchestrator") if isinstance(overlay, Mapping) else None
        if named is None:
            return HookResult()
        spec = merge_spec(_spec_mapping(self.coordinator), named)
        why = explain_foreign_loop(spec, by_source=_has_resolver(self.coordinator))
        if why is None:
            return HookResult()
        text = f"the agent {name} would run on a loop that asks nobody: {why}"
        await self._announce(text)
        return HookResult(action="deny", reason=text) if self._denies() else HookResult()

    # ------------------------------------------------------------------ telling

    async def _announce(self, why: str) -> None:
        """Tell hooks and, with `warn`, the user; each fault once."""
        self._log_once(why)
        if why in self._announced:
            return
        self._announced.add(why)
        refused = self._denies()
        show = getattr(getattr(self.coordinator, "display_system", None), "show_message", None)
        if callable(show) and not refused:  # a refusal raises the same text
            show(f"ungated: {why}", "warning", NAME)
        await self._emitter.emit(SESSION_UNGATED, {"reason": why, "refused": refused})

    def _log_once(self, why: str) -> None:
        """Log a fault once, unless it is refused: a refusal is raised, or told to the LLM."""
        if why not in self._logged and not self._denies():
            self._logged.add(why)
            _log.warning("tool calls run without rulings", why=why)


def _names(names: Any) -> str:
    return ", ".join(map(str, names)) if isinstance(names, list | tuple) else str(names or "")


def _place_of(loop: Any) -> str:
    """Return the class of a loop, and its file."""
    cls = type(loop)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return f"{cls.__module__}.{cls.__qualname__}" + (f" ({file})" if file else "")


def _spec_mapping(coordinator: Any) -> dict[str, Any]:
    session = (getattr(coordinator, "config", None) or {}).get("session")
    return merge_spec(None, session.get("orchestrator")) if isinstance(session, Mapping) else {}


def _spec_of(coordinator: Any) -> str:
    spec = _spec_mapping(coordinator)
    source = f" (source {spec['source']})" if spec.get("source") else ""
    return f"the plan's {spec.get('module')}{source}"


def _has_resolver(coordinator: Any) -> bool:
    try:
        return coordinator.get("module-source-resolver") is not None
    except ValueError:
        return False


_LIVE: dict[str, RequiredConfig] = {}


def _inherit(parent: str | None, own: RequiredConfig) -> RequiredConfig:
    """Return a child's config, at least as strict as its parent's if that is in this process."""
    above = _LIVE.get(str(parent or ""))
    if above is None:
        return own
    denies = "deny" in (above.on_ungated, own.on_ungated)
    required = tuple(dict.fromkeys((*above.required, *own.required)))
    return RequiredConfig(on_ungated="deny" if denies else "warn", required=required)


async def mount(
    coordinator: Any, config: Mapping[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount the hook into a session, and look at its loop (entry point `amplifier.modules`)."""
    own = check(RequiredConfig, config or {}, NAME)
    settings = _inherit(getattr(coordinator, "parent_id", None), own)
    guard, session = SessionGuard(coordinator, settings), str(getattr(coordinator, "session_id", "") or "")
    coordinator.register_contributor("observability.events", NAME, lambda: [SESSION_UNGATED])
    for event in (SESSION_START, SESSION_RESUME):
        coordinator.hooks.register(event, guard.check_session, priority=_FIRST, name=NAME)
    if agents_of(getattr(coordinator, "config", None)) is not None:
        coordinator.hooks.register(TOOL_PRE, guard.check_delegation, priority=_FIRST, name=NAME)
    if session:
        _LIVE[session] = settings
    await guard.check_loop()
    await DirectCalls(coordinator, guard.find_direct_fault, guard.find_gate).wrap()

    async def cleanup() -> None:
        if _LIVE.get(session) is settings:
            del _LIVE[session]

    return cleanup
