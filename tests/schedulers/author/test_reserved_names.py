"""No scheduler has a name that the bus uses for something of its own: each door refuses it, in words."""

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.names import RESERVED_NAMES
from toolgate_bus.server.settings import read_keys
from toolgate_bus.transport.heartbeats import decode_member, encode_member
from toolgate_bus.transport.ports import Member
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.link.recipients import RecipientCache
from toolgate_orchestrator.decision.link.scheduler_info import SchedulerInfo
from toolgate_schedulers import Continue
from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.commands.scheduler_configs import at_desk
from toolgate_schedulers.worker.loading import load

pytestmark = pytest.mark.pure

EACH = pytest.mark.parametrize("name", sorted(RESERVED_NAMES))


async def agree(call):
    """Let every call run."""
    return Continue()


@EACH
def test_nobody_makes_a_scheduler_of_that_name(name):
    with pytest.raises(ConfigError, match="choose another name"):
        Scheduler(name=name, decide=agree)


@EACH
def test_nobody_runs_a_shipped_one_under_that_name(name):
    with pytest.raises(ConfigError, match="choose another name"):
        load("heuristic", name=name)


@EACH
def test_no_heartbeat_of_that_name_counts(name):
    assert decode_member(name, "r1", encode_member(Member(name, "r1", wire=(1, 2)))) is None


@EACH
@pytest.mark.parametrize("field", ["required", "shadow", "schedulers"])
def test_no_plan_names_it(name, field):
    with pytest.raises(ConfigError, match=name):
        parse({field: {name: {}} if field == "schedulers" else [name]})


@EACH
def test_it_has_no_key(name, tmp_path):
    path = tmp_path / "keys.yaml"
    path.write_text(f"policy: {'ab' * 16}\n{name}: {'ab' * 16}\n")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=f"{name} cannot be a scheduler's name"):
        read_keys(path)


@EACH
def test_nothing_is_pushed_to_it(name):
    with pytest.raises(ConfigError, match=f"{name}: is no scheduler's name"):
        at_desk(name, None, "default", None, lambda desk: desk.status())


@EACH
def test_a_gate_asks_nobody_of_that_name(name):
    audience = RecipientCache(parse({}), None).of("bash", {name: SchedulerInfo(name, 0, ("*",), False)}, 1)
    assert audience.names == ()
