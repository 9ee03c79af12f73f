"""`hooks-logging`: log every event of a session as JSON Lines, one file for each session (seed loop-basic).

    an event ─▶ first handler of all:  one line, as it was emitted
                … other hooks change it, refuse it, raise …
             ─▶ last handler of all:   a line `hooks-logging:changed`, only if they changed it

A refusal ends the kernel's chain of handlers, so only the first handler sees every event; only the last one
sees the changes of the others. Neither changes anything, and no error here reaches the turn. The handlers
are plain functions, which the kernel runs beside the event loop, at a fraction of the cost of coroutines.
These events are logged: the kernel's ALL_EVENTS from `mount` on, and those that modules contribute to
`observability.events` from `on_session_ready` on. The coordinator does not report later contributions, so it
is asked again at each start of a turn: an event contributed in a turn is logged from the next turn on.
Logs hold prompts and the output of tools. So by default they go to the user's state directory, not to the
working directory, where a repository would include them and an agent's tools could read and change them.
"""

import json
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from amplifier_core import HookResult
from amplifier_core.events import ALL_EVENTS, EXECUTION_END, EXECUTION_START
from anyio import to_thread
from pydantic import Field, field_validator
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.modules.hooks_logging.file import (
    MAX_LINE,
    EventFile,
    NumberedLine,
    file_name,
    last_seq,
)
from toolgate_orchestrator.modules.hooks_logging.line import SCHEMA, Shape, encode_name, redactor
from toolgate_orchestrator.turn.hooks.scheduler import TOOL_SELECTING

CHANGED: Final = "hooks-logging:changed"
"""Event of a changed event: hooks changed its data into `data`; `of` is the number of its line, null if not
certain."""
LOST: Final = "hooks-logging:lost"
"""Event that stands for `lines` that could not be written, from its own number on."""

_MAX_OPEN: Final = 64
_MAX_QUESTIONS: Final = 256


class _Open(NamedTuple):
    """Event that the last handler has not seen yet."""

    seq: int
    event: str
    data: dict[str, Any]


class Recorder:
    """Recorder of one session's lines; `seq` is the number of the last line that is already in its file."""

    def __init__(
        self, session: str, parent: str | None, shape: Shape, path: Path, max_bytes: int | None, seq: int = 0
    ) -> None:
        self.file = EventFile(
            path,
            max_bytes,
            lambda lost: self._line(lost.seq, LOST, json.dumps({"lines": lost.lines, "why": lost.why})),
        )
        self._who = f'"session":{encode_name(session)},"parent":{encode_name(parent)}'
        self._shape = shape
        self._seq = seq
        self._lock = threading.Lock()
        self._open: deque[_Open] = deque(maxlen=_MAX_OPEN)
        self._questions: dict[tuple[str, str], int] = {}
        """Numbers of the lines of questions, by decision and phase, if the engine tells these."""

    def write_event(self, event: str, data: dict[str, Any]) -> None:
        """Write an event's line."""
        decision, phase, question = data.get("decision_id"), data.get("phase"), None
        if event == TOOL_SELECTING and isinstance(decision, str) and isinstance(phase, str):
            question = decision, phase
        with self._lock:
            if question is not None and (seq := self._questions.get(question)) is not None:
                self._open.append(_Open(seq, event, data))
                return
        body = self._shape.data(data)
        with self._lock:
            if event == EXECUTION_END:
                self._open.clear()
                self._questions.clear()
            seq = self._write(event, body)
            self._open.append(_Open(seq, event, data))
            if question is not None:
                self._questions[question] = seq
                if len(self._questions) > _MAX_QUESTIONS:
                    del self._questions[next(iter(self._questions))]

    def write_change(self, event: str, data: dict[str, Any]) -> None:
        """Write an event as the hooks left it, if they changed it."""
        seen, call = _drop_timestamp(data), data.get("tool_call_id")
        with self._lock:
            candidates = [each for each in self._open if each.event == event]
            # A hook's own copy may lack the time that the kernel adds.
            same = next((each for each in candidates if _drop_timestamp(each.data) == seen), None)
            # The event that was changed into this one, if it is certain.
            alike = [
                each for each in candidates if call is not None and each.data.get("tool_call_id") == call
            ] or candidates
            origin = same or (alike[0] if len(alike) == 1 else None)
            if origin is not None:
                self._open.remove(origin)
        if same is None and candidates:
            changed = {"event": event, "of": origin.seq if origin else None, "data": data}
            body = self._shape.data(changed)
            with self._lock:
                self._write(CHANGED, body)

    def _write(self, event: str, body: str) -> int:
        self._seq += 1
        self.file.write(NumberedLine(self._seq, self._line(self._seq, event, body)))
        return self._seq

    def _line(self, seq: int, event: str, body: str) -> bytes:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        head = f'"schema":{SCHEMA},"seq":{seq},"ts":"{at}Z",{self._who},"event":{encode_name(event)}'
        return f'{{{head},"data":{body}}}\n'.encode("ascii")


def _drop_timestamp(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "timestamp"}


AMPLIFIER: Final = "~/.amplifier/projects/{project}/sessions/{session_id}/events.jsonl"
"""Template of Amplifier's CLI, which keeps its sessions there and looks there for their events."""
WORKING_DIRECTORY: Final = "session.working_dir"
"""Capability by which a host of Amplifier's names its user's directory."""
_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_KNOWN: Final = frozenset(("project", "session_id"))
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def default_directory() -> Path:
    """Return the user's state directory for sessions; raise ConfigError if the user has no home."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        base = state if state.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        raise ConfigError("hooks-logging: directory: you have no home directory; name a directory") from None
    return base / "toolgate" / "sessions"


def check_template(template: str) -> str:
    """Return a template that can be filled; raise ValueError with the reason if it cannot."""
    fields = _FIELD.findall(template)
    if unknown := sorted(set(fields) - _KNOWN):
        raise ValueError(f"has an unknown field {{{unknown[0][:80]}}}; use {{project}} and {{session_id}}")
    if "session_id" not in fields:
        raise ValueError("has no {session_id}: sessions would share a file")
    if not template.endswith(".jsonl"):
        raise ValueError("must end in .jsonl")
    return template


def fill_template(template: str, session: str, working_directory: Any) -> Path:
    """Return the file of a session; raise ConfigError if it cannot be found.

    A session's id that could lead to another folder is replaced by a name made from it.
    """
    given = isinstance(working_directory, str | Path) and working_directory
    name = session if _NAME.fullmatch(session) else file_name(session).removesuffix(".jsonl")
    try:
        project = _name_project(Path(working_directory if given else ".").resolve())
        filled = template.replace("{project}", project).replace("{session_id}", name)
        return Path(filled).expanduser().absolute()
    except (RuntimeError, OSError, ValueError) as error:
        raise ConfigError(f"hooks-logging: session_log_template: cannot be found: {error}") from None


def _name_project(directory: Path) -> str:
    """Return a directory as one name, in the form of Amplifier's CLI."""
    name = str(directory).replace("/", "-").replace("\\", "-").replace(":", "")
    return name if name.startswith("-") else f"-{name}"


__amplifier_module_type__ = "hook"

logger = logging.getLogger(__name__)

NAME: Final = "hooks-logging"
"""Id of the module, name of its handlers, and capability under which its Listener is found."""

_CHANNEL: Final = "observability.events"
_FIRST: Final = -(2**31)
_LAST: Final = 2**31 - 1
_MAX_EVENTS: Final = 2_000
_MAX_NAME: Final = 200


class LoggingConfig(StrictModel):
    """Configuration of `hooks-logging`."""

    log_events: bool = True
    """False to register nothing and write nothing."""
    directory: Path | None = None
    """Folder for the files; `~` is expanded. Default: the folder of Amplifier's CLI if that is the host, else
    `$XDG_STATE_HOME/toolgate/sessions`, else below `~/.local/state`."""
    mode: Literal["session-only"] | None = None
    """`session-only`: a file for each session, where Amplifier's CLI looks for it."""
    session_log_template: str | None = None
    """Path of a session's file, in place of `directory`, with `{project}` and `{session_id}`."""
    strip_raw: bool = False
    """True to leave out a provider's raw request or response (`raw` in an event's data)."""
    auto_discover: bool = True
    """True to log the events that modules contribute."""
    max_field_chars: Annotated[int, Field(ge=16)] = 16_384
    """Maximum number of characters of one field; the rest is marked as cut."""
    max_line_bytes: Annotated[int, Field(ge=8_192, le=MAX_LINE)] = 262_144
    """Maximum size of a line in bytes; parts left out are marked."""
    max_file_bytes: Annotated[int, Field(ge=8_192)] | None = 64 * MAX_LINE
    """Size in bytes at which the file becomes `SESSION.1.jsonl`, replacing the last one; `null`: never."""
    redact: tuple[str, ...] = ()
    """Names of further fields to hide, besides those of secrets (`token`, `api_key`, `password` …)."""
    exclude_events: tuple[str, ...] = ()
    """Patterns of events that are not logged, such as `content_block:*`; these events then cost nothing."""
    additional_events: tuple[str, ...] = ()
    """Names of further events to log, which no module contributes."""

    @field_validator("session_log_template")
    @classmethod
    def _can_be_filled(cls, value: str | None) -> str | None:
        return None if value is None else check_template(value)

    @field_validator("directory")
    @classmethod
    def _at_home(cls, value: Path | None) -> Path | None:
        try:
            return None if value is None else value.expanduser().absolute()
        except (RuntimeError, OSError) as error:
            raise ValueError(f"cannot be found: {error}") from None


config_model = LoggingConfig


class Listener:
    """Handlers of one session."""

    def __init__(self, coordinator: Any, settings: LoggingConfig, recorder: Recorder) -> None:
        self.recorder = recorder
        self._coordinator = coordinator
        self._excluded = settings.exclude_events
        self._discovers, self._strips_raw = settings.auto_discover, settings.strip_raw
        self._events: set[str] = set()
        self._failed = False

    def listen(self, events: Iterable[Any]) -> None:
        """Log these events, too; skip those already logged, excluded ones and invalid names."""
        register = self._coordinator.hooks.register
        first = partial(self._log_safely, self.recorder.write_event)
        last = partial(self._log_safely, self.recorder.write_change)
        for event in events:
            if not isinstance(event, str) or event in self._events or len(self._events) >= _MAX_EVENTS:
                continue
            fits = 0 < len(event) <= _MAX_NAME
            if fits and not any(fnmatchcase(event, pattern) for pattern in self._excluded):
                self._events.add(event)
                register(event, first, priority=_FIRST, name=NAME)
                if not event.endswith("delta"):  # one for each token: never changed, and each handler costs
                    register(event, last, priority=_LAST, name=NAME)

    async def discover(self) -> None:
        """Log the events that modules have contributed by now."""
        if not self._discovers:
            return
        for contributed in await self._coordinator.collect_contributions(_CHANNEL):
            self.listen(_names(contributed))
        self.listen(_names(self._coordinator.get_capability(_CHANNEL)))  # as older modules declare them

    async def turn_starts(self, _event: str, _data: dict[str, Any]) -> HookResult:
        """Handle the start of a turn: look for new events, and let the turn go on whatever a contributor
        does."""
        try:
            await self.discover()
        except Exception as error:  # noqa: BLE001 - contributors are other people's code
            logger.warning("%s: contributed events could not be collected: %s", NAME, error)
        return HookResult()

    def _log_safely(
        self, note: Callable[[str, dict[str, Any]], None], event: str, data: dict[str, Any]
    ) -> HookResult:
        try:
            if self._strips_raw and "raw" in data:
                data = {key: value for key, value in data.items() if key != "raw"}
            note(event, data)
        except Exception as error:  # noqa: BLE001 - an event may hold anything; the turn goes on
            if not self._failed:
                self._failed = True
                logger.error("%s: %s was not logged: %s", NAME, event, where(error))
        return HookResult()


def _names(contributed: Any) -> Iterable[Any]:
    if isinstance(contributed, str):
        return (contributed,)
    return contributed if isinstance(contributed, list | tuple | set | frozenset) else ()


async def mount(
    coordinator: Any, config: Mapping[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount `hooks-logging` into a session (entry point `amplifier.modules`); return a function that closes
    its file."""
    settings = check(LoggingConfig, config or {}, NAME)
    if not settings.log_events:
        return None
    if coordinator.get_capability(NAME) is not None:
        logger.warning("%s is mounted already; the first config stays in force", NAME)
        return None
    session, parent = str(coordinator.session_id or ""), coordinator.parent_id
    path = _place(coordinator, settings, session)
    recorder = Recorder(
        session,
        None if parent is None else str(parent),
        Shape(settings.max_field_chars, settings.max_line_bytes, redactor(settings.redact)),
        path,
        settings.max_file_bytes,
        await to_thread.run_sync(last_seq, path),
    )
    listener = Listener(coordinator, settings, recorder)
    coordinator.register_capability(NAME, listener)
    listener.listen((*ALL_EVENTS, *settings.additional_events))
    coordinator.hooks.register(EXECUTION_START, listener.turn_starts, priority=_FIRST, name=NAME)
    logger.info("%s: events go to %s", NAME, path)

    async def cleanup() -> None:
        # Keep the handlers: modules that are closed after this one may still emit events.
        await to_thread.run_sync(recorder.file.close, abandon_on_cancel=True)

    return cleanup


def _place(coordinator: Any, settings: LoggingConfig, session: str) -> Path:
    working, template = coordinator.get_capability(WORKING_DIRECTORY), settings.session_log_template
    if template is None and settings.directory is None and (working or settings.mode):
        template = AMPLIFIER
    if template is not None:
        return fill_template(template, session, working)
    return (settings.directory or default_directory()) / file_name(session)


async def on_session_ready(coordinator: Any) -> None:
    """Log the events that modules contribute, once all are mounted (the kernel calls this)."""
    listener = coordinator.get_capability(NAME)
    if isinstance(listener, Listener):
        await listener.discover()
