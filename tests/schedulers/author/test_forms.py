"""Every form in which a scheduler may be written becomes the same normal form."""

import functools
import inspect
import subprocess
import sys
import threading

import pytest
import toolgate_schedulers
from toolgate_bus.errors import ConfigError
from toolgate_schedulers import Continue, Deny, Hold, Modify, Scheduler, ToolSelecting, scheduler
from toolgate_schedulers.author.forms import as_scheduler

pytestmark = pytest.mark.pure

CALL = ToolSelecting(id="0" * 32, tool_name="web_search", tool_input={"q": "x"})


@scheduler(name="router", priority=10, tools=["web_*"])
async def route(call: ToolSelecting):
    if call.tool_name == "web_search":
        return Modify(tool="advanced_search", arguments=call.tool_input, reason="cheaper index")
    return Continue()


async def test_the_sample_of_the_design_works_as_printed():
    assert (route.name, route.priority, route.tools, route.streams) == ("router", 10, ("web_*",), False)
    assert await route.decide(CALL) == Modify(
        tool="advanced_search", arguments={"q": "x"}, reason="cheaper index"
    )


async def test_a_decorated_function_can_be_called_by_hand():
    assert (await route(CALL)).action == "modify"


async def test_a_plain_function_runs_in_a_thread_of_its_own():
    threads = []

    @scheduler(name="plain")
    def plain(call):
        threads.append(threading.get_ident())
        return Deny(reason=call.tool_name)

    assert await plain.decide(CALL) == Deny(reason="web_search")
    assert threads != [threading.get_ident()]


async def test_a_wrapper_that_gives_an_awaitable_is_awaited():
    async def wrapped(call):
        return Continue(reason="inner")

    @scheduler(name="wrapper")
    def wrapper(call):
        return wrapped(call)

    assert await wrapper.decide(CALL) == Continue(reason="inner")


async def test_an_async_generator_streams_a_hold_and_then_the_answer():
    @scheduler(name="careful")
    async def careful(call):
        yield Hold(seconds=60)
        yield Deny(reason="thought about it")

    assert careful.streams
    assert [verdict.action async for verdict in careful.decide(CALL)] == ["hold", "deny"]


async def test_a_partial_of_an_async_function_is_async():
    async def decide(reason, call):
        return Deny(reason=reason)

    made = as_scheduler(functools.partial(decide, "no"))
    assert made.name == "partial"
    assert inspect.iscoroutine(answer := made.decide(CALL))
    assert await answer == Deny(reason="no")


def test_the_decorator_without_arguments_takes_the_functions_name():
    @scheduler
    async def night_watch(call):
        return Continue()

    assert night_watch.name == "night_watch"
    assert night_watch.tools == ("*",)


def test_one_glob_may_be_given_as_a_text():
    assert scheduler(name="s", tools="web_*")(lambda call: Continue()).tools == ("web_*",)


class Budget:
    name = "purse"
    priority = 5
    tools = ("paid_*",)

    def __init__(self):
        self.log = []

    async def start(self, context):
        self.log.append(context)

    async def decide(self, call):
        return Deny(reason=f"seen {len(self.log)}")

    async def stop(self):
        self.log.append("stopped")


async def test_a_class_keeps_its_state_between_start_and_stop():
    budget = Budget()
    made = as_scheduler(budget)
    assert (made.name, made.priority, made.tools) == ("purse", 5, ("paid_*",))
    await made.start("context")
    assert await made.decide(CALL) == Deny(reason="seen 1")
    await made.stop()
    assert budget.log == ["context", "stopped"]


async def test_a_scheduler_without_lifecycle_can_be_started_and_stopped():
    await route.start(None)
    await route.stop()


def test_a_decorated_class_stays_a_class_with_the_decorators_attributes():
    @scheduler(name="named", priority=3, tools=["a"], shadow=True)
    class Plain:
        async def decide(self, call):
            return Continue()

    made = as_scheduler(Plain())
    assert (made.name, made.priority, made.tools, made.shadow) == ("named", 3, ("a",), True)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": "two words"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "new\n"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"priority": 2**31}, "priority"),
        ({"priority": "9"}, "priority"),
        ({"priority": True}, "priority"),
        ({"tools": []}, "tools"),
        ({"tools": [1]}, "tools"),
        ({"tools": ""}, "tools"),
        ({"shadow": "yes"}, "shadow"),
    ],
)
def test_a_wrong_field_is_named(fields, named):
    with pytest.raises(ConfigError, match=rf"scheduler .*: {named}: "):
        scheduler(**{"name": "s", **fields})(lambda call: Continue())


def test_a_function_that_takes_no_call_is_refused_with_the_two_signatures():
    with pytest.raises(ConfigError, match=r"one parameter, the call.*two, \(event, data\)"):
        scheduler(name="s")(lambda: Continue())


@pytest.mark.parametrize("written", [3, "text", None])
def test_what_is_no_scheduler_is_told_what_one_is(written):
    with pytest.raises(ConfigError, match="is no scheduler: write a function"):
        as_scheduler(written)


def test_a_class_is_not_an_instance():
    with pytest.raises(ConfigError, match="Budget is a class"):
        as_scheduler(Budget)


def test_a_lifecycle_method_that_is_not_async_is_refused():
    class Wrong:
        name = "wrong"

        async def decide(self, call):
            return Continue()

        def start(self, context):
            """Not async."""

    with pytest.raises(ConfigError, match="start: must be an `async def` method"):
        as_scheduler(Wrong())


def test_the_normal_form_is_frozen():
    with pytest.raises(AttributeError):
        route.priority = 3


def test_the_front_door_is_sorted_and_complete():
    names = toolgate_schedulers.__all__
    assert names == sorted(names)
    assert all(getattr(toolgate_schedulers, name) is not None for name in names)
    assert isinstance(route, Scheduler)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = toolgate_schedulers.Nothing


def test_importing_the_front_door_loads_no_amplifier():
    code = (
        "import sys, toolgate_schedulers.author.hook_adapter;"
        "import toolgate_schedulers.shipped.policy.scheduler, toolgate_schedulers.shipped.router.router;"
        "from toolgate_schedulers import scheduler, Continue;"
        "scheduler(name='s')(lambda call: Continue());"
        "sys.exit(any(name.startswith(('amplifier_core', 'toolgate_orchestrator')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
