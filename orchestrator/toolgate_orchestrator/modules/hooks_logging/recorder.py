"""Make lines from one session's events, in the order in which they happened.

    write_event(event, data)   one line for each event, as it was emitted
    write_change(event, data)  the event after all other hooks: a line `hooks-logging:changed` if it differs

The kernel's handlers do not know for which emission they are called. So an emitted event is remembered
until the last handler sees it; a refused event never gets there, and is forgotten when the turn ends.
A question on tool:selecting may go to the hooks twice, for each hook's own answer; it is one event.
The methods may be called from any thread. `module` listens, `line` shapes a line, and `file` writes it.
"""

import json
import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from amplifier_core.events import EXECUTION_END

from toolgate_orchestrator.modules.hooks_logging.file import EventFile, NumberedLine
from toolgate_orchestrator.modules.hooks_logging.line import SCHEMA, Shape, encode_name
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
