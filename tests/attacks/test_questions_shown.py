"""A person who is asked sees who asks, what they ask and the call, whatever an LLM or a scheduler writes."""

import pytest
from toolgate_bus.protocol.events import AskUser, ReceivedVerdict, ToolSelecting
from toolgate_bus.telemetry.printable import printable
from toolgate_orchestrator.commands.run.held_questions import question_about
from toolgate_orchestrator.decision.question.shown_call import question_text
from toolgate_orchestrator.decision.round.one_question import MAX_ASKERS, one_question

pytestmark = pytest.mark.pure

FILLERS = ["fine " * 2000, "\n" * 5000, "\u200b" * 3000, "fine\n" * 3000, "\u202e" * 700]


def shown(asks, arguments):
    verdicts = [
        ReceivedVerdict(name, AskUser(prompt=prompt), 10 - n) for n, (name, prompt) in enumerate(asks)
    ]
    call = ToolSelecting(id="0" * 32, tool_name="rm", tool_input=arguments)
    question = one_question(verdicts)
    return None if question is None else printable(question_text(question, call))


@pytest.mark.parametrize("filler", FILLERS)
def test_no_prompt_pushes_another_or_the_call_out_of_sight(filler):
    others = [(f"other-{n}", filler) for n in range(MAX_ASKERS - 1)]
    for count in range(len(others) + 1):
        text = shown([*others[:count], ("policy", "Really delete it?")], {"path": "/production"})
        assert "Really delete it?" in text
        assert 'rm {"path": "/production"}' in text
        assert len(text.splitlines()) <= 60
    text = shown([("other", filler)], {"path": "/production"})
    assert 'rm {"path": "/production"}' in text


def test_too_many_who_ask_are_nobody_who_could_be_asked():
    asks = [(f"other-{n}", "?") for n in range(MAX_ASKERS)]
    assert shown(asks, {}) is not None
    assert shown([*asks, ("policy", "Really?")], {}) is None


@pytest.mark.parametrize("filler", [*FILLERS, ["x"] * 3000, dict.fromkeys(map(str, range(900)), 1)])
def test_no_argument_hides_another(filler):
    for arguments in (
        {"note": filler, "command": "rm -rf /"},
        {"command": "rm -rf /", "note": filler},
        {**{f"note-{n}": filler for n in range(50)}, "command": "rm -rf /"},
    ):
        text = shown([("policy", "May it run?")], arguments)
        assert "rm -rf /" in text
        assert "characters in all)" in text
    end = shown([("policy", "May it run?")], {"command": f"{'true; ' * 900}rm -rf /"})
    assert "rm -rf /" in end


def test_arguments_that_cannot_all_be_shown_are_counted():
    text = shown([("policy", "May it run?")], {f"k{n}": 1 for n in range(900)} | {"command": "rm -rf /"})
    assert "more arguments} (in part: " in text
    assert len(text) < 4000


def test_a_call_that_is_held_shows_its_end_too():
    arguments = {"command": f"{'true; ' * 900}rm -rf /", "note": "x" * 5000}
    held = {"scheduler": "approval", "tool_name": "bash", "tool_input": arguments, "prompt": "fine " * 2000}
    for prompt in (held["prompt"], None):
        text = printable(question_about({**held, "prompt": prompt}))
        assert 'rm -rf /"' in text
        assert "(in part: " in text
    spoofed = {'command="ls", note': 1, "command": "rm"}
    assert 'command="ls"' not in question_about({**held, "tool_input": spoofed, "prompt": None})
