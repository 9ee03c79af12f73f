"""Recorded runs: every odd shape that real records have comes out as turns, calls and results."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts.recorded_message import RAW, RecordedRun, as_arguments, as_text
from toolgate_bus.facts.recording import Run, RunArchive, read_run
from toolgate_bus.facts.recording_file import load

pytestmark = pytest.mark.pure

OWN_RUNS = Path(__file__).parents[2] / "data" / "runs.jsonl"


def call(call_id: str | None, tool: str, arguments: Any = "{}") -> dict[str, Any]:
    text = json.dumps(arguments) if isinstance(arguments, dict) else arguments
    return {"id": call_id, "type": "function", "function": {"name": tool, "arguments": text}}


def asks(*calls: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def says(text: str | None) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def result(call_id: str | None, tool: str | None, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": tool, "content": content}


def run_of(*messages: dict[str, Any]) -> Run:
    return read_run(1, "", RecordedRun.model_validate({"traj": list(messages)}).traj)


def results(run: Run) -> list[str | None]:
    return [call.result for call in run.calls]


def test_a_repeated_id_gets_a_suffix_and_its_own_result() -> None:
    run = run_of(
        user("go"),
        asks(call("c", "t")),
        result("c", "t", "first"),
        asks(call("c", "t"), call("c-2", "t")),
        result("c", "t", "second"),
        result("c-2", "t", "third"),
    )
    assert [call.id for call in run.calls] == ["c", "c-3", "c-2"]
    assert results(run) == ["first", "second", "third"]


def test_parallel_results_in_any_order_find_their_calls() -> None:
    run = run_of(
        user("go"), asks(call("a", "x"), call("b", "y")), result("b", "y", "B"), result("a", "x", "A")
    )
    assert results(run) == ["A", "B"]


def test_one_id_for_two_tools_is_told_apart_by_name() -> None:
    run = run_of(
        user("go"), asks(call("d", "x"), call("d", "y")), result("d", "y", "Y"), result("d", "x", "X")
    )
    assert results(run) == ["X", "Y"]


def test_results_without_ids_belong_to_calls_in_their_order() -> None:
    run = run_of(
        user("go"), asks(call(None, "x"), call(None, "x")), result(None, None, "1"), result(None, None, "2")
    )
    assert results(run) == ["1", "2"]
    assert len({call.id for call in run.calls}) == 2


def test_a_result_that_comes_after_the_user_spoke_still_counts() -> None:
    run = run_of(user("go"), asks(call("a", "x")), user("hurry"), result("a", "x", "A"), says("done"))
    assert results(run) == ["A"]
    assert [turn.prompt for turn in run.turns] == ["go", "hurry"]


def test_a_result_of_an_older_message_finds_it_by_id_but_never_a_call_that_was_answered() -> None:
    run = run_of(
        user("go"),
        asks(call("a", "x")),
        asks(call("b", "x")),
        result("b", "x", "B"),
        result("a", "x", "A"),
        result("a", "x", "again"),
    )
    assert results(run) == ["A", "B"]
    assert run.stray_results == 1


def test_a_missing_result_is_none_and_an_empty_one_is_empty() -> None:
    run = run_of(user("go"), asks(call("a", "x"), call("b", "x")), result("b", "x", ""))
    assert results(run) == [None, ""]


def test_a_text_ends_the_turn_and_the_next_user_message_begins_one() -> None:
    run = run_of(
        user("one"), asks(call("a", "x")), result("a", "x", "A"), says("hm"), user("two"), says("bye")
    )
    assert [turn.prompt for turn in run.turns] == ["one", "two"]
    assert [[said.text for said in turn.said] for turn in run.turns] == [["", "hm"], ["bye"]]


def test_of_two_user_messages_in_a_row_the_last_is_the_prompt_and_the_other_goes_before() -> None:
    (turn,) = run_of({"role": "system", "content": "s"}, user("one"), user("two"), says("ok")).turns
    assert [(spoken.role, spoken.text) for spoken in turn.before] == [("system", "s"), ("user", "one")]
    assert turn.prompt == "two"


def test_a_system_message_in_mid_run_waits_for_the_next_turn() -> None:
    run = run_of(user("one"), says("ok"), {"role": "system", "content": "new"}, user("two"), says("ok"))
    assert [[spoken.text for spoken in turn.before] for turn in run.turns] == [[], ["new"]]


def test_an_llm_that_speaks_first_or_twice_gets_turns_without_a_prompt() -> None:
    run = run_of(says("hello"), asks(call("a", "x")), result("a", "x", "A"), says("done"))
    assert [turn.prompt for turn in run.turns] == [None, None]


@pytest.mark.parametrize("ending", [[user("bye")], [user("bye"), user("really")]])
def test_a_trailing_user_turn_is_skipped_and_counted(ending: list[dict[str, Any]]) -> None:
    run = run_of(user("one"), says("ok"), *ending)
    assert len(run.turns) == 1
    assert run.trailing_users == len(ending)


def test_a_run_without_an_assistant_has_no_turn() -> None:
    assert run_of(user("hello?")).turns == ()
    assert run_of().turns == ()


@pytest.mark.parametrize(
    ("recorded", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        ("  ", {}),
        (None, {}),
        ("{}", {}),
        ('{"a": ', {RAW: '{"a": '}),
        ("[1, 2]", {RAW: "[1, 2]"}),
        ('{"a": NaN}', {RAW: '{"a": NaN}'}),
        ([1, 2], {RAW: "[1, 2]"}),
        ('"text"', {RAW: '"text"'}),
        ('{"a": "\\ud83d!"}', {"a": "�!"}),
        ("[" * 100_000, {RAW: "[" * 100_000}),
    ],
)
def test_arguments_are_a_mapping_whatever_was_recorded(recorded: Any, arguments: dict[str, Any]) -> None:
    assert as_arguments(recorded) == arguments


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ("words", "words"),
        ([{"type": "text", "text": "a"}, "b", {"type": "image_url", "image_url": {}}], "ab[image_url]"),
        ({"price": 3}, '{"price": 3}'),
        (12, "12"),
    ],
)
def test_content_is_text_whatever_was_recorded(content: Any, text: str) -> None:
    assert as_text(content) == text


def test_the_older_function_call_form_is_read_too() -> None:
    run = run_of(
        user("go"),
        {"role": "assistant", "content": None, "function_call": {"name": "x", "arguments": '{"a": 1}'}},
        {"role": "function", "name": "x", "content": "A"},
    )
    assert [(call.tool, call.arguments, call.result) for call in run.calls] == [("x", {"a": 1}, "A")]


def test_a_recorded_result_is_found_in_the_run_first_and_then_in_the_file() -> None:
    def one(number: int, text: str) -> Run:
        messages = [user("go"), asks(call("a", "x", {"p": 1, "q": 2})), result("a", "x", text)]
        return read_run(number, "", RecordedRun.model_validate({"traj": messages}).traj)

    first, second, third = one(1, "one"), one(2, "two"), run_of(user("hello?"))
    third = Run(3, "", third.turns, third.tools)
    recording = RunArchive("", (first, second, third))
    assert recording.find_result(second, "x", {"q": 2, "p": 1}) == ("two", "run")
    assert recording.find_result(third, "x", {"q": 2, "p": 1}) == ("one", "file")
    assert recording.find_result(third, "x", {"q": 2}) is None


def test_the_own_sample_file_is_read_whole() -> None:
    recording = load(OWN_RUNS)
    assert len(recording.runs) == 13
    assert [run.trailing_users for run in recording.runs][:7] == [1, 0, 0, 0, 0, 0, 1]
    assert sum(run.stray_results for run in recording.runs) == 1
    for run in recording.runs:
        calls = list(run.calls)
        assert [call.position for call in calls] == list(range(len(calls)))
        assert len({call.id for call in calls}) == len(calls)


def written(tmp_path: Path, *lines: str | bytes) -> Path:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))
    return path


GOOD = json.dumps({"traj": [user("hi"), says("ho")]})


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 3: not JSON"),
        ("[]", "line 3: the whole line"),
        ("{}", "line 3: traj: Field required"),
        ('{"traj": [{"role": "wizard"}]}', "line 3: traj.0.role"),
        ('{"traj": [{"content": "x"}]}', "line 3: traj.0.role: Field required"),
        (json.dumps({"traj": [user("x"), asks(call("a", ""))]}), "line 3: traj.1.tool_calls.0.function.name"),
        (b'{"traj": "\xff"}', "line 3: it is not in UTF-8"),
        ("[" * 100_000, "line 3: it is nested more than 128 levels deep"),
        ('{"traj": [], "traj": []}', "line 3: the key 'traj' is given twice"),
        ('{"traj": [NaN]}', "line 3: NaN is not a JSON value"),
    ],
)
def test_a_broken_line_is_refused_by_file_line_and_field(
    tmp_path: Path, line: str | bytes, complaint: str
) -> None:
    path = written(tmp_path, GOOD, "", line, GOOD)
    with pytest.raises(ConfigError, match=r"runs\.jsonl") as caught:
        load(path)
    assert complaint in str(caught.value)


def test_blank_lines_a_byte_order_mark_and_a_missing_last_newline_do_no_harm(tmp_path: Path) -> None:
    assert len(load(written(tmp_path, "\ufeff" + GOOD, " ", "", GOOD)).runs) == 2


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    assert len(load(written(tmp_path, GOOD, GOOD, "broken"), limit=2).runs) == 2


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_runs_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(ConfigError, match="holds no recorded run"):
        load(written(tmp_path, content))


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.jsonl: cannot be read"):
        load(tmp_path / "missing.jsonl")


IDS = st.sampled_from(["a", "b", "", None])
MESSAGES = st.one_of(
    st.builds(user, st.sampled_from(["hi", None, []])),
    st.builds(says, st.sampled_from(["ho", None])),
    st.lists(
        st.builds(call, IDS, st.sampled_from(["x", "y"]), st.sampled_from(["", "{}", "["])), max_size=3
    ).map(lambda calls: asks(*calls)),
    st.builds(result, IDS, st.sampled_from(["x", "y", None]), st.sampled_from(["1", "", None])),
    st.just({"role": "system", "content": "s"}),
)


@given(st.lists(MESSAGES, max_size=20))
def test_every_call_is_kept_once_in_order_and_no_result_is_used_twice(messages: list[dict[str, Any]]) -> None:
    run = run_of(*messages)
    recorded = [one["function"]["name"] for message in messages for one in message.get("tool_calls") or ()]
    calls = list(run.calls)
    assert [call.tool for call in calls] == recorded
    assert len({call.id for call in calls}) == len(calls)
    told = sum(message["role"] == "tool" for message in messages)
    assert sum(call.result is not None for call in calls) + run.stray_results == told
    assert all(turn.said for turn in run.turns)
