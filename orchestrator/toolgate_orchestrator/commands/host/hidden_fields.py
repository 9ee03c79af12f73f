"""Which rules of schedulers look at arguments that a plan hides from them. Reads files, changes nothing.

What a rule cannot see counts against the call: a rule that denies or asks by a hidden field always fits.
The files are read as YAML only; whether they are right is told where schedulers read them.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolgate_bus.commands.doctor.finding import Finding, warning
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.gate.config import RedactConfig

__all__ = ["hidden_fields"]


def hidden_fields(redact: RedactConfig, configs: Sequence[tuple[str, Path]]) -> list[Finding]:
    """A warning for each rule with a condition on a field that does not leave the agent's process."""
    hidden = {name.casefold() for name in redact.fields}
    found = []
    for scheduler, file in configs if hidden else ():
        for rule, path in _conditions(_read(file)):
            if hidden.intersection(path.casefold().replace("\\.", ".").split(".")):
                what = (
                    f"{rule} of {scheduler} ({file}) looks at {path}, which the plan hides by `redact`: one "
                    "that denies or asks fits every such call, one that allows or routes fits none"
                )
                change = "take the field out of `redact.fields`, or the condition out of the rule"
                found.append(warning("plan", "plan-rule-hidden", what, change))
    return found


def _read(file: Path) -> Any:
    try:
        return read_document(file).value
    except ConfigError:  # told by the check of the file itself
        return None


def _conditions(config: Any) -> Iterator[tuple[str, str]]:
    """What each rule with conditions is called, and the path of each condition."""
    for kind in ("rules", "routes"):
        rules = config.get(kind) if isinstance(config, Mapping) else None
        for number, rule in enumerate(rules if isinstance(rules, list) else [], start=1):
            when = rule.get("when") if isinstance(rule, Mapping) else None
            for path in when if isinstance(when, Mapping) else ():
                yield str(rule.get("name") or f"{kind.removesuffix('s')} {number}"), str(path)
