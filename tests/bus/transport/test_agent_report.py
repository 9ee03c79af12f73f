"""What a process writes of its agents: their tools only when the set changed, or would expire."""

import pytest
from toolgate_bus.protocol.agents import find_tool_digest
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.tool_sets import ToolSet, digest_tools, encode_tools
from toolgate_bus.transport.redis.asking import agent_report
from toolgate_bus.transport.redis.asking.agent_report import TOOLS_EVERY_S, AgentReport

pytestmark = pytest.mark.pure

ONE, OTHER = encode_tools(ToolSet({"search": ()})), encode_tools(ToolSet({"search": (), "bash": ()}))


class Clock:
    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(agent_report, "time", clock)
    return clock


def sets_of(commands):
    return [command[1] for command in commands if ":tools:" in str(command[1])]


def test_a_set_is_written_once_and_again_when_it_changed_or_would_expire(clock):
    announced, keys = [ONE], Keys("ns")
    report = AgentReport(keys, "o", list, lambda: announced[-1])
    first = report.commands()
    assert sets_of(first) == [keys.tools(digest_tools(ONE))]
    assert find_tool_digest(first[-1][2]) == digest_tools(ONE)
    assert report.commands() == [], "nothing has changed"
    announced.append(OTHER)
    changed = report.commands()
    assert sets_of(changed) == [keys.tools(digest_tools(OTHER))]
    assert find_tool_digest(changed[-1][2]) == digest_tools(OTHER)
    clock.now += TOOLS_EVERY_S
    assert sets_of(report.commands()) == [keys.tools(digest_tools(OTHER))]
    report.tell_again()  # the server may be another one
    assert sets_of(report.commands()) == [keys.tools(digest_tools(OTHER))]


def test_a_process_without_sessions_and_tools_writes_nothing(clock):
    assert AgentReport(Keys("ns"), "o", list).commands() == []
