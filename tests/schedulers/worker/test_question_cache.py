"""Schedulers of one process: a question is decoded once, and each author's code has a value of its own."""

import copy

import pytest
from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec, packing
from toolgate_schedulers import Continue, scheduler
from toolgate_schedulers.testing import trial
from toolgate_schedulers.worker.loading import load
from toolgate_schedulers.worker.question_cache import QuestionCache, changes_nothing

pytestmark = pytest.mark.pure


def question(number, version=1, mac=None, **more):
    body = {"phase": "select", "tool_name": "pay", "tool_input": {"to": {"name": ["x", number]}}, "ttl_ms": 9}
    return packing.item(bytes([number] * 16), 0, packing.pack(body | more), mac, version)


def test_what_one_does_with_its_arguments_no_other_sees():
    cache, frame = QuestionCache(), packing.frame([question(1, 2, labels={"a": "b"}, odd={"of": ["later"]})])
    read = [cache.own(cache.items(bytes(bytearray(frame)))[0]) for _ in range(3)]
    pristine = codec.question(packing.items(frame)[0])
    assert read == [pristine] * 3
    for one in read:
        assert (one, one.model_fields_set) == (pristine, pristine.model_fields_set)
        one.tool_input["to"]["name"].append("mallory")
        one.labels["a"] = "changed"
        one.__pydantic_extra__["odd"]["of"].clear()
    assert cache.shared(cache.items(frame)[0]) == pristine


def test_what_one_does_with_a_result_no_other_sees():
    body = {"phase": "result", "tool_name": "read", "tool_input": {}, "session_labels": {"a": ["b"]}}
    body |= {"result_form": "json", "result": b'{"lines": ["a"]}'}
    number = packing.NUMBERS["result", False]
    frame = packing.frame([packing.item(bytes(16), number, packing.pack(body), version=2)])
    cache = QuestionCache()
    mine, other = (cache.own(cache.items(frame)[0]) for _ in range(2))
    mine.result["lines"].clear()
    mine.session_labels.clear()
    assert (other.result, other.session_labels) == ({"lines": ["a"]}, {"a": ("b",)})
    assert cache.shared(cache.items(frame)[0]) == other


def test_it_is_decoded_once_in_a_batch_also_where_each_is_signed_for_its_own_scheduler(monkeypatch):
    decoded, real = [], codec.question
    monkeypatch.setattr(codec, "question", lambda item: (decoded.append(item.id), real(item))[1])
    cache = QuestionCache()
    for number in range(10):
        for mac in (b"1", b"2"):
            cache.own(cache.items(packing.frame([question(number, mac=mac)]))[0])
    assert len(decoded) == 10
    cache.clear()
    cache.own(cache.items(packing.frame([question(1)]))[0])
    assert len(decoded) == 11


def test_another_question_under_the_same_id_is_not_taken_for_it():
    cache = QuestionCache()
    (first,) = packing.items(packing.frame([question(1)]))
    (other,) = packing.items(packing.frame([question(1, tool_input={"to": "mallory"})]))
    for _ in range(2):
        assert cache.own(first).tool_input == {"to": {"name": ["x", 1]}}
        assert cache.own(other).tool_input == {"to": "mallory"}
    with pytest.raises(CodecError):
        cache.own(first._replace(phase=1))


def test_what_cannot_be_read_is_refused_each_time():
    cache = QuestionCache()
    for _ in range(3):
        with pytest.raises(CodecError):
            cache.items(b"\xc1")
        with pytest.raises(CodecError):
            cache.own(packing.Item(bytes(16), 0, b"\xc1", None))


@scheduler
async def own(call):
    return Continue()


def test_only_those_that_come_with_it_share_a_value(tmp_path, monkeypatch):
    (tmp_path / "policy.yaml").write_text("default: allow")
    (tmp_path / "mine.py").write_text(
        "from toolgate_schedulers.shipped.policy.scheduler import Policy\n\n"
        "class Mine(Policy):\n    name = 'mine'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "policy.yaml"
    assert changes_nothing(load("policy", config=file))
    assert not changes_nothing(load("mine:Mine", config=file))
    assert not changes_nothing(own)


CONFIGS = {
    "policy": "rules: [{tools: '*', when: {a: {matches: x}}, action: deny, reason: never}]",
    "approval": "rules: [{name: wide, tools: '*'}]",
    "cost-aware": "default: {cost: 1}",
    "router": "routes: [{from: read, targets: [{to: list, arguments: {b: $.a}}]}]",
    "heuristic": "groups: [{tools: [read, list]}]",
    "rate-limit": "limits: [{name: all, tools: '*', per: session, rate: 9/minute}]",
    "provenance": "sinks: [{tools: '*', to: a}]",
    "loop-guard": "same_call: {times: 5, within: 20}",
}


@pytest.mark.parametrize("name", CONFIGS)
async def test_those_that_come_with_it_change_nothing_of_a_question(name, tmp_path, monkeypatch):
    given, real = [], codec.question

    def question_kept(item):
        read = real(item)
        given.append((read, copy.deepcopy(read)))
        return read

    monkeypatch.setattr(codec, "question", question_kept)
    (tmp_path / "config.yaml").write_text(CONFIGS[name])
    async with trial(load(name, config=tmp_path / "config.yaml")) as asked:
        for phase in ("select", "verify"):
            arguments = {"a": "x", "deep": [{"b": 1}]}
            await asked.ask("read", arguments, available_tools=["read", "list"], session="s", phase=phase)
    assert len(given) == 2
    for read, before in given:
        assert read == before
