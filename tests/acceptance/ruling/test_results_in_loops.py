"""Schedulers in processes of their own rule on what tools give, what an LLM answers and what a user gets.

On a real server, under every loop.
"""

import json
from pathlib import Path

import pytest
from amplifier_core import AmplifierSession
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.transport.redis.client.connection import RedisCommands

pytestmark = pytest.mark.acceptance

LOOPS = ("loop-basic", "loop-streaming", "loop-events", "loop-reactive")
KEY = "sk-live-0123456789"


def plan(schedulers, loop, turns, **toolgate):
    where = {"redis": schedulers.url, "namespace": schedulers.namespace, "patience_ms": 20_000}
    return {
        "session": {
            "orchestrator": {"module": loop, "config": {"toolgate": {**where, **toolgate}}},
            "context": "context-simple",
        },
        "providers": [{"module": "provider-scripted", "config": {"turns": turns}}],
        "tools": [{"module": "tool-workspace", "config": {"root": str(schedulers.directory)}}],
    }


async def test_a_key_in_a_file_is_seen_by_nobody(schedulers):
    await schedulers.start("censor:Censor")
    Path(schedulers.directory, "env.txt").write_text(f"KEY={KEY}\nHOST=example\n")
    calls = {"tool_calls": [{"name": "read_file", "arguments": {"path": "env.txt"}}]}
    for loop in LOOPS:
        turns = [calls, {"text": "${last_result}"}, {"text": f"it is {KEY}"}]
        async with AmplifierSession(plan(schedulers, loop, turns, required=["censor"])) as session:
            answers = [await session.execute("read it"), await session.execute("say it")]
            messages = await session.coordinator.get("context").get_messages()
            await session.coordinator.get("orchestrator").gate.flush(10)
        assert "KEY=[withheld: key]" in answers[0], loop
        assert "HOST=example" in answers[0]
        assert answers[1] == "it is [withheld: key]"
        assert KEY not in str(messages)
    commands = RedisCommands(schedulers.url, "test-results")
    facts = await FactsReader(commands, schedulers.namespace).read_all()
    await commands.aclose()
    ruled = [one for one in facts if one["event"] == "tool:result"]
    assert [one["outcome"] for one in ruled if one["tool"] == "read_file"] == ["masked"] * len(LOOPS)
    assert [one["outcome"] for one in ruled if one["tool"] == "llm:request"].count("masked") == len(LOOPS)
    assert KEY not in json.dumps(facts)


async def test_words_that_are_denied_begin_no_turn_and_reach_no_user(schedulers):
    await schedulers.start("censor:Doorkeeper")
    for loop in LOOPS:
        turns = [{"text": "a forbidden word"}, {"text": "fine"}]
        async with AmplifierSession(plan(schedulers, loop, turns, required=["doorkeeper"])) as session:
            assert await session.execute("say something forbidden") == "Operation denied: not that word"
            answer = await session.execute("say something")
            assert answer == "The language model's answer is withheld: not that word"
            assert await session.execute("once more") == "fine"
            messages = await session.coordinator.get("context").get_messages()
        assert "forbidden" not in str(messages)
