"""What tests of the provider share: a provider for the server on loopback, and reading its streams."""

import asyncio
from typing import Any

import pytest
from amplifier_core import ChatRequest, Message
from openai_server import MODEL, Server
from toolgate_orchestrator.modules.provider_openai.provider import ProviderOpenAI

KEY = "sk-test-0123456789abcdef"
BOUND_S = 30


def forget_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's key, server and proxies out of the tests."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


def provider_for(server: Server, **config: Any) -> ProviderOpenAI:
    """A provider of this server, without retries; close it."""
    return ProviderOpenAI(
        {"base_url": server.url, "model": MODEL, "api_key": KEY, "max_retries": 0, **config}
    )


def request(said: str = "hello", **fields: Any) -> ChatRequest:
    """A request with one message."""
    return ChatRequest(messages=[Message(role="user", content=said)], **fields)


async def events_of(
    provider: ProviderOpenAI, asked: ChatRequest | None = None, into: list[Any] | None = None
) -> list[Any]:
    """All events of one stream; those before an error are in `into`."""
    events: list[Any] = [] if into is None else into
    async with asyncio.timeout(BOUND_S):
        async for event in provider.stream(asked or request()):
            events += [event]
    return events


def of_type(events: list[Any], *types: str) -> list[dict[str, Any]]:
    """The events of some types; the final response is none."""
    return [event for event in events if isinstance(event, dict) and event["type"] in types]
