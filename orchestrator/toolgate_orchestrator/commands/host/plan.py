"""Reads an Amplifier mount plan from YAML, in the kernel's form or in that of the modules' pages.

The pages' form names the orchestrator under `session:` and configures it in a list:

    session:
      orchestrator: loop-events
    orchestrators:
      - module: loop-events
        source: git+https://…            # yields, with a notice, to an installed module
        config: {max_iterations: 20}

`${NAME}` (capital letters) becomes the environment's value. Files are bounded. Whether a module's
config is right is the module's own affair, when it is mounted.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.host.child_plan import check_agents, modules_of
from toolgate_orchestrator.commands.host.installed_modules import (
    Offers,
    check_installed,
    is_installed,
    is_ours,
    offers_of,
)

__all__ = ["Plan", "read_plan", "with_bus", "with_provider"]

_MAX_BYTES = 1 << 20
_MAX_NODES = 20_000
_MAX_DEPTH = 32
_DEFAULT_CONTEXT = "context-simple"
_KINDS = ("orchestrator", "context")
_LISTS = ("providers", "tools", "hooks")
_KEYS = frozenset(
    {"name", "description", "session", "agents", "orchestrator", "orchestrators", "context", "contexts"}
    | set(_LISTS)
)
_SPEC_KEYS = frozenset({"module", "source", "config", "instance_id"})
_VARIABLE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """A mount plan that the kernel can take, and what the user should know about it."""

    mount: dict[str, Any]
    notices: tuple[str, ...] = ()
    ours: bool = True
    """Whether the orchestrator is one of Toolgate's, which take a `toolgate:` config."""

    @property
    def orchestrator(self) -> Spec:
        """The orchestrator's entry: module and config."""
        spec: Spec = self.mount["session"]["orchestrator"]
        return spec


def read_plan(path: Path, environ: Mapping[str, str] | None = None, offers: Offers | None = None) -> Plan:
    """Read, expand and check a plan; raises ConfigError that names everything that is wrong."""
    content = _load(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a mount plan is a mapping with `session:`, `providers:`, `tools:` …")
    if unknown := sorted(str(key) for key in content if key not in _KEYS):
        raise ConfigError(f"{path}: unknown {', '.join(unknown)}; allowed: {', '.join(sorted(_KEYS))}")
    expanded = _Expander(os.environ if environ is None else environ, str(path)).expand(content)
    return _normal(expanded, str(path), offers_of() if offers is None else offers)


def with_bus(plan: Plan, **fields: Any) -> Plan:
    """The plan with these fields of the orchestrator's `toolgate:` config; a foreign loop has none."""
    spec = plan.orchestrator
    given = {name: value for name, value in fields.items() if value is not None}
    if not plan.ours:
        notice = f"{spec['module']} is not one of Toolgate's loops: nothing rules on its calls"
        return replace(plan, notices=(*plan.notices, notice))
    toolgate = spec["config"].get("toolgate") or {}
    if not isinstance(toolgate, dict):
        raise ConfigError(f"{spec['module']}: toolgate: must be a mapping")
    return _with_config(plan, {"toolgate": {**toolgate, **given}})


def with_provider(plan: Plan, name: str) -> Plan:
    """The plan with this provider as the orchestrator's default."""
    return _with_config(plan, {"default_provider": name})


def _with_config(plan: Plan, fields: Mapping[str, Any]) -> Plan:
    spec = {**plan.orchestrator, "config": {**plan.orchestrator["config"], **fields}}
    session = {**plan.mount["session"], "orchestrator": spec}
    return replace(plan, mount={**plan.mount, "session": session})


# ---------------------------------------------------------------- reading


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ConfigError(f"{path}: a mount plan has at most {_MAX_BYTES} bytes")
        return yaml.safe_load(raw)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from None


class _Expander:
    """Copies a document with its variables replaced; bounded, as aliases can make it huge."""

    def __init__(self, environ: Mapping[str, str], where: str) -> None:
        self._environ = environ
        self._where = where
        self._nodes = 0
        self._missing: dict[str, None] = {}

    def expand(self, content: Any) -> Any:
        """The expanded copy; raises ConfigError naming all missing variables."""
        copy = self._copy(content, 0)
        if self._missing:
            names = ", ".join(self._missing)
            raise ConfigError(f"{self._where}: not set in the environment: {names}")
        return copy

    def _copy(self, value: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise ConfigError(f"{self._where}: over {_MAX_NODES} values, or nested over {_MAX_DEPTH} deep")
        if isinstance(value, dict):
            return {str(key): self._copy(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self._copy(item, depth + 1) for item in value]
        return _VARIABLE.sub(self._value, value) if isinstance(value, str) else value

    def _value(self, match: re.Match[str]) -> str:
        name = match[1]
        if name not in self._environ:
            self._missing[name] = None
        return self._environ.get(name, "")


# ---------------------------------------------------------------- one form out of both


def _normal(content: dict[str, Any], where: str, offers: Offers) -> Plan:
    session = content.get("session") or {}
    if not isinstance(session, dict):
        raise ConfigError(f"{where}: session: must be a mapping")
    notices: list[str] = []
    chosen = {kind: _chosen(kind, session, content, where, notices) for kind in _KINDS}
    mount: dict[str, Any] = {"session": {**session, **chosen}}
    for name in _LISTS:
        mount[name] = _specs(content.get(name), f"{where}: {name}")
    agents = content.get("agents") or {}
    check_agents(agents, f"{where}: agents")
    if agents:
        mount["agents"] = agents
    specs = [*chosen.values(), *(spec for name in _LISTS for spec in mount[name])]
    notices += _drop_sources(specs, offers)
    check_installed((*(spec["module"] for spec in specs), *modules_of(agents)), offers)
    if not mount["providers"]:
        raise ConfigError(f"{where}: providers: the plan mounts none; add at least one")
    return Plan(mount, tuple(notices), is_ours(chosen["orchestrator"]["module"], offers))


def _chosen(
    kind: str, session: Mapping[str, Any], content: Mapping[str, Any], where: str, notices: list[str]
) -> Spec:
    """The orchestrator, or the context: the one named under `session:` with all config given for it."""
    listed = _specs(content.get(f"{kind}s"), f"{where}: {kind}s")
    named = session.get(kind)
    if not named:
        named = _unnamed(kind, listed, where)
    spec = _spec(named, f"{where}: session.{kind}")
    own = next((each for each in listed if each["module"] == spec["module"]), {})
    others = [each["module"] for each in listed if each["module"] != spec["module"]]
    if others:
        notices.append(f"{kind}s: {', '.join(others)} not used: session.{kind} names {spec['module']}")
    shared = content.get(kind) or {}
    if not isinstance(shared, dict):
        raise ConfigError(f"{where}: {kind}: must be a mapping with `config:`")
    config = {**(shared.get("config") or {}), **own.get("config", {}), **spec["config"]}
    return {**own, **spec, "config": config}


def _unnamed(kind: str, listed: list[Spec], where: str) -> str:
    if len(listed) == 1:
        return str(listed[0]["module"])
    if kind == "context" and not listed:
        return _DEFAULT_CONTEXT
    raise ConfigError(f"{where}: session.{kind}: missing; name its module, as in `orchestrator: loop-events`")


def _specs(value: Any, where: str) -> list[Spec]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{where}: must be a list of modules")
    return [_spec(each, f"{where}[{index}]") for index, each in enumerate(value)]


def _spec(value: Any, where: str) -> Spec:
    """One module entry, given as its name or as a mapping."""
    spec = {"module": value} if isinstance(value, str) else value
    if not isinstance(spec, dict) or not isinstance(spec.get("module"), str) or not spec["module"]:
        raise ConfigError(f"{where}: must name a module: `module: NAME`")
    if unknown := sorted(spec.keys() - _SPEC_KEYS):
        raise ConfigError(f"{where}: unknown {', '.join(unknown)}; allowed: {', '.join(sorted(_SPEC_KEYS))}")
    config = spec.get("config") or {}
    if not isinstance(config, dict):
        raise ConfigError(f"{where}: config: must be a mapping")
    return {**spec, "config": config}


def _drop_sources(specs: list[Spec], offers: Offers) -> list[str]:
    """An installed module is used, wherever the plan would have it from; says so."""
    notices = []
    for spec in specs:
        source = spec.pop("source", None)
        if source and is_installed(spec["module"], offers):
            notices.append(f"{spec['module']}: the installed module is used, not {source}")
    return notices
