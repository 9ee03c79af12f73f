"""Rehearse schedulers for `toolgate replay` with the times of the record (`toolgate.rehearsals`)."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel
from toolgate_bus.config.check import check
from toolgate_bus.config.document import read_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.ruling.rehearsal import Rehearsal

from toolgate_schedulers.shipped.policy.rehearsal import OrderRehearsal
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig
from toolgate_schedulers.shipped.slots.config import SlotsConfig
from toolgate_schedulers.shipped.slots.rehearsal import SlotsRehearsal
from toolgate_schedulers.shipped.slots.scheduler import Slots

Model = TypeVar("Model", bound=BaseModel)


def rehearse_slots(config: Path | None) -> Rehearsal:
    """Return the rehearsal of these pools; raise ConfigError for a wrong file."""
    return SlotsRehearsal(_read(SlotsConfig, config, "slots"), Slots.priority)


def rehearse_policy(config: Path | None) -> Rehearsal | None:
    """Return the rehearsal of these rules, None if none is on order; raise ConfigError for a wrong file."""
    read = _read(PolicyConfig, config, "policy")
    return OrderRehearsal(read, Policy.priority) if read.order_rules else None


def _read(model: type[Model], config: Path | None, name: str) -> Model:
    if config is None:
        raise ConfigError(f"{name}: needs a configuration: {name}=FILE")
    document = read_document(config)
    return check(model, document.mapping(), document)
