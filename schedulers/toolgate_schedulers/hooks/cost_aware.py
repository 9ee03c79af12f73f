"""Run the scheduler `cost-aware` in an agent's process, as the Amplifier hook `hooks-scheduler-cost-aware`.

    tool:selecting ─▶ CostAware.decide ─▶ continue | modify | deny
    tool:pre (last of all hooks) ─▶ it runs now      tool:post, tool:error ─▶ settle, and learn
    policy:violation ─▶ release                      provider:response ─▶ charge, if told to
    execution:end ─▶ calls that ran without a report are paid at their estimate, the rest is released

Its config is the scheduler's own, with `redis` and `namespace`. Without `redis` money is counted in this
session alone, so budgets must be for a session (`level: session`). With `redis`, all sessions that mount
this module share their budgets, in a book of their own (`toolgate budget list --book budget-hooks`). If
the ledger does not answer, the hook denies the call, as nothing else would stop it.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from pydantic import Field, model_validator
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.ledger.money.epoch_file import find_epoch_file
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.events import NAME_PATTERN, Deny, Failure, Verdict
from toolgate_bus.protocol.money import micro
from toolgate_bus.server.settings import check_url
from toolgate_bus.state.shared import MemoryFacts, make_shared_state
from toolgate_bus.state.shared_state import SharedState
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import BEAT_SECONDS, Roster
from toolgate_bus.transport.redis.roster.roster_sets import OLD
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_bus.transport.redis.tasks import keep

from toolgate_schedulers.author.scheduler import SchedulerContext, asking
from toolgate_schedulers.hooks.module import SELECTING, Cleanup, answer_of, question_in, register, root_in
from toolgate_schedulers.shipped.cost_aware.accounts import Payer, accounts_of
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware
from toolgate_schedulers.worker.holds import ReplyTo, StoredHolds

BOOK: Final = "budget-hooks"
PAUSE_S: Final = 0.5


async def _nowhere(_asked: ReplyTo, _verdict: Verdict | Failure) -> None:
    """Do nothing: no call is held inside an agent."""


class _Sessions(MemoryFacts):
    """Facts of sessions that tell none, with the sessions that are alive."""

    def __init__(self, commands: Commands, namespace: str) -> None:
        super().__init__()
        self._roster = Roster(commands, namespace, ("hooks", "hooks", "hooks", OLD))

    async def next(self, wait_ms: int | None = None) -> list[dict[str, Any]]:
        """Return no facts, after a moment."""
        await asyncio.sleep(PAUSE_S)
        return []

    async def alive(self) -> frozenset[str]:
        """Return the sessions that have a heartbeat."""
        return (await self._roster.read(everything=False)).hooks


class HookLedger:
    """State that one session shares with others."""

    def __init__(self, url: str, namespace: str) -> None:
        self.owner = f"hook-{secrets.token_hex(8)}"
        self._namespace = namespace
        self._commands = commands = RedisCommands(url, "toolgate-hook")
        self._roster = Roster(commands, namespace)
        facts = _Sessions(commands, namespace)
        self.shared = replace(
            make_shared_state(),
            store=RedisStore(commands, namespace),
            ledger=RedisLedger(commands, namespace, BOOK, find_epoch_file(url, namespace, BOOK)),
            book=BOOK,
            facts=facts,
            news=facts,
        )
        self._beating: asyncio.Task[None] | None = None

    async def start(self, scheduler: CostAware, often: Callable[[], Awaitable[None]]) -> None:
        """Join the roster and keep the ledger; raise TransportError if there is no server.

        `often` is called with every heartbeat.
        """
        try:
            await self._roster.write(f"h:{self.owner}", b"\x80")
            holds = StoredHolds(self.shared.store, scheduler.name, _nowhere)
            context = SchedulerContext(self.shared, holds, self._namespace, self.owner, scheduler.name)
            await scheduler.start(context)
        except TransportError:
            await self._commands.aclose()
            raise
        self._beating = asyncio.create_task(keep(self._beat_often, often))

    async def aclose(self, scheduler: CostAware) -> None:
        """Stop the scheduler and leave the roster."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        await scheduler.stop()
        with contextlib.suppress(TransportError):
            await self._roster.leave(f"h:{self.owner}")
        await self._commands.aclose()

    async def _beat_often(self, often: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            with contextlib.suppress(TransportError):
                await self._roster.write(f"h:{self.owner}", b"\x80")
                await often()


__amplifier_module_type__ = "hook"

NAME: Final = "hooks-scheduler-cost-aware"
_AFTER_OTHERS: Final = 100
"""Order of the hook after others: the call that they have made of it is the one to pay for."""
_LAST: Final = 2**31 - 1
_DID_NOT_RUN: Final = frozenset({"UnknownTool", "InvalidToolCall"})
_log = get_logger("toolgate.cost-aware")


class HookConfig(CostAwareConfig):
    """Configuration of the hook module."""

    redis: str | None = None
    """Server on which all sessions share budgets. Default: count in this session alone."""
    namespace: Annotated[str, Field(pattern=NAME_PATTERN)] = "default"

    @model_validator(mode="before")
    @classmethod
    def _may_be_empty(cls, value: Any) -> Any:
        """Accept an empty config: the hook then has no budgets and denies nothing."""
        return value or {"budgets": []}

    @model_validator(mode="after")
    def _is_asked_once(self) -> "HookConfig":
        if self.admission:
            raise ValueError("admission: hooks are asked once, before the call runs: leave it out")
        return self

    @model_validator(mode="after")
    def _in_one_session(self) -> "HookConfig":
        wide = [budget for budget in self.budgets if budget.level != "session"]
        if wide and self.redis is None:
            raise ValueError(
                f"budgets: {wide[0].name}: level {wide[0].level} needs `redis`, as other sessions share it; "
                "without it, give level session"
            )
        return self


config_model = HookConfig


@dataclass(slots=True)
class _PendingCall:
    """Call that was let through and has not reported its cost."""

    decision: str
    running_since: float | None = None


class HookCostAware:
    """Handlers of one session."""

    def __init__(
        self,
        scheduler: CostAware,
        shared: SharedState,
        owner: str,
        session: str = "",
        mounted: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """Rule with this scheduler; `mounted` returns the session's tools, to learn what they declare."""
        self._mounted = mounted
        self._scheduler, self._shared, self._owner, self._session = scheduler, shared, owner, session
        self._pending: dict[str, _PendingCall] = {}
        self._requests = 0
        self._root = ""
        """Session at the root, once a call has named it."""
        self._counts = bool(scheduler.config.budgets)
        """True if the ledger must hear of calls: there are budgets, or an agent has a slice."""
        self.owed: list[tuple[str, int | None, bool]] = []
        """Ends that the ledger does not know yet: decision, cost, and whether the call ran."""

    async def on_tool_selecting(self, _event: str, data: dict[str, Any]) -> Any:
        """Rule on one call."""
        call = question_in(data)
        if call is None:
            return None
        if self._mounted is not None:  # tools are mounted after hooks: the first call is the time to look
            mounted, self._mounted = self._mounted, None
            self._scheduler.configure(with_declared(self._scheduler.config, mounted()))
            if self._scheduler.config.idle_weights:
                _log.warning("the weights choose among nothing", fix=self._scheduler.config.idle_weights)
        verdict: Verdict
        self._counts = self._counts or bool(
            accounts_of(self._scheduler.config, Payer.of(call), {}, time.time())
        )
        asking.set(self._owner)
        try:
            verdict = await self._scheduler.decide(call)
        except TransportError as error:
            _log.error("the ledger does not answer", error=str(error))
            verdict = Deny(reason="The budget cannot be checked at the moment; try again later.")
        self._root = call.root_session
        answer = answer_of(verdict, call, data, self._scheduler.priority)
        if verdict.action != "deny":  # policy:violation reports a denial once it counts
            key = _key(data, getattr(verdict, "tool", call.tool_name))
            before = self._pending.get(key)  # a call that is selected again did not run as before
            if before is None or before.decision != call.id:
                self._pending[key] = _PendingCall(call.id)
                if before is not None:
                    await self._tell(before.decision, None, ran=False)
        return answer

    async def on_tool_start(self, _event: str, data: dict[str, Any]) -> Any:
        """Note that the tool runs now: no other hook has refused it."""
        pending = self._pending.get(_key(data, _tool(data)))
        if pending is not None:
            pending.running_since = time.monotonic()
            # What the record of a gate would say, for the score.
            told = {"event": "decision", "id": pending.decision, "outcome": "continue"}
            self._scheduler.follow({**told, "final_tool": _tool(data)})

    async def on_tool_end(self, event: str, data: dict[str, Any]) -> Any:
        """Settle a call whose tool has run, or release it if the tool could not run."""
        pending = self._pending.pop(_key(data, _tool(data)), None)
        if pending is None:
            return
        output = _as_mapping(_as_mapping(data.get("result", data.get("tool_result"))).get("output"))
        ran = _as_mapping(data.get("error")).get("type") not in _DID_NOT_RUN
        cost = micro(output.get("cost_usd"))
        await self._tell(pending.decision, cost, ran=ran)
        if pending.running_since is not None:
            told: dict[str, Any] = {"event": event, "decision_id": pending.decision, "tool": _tool(data)}
            told |= {"cost": cost, "seconds": time.monotonic() - pending.running_since}
            if event == "tool:error":
                told["error"] = str(_as_mapping(data.get("error")).get("type"))
            self._scheduler.follow(told)
            await self._scheduler.hear(told)

    async def on_denied(self, _event: str, data: dict[str, Any]) -> Any:
        """Release a call that any hook denied."""
        pending = self._pending.pop(_key(data, _tool(data)), None)
        if pending is not None:
            await self._tell(pending.decision, None, ran=False)

    async def on_turn_end(self, _event: str, _data: dict[str, Any]) -> Any:
        """End the calls that are still pending, as no report will come."""
        pending, self._pending = self._pending, {}
        for one in pending.values():
            await self._tell(one.decision, None, ran=one.running_since is not None)

    async def on_llm_response(self, _event: str, data: dict[str, Any]) -> Any:
        """Charge the cost of an LLM's answer."""
        config = self._scheduler.config
        amount = micro(_as_mapping(data.get("usage")).get("cost_usd"))
        if not (config.charge_llm and config.budgets and amount):
            return
        self._requests += 1
        session = data.get("session_id")
        payer = Payer(session if isinstance(session, str) else self._session, self._root or root_in(data))
        accounts = accounts_of(config, payer, self._scheduler.overrides, time.time())
        try:
            await self._shared.ledger.charge(f"usage-{self._owner}-{self._requests}", amount, accounts)
        except TransportError as error:
            _log.error("an LLM's cost was not charged", amount=amount, error=str(error))

    async def _tell(self, decision: str, cost: int | None, *, ran: bool) -> None:
        if self._counts:
            self.owed.append((decision, cost, ran))
            await self.pay()

    async def pay(self) -> None:
        """Tell the ledger the ends that it does not know; keep those that it cannot take now."""
        while self.owed:
            decision, cost, ran = self.owed[0]
            try:
                if ran:
                    await self._shared.ledger.settle(decision, cost)
                else:
                    await self._shared.ledger.release(decision)
            except TransportError as error:
                _log.warning("the ledger will be told later", error=str(error))
                return
            if self.owed and self.owed[0] == (decision, cost, ran):
                self.owed.pop(0)


async def mount(coordinator: Any, config: Mapping[str, Any] | None = None) -> Cleanup:
    """Mount the hook into a session (entry point `amplifier.modules`); raise ConfigError, which names each
    wrong field."""
    settings = check(HookConfig, dict(config or {}), NAME)
    scheduler = CostAware(settings)
    session = str(getattr(coordinator, "session_id", "") or "")
    remote = None if settings.redis is None else HookLedger(check_url(settings.redis), settings.namespace)
    shared = make_shared_state() if remote is None else remote.shared
    scheduler.use(shared)
    mounted = (lambda: coordinator.get("tools") or {}) if settings.weighs else None
    hook = HookCostAware(scheduler, shared, "" if remote is None else remote.owner, session, mounted)
    if remote is not None:
        await remote.start(scheduler, hook.pay)
    take_off = register(
        coordinator,
        NAME,
        [
            (SELECTING, hook.on_tool_selecting, _AFTER_OTHERS),
            ("tool:pre", hook.on_tool_start, _LAST),
            ("tool:post", hook.on_tool_end, 0),
            ("tool:error", hook.on_tool_end, 0),
            ("policy:violation", hook.on_denied, 0),
            ("provider:response", hook.on_llm_response, 0),
            ("execution:end", hook.on_turn_end, 0),
        ],
    )

    async def cleanup() -> None:
        await hook.on_turn_end("", {})
        take_off()
        if remote is not None:
            await remote.aclose(scheduler)

    return cleanup


def with_declared(config: CostAwareConfig, tools: Mapping[str, Any]) -> CostAwareConfig:
    """Return the configuration with the groups, costs and durations that mounted tools declare.

    A tool may have the attributes `interchangeable_with` (names of tools), `cost_usd` and `latency_s`. What
    the configuration says of a tool counts first, and its own `alternatives` replace all declared groups.
    """
    groups: list[list[str]] = []
    for name, tool in tools.items():
        told = getattr(tool, "interchangeable_with", ())
        names = [one for one in told if one in tools] if isinstance(told, list | tuple) else []
        if names:
            joined = [group for group in groups if set(group) & {name, *names}]
            groups = [group for group in groups if group not in joined]
            groups.append(list(dict.fromkeys([*(one for group in joined for one in group), name, *names])))
    prices = {
        name: {"cost": getattr(tool, "cost_usd", None), "latency_s": getattr(tool, "latency_s", None)}
        for name, tool in tools.items()
        if name not in config.tools and any(name in group for group in groups)
    }
    try:
        asked = {"tools": prices, "alternatives": [{"tools": group} for group in groups if len(group) > 1]}
        declared = check(CostAwareConfig, asked, "what the session's tools declare")
    except ConfigError as error:
        _log.warning("what tools declare is left out", error=str(error))
        return config
    changed = {"tools": {**declared.tools, **config.tools}}
    return config.model_copy(
        update=changed | ({} if config.alternatives else {"alternatives": declared.alternatives})
    )


def _key(data: Mapping[str, Any], tool: str) -> str:
    """Return the key of a call: its id, or the tool if the loop tells no ids and runs one call of a tool at a
    time."""
    call = data.get("tool_call_id")
    return f"call {call}" if isinstance(call, str) and call else f"tool {tool}"


def _tool(data: Mapping[str, Any]) -> str:
    tool = data.get("tool_name", data.get("tool"))
    return tool if isinstance(tool, str) else ""


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
