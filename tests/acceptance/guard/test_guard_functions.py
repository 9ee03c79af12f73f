"""Functions that a guard makes tools: which one runs, with what, and when it has ended; on a real server."""

import asyncio
import contextlib
import gc
import itertools
import threading
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.slots.counts import read_pools
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, CallDenial, Guard

pytestmark = [pytest.mark.acceptance]

DENY = {"alpha": {"action": "deny", "reason": "not here"}}
POOL = "pools: [{name: one, tools: '*', limit: 1, wait_s: 30}]"
POLICY = """
rules:
  - {tools: refund, when: {amount: {gt: 100}}, action: deny, reason: too much}
  - {tools: write, when: {path: "*.env"}, action: deny, reason: secret}
  - {tools: archive, when: {"options.paths": "*.env"}, action: deny, reason: secret}
  - {tools: list_all, when: {paths: "*.env"}, action: deny, reason: secret}
"""


def swap(tool, **arguments):
    """A rule by which another call runs."""
    return {"beta": {"action": "modify", "tool": tool, "arguments": arguments}}


def refuse(ruling):
    return ruling.refusal


@pytest.fixture
async def ruled_by(schedulers, server_url, namespace, tmp_path):
    """`await ruled_by("policy", text)`: a guard on which this scheduler rules, and nobody else."""
    made = []

    async def make(name, text, **fields):
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        await schedulers.start(name, "--config", file)
        fields = {"required": [name], "patience_ms": 20_000, **fields}
        made.append(Guard(agent="clerk", redis=server_url, namespace=namespace, **fields))
        return made[-1]

    yield make
    for one in made:
        await asyncio.to_thread(one.close)


async def facts_of(url, namespace, *events):
    commands = RedisCommands(url, "test-guard")
    facts = await FactsReader(commands, namespace).read_all()
    await commands.aclose()
    return [one for one in facts if one["event"] in events]


@pytest.fixture
def told(crew):
    """`await told("agent", "tool:post")`: facts of one agent."""

    async def read(agent, *events):
        facts = await facts_of(crew.url, crew.namespace, *events)
        return [one for one in facts if one.get("agent") == agent]

    return read


# ---------------------------------------------------------------------- which function runs


def test_of_two_functions_of_one_name_each_runs_itself(guard_on):
    guard = guard_on("factory")

    def make_account(owner):
        @guard.tool
        def household(amount: int):
            return f"{owner} pays {amount}"

        return household

    private, business = make_account("anna"), make_account("the company")
    assert (private(1), business(2)) == ("anna pays 1", "the company pays 2")


async def test_a_replacement_that_two_living_functions_might_be_is_invalid_and_the_record_says_so(
    guard_on, told
):
    guard, ran = guard_on("twins", required=["alpha"]), []

    def make_search(shelf):
        @guard.tool
        def search(q: str = "", rules: dict | None = None):
            ran.append(shelf)

        return search

    @guard.tool
    def bash(rules: dict):
        ran.append("bash")

    own, other = make_search("books"), make_search("films")
    await asyncio.to_thread(bash, swap("search", q="tea"))
    assert ran == ["bash"]  # beta is optional, and its modify is set aside
    await asyncio.to_thread(own, rules=swap("search", q="tea"))
    assert ran.pop() == "books"  # other arguments of its own are no guess
    await guard.flush()
    (decision, _) = await told("twins", "decision")
    assert [one.get("problem") for one in decision["verdicts"] if one["scheduler"] == "beta"] == [
        "ambiguous_tool"
    ]
    del other
    await asyncio.to_thread(bash, swap("search", q="tea"))
    assert ran == ["bash", "books"]


def test_a_cell_that_is_run_again_replaces_its_function_and_leaves_nothing_behind(guard_on):
    names = {"guard": guard_on("notebook"), "ran": []}
    for number in range(20):
        exec(f"@guard.tool\ndef search(q=''):\n    ran.append({number})\n", names)
    exec("@guard.tool\ndef bash(rules):\n    ran.append('bash')\n", names)
    old = weakref.ref(names["search"])
    exec("@guard.tool\ndef search(q=''):\n    ran.append('newest')\n", names)
    assert old() is None
    names["bash"](swap("search", q="x"))
    assert names["ran"] == ["newest"]


def test_a_method_runs_with_its_own_instance_and_no_rule_sees_self(guard_on):
    guard = guard_on("desk")

    class Account:
        def __init__(self, owner):
            self.owner = owner

        @guard.tool
        def household(self, amount: int, rules: dict | None = None):
            return f"{self.owner} pays {amount}"

        @guard.tool
        def hold(self, amount: int):
            return f"{self.owner} holds {amount}"

    class Company(Account):
        @guard.tool
        def hold(self, amount: int):
            return f"{self.owner} holds {amount} for the company"

    anna, ben, firm = Account("anna"), Account("ben"), Company("firm")
    assert [one.household(1) for one in (anna, ben)] == ["anna pays 1", "ben pays 1"]
    assert Account.household(anna, amount=2) == "anna pays 2"
    assert anna.household(1, rules=swap("household", amount=7)) == "anna pays 7"
    assert ben.household(1, rules=swap("hold", amount=7)) == "ben holds 7"
    assert firm.household(1, rules=swap("hold", amount=7)) == "firm holds 7 for the company"
    with pytest.raises(CallDenial, match="not here"):
        anna.household(1, rules=DENY)


async def test_self_does_not_travel(guard_on, told):
    guard = guard_on("traveller")

    class Desk:
        @guard.tool
        async def send(self, to: str, amount: int = 5):
            return to

        @guard.tool
        @classmethod
        def of_class(cls, to: str):
            return cls.__name__

        @classmethod
        @guard.tool
        async def of_class_too(cls, to: str):
            return cls.__name__

        @guard.tool
        @staticmethod
        def alone(to: str):
            return to

    assert await Desk().send("ann") == "ann"
    assert await asyncio.to_thread(Desk.of_class, "ann") == "Desk"
    assert await Desk.of_class_too("ann") == "Desk"
    assert await asyncio.to_thread(Desk().alone, to="ann") == "ann"
    assert await guard.tool(Desk().of_class_too, name="bound")("ann") == "Desk"
    await guard.flush()
    inputs = [one["tool_input"] for one in await told("traveller", "decision")]
    assert inputs[0] == {"to": "ann", "amount": 5}
    assert inputs[1:4] == [{"to": "ann"}] * 3
    assert all("self" not in one and "cls" not in one for one in inputs)


async def test_a_method_runs_in_place_of_no_function_that_stands_alone(guard_on):
    guard = guard_on("loner", required=["alpha"])

    class Desk:
        @guard.tool
        def search(self, q: str):
            raise AssertionError

    @guard.tool
    async def bash(rules: dict):
        return "bash"

    assert await bash(swap("search", q="x")) == "bash"
    assert Desk


class Greeter:
    def __call__(self, to: str):
        return f"hello {to}"


class AsyncGreeter:
    async def __call__(self, to: str):
        await asyncio.sleep(0)
        return f"hello {to}"


def greet(word: str, to: str = "all", *, loud: bool = False):
    return f"{word} {to}"


async def greet_later(word: str, to: str):
    return f"{word} {to}"


async def test_whatever_can_be_called_works_if_it_has_a_name(guard_on, told):
    guard = guard_on("callables")
    in_thread = asyncio.to_thread
    assert await in_thread(guard.tool(Greeter(), name="greeter"), "ann") == "hello ann"
    assert await guard.tool(AsyncGreeter(), name="greeter_later")(to="ann") == "hello ann"
    assert await in_thread(guard.tool(partial(greet, "hi")), "ann") == "hi ann"
    assert await guard.tool(partial(greet_later, to="ben"))("hi") == "hi ben"
    assert await in_thread(guard.tool(lambda to: f"yo {to}", name="yo"), "ann") == "yo ann"
    assert await guard.tool(lambda to: greet_later("yo", to), name="yo_later")("ann") == "yo ann"
    await guard.flush()
    inputs = [one["tool_input"] for one in await told("callables", "decision")]
    assert inputs[2:4] == [{"word": "hi", "to": "ann", "loud": False}, {"word": "hi", "to": "ben"}]


async def test_parameters_that_are_given_by_place_alone_have_names_too(guard_on, told):
    guard = guard_on("by-place")

    @guard.tool
    async def copy(source: str, /, *targets: str, deep: bool = False):
        return source, targets, deep

    @guard.tool
    async def bash(rules: dict):
        return "bash"

    assert await copy("a", "b", "c", deep=True) == ("a", ("b", "c"), True)
    assert await copy("a") == ("a", (), False)
    assert await bash(swap("copy", source="x", targets=["y", "z"])) == ("x", ("y", "z"), False)
    await guard.flush()
    inputs = [one["tool_input"] for one in await told("by-place", "decision")]
    assert inputs[0] == {"source": "a", "targets": ["b", "c"], "deep": True}


def forward(*args, **kwargs):
    return args, kwargs


def take(first, /, **others):
    return first, others


class Forwarder:
    def method(this, path):  # noqa: N805 - nobody can tell what it is called on
        return path


def loose(self, path):
    return path


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda path: path, "name="),
        (Greeter(), "name="),
        (Greeter, "is a class"),
        (forward, "whose parameters all have names"),
        (take, "whose parameters all have names"),
        (Forwarder.method, "above @staticmethod"),
        (loose, "outside of a class"),
        (partial(greet, "a", "b", "c"), "too many"),
        (max, "cannot be found"),
        (3, "cannot be called"),
    ],
)
def test_what_rules_could_not_read_is_refused_when_it_is_decorated(fn, says):
    with pytest.raises(TypeError, match=says):
        Guard().tool(fn)


# ---------------------------------------------------------------------- with what


async def test_what_is_used_of_arguments_that_are_left_out_is_ruled_on(ruled_by):
    guard = await ruled_by("policy", POLICY)

    @guard.tool
    async def refund(order: str, amount: int = 5000, note: str | None = None):
        return amount

    @guard.tool
    async def write(path: Path = Path("x/.env")):
        return path

    @guard.tool
    async def archive(options: dict = {"paths": ["a", ".env"]}):  # noqa: B006 - as people write it
        return options

    @guard.tool
    async def list_all(*paths: str):
        return paths

    for call in (refund("a1"), write(), archive(), list_all("a", "b.env")):
        with pytest.raises(CallDenial):
            await call
    assert await refund("a1", 5) == 5
    assert await write(Path("notes.txt")) == Path("notes.txt")
    assert await archive({"paths": []}) == {"paths": []}
    paid = guard.tool(partial(refund.__wrapped__, amount=5000), name="refund")
    with pytest.raises(CallDenial):
        await paid("a1")
    assert await paid("a1", amount=7) == 7


async def test_a_function_is_called_as_its_caller_called_it(guard_on):
    guard, unset = guard_on("as-called"), object()

    @guard.tool
    async def remember(key: str, kept: dict = {}, more: object = unset):  # noqa: B006 - a memory
        kept[key] = True
        return sorted(kept), more is unset

    assert await remember("a") == (["a"], True)
    assert await remember("b") == (["a", "b"], True)


async def test_a_default_that_is_changed_while_it_is_ruled_on_is_used_as_it_was(guard_on):
    default = {"amount": 1}

    async def ask(_asked, _call):
        default["amount"] = 5000
        return True

    guard = guard_on("payer-of-defaults", ask=ask)

    @guard.tool
    async def pay(rules: dict, payment: dict = default):
        return payment["amount"]

    assert await pay({"alpha": {"action": "ask_user", "prompt": "Sure?"}}) == 1


# ---------------------------------------------------------------------- when it has ended


async def in_line(guard, url, wait_until, first, take):
    """Whether a second call waits until the first one's pieces are out, and what it gives then."""
    commands = RedisCommands(url, "test-pool")

    async def waits():
        pools = await read_pools(commands, guard.config.namespace, "slots")
        return any(one.waiting for one in pools.values())

    second = asyncio.create_task(take())
    await wait_until(waits)
    await commands.aclose()
    await guard.flush()
    assert await facts_of(url, guard.config.namespace, "tool:post", "tool:error") == []
    assert not second.done()
    await first()
    return await second


async def test_a_pool_of_one_holds_one_generator_at_a_time_until_it_is_exhausted_or_closed(
    ruled_by, server_url, wait_until
):
    guard = await ruled_by("slots", POOL)

    @guard.tool
    def read(number: int):
        yield number
        yield number + 1

    def leave_some():
        closed = read(3)
        next(closed)
        closed.close()
        left = read(4)
        next(left)
        del left
        gc.collect()
        unread = read(5)
        del unread
        return list(read(6))

    def read_all(number):
        return list(read(number))

    pieces = await asyncio.to_thread(read, 1)
    assert next(pieces) == 1
    rest = partial(asyncio.to_thread, list, pieces)
    taken = partial(asyncio.to_thread, read_all, 2)
    assert await in_line(guard, server_url, wait_until, rest, taken) == [2, 3]
    assert await asyncio.to_thread(leave_some) == [6, 7]


@pytest.mark.parametrize("way", ["generator", "returned", "run"])
async def test_the_same_holds_for_async_generators_and_for_functions_that_return_one(
    ruled_by, server_url, wait_until, way
):
    guard = await ruled_by("slots", POOL)

    async def pieces(number):
        yield number
        yield number + 1

    @guard.tool
    async def read(number: int):
        async for piece in pieces(number):
            yield piece

    @guard.tool
    async def open_file(number: int):
        return pieces(number)

    async def run(number):
        call = Call("run", {"number": number})
        return await guard.run(call, lambda tool, given: pieces(**given), denied=refuse)

    async def begin(number):
        return read(number) if way == "generator" else await (open_file if way == "returned" else run)(number)

    async def read_all(number):
        return [piece async for piece in await begin(number)]

    first = await begin(1)
    assert await anext(first) == 1

    async def rest():
        assert [piece async for piece in first] == [2]

    assert await in_line(guard, server_url, wait_until, rest, partial(read_all, 2)) == [2, 3]
    closed = await begin(3)
    await anext(closed)
    await closed.aclose()
    left = await begin(4)
    await anext(left)
    del left
    gc.collect()
    unread = await begin(5)
    del unread
    assert await read_all(6) == [6, 7]


async def test_a_generator_that_raises_midway_has_failed_and_one_that_is_read_to_its_end_has_not(
    guard_on, told
):
    guard = guard_on("generators")

    @guard.tool
    async def broken(number: int):
        yield number
        raise LookupError

    @guard.tool
    def broken_sync(number: int):
        yield number
        raise LookupError

    @guard.tool
    def lazily(number: int):
        return map(int, ["1", "x"])

    @guard.tool
    async def whole(number: int):
        yield number

    @guard.tool
    @contextlib.contextmanager
    def opened(number: int):
        yield number
        raise LookupError

    with pytest.raises(LookupError):
        [one async for one in broken(1)]
    with pytest.raises(LookupError):
        await asyncio.to_thread(list, await asyncio.to_thread(broken_sync, 1))
    with pytest.raises(ValueError, match="invalid literal"):
        await asyncio.to_thread(list, await asyncio.to_thread(lazily, 1))
    assert [one async for one in whole(1)] == [1]
    manager = await asyncio.to_thread(opened, 4)
    with pytest.raises(LookupError), manager as number:
        assert number == 4
    await guard.flush()
    ends = await told("generators", "tool:post", "tool:error", "tool:unused")
    assert [(one["event"], one["tool"], one.get("error")) for one in ends] == [
        ("tool:error", "broken", "LookupError"),
        ("tool:error", "broken_sync", "LookupError"),
        ("tool:error", "lazily", "ValueError"),
        ("tool:post", "whole", None),
        ("tool:error", "opened", "LookupError"),
    ]


def works_first(guard, done):
    """Functions that have done their work before somebody reads what they give, by how they give it."""

    def pieces():
        done.append("begun")
        yield 1

    @guard.tool
    def task(number: int):
        async def later():
            done.append("task")

        return asyncio.ensure_future(later())

    @guard.tool
    def awaitable(number: int):
        done.append("awaitable")
        return asyncio.sleep(0)

    @guard.tool
    def returned(number: int):
        done.append("returned")
        return (one for one in range(3))

    @guard.tool
    def begun(number: int):
        found = pieces()
        next(found)
        return found

    @guard.tool
    def lazily(number: int):
        done.append("lazily")
        return map(int, "123")

    def execute(number):
        done.append("execute")
        return pieces()

    def run(number):
        return guard.run_sync(
            Call("run", {"number": number}), lambda _, given: execute(**given), denied=refuse
        )

    return task, awaitable, returned, begun, lazily, run


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_a_function_that_did_its_work_is_never_told_as_not_run_though_nobody_reads_what_it_gave(
    guard_on, told
):
    guard, done = guard_on("unread"), []
    for function in works_first(guard, done):
        function(1)
        await asyncio.sleep(0)
        gc.collect()
    assert len(done) == 6
    await guard.flush()
    ends = await told("unread", "tool:post", "tool:error", "tool:unused")
    found = sorted(one["tool"] for one in ends if one["event"] != "tool:unused")
    assert found == ["awaitable", "begun", "lazily", "returned", "run", "task"]


async def test_a_generator_function_of_which_nobody_reads_a_piece_has_not_run(guard_on, told):
    guard = guard_on("unbegun")

    @guard.tool
    def read(number: int):
        yield number

    def drop():
        read(1)  # dropped here: the thread of `to_thread` may hold a result for a moment longer

    await asyncio.to_thread(drop)
    gc.collect()
    await guard.flush()
    ends = await told("unbegun", "tool:post", "tool:error", "tool:unused")
    assert [one["event"] for one in ends] == ["tool:unused"]


async def test_a_generator_that_is_made_to_be_awaited_is_awaited(guard_on):
    guard = guard_on("awaited")

    @guard.tool
    @types.coroutine
    def wait(number: int):
        yield from asyncio.sleep(0).__await__()
        return number

    assert await wait(1) == 1


@pytest.mark.parametrize("kind", ["task", "thread"])
async def test_a_call_that_gives_a_future_has_ended_when_that_is_done(guard_on, told, kind):
    guard, goes_on = guard_on(f"future-{kind}"), threading.Event()

    async def wait():
        await asyncio.to_thread(goes_on.wait, 60)
        return "done"

    @guard.tool
    def begin(number: int):
        if kind == "task":
            return asyncio.ensure_future(wait())
        return pool.submit(goes_on.wait, 60)

    with ThreadPoolExecutor() as pool:
        given = begin(1)
        await guard.flush()
        assert await told(f"future-{kind}", "tool:post", "tool:error", "tool:unused") == []
        goes_on.set()
        assert await (given if kind == "task" else asyncio.wrap_future(given)) in ("done", True)
    await asyncio.sleep(0)
    await guard.flush()
    ends = await told(f"future-{kind}", "tool:post", "tool:error", "tool:unused")
    assert [one["event"] for one in ends] == ["tool:post"]


def test_a_context_manager_that_was_ruled_on_once_runs_once(guard_on):
    guard, ran = guard_on("manager"), []

    @guard.tool
    @contextlib.contextmanager
    def session(path: str):
        ran.append(path)
        yield path

    @session("a")
    def work():
        return len(ran)

    assert work() == 1
    with pytest.raises(CallDenial, match="call its tool again"):
        work()
    assert ran == ["a"]


async def test_iterators_that_only_give_pieces_are_not_over_when_they_are_returned(guard_on, told):
    guard = guard_on("chains")

    @guard.tool
    def chained(number: int):
        return itertools.chain((one for one in "ab"), (one for one in "c"))

    given = await asyncio.to_thread(chained, 1)
    await guard.flush()
    assert await told("chains", "tool:post") == []
    assert list(given) == ["a", "b", "c"]
    await guard.flush()
    assert len(await told("chains", "tool:post")) == 1


async def test_a_body_that_raises_what_closing_raises_has_failed(guard_on, told):
    guard = guard_on("self-closing")

    @guard.tool
    def read(number: int):
        yield number
        raise GeneratorExit

    @guard.tool
    async def read_async(number: int):
        yield number
        raise GeneratorExit

    given = await asyncio.to_thread(read, 1)
    assert next(given) == 1
    with pytest.raises(GeneratorExit):
        next(given)
    later = read_async(1)
    assert await anext(later) == 1
    with pytest.raises(GeneratorExit):
        await anext(later)
    await guard.flush()
    ends = await told("self-closing", "tool:post", "tool:error")
    assert [(one["event"], one.get("error")) for one in ends] == [("tool:error", "GeneratorExit")] * 2


async def test_what_its_reader_sends_and_throws_reaches_a_generator(guard_on):
    guard = guard_on("two-ways")

    def echo(first: str):
        said = first
        while said != "end":
            try:
                said = yield said
            except KeyError as error:
                said = f"caught {error.args[0]}"
        return "bye"

    @guard.tool
    async def echo_async(first: str):
        said = first
        while said != "end":
            try:
                said = yield said
            except KeyError as error:
                said = f"caught {error.args[0]}"

    sync = await asyncio.to_thread(guard.tool(echo), "a")
    assert [next(sync), sync.send("b"), sync.throw(KeyError("c"))] == ["a", "b", "caught c"]
    with pytest.raises(StopIteration) as ended:
        sync.send("end")
    assert ended.value.value == "bye"
    later = echo_async("a")
    assert [await anext(later), await later.asend("b"), await later.athrow(KeyError("c"))] == [
        "a",
        "b",
        "caught c",
    ]
    with pytest.raises(StopAsyncIteration):
        await later.asend("end")


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_sub_agents_work_for_a_generator_while_its_body_runs_and_not_between_its_pieces(guard_on, kind):
    guard, seen = guard_on("boss"), []
    at = guard.at("s-pieces")

    def look(session):
        seen.append(guard.at(session, "helper").lineage)

    @guard.tool
    def delegate(task: str):
        look("s-1")
        with guard.turn(guard.at("s-2", "scout")):
            yield 1
            seen.append(guard.turn().at.agent)
            look("s-3")
        yield 2

    @guard.tool
    async def delegate_async(task: str):
        look("s-1")
        with guard.turn(guard.at("s-2", "scout")):
            yield 1
            seen.append(guard.turn().at.agent)
            look("s-3")
        yield 2

    def look_around():
        seen.append(guard.turn().at.agent)

    async def read():
        with guard.turn(at):
            if kind == "async":
                async for _ in delegate_async("x"):
                    look_around()
            else:
                for _ in await asyncio.to_thread(delegate, "x"):
                    look_around()

    await read()
    helper = ("boss", "helper")
    assert seen == [helper, "boss", "scout", ("boss", "scout", "helper"), "boss"]
