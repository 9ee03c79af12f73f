"""A session of one loop, whose LLM is a strict server behind the real SDK of its API."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from openai_client import KEY
from strict_chat import Chat
from strict_messages import Messages
from strict_responses import Responses
from strict_server import Api, Says, StrictServer
from toolgate_orchestrator.modules.provider_openai.provider import ProviderOpenAI

__all__ = ["APIS", "BOUND_S", "Wired", "open_wire"]

BOUND_S = 20.0
APIS: dict[str, Callable[[], Api]] = {
    "anthropic": Messages,
    "responses": Responses,
    "chat": Chat,
    "own": Chat,
}
"""`own` is our own provider, over Chat Completions."""


class Wired(NamedTuple):
    """A session, and the server that it talks to."""

    agent: Any
    server: StrictServer

    async def ask(self, prompt: str) -> str:
        """One turn; whatever was refused fails the test, with the server's words."""
        answer: str = await asyncio.wait_for(self.agent.ask(prompt), BOUND_S)
        assert self.server.refused == []
        return answer

    @property
    def bodies(self) -> list[Any]:
        """The requests."""
        return self.server.bodies


@asynccontextmanager
async def open_wire(
    make: Any,
    api: str,
    loop: str,
    script: Sequence[Says | int],
    *,
    streams: bool = False,
    thinks: bool = False,
    tools: Sequence[Any] = (),
    config: Mapping[str, Any] | None = None,
    deaf: bool = True,
    speaks: Api | None = None,
) -> AsyncIterator[Wired]:
    """A session whose provider speaks one API, over the SDK; `make` is the fixture `agent`.

    `speaks` is another server of that API.
    """
    from wire_providers import PROVIDERS  # late: every process that collects tests would load the SDKs

    async with StrictServer(speaks or APIS[api](), script) as server:
        provider: Any
        if api == "own":
            settings = {"model": "gpt-test", "api_key": KEY, "max_retries": 0, "reasoning_effort": "high"}
            provider = ProviderOpenAI({"base_url": server.url, **settings})
            provider.name = "llm"
            if not streams:
                provider.stream = None
        else:
            provider = PROVIDERS[api](server, streams=streams)
        told = {"extended_thinking": thinks, **(config or {})}
        try:
            async with make(loop=loop, llm=provider, tools=tools, config=told, deaf=deaf) as agent:
                yield Wired(agent, server)
        finally:
            await (provider.close() if api == "own" else provider.client.close())
