"""Decode each question once for all schedulers of one process.

An orchestrator writes the same bytes into each inbox, and these are read together; the cache keeps one such
batch. An author's code gets a value of its own, down to the last dict: no other scheduler sees what it does
with its arguments. The schedulers that come with Toolgate change nothing in a question, and share one value.
"""

from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import ToolSelecting

from toolgate_schedulers.author.scheduler import Scheduler

SHIPPED: Final = "toolgate_schedulers.shipped."
_CONTAINERS: Final = frozenset((dict, list))
_HEAD: Final = 32
"""Number of first bytes of a frame that tell its first decision: 128 random bits."""
_set: Final = object.__setattr__


def changes_nothing(scheduler: Scheduler) -> bool:
    """Return whether a scheduler is known to change no question: it is shipped, and no subclass of that."""
    decide = scheduler.decide
    owner = type(getattr(decide, "__self__", None))
    return owner.__module__.startswith(SHIPPED) and decide.__module__.startswith(SHIPPED)


class QuestionCache:
    """Reads the frames and questions of one batch for all schedulers of a process."""

    def __init__(self) -> None:
        self._frames: dict[bytes, tuple[bytes, list[packing.Item | CodecError]]] = {}
        self._questions: dict[bytes, tuple[packing.Item, ToolSelecting]] = {}
        self._reader = codec.QuestionReader()

    def clear(self) -> None:
        """Forget the batch before, as another one begins. What is left of it is decoded again."""
        self._frames.clear()
        self._questions.clear()

    def items(self, frame: bytes) -> list[packing.Item | CodecError]:
        """Return the items of a frame, as `packing.items` does. All schedulers share the list."""
        head = frame[:_HEAD]
        known = self._frames.get(head)
        if known is None or known[0] != frame:
            known = self._frames[head] = (frame, packing.items(frame))
        return known[1]

    def shared(self, item: packing.Item) -> ToolSelecting:
        """Return a question, as `codec.question` does. All schedulers share the value: do not change it."""
        known = self._questions.get(item.id)
        if known is None or not (known[0] is item or _is_same(known[0], item)):
            known = self._questions[item.id] = (item, self._reader.read(item))
        return known[1]

    def own(self, item: packing.Item) -> ToolSelecting:
        """Return a question, as `codec.question` does. The value is the caller's own."""
        return _copy(self.shared(item))


def _is_same(one: packing.Item, other: packing.Item) -> bool:
    """Return whether two items ask the same; each may be signed for its own scheduler."""
    return one.phase == other.phase and one.version == other.version and one.body == other.body


def _copy(question: ToolSelecting) -> ToolSelecting:
    """Return a copy with containers of its own: a deep copy in a tenth of the time of a general one."""
    made = ToolSelecting.__new__(ToolSelecting)
    fields = question.__dict__.copy()
    for name in ("tool_input", "labels", "trace", "result", "session_labels", "required_labels"):
        if type(fields[name]) in _CONTAINERS:
            fields[name] = _copy_value(fields[name])
    extra = question.__pydantic_extra__
    _set(made, "__dict__", fields)
    _set(made, "__pydantic_fields_set__", question.__pydantic_fields_set__.copy())
    _set(made, "__pydantic_extra__", _copy_value(extra) if extra else extra)
    _set(made, "__pydantic_private__", None)
    return made


def _copy_value(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy_value(one) if type(one) in _CONTAINERS else one for key, one in value.items()}
    return [_copy_value(one) if type(one) in _CONTAINERS else one for one in value]
