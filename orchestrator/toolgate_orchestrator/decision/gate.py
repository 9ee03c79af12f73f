"""May this call run?

    async with Gate.open(redis="redis://localhost") as gate:
        decision = await gate.decide(Call("web_search", {"query": "…"}, ["web_search", "fetch"]))

`decide` asks everyone who wants to see the call (`dispatch`), waits by the rules of
`toolgate_bus.ruling.round`, has a replacement verified, asks a person where somebody said so, and says what
is to run and why. Bad verdicts, dead schedulers and a missing server never raise: they change the outcome,
by the rules of docs/concepts.md. For loops of Amplifier and any other asyncio program: no amplifier_core in
here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

from toolgate_bus.protocol.events import IN_PROCESS, Decision, ReceivedVerdict
from toolgate_bus.protocol.names import is_reserved_tool
from toolgate_bus.server.embedded import find_running_server
from toolgate_bus.server.settings import bus_settings, read_keys
from toolgate_bus.telemetry import loggers

from toolgate_orchestrator.decision.config import ToolgateConfig, parse
from toolgate_orchestrator.decision.flow import Answer, Ask, DecisionFlow
from toolgate_orchestrator.decision.link.live_session import LiveSession
from toolgate_orchestrator.decision.link.shared_clients import acquire, release
from toolgate_orchestrator.decision.round.local_scheduler import LocalScheduler
from toolgate_orchestrator.decision.vacancy import explain_vacancy

_log = loggers.get_logger("toolgate.gate")

__all__ = ["IN_PROCESS", "Answer", "Ask", "Gate", "LocalScheduler"]


class Gate(DecisionFlow):
    """Rules on the tool calls of one session, or of as many as share its configuration."""

    # ------------------------------------------------------------------ life

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        config: ToolgateConfig | None = None,
        *,
        ask: Ask | Literal["defer"] | None = None,
        **fields: Any,
    ) -> "AsyncIterator[Gate]":
        """A gate for the length of a block; `fields` are those of `ToolgateConfig` and override it.

        Raises ConfigError for a field that is wrong. A server that is away is not an error. Where
        nobody rules, the first call says so in the log.
        """
        base = config.model_dump(exclude_unset=True) if config is not None else {}
        gate = await cls.start(parse({**base, **fields}, "Gate.open"), ask=ask)
        try:
            yield gate
        finally:
            await gate.aclose()

    @classmethod
    async def start(cls, config: ToolgateConfig, *, ask: Ask | Literal["defer"] | None = None) -> "Gate":
        """A gate that `aclose` must end, in this task or another; raises ConfigError.

        What the configuration does not say of the bus comes from TOOLGATE_REDIS_URL, TOOLGATE_NAMESPACE and
        TOOLGATE_KEYS. Without an address it uses the user's running server, and where there is none,
        in-process schedulers only.
        """
        named = config.namespace if "namespace" in config.model_fields_set else None
        bus = bus_settings(config.redis, named, config.keys)
        config = config.model_copy(update={"namespace": bus.namespace, "keys": bus.keys})
        url = bus.redis or await asyncio.to_thread(find_running_server)
        await asyncio.to_thread(loggers.load)  # a first warning must not stop all decisions for that long
        keys = read_keys(config.keys) if config.keys is not None else None
        client = await acquire(url, config.namespace, keys) if url else None
        try:
            return cls(config, client, ask)
        except BaseException:
            if client is not None:
                await release(client)
            raise

    async def explain_vacancy(self) -> str | None:
        """Why calls would run unasked now; None where somebody is asked, or they are denied."""
        return await explain_vacancy(self.config, self._client)

    async def tell_vacancy(self) -> None:
        """Log, once a process, that calls would run without rulings now, or be denied, as nobody is there.

        Without it that is logged with the first call that it happens to.
        """
        client = self._client
        if client is None or not client.up:
            if self.config.denies_without_bus:
                await self._tell_denied(())
            else:
                await self.tell_unruled()
        elif absent := [name for name in self.config.required if name not in client.directory.announced]:
            await self._tell_denied(absent)
        else:
            await self.tell_unruled()

    async def aclose(self) -> None:
        """Give the bus back; the last gate of the process closes it."""
        client, self._client = self._client, None
        if client is not None:
            await release(client)

    def enter(self, presence: LiveSession) -> Callable[[], None]:
        """Let operators see a session and stop its turns; gives the function that ends that."""
        client = self._client
        if client is None or not presence.session:
            return lambda: None
        client.present[presence.session] = presence
        presence.listen(self.note, client.bus.tell_agents)
        presence.labels = {**self.config.labels, **presence.labels}
        client.pauses.apply(presence)

        def leave() -> None:
            if client.present.get(presence.session) is presence:
                del client.present[presence.session]
                presence.set_pause(None)
                if presence.is_stopping:
                    client.bus.tell_agents()

        return leave

    def subscribe(self, callback: Callable[[Decision], None]) -> None:
        """Be told of every decision, right after it."""
        self._recorder.subscribers.append(callback)

    def subscribe_late(self, callback: Callable[[str, ReceivedVerdict], None]) -> None:
        """Be told of verdicts that came after their decision: decision id and verdict."""
        self._recorder.late_subscribers.append(callback)

    def wanted(self, tool_name: str, *, local: bool = False, is_request: bool = False) -> bool:
        """Whether a decision on this tool would ask or record anything; False is the plain loop.

        `is_request`: what is meant is a request to an LLM.
        """
        if is_reserved_tool(tool_name) and not is_request:
            return True  # it is denied
        audience = self._audience(tool_name)
        if local or not audience.is_empty or is_request:
            return local or not audience.is_empty
        config = self.config
        if config.is_strict or self._recorder.is_recording:
            return True
        return self._client is not None and bool(self._client.pauses.standing)

    @property
    def is_connected(self) -> bool:
        """Whether the bus can be used right now; False too where there is none."""
        return self._client is not None and self._client.up

    def shadows(self, tool_name: str) -> frozenset[str]:
        """Who is asked about this tool, and only watches."""
        return self._audience(tool_name).shadows

    async def flush(self, timeout_s: float) -> bool:
        """Wait until the server has all facts; False where it has not after `timeout_s` seconds."""
        return self._client is None or await self._client.flush(timeout_s)
