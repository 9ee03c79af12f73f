"""What may be done with configurations, as values; and that nothing hostile is read as one."""

import contextlib
import random

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.state.config_record import (
    MAX_REVISIONS,
    NO_RECORD,
    Progress,
    Rollout,
    RolloutStage,
    StoredConfig,
    advance,
    begin,
    decode_record,
    digest_of,
    encode_record,
    push,
    settle,
    stage_of,
    undo,
)


def config(number):
    return StoredConfig(digest_of(b"%d" % number), f"v{number}", "ann", 1.0, 1, "policy")


def pushed(count):
    record = NO_RECORD
    for number in range(1, count + 1):
        record = push(record, config(number))
    return record


STAGES = (RolloutStage(0, 5.0), RolloutStage(10, 5.0))


def rolling():
    record = push(pushed(1), config(2), stage=True)
    return begin(record, Rollout("r", config(2).digest, STAGES))


def test_what_is_pushed_is_in_force_and_undo_goes_back_step_by_step_to_the_files():
    record = pushed(3)
    for label in ("v2", "v1", ""):
        record = undo(record)
        assert record.active == (record.find(label) if label else "")
    with pytest.raises(ConfigError, match="nothing was pushed"):
        undo(record)


def test_a_label_names_one_configuration_for_ever():
    with pytest.raises(ConfigError, match="names v1@"):
        push(pushed(1), config(2)._replace(label="v1"))


def test_the_oldest_goes_and_what_is_in_force_stays():
    record = pushed(1)
    for number in range(2, MAX_REVISIONS + 20):
        record = push(record, config(number), stage=True)
    assert len(record.configs) == MAX_REVISIONS
    assert record.config(config(1).digest) is not None


def test_a_rollout_goes_through_its_stages_and_ends_in_force():
    record = rolling()
    assert stage_of(record, None) == (0, STAGES[0])
    second = advance(record, None, 6.0)
    assert stage_of(record, second) == (1, STAGES[1])
    done = advance(record, second, 12.0)
    assert settle(record, done).active == config(2).digest
    assert settle(record, Progress("r", 1, 9.0, "undone")).active == config(1).digest
    assert settle(record, Progress("another", 1, 9.0, "done")) == record


@pytest.mark.parametrize("change", [lambda one: push(one, config(3)), undo])
def test_nothing_is_changed_under_a_rollout(change):
    with pytest.raises(ConfigError, match="rollout"):
        change(rolling())


def test_a_record_is_read_as_it_was_written_and_nothing_else_is_read_as_one():
    raw = encode_record(rolling())
    assert decode_record(raw) == rolling()
    chance = random.Random(7)
    for _ in range(2000):
        spoilt = bytearray(raw)
        for _ in range(chance.randint(1, 4)):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        with contextlib.suppress(ConfigError):  # whatever it is, nothing else is raised
            decode_record(bytes(spoilt[: chance.randint(0, len(spoilt))]))
