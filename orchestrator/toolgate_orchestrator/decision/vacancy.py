"""Log lines for calls that no scheduler rules on: where Toolgate looked, what happens, what to start.

Every way in (`Guard`, `Gate`, adapters, loops, `toolgate run`, `serve`, `mcp`, hooks) logs its line from
here, once per process. `explain_vacancy` returns the same words before a session begins.
"""

import asyncio
import contextlib
import difflib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import Context
from typing import Final

from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.server.embedded import find_directory
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.printable import visible

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.faults import note_fault
from toolgate_orchestrator.decision.link.client import GateClient

LOOK_S: Final = 0.5
"""Seconds that a look for other namespaces may take."""
MAX_LINES: Final = 256
MAX_SHOWN: Final = 3
"""Number of namespaces, and of schedulers in each, that a line names."""
RUN: Final = "tool calls run without rulings"
DENIED: Final = "tool calls are denied"
START: Final = "start a scheduler (toolgate scheduler run NAME)"
REQUIRE: Final = "to have calls denied without one, require it (toolgate: {required: [NAME]})"
SERVER: Final = "start that server, or name another one (`redis`, TOOLGATE_REDIS_URL)"
_log = get_logger("toolgate.gate")
_told: dict[str, str] = {}
"""Lines that were logged, by subject. As a rule the line itself is the subject."""
_sayers: list[Callable[[str], None]] = []


def tell(line: str, about: str = "") -> None:
    """Log a line, unless this process has logged it, or another line with the same `about`."""
    key = about or line
    if key not in _told and len(_told) < MAX_LINES:
        _told[key] = line
        say = _sayers[-1] if _sayers else _log.warning
        Context().run(say, line)  # the line belongs to no single decision


def _is_told(about: str) -> bool:
    return about in _told or len(_told) >= MAX_LINES


@contextlib.contextmanager
def say_lines(say: Callable[[str], None]) -> Iterator[None]:
    """Hand these lines to a function within the block, instead of logging them: for a command with a view."""
    _sayers.append(say)
    try:
        yield
    finally:
        _sayers.remove(say)


class Vacancy:
    """The schedulers that are there to rule for one gate, and the log lines for when there are none."""

    def __init__(self, config: ToolgateConfig, client: GateClient | None) -> None:
        self._config, self.client = config, client
        self.is_told, self._line = False, ""

    @property
    def may_tell(self) -> bool:
        """True if no scheduler is known, and no line has said yet that calls run without rulings."""
        return not self.is_told and (self.client is None or not self.client.directory.announced)

    @property
    def line(self) -> str:
        """Line about calls that run without rulings, while that is so; else empty."""
        client = self.client
        return "" if client is not None and client.up and client.directory.announced else self._line

    async def tell_unruled(self) -> None:
        """Log, once per process, why no scheduler rules on a call, if none is there to be asked."""
        if not self.is_told:
            self.is_told = True  # before the await, as calls may be concurrent
            try:
                self._line = await tell_unruled(self._config, self.client)
                self.is_told = bool(self._line)
            except Exception as error:  # noqa: BLE001 - a fault of ours in a line changes no ruling
                note_fault("record", error)

    async def tell_denied(self, absent: Sequence[str] = ()) -> None:
        """Log, once per process, that calls are denied: the server, or these schedulers, are not there."""
        try:
            await tell_denied(self._config, self.client, absent)
        except Exception as error:  # noqa: BLE001 - as above
            note_fault("record", error)

    async def tell(self) -> None:
        """Log, once per process, that calls would now run without rulings, or be denied, and why.

        Without this, the line is logged with the first such call.
        """
        client = self.client
        if client is None or not client.up:
            await (self.tell_denied() if self._config.denies_without_bus else self.tell_unruled())
        elif absent := [name for name in self._config.required if name not in client.directory.announced]:
            await self.tell_denied(absent)
        else:
            await self.tell_unruled()

    async def explain(self) -> str | None:
        """Return why calls would run unasked now; None where somebody is asked, or they are denied."""
        return await explain_vacancy(self._config, self.client)

    async def explain_unruled(self) -> str:
        """Return why a call would not be ruled on now, whether it would run or not; empty if it would be."""
        config, client = self._config, self.client
        if client is None or not await client.reachable(config.patience_ms / 1000):
            return f"{_where(client)}; {_start(config.required)}"
        if absent := [name for name in config.required if name not in client.directory.announced]:
            names = ", ".join(absent)
            return f"{names} must rule and {_is(absent)} not alive on {client.where}; {_start(absent)}"
        return await explain_vacancy(config, client) or ""

    def explain_denial(self) -> str:
        """Return the reason of a denial for lack of a server, for the LLM and for the record."""
        return explain_denial(self._config, self.client)


# ---------------------------------------------------------------- lines


async def tell_unruled(config: ToolgateConfig, client: GateClient | None) -> str:
    """Log, once per process, that calls run without rulings, and why. Return the line, or an empty text."""
    if client is not None and client.up and (client.directory.announced or config.required):
        return ""  # those schedulers, or the plan, leave this call alone
    if client is not None and not client.up:
        line = f"{RUN}: {_problem(client)}"
        tell(line)
        return line
    about = f"{RUN} {_where(client)} {config.namespace}"
    if not _is_told(about):  # look for other namespaces only if the line is logged
        where = await _with_namespaces(_where(client), client, config.namespace)
        tell(f"{RUN}: {where}; {START}; {REQUIRE}", about)
    return _told.get(about, "")


async def tell_denied(config: ToolgateConfig, client: GateClient | None, absent: Sequence[str] = ()) -> None:
    """Log, once per process, that calls are denied: the server, or these schedulers, are not there."""
    if client is not None and client.up:
        names = ", ".join(absent)
        why = f"{names} must rule and {_is(absent)} not alive on {client.where}"
        if not _is_told(about := f"{DENIED} {why}"):
            why = await _with_namespaces(why, client, config.namespace, absent)
            tell(f"{DENIED}: {why}; {_start(absent)}", about)
        return
    must = f"{', '.join(config.required)} must rule, and " if config.required else ""
    if client is not None:
        tell(f"{DENIED}: {must}{_problem(client)}")
    else:
        tell(f"{DENIED}: {must}{_where(None)}; {_start(config.required)}")


def tell_failing(scheduler: str, error: str, *, required: bool) -> None:
    """Log, once per process, that a scheduler could not decide; `error` is its own explanation."""
    fate = "calls are denied" if required else "calls run without it; require it if they must not"
    must = " is required and" if required else ""
    words = " ".join(visible(error).split()) or "it gave no verdict"
    line = f"{scheduler}{must} could not decide: {words}; {fate}; the log of its process says more"
    tell(line, f"{scheduler} fails")


def explain_denial(config: ToolgateConfig, client: GateClient | None) -> str:
    """Return the reason of a denial for lack of a server, for the LLM and for the record."""
    if client is None:
        return f"This call was not run: {_where(client)}; {_start(config.required)}."
    return f"This call was not run: {_where(client)}; try again later."


async def explain_vacancy(config: ToolgateConfig, client: GateClient | None) -> str | None:
    """Return why a call would run unasked now; None if a scheduler is asked, or the call would be denied.

    If the server cannot be reached, this waits for it as long as a decision would.
    """
    usable = client is not None and await client.reachable(config.patience_ms / 1000)
    if client is None or not usable:
        return None if config.denies_without_bus else _where(client)
    ruling = [
        one
        for one in client.directory.announced.values()
        if not (one.gone or one.shadow or one.name in config.shadow)
    ]
    if ruling or config.required:
        return None
    return await _with_namespaces(_where(client), client, config.namespace)


def _where(client: GateClient | None) -> str:
    """Return where Toolgate looked, and what it found there."""
    if client is None:
        return f"no server is named (`redis`, TOOLGATE_REDIS_URL), and you run none in {_directory()}"
    return f"no scheduler is alive on {client.where}" if client.up else f"{client.where} cannot be reached"


def _problem(client: GateClient) -> str:
    return client.bus.problem or f"{_where(client)}; {SERVER}"


def _directory() -> str:
    try:
        return str(find_directory())
    except ConfigError:
        return "any directory of yours"


def _is(names: Collection[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _start(names: Sequence[str]) -> str:
    if not names:
        return START
    each = " and ".join(f"toolgate scheduler run {name}" for name in names[:MAX_SHOWN])
    return f"start {'it' if len(names) == 1 else 'them'} ({each})"


# ---------------------------------------------------------------- other namespaces


async def _with_namespaces(
    words: str, client: GateClient | None, own: str, wanted: Sequence[str] = ()
) -> str:
    """Return the words, with the namespaces of this server that have live schedulers, as far as visible."""
    if client is None or not client.up:
        return words
    try:
        found = await asyncio.wait_for(client.bus.find_namespaces(), LOOK_S)
    except (ToolgateError, TimeoutError, OSError):
        return words
    return words + describe_namespaces(found, own, wanted)


def describe_namespaces(found: Mapping[str, Collection[str]], own: str, wanted: Collection[str] = ()) -> str:
    """Return the words on other namespaces: first those with a wanted scheduler, then those of like names."""
    others = [name for name in found if name != own and found[name]]
    if not others:
        return ""

    def likeness(name: str) -> tuple[bool, float, str]:
        alike = difflib.SequenceMatcher(None, own, name).ratio()
        return set(wanted).isdisjoint(found[name]), -alike, name

    shown = [f"{visible(name)} ({_names(found[name])})" for name in sorted(others, key=likeness)[:MAX_SHOWN]]
    more = ", and others" if len(others) > MAX_SHOWN else ""
    word = "namespace" if len(others) == 1 else "namespaces"
    return f", but some are in {word} {', '.join(shown)}{more}: check `namespace` and TOOLGATE_NAMESPACE"


def _names(names: Collection[str]) -> str:
    shown = [visible(name) for name in sorted(names)]
    return ", ".join(shown[:MAX_SHOWN]) + (" …" if len(shown) > MAX_SHOWN else "")
