"""The kit that adapters are held to: its page's agent keeps all; each promise that one breaks is seen."""

import types

import pytest
from documents import sample
from toolgate_orchestrator.testing import COLUMNS, PromiseBreak, Stage, open_world
from toolgate_orchestrator.testing.results import ColumnResults
from toolgate_orchestrator.testing.world import run_to_end

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(180)]
SAMPLE = sample("my_adapter_test.py").text
REFUSES = "denied=lambda ruling: ruling.refusal"
RUNS = "await scene.guard.run(call, execute, "
BY_HAND = "await by_hand(scene.guard, call, execute)"
APPENDS = "told.append(ToolAnswer("
HELPERS = """
async def alive(scene):
    return (await scene.guard.rule(Call("x"))).allowed

async def by_hand(guard, call, execute):
    with await guard.rule(call) as ruling:
        result = await execute(ruling.tool, ruling.arguments)
        ruling.succeed(result)          # nobody awaits it
        return result
"""
CELLS = {one.name: one for one in COLUMNS}


@pytest.fixture(scope="module", name="world")
def _world():
    with open_world() as world:
        yield world


def harness_of(text):
    module = types.ModuleType("my_adapter_test")
    exec(compile(text, "my_adapter_test.py", "exec"), module.__dict__)
    return module.PlainHarness()


def hold(world, harness, name):
    for check in CELLS[name].checks:
        run_to_end(check(Stage(harness, world)), 60)


def test_the_agent_of_the_page_keeps_every_promise_that_it_does_not_say_it_cannot(world):
    harness = harness_of(SAMPLE)
    held = [name for name in CELLS if name not in harness.cannot]
    before = ["deny", "arguments", "tool", "parallel", "unchanged", "results"]
    assert held == [*before, "withheld", "masked", "replaced", "errors", "cancel", "fault"]
    for name in held:
        hold(world, harness, name)


@pytest.mark.parametrize(
    ("column", "there", "instead"),
    [
        ("deny", REFUSES, "denied=lambda ruling: execute(one.tool, one.arguments)"),
        ("deny", REFUSES, "denied=lambda ruling: 'no'"),
        ("deny", "ToolAnswer(one.id,", "ToolAnswer('c-0',"),
        ("arguments", RUNS, "await scene.guard.run(call, lambda *_: execute(one.tool, one.arguments), "),
        ("tool", RUNS, "await scene.guard.run(call, lambda tool, _: execute(tool, one.arguments), "),
        ("tool", ", list(tools), at,", ", [one.tool], at,"),
        ("parallel", APPENDS, f"told.append(ToolAnswer('c-0', '', '')) or {APPENDS}"),
        ("unchanged", "history.append(speech)", "history += [speech] * (1 + (scene.guard is not None))"),
        ("unchanged", "id=one.id)", "id='')"),
        ("results", "at = scene.guard.at(scene.session,", "at = scene.guard.at('another',"),
        ("results", RUNS, "await execute(one.tool, one.arguments) and await scene.guard.run(call, execute, "),
        ("withheld", RUNS, f"{BY_HAND} or {RUNS}"),
        ("masked", RUNS, f"{BY_HAND} or {RUNS}"),
        ("replaced", RUNS, f"{BY_HAND} or {RUNS}"),
        ("masked", APPENDS, f"history.append(await tools['fetch'](**one.arguments)) or {APPENDS}"),
        ("errors", RUNS, f"{BY_HAND} or {RUNS}"),
        ("cancel", "if scene.guard is None:", "if scene.guard is None or one.tool == 'wait':"),
        ("fault", "if scene.guard is None:", "if scene.guard is None or not await alive(scene):"),
    ],
)  # fmt: skip
def test_an_agent_that_breaks_a_promise_is_seen(world, column, there, instead):
    assert there in SAMPLE
    text = SAMPLE.replace(there, instead)
    harness = harness_of(text + HELPERS)
    with pytest.raises((PromiseBreak, LookupError, TypeError)):
        hold(world, harness, column)


def test_what_was_seen_is_told_with_versions(monkeypatch, tmp_path):
    monkeypatch.setenv("TOOLGATE_CONFORMANCE", str(tmp_path))
    results = ColumnResults(harness_of(SAMPLE))
    results.note(CELLS["deny"], "broken", "")
    results.note(CELLS["deny"], "kept", "")
    results.write()
    text = (tmp_path / "my_adapter.json").read_text()
    assert '"toolgate-bus"' in text
    assert '"seen": "kept"' in text
