"""provider-scripted says what its script says."""

from pathlib import Path
from typing import Any

import pytest
from amplifier_core import ChatRequest, LLMError, Message
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.modules.provider_scripted import ProviderScripted
from toolgate_orchestrator.turn.values.messages import text_of

pytestmark = pytest.mark.pure


def request(*messages: dict[str, Any]) -> ChatRequest:
    return ChatRequest(messages=[Message(**message) for message in messages])


async def test_turns_are_said_in_order_and_then_an_empty_final_text() -> None:
    provider = ProviderScripted({"turns": [{"text": "one"}, {"tool_calls": [{"name": "t"}]}]})
    said = [await provider.complete(request()) for _ in range(4)]
    assert [text_of(response) for response in (said[0], *said[2:])] == ["one", "", ""]
    (call,) = provider.parse_tool_calls(said[1])
    assert (call.name, call.arguments) == ("t", {})
    assert [provider.parse_tool_calls(each) for each in said[2:]] == [[], []]


async def test_calls_have_ids_of_their_own() -> None:
    turn = {"tool_calls": [{"name": "t"}, {"name": "t"}]}
    provider = ProviderScripted({"turns": [turn, turn]})
    ids = [
        call.id for _ in range(2) for call in provider.parse_tool_calls(await provider.complete(request()))
    ]
    assert len(set(ids)) == 4


async def test_the_last_result_can_be_quoted() -> None:
    provider = ProviderScripted({"turns": [{"text": "it is ${last_result}!"}, {"text": "${last_result}"}]})
    results = [
        {"role": "tool", "tool_call_id": "1", "content": "41"},
        {"role": "tool", "tool_call_id": "2", "content": "42"},
    ]
    assert text_of(await provider.complete(request(*results))) == "it is 42!"
    assert text_of(await provider.complete(request())) == ""


async def test_usage_and_failures_are_scripted_too() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    provider = ProviderScripted({"turns": [{"text": "x", "usage": usage}, {"error": "rate limit"}]})
    response = await provider.complete(request())
    assert response.usage is not None
    assert response.usage.total_tokens == 3
    with pytest.raises(LLMError, match="rate limit"):
        await provider.complete(request())


async def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    for content in ("- text: hello\n", "turns:\n  - text: hello\n"):
        script = tmp_path / "script.yaml"
        script.write_text(content)
        provider = ProviderScripted({"script": str(script)})
        assert text_of(await provider.complete(request())) == "hello"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"turn": []}, "turn: unknown key; .*; did you mean turns"),
        ({"turns": [{"txt": "x"}]}, r"turns\.0\.txt"),
        ({"turns": [{"tool_calls": [{"arguments": {}}]}]}, r"turns\.0\.tool_calls\.0\.name"),
        ({"script": "/nowhere.yaml"}, "/nowhere.yaml: cannot be read"),
    ],
)
def test_a_wrong_script_is_refused_by_name(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ProviderScripted(config)


def test_a_file_that_is_no_list_of_turns_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "s.yaml"
    for content, named in (
        ("text: x", "must hold a list of turns"),
        ("[", "s.yaml:1: is not YAML"),
        ("- text: x\n- tex: x", r"s.yaml:2: turns\.1\.tex: unknown key; .*; did you mean text"),
        (f"- text: {'x' * (1 << 20)}", "longer than 1024 KiB"),
    ):
        script.write_text(content)
        with pytest.raises(ConfigError, match=named):
            ProviderScripted({"script": script})


async def test_it_describes_itself() -> None:
    provider = ProviderScripted({"priority": 3, "model": "m"})
    assert (provider.priority, provider.name, provider.get_info().id) == (3, "scripted", "scripted")
    assert [model.id for model in await provider.list_models()] == ["m"]
