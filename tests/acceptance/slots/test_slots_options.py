"""`slots` as a process of its own, with replicas, on a real server, through a gate."""

import time

import pytest
from questions import decide
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance


class Queue:
    """Calls of agents that want slots, and end when they are told to."""

    def __init__(self, gate):
        self.gate = gate

    async def want(self, tool, arguments=None, **who):
        """Ask, and give the decision; a call that waits is one that somebody else must end."""
        return await decide(self.gate, tool, arguments or {}, [tool], **who)

    async def tries(self, *calls):
        """What comes of calls that wait for nothing, one after the other, by first letter."""
        return "".join([(await self.want(*call)).outcome[0] for call in calls])

    def end(self, decision):
        """Its tool has run."""
        self.gate.note("tool:post", {"decision_id": decision.id, "tool_name": decision.tool_name})


@pytest.fixture
def queue_on(schedulers, tmp_path):
    """`async with await queue_on(CONFIG) as queue`."""

    class Opened:
        async def __aenter__(self):
            where = {"redis": schedulers.url, "namespace": schedulers.namespace}
            self._gate = Gate.open(**where, patience_ms=20_000, required=["slots"])
            return Queue(await self._gate.__aenter__())

        async def __aexit__(self, *error):
            await self._gate.__aexit__(*error)

    async def started(config, **options):
        file = tmp_path / "slots.yaml"
        file.write_text(config)
        await schedulers.start("slots", "--config", file, **options)
        return Opened()

    return started


POOLS = """
pools:
  - {name: pairs, tools: pair, limit: 2, wait_s: 0}
  - {name: hosts, tools: "fetch*", key: "$.url#host", wait_s: 0}
  - {name: files, tools: "*_file", key: $.path, shared: {tools: read_*}, wait_s: 0}
  - {name: few, tools: [brief], wait_s: 0.2}
"""


async def test_so_many_at_a_time_by_key_readers_together_and_who_waits_too_long_is_told(queue_on):
    async with await queue_on(POOLS, replicas=2) as queue:
        assert await queue.tries(*[("pair",)] * 3) == "ccd"
        one, same, other = "https://a.b/1", "https://a.b:99/2", "https://b.c/1"
        assert await queue.tries(*[("fetch", {"url": url}) for url in (one, same, other)]) == "cdc"
        read, write = ("read_file", {"path": "x"}), ("write_file", {"path": "x"})
        assert await queue.tries(read, read, write, ("write_file", {"path": "y"}), read) == "ccdcc"
        taken = await queue.want("brief")
        before = time.monotonic()
        denied = await queue.want("brief")
        assert time.monotonic() - before >= 0.2
        assert denied.scheduler == "slots"
        assert "a slot of few, and all are in use. It waited 0.2 s in vain" in denied.reason
        queue.end(taken)
        assert (await queue.want("brief")).allowed
