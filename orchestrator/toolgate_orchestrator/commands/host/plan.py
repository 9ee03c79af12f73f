"""Reads an Amplifier mount plan from YAML, in the kernel's form or in the form of the modules' pages.

The pages' form names the orchestrator under `session:` and configures it in a list:

    session:
      orchestrator: loop-events
    orchestrators:
      - module: loop-events
        source: git+https://…            # ignored, with a notice, if the module is installed
        config: {max_iterations: 20}

`${NAME}` (capital letters) becomes the environment's value. Errors in the file are reported with their lines
before anything is mounted (`plan_file`). That includes errors in the configs of modules that declare a model.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolgate_bus.config.check import check, check_part
from toolgate_bus.config.document import Document, read_document
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.host.installed_modules import (
    Offers,
    config_model,
    is_installed,
    is_ours,
    offers_of,
    why_unusable,
)
from toolgate_orchestrator.commands.host.plan_file import (
    KINDS,
    LISTS,
    PartialSpec,
    Place,
    PlanFile,
    modules_in,
)
from toolgate_orchestrator.decision.misplaced import find_misplaced
from toolgate_orchestrator.modules.loop_origin import OWN_LOOPS

_DEFAULT_CONTEXT = "context-simple"
_VARIABLE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """A mount plan in the kernel's form, with notices for the user."""

    mount: dict[str, Any]
    notices: tuple[str, ...] = ()
    ours: bool = True
    """True if the orchestrator is one of Toolgate's loops, which take a `toolgate:` config."""

    @property
    def orchestrator(self) -> Spec:
        """The orchestrator's entry: module and config."""
        spec: Spec = self.mount["session"]["orchestrator"]
        return spec


def read_plan(path: Path, environ: Mapping[str, str] | None = None, offers: Offers | None = None) -> Plan:
    """Read, expand and check a plan. Raise ConfigError that names every error."""
    document = read_document(path)
    content = _expand(document.mapping(), os.environ if environ is None else environ, str(path))
    offers = offers_of() if offers is None else offers
    if misplaced := list(find_misplaced(content)):
        lines = (f"{document.where(place)}: {'.'.join(map(str, place))}: {why}" for place, why in misplaced)
        raise ConfigError("\n".join(lines))
    file = check(PlanFile, content, document)
    notices: list[str] = []
    chosen = {kind: _choose(kind, file, document, notices) for kind in KINDS}
    mount: dict[str, Any] = {"session": {**file.session.rest(), **chosen}}
    mount |= {name: [spec.as_mapping() for spec in getattr(file, name)] for name in LISTS}
    if file.agents:
        mount["agents"] = content["agents"]
    for spec in [*chosen.values(), *(spec for name in LISTS for spec in mount[name])]:
        # An installed module is used, whatever source the plan names.
        source = spec.pop("source", None)
        if source and is_installed(spec["module"], offers):
            notices.append(f"{spec['module']}: the installed module is used, not {source}")
    _check_modules(file, chosen, document, offers)
    if not mount["providers"]:
        raise ConfigError(
            f"{document.where(('providers',))}: providers: the plan mounts none; add at least one, such as "
            "provider-openai-compatible, or provider-scripted to try it"
        )
    return Plan(mount, tuple(notices), is_ours(chosen["orchestrator"]["module"], offers))


def with_bus(plan: Plan, **fields: Any) -> Plan:
    """Return the plan with these fields in the orchestrator's `toolgate:` config.

    A foreign loop has no such config: its plan gets a notice instead. Raise ConfigError for a foreign loop
    whose config requires schedulers.
    """
    spec = plan.orchestrator
    given = {name: value for name, value in fields.items() if value is not None}
    if not plan.ours:
        section = spec["config"].get("toolgate")
        if required := section.get("required") if isinstance(section, Mapping) else None:
            must = ", ".join(map(str, required)) if isinstance(required, list) else required
            raise ConfigError(
                f"{spec['module']} is not one of Toolgate's loops, and {must} (required) would not be asked: "
                f"use one of {', '.join(OWN_LOOPS)}"
            )
        notice = f"{spec['module']} is not one of Toolgate's loops: nothing rules on its calls"
        return replace(plan, notices=(*plan.notices, notice))
    toolgate = spec["config"].get("toolgate") or {}
    if not isinstance(toolgate, dict):
        raise ConfigError(f"{spec['module']}: toolgate: must be a mapping")
    return _with_config(plan, {"toolgate": {**toolgate, **given}})


def with_provider(plan: Plan, name: str) -> Plan:
    """Return the plan with this provider as the orchestrator's default."""
    return _with_config(plan, {"default_provider": name})


def _with_config(plan: Plan, fields: Mapping[str, Any]) -> Plan:
    spec = {**plan.orchestrator, "config": {**plan.orchestrator["config"], **fields}}
    session = {**plan.mount["session"], "orchestrator": spec}
    return replace(plan, mount={**plan.mount, "session": session})


# ---------------------------------------------------------------- reading


def _expand(content: Any, environ: Mapping[str, str], where: str) -> Any:
    """Return a copy with all variables replaced. Raise ConfigError that names all missing ones."""
    missing: dict[str, None] = {}

    def copy(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): copy(item) for key, item in value.items()}
        if isinstance(value, list):
            return [copy(item) for item in value]
        if not isinstance(value, str):
            return value
        missing.update((name, None) for name in _VARIABLE.findall(value) if name not in environ)
        return _VARIABLE.sub(lambda found: environ.get(found[1], ""), value)

    expanded = copy(content)
    if missing:
        raise ConfigError(f"{where}: not set in the environment: {', '.join(missing)}")
    return expanded


# ---------------------------------------------------------------- both forms become one


def _choose(kind: str, file: PlanFile, document: Document, notices: list[str]) -> Spec:
    """Return the orchestrator, or the context, that `session:` names, with all config given for it."""
    listed = file.module_specs(kind)
    named: PartialSpec | None = getattr(file.session, kind)
    spec = {"module": _infer_module(kind, file, document)} if named is None else named.as_mapping()
    if not spec.get("module"):
        raise ConfigError(f"{document.where(('session', kind))}: session.{kind}: name its module")
    own: Spec = next((each.as_mapping() for each in listed if each.module == spec["module"]), {})
    others = [each.module for each in listed if each.module != spec["module"]]
    if others:
        notices.append(f"{kind}s: {', '.join(others)} not used: session.{kind} names {spec['module']}")
    shared: PartialSpec | None = getattr(file, kind)
    config: Spec = {} if shared is None else shared.config
    config = config | own.get("config", {}) | spec.get("config", {})
    return {**own, **spec, "config": config}


def _infer_module(kind: str, file: PlanFile, document: Document) -> str:
    listed = file.module_specs(kind)
    if len(listed) == 1:
        return str(listed[0].module)
    if kind == "context" and not listed:
        return _DEFAULT_CONTEXT
    raise ConfigError(
        f"{document.where(('session',))}: session.{kind}: missing; name its module, as in "
        "`orchestrator: loop-events`"
    )


def _check_modules(file: PlanFile, chosen: Mapping[str, Spec], document: Document, offers: Offers) -> None:
    """Raise ConfigError that names each module that cannot be mounted, and all errors in configs."""
    faults: dict[str, None] = {}

    def look(module: str, places: Sequence[Place], config: Any, how: Callable[..., object]) -> None:
        if (why := why_unusable(module, offers)) is not None:
            place = document.nearest([(*place, "module") for place in places])
            faults[f"{document.where(place)}: {'.'.join(map(str, place[:-1]))}: {why}"] = None
        elif (model := config_model(module, offers)) is not None:
            try:
                how(model, config, document, *((*place, "config") for place in places))
            except ConfigError as error:
                faults.update(dict.fromkeys(str(error).splitlines()))

    for kind, spec in chosen.items():
        listed = ((f"{kind}s", index) for index in range(len(file.module_specs(kind))))
        look(spec["module"], [("session", kind), (kind,), *listed], spec["config"], check)
    for place, each in modules_in(file):
        if place[0] == "agents":
            module = each.module or chosen[place[-1]]["module"]
            look(module, [place], each.config, check_part)
        elif place[0] in LISTS:
            look(str(each.module), [place], each.config, check)
    if faults:
        raise ConfigError("\n".join(faults))
