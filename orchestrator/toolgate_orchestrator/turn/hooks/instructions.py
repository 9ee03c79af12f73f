"""Has a context put the session's instructions into each request: its capability `context.instructions.v1`.

    prompt ─▶ input_scope ─▶ request scope ─▶ hooks ─▶ the context's view, with instructions ─▶ LLM
                                  ▲                                                              │
                                  └── results, as a batch ◀── accept_response, ends the scope ◀──┘

It is used if the host names the input of this turn (`execution.input.v1`, read once), and context and
provider both can place instructions with their authority. Then ephemeral injections of hooks, and the loop's
own notes, are instructions of one request and never stored. A conversation that holds such instructions
already is not sent in any other way.
"""

import copy
import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry.logging import where

logger = logging.getLogger(__name__)

INSTRUCTIONS: Final = "context.instructions.v1"
EXECUTION_INPUT: Final = "execution.input.v1"
_METHODS: Final = ("input_scope", "turn", "request", "accept_response", "register")
_ORIGINS: Final = ("human", "delegation")
_MARK: Final = "amplifier:instruction"


class ExecutionInput(NamedTuple):
    """Input of a turn, as its host names it."""

    id: str
    origin: str

    @property
    def anchor(self) -> dict[str, str]:
        """Identity of the message that holds it."""
        return {"input_id": self.id, "message_id": self.id, "origin": self.origin}


def take_input(coordinator: Any) -> ExecutionInput | None:
    """Return the input that the host named, and forget it; None without one. Raise ConfigError."""
    look_up = getattr(coordinator, "get_capability", None)
    register = getattr(coordinator, "register_capability", None)
    if not callable(look_up) or not callable(register) or (told := look_up(EXECUTION_INPUT)) is None:
        return None
    register(EXECUTION_INPUT, None)  # a later turn must not inherit it
    fields = told if isinstance(told, Mapping) else {}
    named, origin = fields.get("input_id"), fields.get("origin")
    is_known = type(fields.get("version")) is int and fields["version"] == 1 and origin in _ORIGINS
    if (
        set(fields) != {"version", "input_id", "origin"}
        or not is_known
        or not isinstance(named, str)
        or not named
    ):
        raise ConfigError(
            f"{EXECUTION_INPUT}: give version: 1, input_id (a text) and origin ({' or '.join(_ORIGINS)})"
        )
    return ExecutionInput(named, str(origin))


class InstructedContext:
    """A session's context during one execution, whose requests hold instructions."""

    def __init__(self, context: Any, assembly: Any, given: ExecutionInput, loop: str) -> None:
        self._context, self._assembly, self._input = context, assembly, given
        self.turn_id = _make_id()
        self._loop = loop
        self._anchor = given.anchor
        self._is_begun = False
        self._batches: list[dict[str, Any]] = []
        self._tail: dict[str, Any] | None = None
        self._request: tuple[str, Any, bool] | None = None
        """Id and scope of the open request, and whether it bore batches."""
        self._staged: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        """Batch of calls whose results are coming."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Bind the execution to the context, for the length of a block."""
        lease = self._assembly.register(f"{self._loop}:{self.turn_id}", self._snapshot)
        try:
            async with self._assembly.turn(self.turn_id, self._input.anchor):
                try:
                    yield
                finally:
                    await self.abandon()
        finally:
            lease.close()

    # ------------------------------------------------------------------ what is stored

    async def add_input(self, content: str, *, is_prompt: bool) -> None:
        """Store words of the user: those that began the execution, or further ones."""
        message = {"role": "user", "content": content}
        if is_prompt:
            if self._is_begun:  # a goal goes on, and no human said this
                await self._context.add_message(message)
                return
            self._is_begun = True
            with self._assembly.input_scope(self._input.origin, self._input.id):
                await self._context.add_message(message)
            return
        named = ExecutionInput(_make_id(), "human")
        with self._assembly.input_scope(named.origin, named.id):
            await self._context.add_message(message)
        self._anchor = named.anchor

    async def add_message(self, message: dict[str, Any]) -> None:
        """Store a message. A whole response ends its request; results are told to the next one."""
        role, marks = message.get("role"), dict(message.get("metadata") or {})
        if role == "assistant" and self._request is not None:
            if marks.get("incomplete"):
                await self.abandon()
            else:
                await self._accept({**message, "metadata": {"message_id": _make_id(), **marks}})
                return
        if role == "tool" and self._open is not None:
            marks = {"message_id": _make_id(), **marks}
            await self._context.add_message({**message, "metadata": marks})
            self._note_result(str(message.get("tool_call_id", "")), marks["message_id"])
            return
        await self._context.add_message(message)

    async def _accept(self, message: dict[str, Any]) -> None:
        request = self._request
        if request is None:
            return
        try:
            try:
                await self._assembly.accept_response(request[0], message)
            except Exception as error:  # noqa: BLE001 - the contract: the same response may be given once more
                logger.warning("the context did not take the response at once: %s", where(error))
                await self._assembly.accept_response(request[0], message)
            if request[2]:
                self._batches.clear()
        finally:
            await self.abandon()
        calls = [str(call.get("id")) for call in message.get("tool_calls") or ()]
        self._open = None
        if calls:
            named = message["metadata"]["message_id"]
            told = {"turn_id": self.turn_id, "batch_id": _make_id(), "assistant_message_id": named}
            self._open = {**told, "call_ids": calls, "result_message_ids": []}

    def _note_result(self, call_id: str, message_id: str) -> None:
        batch = self._open
        if batch is None or call_id not in batch["call_ids"]:
            return
        batch["result_message_ids"].append(message_id)
        if len(batch["result_message_ids"]) == len(batch["call_ids"]):
            self._batches.append(batch)
            self._tail = {
                "turn_id": self.turn_id,
                "step_id": _make_id(),
                "after_message_id": message_id,
                "batch_id": batch["batch_id"],
            }
            self._open = None

    # ------------------------------------------------------------------ one request

    async def begin_request(self, provider: Any) -> None:
        """Open the scope of the next request, before hooks hear of it. Raise ConfigError."""
        await self.abandon()
        check_provider(provider)
        request_id = _make_id()
        scope = {
            "turn_id": self.turn_id,
            "request_id": request_id,
            "llm_step_id": _make_id(),
            "input_anchor": dict(self._anchor),
            "completed_batches": copy.deepcopy(self._batches),
            "tail_anchor": dict(self._tail or {"after_message_id": self._anchor["message_id"]}),
        }
        manager = self._assembly.request(scope, provider)
        await manager.__aenter__()
        self._request = (request_id, manager, bool(self._batches))

    def stage(self, texts: Sequence[tuple[str, str]]) -> None:
        """Make these texts, each with its role, instructions of the open request."""
        self._staged = [
            {
                "key": f"injection-{number}",
                "content": text,
                "placement": "tail",
                "authority": "authoritative" if role == "system" else "advisory",
            }
            for number, (role, text) in enumerate(texts, 1)
        ]

    async def get_messages_for_request(self, *, provider: Any = None, **asked: Any) -> Any:
        """Return the view of the open request."""
        check_provider(provider)
        return await self._context.get_messages_for_request(provider=provider, **asked)

    async def abandon(self) -> None:
        """Close the open request, if there is one."""
        request, self._request = self._request, None
        self._staged = []
        if request is not None:
            await request[1].__aexit__(None, None, None)

    def _snapshot(self, scope: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the instructions of a request, as the context asks for them."""
        if self._request is None or scope.get("request_id") != self._request[0]:
            return []
        tail = scope.get("tail_anchor")
        after = {"after_message_id": tail.get("after_message_id")} if isinstance(tail, Mapping) else {}
        return [{**one, "after": after} for one in copy.deepcopy(self._staged)]


def places_instructions(provider: Any) -> bool:
    """Return whether a provider can place instructions with their authority."""
    version = getattr(provider, "instruction_layout_version", None)
    return version == 1 and getattr(provider, "instruction_layout_authority_v1", None) is True


def check_provider(provider: Any) -> None:
    """Raise ConfigError for a provider that would lower the authority of instructions."""
    if not places_instructions(provider):
        raise ConfigError(
            f"the conversation holds instructions ({INSTRUCTIONS}), and the provider that is to answer "
            "cannot place them: choose one with instruction_layout_version 1"
        )


async def store_words(context: Any, content: str, *, is_prompt: bool) -> None:
    """Store words of the user in a session's context, whatever it can do."""
    if isinstance(context, InstructedContext):
        await context.add_input(content, is_prompt=is_prompt)
    else:
        await context.add_message({"role": "user", "content": content})


async def bind_instructions(
    coordinator: Any, context: Any, provider: Any, given: ExecutionInput | None, loop: str
) -> InstructedContext | None:
    """Return the context of an execution whose requests hold instructions; None if they cannot.

    Raise ConfigError if the conversation holds some already.
    """
    assembly = _find_assembly(coordinator)
    if assembly is None:
        return None
    has_authority = getattr(assembly, "instruction_layout_authority_v1", None) is True
    can = has_authority and places_instructions(provider)
    if can and given is not None:
        return InstructedContext(context, assembly, given, loop)
    if not can and await _has_instructions(context, assembly):
        check_provider(provider)
    return None


def has_instructions(coordinator: Any) -> bool:
    """Return whether a session's context can put instructions into requests."""
    return _find_assembly(coordinator) is not None


def _find_assembly(coordinator: Any) -> Any | None:
    look_up = getattr(coordinator, "get_capability", None)
    assembly = look_up(INSTRUCTIONS) if callable(look_up) else None
    is_whole = assembly is not None and all(callable(getattr(assembly, name, None)) for name in _METHODS)
    return assembly if is_whole else None


async def _has_instructions(context: Any, assembly: Any) -> bool:
    pending = getattr(assembly, "has_marked_fixed_state", None)
    if callable(pending) and pending():
        return True
    messages = await context.get_messages()
    return any(
        isinstance(message.get("metadata"), Mapping) and _MARK in message["metadata"] for message in messages
    )


def _make_id() -> str:
    return str(uuid.uuid4())
