"""The rules of a sub-agent: its parent's, which its own plan can tighten and never loosen. Pure.

This holds whoever makes the child's session, and whatever its plan says: required schedulers and redaction
go down the tree. A field that would loosen a rule is ignored without a message, as agents with different
parents may share a plan.
"""

from collections.abc import Mapping

from toolgate_orchestrator.decision.config import (
    MAX_CHARS,
    MaxChars,
    RedactConfig,
    SchedulerLimits,
    ToolgateConfig,
)

_PLACE = ("redis", "namespace", "keys")
"""Fields that only the parent sets: where rulings are made, and whose verdicts are trusted."""


def inherit_config(parent: ToolgateConfig, own: ToolgateConfig) -> ToolgateConfig:
    """Return the configuration of a child whose plan gives `own`."""
    said = own.model_fields_set
    required = tuple(dict.fromkeys((*parent.required, *own.required)))
    return own.model_copy(
        update={
            **{name: getattr(parent, name) for name in _PLACE},
            "labels": {**own.labels, **parent.labels},
            "required": required,
            "shadow": _shadow(parent, own),
            "schedulers": _limits(parent.schedulers, own.schedulers),
            "patience_ms": max(parent.patience_ms, own.patience_ms if "patience_ms" in said else 0),
            "max_hold_s": min(
                parent.max_hold_s, own.max_hold_s if "max_hold_s" in said else parent.max_hold_s
            ),
            "result_bytes": own.result_bytes if "result_bytes" in said else parent.result_bytes,
            "defer_s": min((one for one in (parent.defer_s, own.defer_s) if one), default=None),
            "verify": parent.verify or ("verify" in said and own.verify),
            "on_bus_down": _on_bus_down(parent, own),
            "on_gone": "deny" if "deny" in (parent.on_gone, own.on_gone) else "continue",
            "offer_denied": own.offer_denied if "offer_denied" in said else parent.offer_denied,
            "redact": _redact(parent.redact, own.redact),
        }
    )


def _shadow(parent: ToolgateConfig, own: ToolgateConfig) -> tuple[str, ...]:
    """Return the child's shadow schedulers. Only the parent makes one a shadow; a child may let it count."""
    if "shadow" not in own.model_fields_set:
        return tuple(name for name in parent.shadow if name not in own.required)
    return tuple(name for name in parent.shadow if name in own.shadow)


def _on_bus_down(parent: ToolgateConfig, own: ToolgateConfig) -> str | None:
    """Return `deny` if either denies; else the parent's value, unless the child requires more schedulers."""
    if parent.denies_without_bus or own.on_bus_down == "deny":
        return "deny"
    if own.on_bus_down is None and not set(own.required) <= set(parent.required):
        return None
    return own.on_bus_down or parent.on_bus_down


def _limits(
    parent: Mapping[str, SchedulerLimits], own: Mapping[str, SchedulerLimits]
) -> dict[str, SchedulerLimits]:
    names = {**parent, **own}
    return {name: _both(parent.get(name), own.get(name)) for name in names}


def _both(parent: SchedulerLimits | None, own: SchedulerLimits | None) -> SchedulerLimits:
    parent, own = parent or SchedulerLimits(), own or SchedulerLimits()
    caps = [cap for cap in (parent.max_priority, own.max_priority) if cap is not None]
    if parent.can_modify is None or own.can_modify is None:
        tools = own.can_modify if parent.can_modify is None else parent.can_modify
    else:
        tools = tuple(tool for tool in parent.can_modify if tool in own.can_modify)
    return SchedulerLimits(
        max_priority=min(caps, default=None),
        # Fewer tools mean fewer questions: only the parent can narrow them.
        tools=None if parent.tools is None else tuple(dict.fromkeys((*parent.tools, *(own.tools or ())))),
        can_modify=tools,
        # Who rules on results above does so below as well.
        results=True if own.results else parent.results,
        # Naming a tool also trusts it with redacted values: only the parent can do that.
        may_restore=parent.can_modify is not None and parent.may_restore and own.may_restore,
    )


def _redact(parent: RedactConfig, own: RedactConfig) -> RedactConfig:
    return RedactConfig(
        fields=tuple(dict.fromkeys((*parent.fields, *own.fields))),
        patterns=tuple(dict.fromkeys((*parent.patterns, *own.patterns))),
        max_chars=_shorter(parent.max_chars, own.max_chars if "max_chars" in own.model_fields_set else {}),
    )


def _shorter(parent: MaxChars, own: MaxChars) -> MaxChars:
    """Return the child's longest texts: no tool's may exceed the parent's, whichever list names it."""
    if isinstance(parent, int) and isinstance(own, int):
        return min(parent, own)
    theirs = {"*": parent} if isinstance(parent, int) else {**parent, "*": parent.get("*", MAX_CHARS)}
    if isinstance(own, int):
        return {glob: min(most, own) for glob, most in theirs.items()}
    least = min(theirs.values())
    first = {glob: min(most, least) for glob, most in own.items()}
    return {**first, **{glob: most for glob, most in theirs.items() if glob not in first}} if own else parent
