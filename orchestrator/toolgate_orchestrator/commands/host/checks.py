"""Checks of `toolgate doctor --plan`: the plan, its schedulers on the bus, its keys, its providers.

They read the plan with the readers of `toolgate run`. They mount nothing, and ask an LLM's server only for
its list of models. The entry-point group `toolgate.checks` contributes them.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from toolgate_bus.commands.doctor.check import Bus, Check, Context
from toolgate_bus.config.check import check
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet.finding import Finding, error, fine, notice, warning
from toolgate_bus.server.settings import read_keys

from toolgate_orchestrator.commands.host.installed_modules import config_model, is_ours, offers_of
from toolgate_orchestrator.commands.host.plan import Plan, read_plan
from toolgate_orchestrator.commands.host.warnings import warn_unrequired
from toolgate_orchestrator.decision.config import RedactConfig, ToolgateConfig
from toolgate_orchestrator.turn.loop_config import LoopConfig

SUBJECT: Final = "plan"
SCHEDULERS: Final = "toolgate.schedulers"
FIX_PLAN: Final = "correct that line of the plan; docs/reference/plan.md lists every setting"


# ---------------------------------------------------------------- reading


def _read(context: Context) -> Plan:
    if context.plan is None:
        raise ConfigError("no plan is given")
    return read_plan(context.plan)


def _bus(context: Context) -> Bus:
    """Return the bus that the plan's own `toolgate:` section names."""
    try:
        section = _read(context).orchestrator["config"].get("toolgate")
    except ConfigError:  # the check itself reports it
        return Bus()
    own = section if isinstance(section, Mapping) else {}
    redis, namespace = own.get("redis"), own.get("namespace")
    return Bus(redis if isinstance(redis, str) else None, namespace if isinstance(namespace, str) else None)


async def _plan(context: Context) -> Sequence[Finding]:
    try:
        plan = _read(context)
        toolgate = _validate_loop(plan)
    except ConfigError as wrong:
        return [error(SUBJECT, "plan-wrong", str(wrong), FIX_PLAN)]
    found = [notice(SUBJECT, "plan-notice", told) for told in plan.notices]
    found += _scripts(plan)
    if toolgate is None:
        return [*found, _warn_unruled(plan)]
    found += [
        *_keys(toolgate, context),
        *_down(toolgate),
        *check_hidden_fields(toolgate.redact, context.configs),
    ]
    return [*found, *check_required(toolgate, context), fine(SUBJECT, "plan-read", "the plan can be read")]


def _validate_loop(plan: Plan) -> ToolgateConfig | None:
    """Return the `toolgate:` section of the loop; None if no scheduler rules on its calls."""
    spec = plan.orchestrator
    model = config_model(spec["module"], offers_of()) if plan.ours else None
    if model is None or not issubclass(model, LoopConfig):
        return None
    return model.model_validate(spec["config"]).toolgate


def _warn_unruled(plan: Plan) -> Finding:
    module = plan.orchestrator["module"]
    if not plan.ours:
        what = f"{module} is not one of Toolgate's loops: nothing rules on its calls"
        offers = offers_of()
        loops = sorted(name for name in offers if name.startswith("loop-") and is_ours(name, offers))
        return warning(SUBJECT, "plan-unruled", what, f"use one of {', '.join(loops)}")
    what = (
        f"{module} has no `toolgate:` section: `toolgate run` and `toolgate chat` ask each living scheduler, "
        "but any other program asks none about its calls"
    )
    return warning(SUBJECT, "plan-unruled", what, "add `toolgate: {}` to the config of the orchestrator")


# ---------------------------------------------------------------- schedulers


def check_required(toolgate: ToolgateConfig, context: Context) -> list[Finding]:
    """Check that the schedulers that a `toolgate:` section names are alive, and explain each problem."""
    alive = {member.name: member for member in sorted(context.view.members, key=lambda one: one.started)}
    found: list[Finding] = []
    if both := sorted({*toolgate.required} & {*toolgate.shadow}):
        what = f"{', '.join(both)} is in `required` and in `shadow`: `required` counts, and its verdicts rule"
        found.append(warning(SUBJECT, "plan-required-shadow", what, "remove it from one of them"))
    if context.commands is None:
        if toolgate.required:
            what = (
                f"it was not checked whether {', '.join(toolgate.required)} (required) are alive: no bus was "
                "checked"
            )
            found.append(
                notice(SUBJECT, "plan-required-unseen", what, "toolgate doctor --redis URL --plan …")
            )
        return found
    for name in toolgate.required:
        if name not in alive:
            found.append(_missing(name, toolgate, sorted(alive)))
        elif alive[name].shadow:
            what = f"{name} runs as a shadow, and the plan requires it: its verdicts count all the same"
            change = f"start {name} without --shadow, or move it from `required` to `shadow` in the plan"
            found.append(warning(SUBJECT, "plan-required-shadow", what, change))
        else:
            found.append(fine(SUBJECT, "plan-required", f"{name} is required, and alive"))
    for words in warn_unrequired(context.view.members, {*toolgate.required, *toolgate.shadow}):
        what, _, change = words.partition(". Name it")
        found.append(warning(SUBJECT, "plan-not-required", what, f"Name it{change}"))
    absent = [name for name in toolgate.shadow if name not in alive]
    if absent:
        what = f"the plan names {', '.join(absent)} as shadows, and no replica of them is alive"
        found.append(
            notice(SUBJECT, "plan-shadow-missing", what, f"toolgate scheduler run {absent[0]} --shadow")
        )
    return found


def _missing(name: str, toolgate: ToolgateConfig, alive: Sequence[str]) -> Finding:
    installed = {point.name for point in entry_points(group=SCHEDULERS)}
    what = (
        f"{name} is required, and no replica of it is alive: each call is denied after "
        f"{toolgate.patience_ms} ms"
    )
    if name in installed:
        return error(SUBJECT, "plan-required-missing", what, f"toolgate scheduler run {name} --config FILE")
    close = difflib.get_close_matches(name, sorted(installed.union(alive)), n=1)
    hint = f"correct the plan if {close[0]} is meant, or " if close else ""
    change = f"{hint}start it: toolgate scheduler run MODULE:ATTRIBUTE --name {name}"
    return error(SUBJECT, "plan-required-missing", f"{what}; none of that name is installed here", change)


def _down(toolgate: ToolgateConfig) -> list[Finding]:
    if toolgate.on_bus_down != "continue" or not toolgate.required:
        return []
    what = "on_bus_down: continue lets calls run without the required schedulers while the server is away"
    return [warning(SUBJECT, "plan-bus-down", what, "leave `on_bus_down` out, or set it to deny")]


def _keys(toolgate: ToolgateConfig, context: Context) -> list[Finding]:
    file: Path | None = context.keys or toolgate.keys
    if file is None:
        return []
    try:
        keys = read_keys(file)
    except ConfigError as wrong:
        change = "write one `name: key` per line; make a key with `openssl rand -hex 32`"
        return [error(SUBJECT, "plan-keys", str(wrong), change)]
    asked = {*toolgate.required, *(member.name for member in context.view.members)}
    without = sorted(asked - set(keys))
    if not without:
        return [fine(SUBJECT, "plan-keys", f"{file} has a key for every scheduler")]
    what = f"{file} has no key for {', '.join(without)}: they are not asked, and their verdicts do not count"
    return [
        error(
            SUBJECT, "plan-keys-missing", what, f"add `{without[0]}: $(openssl rand -hex 32)` on both sides"
        )
    ]


# ---------------------------------------------------------------- providers


def _scripts(plan: Plan) -> list[Finding]:
    """Check the script files that scripted providers name."""
    from toolgate_orchestrator.modules.provider_scripted import ProviderScripted

    found = []
    for spec in plan.mount["providers"]:
        try:
            if spec["module"] == "provider-scripted":
                ProviderScripted(spec["config"])
        except ConfigError as wrong:
            change = "correct the file that `script:` names"
            found.append(error(SUBJECT, "plan-provider", str(wrong), change))
    return found


async def _reachable(context: Context) -> Sequence[Finding]:
    from toolgate_orchestrator.modules.provider_openai.config import MODULE, OpenAIConfig

    try:
        specs = [spec for spec in _read(context).mount["providers"] if spec["module"] == MODULE]
        configs = [check(OpenAIConfig, spec["config"], MODULE) for spec in specs]
    except ConfigError:  # the other check reports it
        return ()
    return [await _probe_models(config) for config in configs]


async def _probe_models(config: Any) -> Finding:
    """Check that a provider's server lists its models, and the configured model among them."""
    from amplifier_core.llm_errors import AccessDeniedError, AuthenticationError, LLMError, NotFoundError

    from toolgate_orchestrator.modules.provider_openai.client import Endpoint

    subject, name = "provider", "provider-reachable"
    try:
        endpoint = Endpoint(config.model_copy(update={"max_retries": 0, "timeout_s": 5.0}))
    except ConfigError as wrong:
        return error(subject, "provider-config", str(wrong), "correct that setting")
    where = endpoint.whose.server
    try:
        models = [str(model.get("id")) for model in await endpoint.models()]
    except (AuthenticationError, AccessDeniedError) as refused:
        change = "put a valid key into OPENAI_API_KEY, or `api_key: ${NAME}` in the plan"
        return error(subject, "provider-key", f"{where} refuses the key: {refused}", change)
    except NotFoundError:
        what = f"{where} answers but lists no models, so {config.model} was not checked"
        return notice(subject, name, what, "if turns fail, check base_url: it mostly ends in /v1")
    except LLMError as failed:
        change = "start it, or correct `base_url` in the plan (it mostly ends in /v1)"
        return error(subject, "provider-unreachable", f"{where} cannot be used: {failed}", change)
    finally:
        await endpoint.close()
    if models and config.model not in models:
        close = difflib.get_close_matches(config.model, models, n=3) or models[:3]
        what = f"{where} does not list the model {config.model}"
        return warning(
            subject, "provider-model", what, f"correct `model` in the plan; it has {', '.join(close)} …"
        )
    return fine(subject, name, f"{where} answers, and has {config.model}")


CHECKS = (
    Check("plan", SUBJECT, _plan, frozenset({"plan"}), _bus),
    Check("provider", "provider", _reachable, frozenset({"plan"})),
)


def check_hidden_fields(redact: RedactConfig, configs: Sequence[tuple[str, Path]]) -> list[Finding]:
    """Return a warning for each rule and each budget that reads a field that is hidden from schedulers.

    A hidden field counts against the call: a rule that denies or asks by it always applies, and a budget
    that counts it denies the call.
    """
    hidden = {name.casefold() for name in redact.fields}
    found = []
    for scheduler, file in configs if hidden else ():
        try:
            config = read_document(file).value
        except ConfigError:  # the check of the file itself reports it
            continue
        for rule, path in _conditions(config):
            if _reads(path, hidden):
                what = (
                    f"{rule} of {scheduler} ({file}) looks at {path}, which the plan hides by `redact`: a "
                    "rule that denies or asks then matches every such call, one that allows or routes none"
                )
                change = "remove the field from `redact.fields`, or the condition from the rule"
                found.append(warning("plan", "plan-rule-hidden", what, change))
        for budget, path in _counted_arguments(config):
            if _reads(path, hidden):
                what = (
                    f"the budget {budget} of {scheduler} ({file}) counts by {path}, which the plan hides by "
                    "`redact`: every call of its tools is denied, as the amount cannot be read"
                )
                change = "remove the field from `redact.fields`, or count by another argument"
                found.append(warning("plan", "plan-budget-hidden", what, change))
    return found


def _reads(path: str, hidden: Collection[str]) -> bool:
    """Return whether a path goes through one of these fields, which are in lower case."""
    return not {*hidden}.isdisjoint(path.casefold().replace("\\.", ".").split("."))


def _counted_arguments(config: Any) -> Iterator[tuple[str, str]]:
    """Yield the name of each budget that reads an argument, and the argument's path."""
    budgets = config.get("budgets") if isinstance(config, Mapping) else None
    for number, budget in enumerate(budgets if isinstance(budgets, list) else [], start=1):
        told = budget if isinstance(budget, Mapping) else {}
        name, amount, level = (told.get(field) for field in ("name", "amount", "level"))
        for path, prefix in ((amount, "$."), (level, "argument:")):
            if isinstance(path, str) and path.startswith(prefix):
                yield str(name or number), path.removeprefix(prefix)


def _conditions(config: Any) -> Iterator[tuple[str, str]]:
    """Yield the name of each rule with conditions, and the path of each condition."""
    for kind in ("rules", "routes"):
        rules = config.get(kind) if isinstance(config, Mapping) else None
        for number, rule in enumerate(rules if isinstance(rules, list) else [], start=1):
            when = rule.get("when") if isinstance(rule, Mapping) else None
            for path in when if isinstance(when, Mapping) else ():
                yield str(rule.get("name") or f"{kind.removesuffix('s')} {number}"), str(path)
