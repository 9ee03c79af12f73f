"""Makes the mount plan of a sub-agent: its parent's plan with the agent's partial plan merged over it. Pure.

An agent of the plan's `agents:` section is a partial mount plan (mount-plan specification). Modules are
merged by id and mappings key by key; other values are replaced. `system.instruction` is the child's first
message. A child keeps whatever rules on its parent: the parent's hooks keep their config, and only another
loop of Toolgate can replace its loop. Whoever made the plan, mounting the loop tightens the `toolgate:`
section (`decision.inheritance`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.host.plan_file import KINDS, LISTS, SELF
from toolgate_orchestrator.modules.loop_origin import GUARD, RULING_HOOKS

_RULING: Final = (*RULING_HOOKS, GUARD)
"""Prefixes of the ids of hook modules that rule on calls. A child always inherits these."""

Spec = dict[str, Any]


def child_plan(
    parent: Mapping[str, Any],
    agent: str,
    overlay: Mapping[str, Any],
    *,
    tool_inheritance: Mapping[str, Sequence[str]] | None = None,
    hook_inheritance: Mapping[str, Sequence[str]] | None = None,
    orchestrator_config: Mapping[str, Any] | None = None,
    ours: Callable[[str], bool] = lambda _module: True,
) -> dict[str, Any]:
    """Return the plan of a child named `agent`; the parent's plan must be in the kernel's form.

    Raise ConfigError if the child's loop is not one of Toolgate's, but the parent's loop is.
    """
    session = {
        **(parent.get("session") or {}),
        **{key: value for key, value in _as_mapping(overlay.get("session")).items() if key not in KINDS},
    }
    for kind in KINDS:
        session[kind] = _overlay(_spec((parent.get("session") or {}).get(kind)), _choose(overlay, kind))
    loop = session["orchestrator"]
    if not ours(str(loop.get("module"))) and ours(str(_spec(parent["session"]["orchestrator"])["module"])):
        raise ConfigError(
            f"agent {agent}: {loop.get('module')} asks no scheduler, and its parent's loop does: "
            "use one of Toolgate's loops"
        )
    config = {**loop.get("config", {}), **(orchestrator_config or {})}
    given = {key: value for key, value in config.items() if value is not None}
    session["orchestrator"] = {**loop, "config": _name_agent(given, agent, overlay)}
    providers, tools, hooks = (_specs(overlay.get(kind), kind) for kind in LISTS)
    return {
        "session": session,
        "providers": _merge(_inherit(parent, "providers", None), providers),
        "tools": _merge(_inherit(parent, "tools", tool_inheritance), tools),
        # If both configure a hook, the parent's values win.
        "hooks": _merge(hooks, _inherit(parent, "hooks", hook_inheritance)),
        "agents": {**(parent.get("agents") or {}), **_as_mapping(overlay.get("agents"))},
    }


def instruction_of(overlay: Mapping[str, Any]) -> str:
    """Return the agent's first message; empty if it has none."""
    text = _as_mapping(overlay.get("system")).get("instruction") or overlay.get("instruction")
    return text if isinstance(text, str) else ""


def _name_agent(config: Spec, agent: str, overlay: Mapping[str, Any]) -> Spec:
    """Return a loop's config with the agent's name for schedulers, unless the agent's own plan sets another.

    A `toolgate:` that is no mapping (such as `false`) stays, and the loop itself reports the error.
    """
    toolgate = config.get("toolgate")
    if agent == SELF or not (toolgate is None or isinstance(toolgate, Mapping)):
        return config
    own = _as_mapping(_as_mapping(_choose(overlay, "orchestrator").get("config")).get("toolgate"))
    return {**config, "toolgate": {**(toolgate or {}), "agent": own.get("agent") or agent}}


def _inherit(parent: Mapping[str, Any], kind: str, policy: Mapping[str, Sequence[str]] | None) -> list[Spec]:
    """Return the parent's modules that the child inherits: all, or those that `exclude_…` or `inherit_…`
    leaves."""
    specs = _specs(parent.get(kind), kind)
    policy = policy or {}
    if isinstance(only := policy.get(f"inherit_{kind}"), Sequence):
        kept = [spec for spec in specs if spec["module"] in only]
    else:
        kept = [spec for spec in specs if spec["module"] not in (policy.get(f"exclude_{kind}") or ())]
    ruling = [spec for spec in specs if spec["module"].startswith(_RULING) and spec not in kept]
    return [*kept, *ruling] if kind == "hooks" else kept


def _merge(lower: list[Spec], upper: list[Spec]) -> list[Spec]:
    """Merge two lists of modules. A module in both has both configs merged, and `upper` wins."""
    merged = {_key(spec): spec for spec in lower}
    for spec in upper:
        key = _key(spec)
        merged[key] = _deep(merged[key], spec) if key in merged else spec
    return list(merged.values())


def _key(spec: Mapping[str, Any]) -> tuple[str, str]:
    return str(spec["module"]), str(spec.get("instance_id") or "")


def _deep(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    both = {**lower, **upper}
    for key in lower.keys() & upper.keys():
        if isinstance(lower[key], Mapping) and isinstance(upper[key], Mapping):
            both[key] = _deep(lower[key], upper[key])
    return both


def _choose(overlay: Mapping[str, Any], kind: str) -> Spec:
    """Return the loop or context that an overlay names, with the config that it gives."""
    named = _spec(_as_mapping(overlay.get("session")).get(kind))
    shared = overlay.get(kind)
    return _deep(_spec(shared), named) if shared else named


def _overlay(lower: Spec, upper: Spec) -> Spec:
    """Merge an entry over a lower one. Another module brings its own config; only `toolgate` is kept of the
    lower."""
    if "module" not in upper or upper["module"] == lower.get("module"):
        return _deep(lower, upper)
    toolgate = _as_mapping(lower.get("config")).get("toolgate")
    config = _deep({"toolgate": toolgate} if toolgate is not None else {}, _as_mapping(upper.get("config")))
    return {**upper, "config": config}


def _spec(value: Any) -> Spec:
    if isinstance(value, str):
        return {"module": value}
    return dict(value) if isinstance(value, Mapping) else {}


def _specs(value: Any, where: str) -> list[Spec]:
    if value is None:
        return []
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ConfigError(f"{where}: must be a list of modules")
    specs = [_spec(each) for each in value]
    if not all(isinstance(spec.get("module"), str) for spec in specs):
        raise ConfigError(f"{where}: each entry must name a module: `module: NAME`")
    return specs


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
