"""What one agent of a tree has read binds the others, in other processes too, whatever dies meanwhile."""

import asyncio
import json
from pathlib import Path

import pytest
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.session_labels import LabelBoard, RedisLabelStore
from toolgate_bus.transport.session_labels import LabelMark, show_labels
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(180)]

AGENTS = Path(__file__).parent.parent / "agents_for_tests"
AGENT, CHAIN = AGENTS / "labelled_agent.py", AGENTS / "labelled_chain.py"
BOUND_S = 60
NAMESPACE = "labels"


class Tree:
    """A root that reads the web, and sub-agents that send mail: a process each."""

    def __init__(self, url, process, wait_until):
        self.url, self._process, self._until = url, process, wait_until

    async def read(self, session="boss"):
        """Start the root; it has read a page once this returns."""
        running = self._process("python", AGENT, "read", self.url, NAMESPACE, session)
        await self._until(lambda: running.stdout or not running.alive, timeout=BOUND_S)
        assert running.stdout == "read\n", running.stderr
        return running

    async def mail(self, session="kid", root="boss"):
        """What the LLM of a new sub-agent is told of the mail that it sends."""
        running = self._process("python", AGENT, "mail", self.url, NAMESPACE, session, root)
        assert await asyncio.to_thread(running.wait, BOUND_S) == 0, running.stderr
        return running.stdout

    async def see_mail_refused(self):
        """Wait until a new sub-agent is refused for what was read. None sends mail before that."""
        said = []

        async def is_refused():
            said.append(await self.mail(f"kid {len(said)}"))
            return "this session has read a page from outside" in said[-1]

        await self._until(is_refused, timeout=BOUND_S)
        assert "sent\n" not in said

    async def send_above(self, ending):
        """What a root is told of its mail, once an agent two processes below it has read a page."""
        running = self._process("python", CHAIN, self.url, NAMESPACE, ending, "top")
        assert await asyncio.to_thread(running.wait, BOUND_S) == 0, running.stderr
        return running.stdout

    async def stored(self, session="boss"):
        """Labels that the server has of a session."""
        commands = RedisCommands(self.url, "toolgate-test", connections=1)
        try:
            return show_labels((await LabelBoard(commands, NAMESPACE).read([session]))[session])
        finally:
            await commands.aclose()

    async def keep(self, marks):
        """Store these marks of labels, as an agent's process does."""
        commands = RedisCommands(self.url, "toolgate-test", connections=1)
        try:
            await RedisLabelStore(commands, NAMESPACE).keep(marks)
        finally:
            await commands.aclose()

    async def toolgate(self, *words, code=0, said="stdout"):
        """What a command prints."""
        where = ("--redis", self.url, "--namespace", NAMESPACE)
        running = self._process("toolgate", "agents", *words, *where)
        assert await asyncio.to_thread(running.wait, BOUND_S) == code, running.stderr
        return getattr(running, said)


@pytest.fixture(params=["own_server", "own_durable_server"])
def any_server(request):
    """A server that forgets everything when it is restarted, and one that does not."""
    return request.getfixturevalue(request.param)


async def grow(server, schedulers_on, process, wait_until):
    schedulers = schedulers_on(server.url, NAMESPACE)
    for name in ("provenance", "OutgoingMail"):
        schedulers.run(f"labelling:{name}")
    for child in schedulers.started:
        await schedulers.ready(child)
    return Tree(server.url, process, wait_until)


async def test_a_sub_agent_in_another_process_may_not_send_what_its_root_has_read(
    own_server, schedulers_on, process, wait_until
):
    tree = await grow(own_server, schedulers_on, process, wait_until)
    assert await tree.mail("early") == "sent\n"
    root = await tree.read()
    denied = "this session has read a page from outside"
    assert denied in await tree.mail("kid")
    assert await tree.mail("stranger", "nobody") == "sent\n"
    root.popen.kill()
    await asyncio.to_thread(root.wait)
    assert denied in await tree.mail("kid of the dead")


@pytest.mark.parametrize("ending", ["returns", "dies"])
async def test_what_an_agent_has_read_binds_its_root_though_the_process_between_ends_or_dies_at_once(
    own_server, schedulers_on, process, wait_until, ending
):
    tree = await grow(own_server, schedulers_on, process, wait_until)
    assert "this session has read a page from outside" in await tree.send_above(ending)
    assert await tree.stored("top") == await tree.stored("lowest") == {"source": ["untrusted"]}


async def test_labels_outlive_a_restart_of_the_server_by_its_disk_or_by_the_living_process(
    any_server, schedulers_on, process, wait_until
):
    tree = await grow(any_server, schedulers_on, process, wait_until)
    root = await tree.read()
    any_server.restart()
    await wait_until(lambda: tree.stored(), timeout=BOUND_S)
    assert root.alive
    await tree.see_mail_refused()


async def test_no_new_process_sends_what_was_read_while_a_server_that_lost_everything_is_told_again(
    own_server, schedulers_on, process, wait_until
):
    tree = await grow(own_server, schedulers_on, process, wait_until)
    await tree.read()
    own_server.restart()
    said = []
    async with Gate.open(redis=own_server.url, namespace=NAMESPACE, required=["outgoing-mail"]) as kid:

        async def denied():
            caller = Caller(f"kid {len(said)}", parent="boss", root="boss")
            decision = await kid.decide(Call("send_mail", {}, ["send_mail"], caller))
            said.append(decision.reason if decision.outcome == "deny" else "sent")
            return "this session has read a page from outside" in said[-1]

        await wait_until(denied, timeout=BOUND_S)
    assert "sent" not in said


async def test_labels_outlive_a_killed_root_and_a_restart_of_a_server_that_keeps_its_data(
    own_durable_server, schedulers_on, process, wait_until
):
    tree = await grow(own_durable_server, schedulers_on, process, wait_until)
    root = await tree.read()
    root.popen.kill()
    own_durable_server.restart()
    await tree.see_mail_refused()


async def test_an_operator_sees_labels_and_takes_one_from_the_tree_on_the_record(
    own_server, schedulers_on, process, wait_until
):
    tree = await grow(own_server, schedulers_on, process, wait_until)
    await tree.read()
    assert "this session has read" in await tree.mail("kid")
    listed = [json.loads(line) for line in (await tree.toolgate("labels", "--json")).splitlines()]
    given = {"label": "source", "value": "untrusted", "borne": True}
    assert listed == [{"session": session, **given} for session in ("boss", "kid")]
    assert "untrusted" in await tree.toolgate("labels", "bo")

    assert await tree.toolgate("unlabel", "boss", "source=trusted", code=1) == ""
    said = await tree.toolgate("unlabel", "boss", "source", "--by", "Ana")
    assert said == "took source=untrusted from boss\n"
    assert await tree.stored() == {}
    taken = json.loads(await tree.toolgate("labels", "boss", "--json"))
    assert (taken["borne"], taken["by"]) == (False, "Ana")
    assert await tree.mail("kid") == "sent\n"

    await tree.keep({"full": {"*": LabelMark(), "source=untrusted": LabelMark(), "a=b": LabelMark()}})
    assert "so its labels stay unknown" in await tree.toolgate("unlabel", "full", "a", said="stderr")
    assert await tree.toolgate("unlabel", "full", "*", said="stderr") == ""

    async def recorded():
        words = ("toolgate", "decisions", "export", "-", "--facts", "--redis", tree.url, "--namespace")
        running = process(*words, NAMESPACE)
        await asyncio.to_thread(running.wait, BOUND_S)
        facts = [json.loads(line) for line in running.stdout.splitlines()]
        return [one for one in facts if one["event"] == "agent:unlabel" and one["session"] == "boss"]

    (fact,) = await wait_until(recorded, timeout=BOUND_S)
    assert (fact["label"], fact["value"], fact["by"]) == ("source", "untrusted", "Ana")
