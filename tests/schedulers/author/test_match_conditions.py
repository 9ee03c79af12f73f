"""`when=`: an author's code is given only calls that concern it, in each form in which it may be written."""

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.ruling.local_table import LocalTable
from toolgate_schedulers import Continue, Deny, Hold, scheduler
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.testing import question, trial
from toolgate_schedulers.worker.loading import load

pytestmark = pytest.mark.pure

LARGE = {"amount": {"gt": 100}}
DENIED = Deny(reason="too much")


@scheduler(name="large", when=LARGE)
async def large(call):
    return DENIED


@scheduler(when=LARGE)
def blocking(call):
    return DENIED


@scheduler(when=LARGE)
async def slow(call):
    yield Hold(seconds=5)
    yield DENIED


@scheduler(when=LARGE)
async def hook(event, data):
    return None if data["tool_input"]["amount"] is None else DENIED


class Large:
    name = "large"
    when = LARGE

    async def decide(self, call):
        return DENIED


@scheduler(when=LARGE)
class Decorated:
    async def decide(self, call):
        return DENIED


class Configured(Large):
    def __init__(self):
        self.when = [{"tools": "pay", "when": LARGE}]


FORMS = [large, blocking, slow, Large, Decorated, Configured]


@pytest.mark.parametrize("written", FORMS, ids=lambda one: getattr(one, "name", None) or one.__name__)
async def test_each_form_is_given_only_calls_that_concern_it(written):
    async with trial(written) as own:
        assert await own.ask("pay", {"amount": 5}) == Continue()
        assert (await own.pose("pay", {"amount": 500}).final()).action == "deny"
        assert (await own.pose("pay", {"amount": "a lot"}).final()).action == "deny"  # it may be large


async def test_a_hook_is_given_only_calls_that_concern_it():
    assert await hook(question("pay", {"amount": 5})) == Continue()
    assert (await hook(question("pay", {"amount": None}))).action == "continue"


def test_options_of_the_command_leave_the_conditions_as_they_are():
    table = LocalTable.read(load(f"{__name__}:large", tools=["send_*"]).local_table)
    assert table.answer(question("send_money", {"amount": 500})) is None
    assert table.answer(question("send_money", {"amount": 5})).is_plain


async def test_any_of_several_conditions_is_enough():
    own = scheduler(when=[{"tools": "pay", "when": LARGE}, {"agents": "intern-*"}])(large.decide)
    table = LocalTable.read(own.local_table)
    assert table.answer(question("pay", {"amount": 500})) is None
    assert table.answer(question("look", agent="intern-1")) is None
    assert table.answer(question("look", agent="clerk", lineage=("intern-1", "clerk"))) is None
    assert table.answer(question("llm:request", agent="intern-1")) is None
    assert table.answer(question("look", {"amount": 500}, agent="clerk")).is_plain


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"amount": {"gtt": 1}}, "scheduler 'bad': when.amount.gtt: unknown key; .*did you mean gt"),
        ([{"tool": "pay"}], r"when\[0\]: tool: unknown key; .*did you mean tools"),
        ([{"agents": "a"}, {"schema": {"type": "objct"}}], r"when\[1\]: schema: type: 'objct'"),
        ({"agents": "intern-*"}, r"when: agents is a condition on the call: write when=\[\{'agents': …\}\]"),
        ({"$.amount": 5}, "a path has no"),
        ({}, "when: give conditions"),
        ([], "when: give conditions"),
        ("amount > 100", "when: give conditions"),
        ([3], r"when\[0\]: top level: Input should be a mapping"),
    ],
)
def test_a_wrong_condition_is_refused_by_its_place(when, words):
    with pytest.raises(ConfigError, match=words):
        scheduler(name="bad", when=when)(large.decide)

    class Bad(Large):
        name = "bad"

        def __init__(self):
            self.when = when

    with pytest.raises(ConfigError, match=words):
        as_scheduler(Bad())
