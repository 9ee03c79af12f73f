"""Packs and reads the fact of unanimous decisions, in which every scheduler said continue: nearly all.

One fact holds many decisions: their numbers as columns, and the common beginning of their questions only
once. Readers see each as a decision of its own (`record.read_facts`).
`docs/reference/wire.md` has the fields.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.unanimous import Batch, FactRun, Group
from toolgate_bus.transport.ports import FactItem

MAX_QUESTION: Final = 32 * 1024
"""Maximum size of a question, in bytes."""
MAX_RECIPIENTS: Final = 15
_T = TypeVar("_T")
_NO_ID: Final = bytes(packing.ID_BYTES)


_log = get_logger("toolgate.facts")


class NumberedItem(NamedTuple):
    """An item, and the number of its first fact."""

    seq: int
    item: FactItem


def pack_run(run: FactRun) -> list[FactItem]:
    """Return all facts of a run, and count its decisions. Nothing may be added afterwards.

    They fit into one frame, or their items stand in the order of their numbers.
    """
    epoch = time.time() - time.monotonic()
    batches = run.batches.values()
    for batch in batches:
        metrics.agreed_close(batch)
    others = [NumberedItem(seq, one) for seq, make in run.others for one in _make(make)]
    made = [*others, *(one for batch in batches for one in pack_batch(batch, epoch))]
    if len(made) > 1 and sum(len(one.item.item) for one in made) > packing.FULL_FRAME:
        made = [*others, *(one for batch in batches for one in pack_batch(batch, epoch, parted=True))]
    made.sort(key=_number)
    return [one.item for one in made]


def _number(one: NumberedItem) -> int:
    return one.seq


def _make(make: Callable[[], bytes]) -> list[FactItem]:
    """Make the bytes of a fact, if that is possible: one that cannot be made delays no other."""
    try:
        return [FactItem(make(), 1)]
    except Exception:  # noqa: BLE001 - it comes from above, whatever went wrong there
        _log.exception("a fact could not be made")
        metrics.count(metrics.FACTS_DROPPED)
        return []


def pack_batch(batch: Batch, epoch: float, *, parted: bool = False) -> Iterator[NumberedItem]:
    """Yield the facts of a batch, in their order; mostly one item holds them all.

    `epoch` is the number of seconds to add to the batch's clock to get seconds since the epoch. A batch has
    at most 64 decisions, each with at most 15 asked schedulers and a question of at most 32 KiB. With
    `parted`, only decisions whose numbers follow each other share an item.
    """
    columns = batch.columns()
    questions, columns[5], seqs = columns[4], [at + epoch for at in columns[5]], columns[6]
    start = size = 0
    if parted or sum(map(len, questions)) > packing.FULL_FRAME:
        for at, question in enumerate(questions):
            apart = parted and at > start and seqs[at] != seqs[at - 1] + 1
            if apart or (at > start and size + len(question) > packing.FULL_FRAME):
                part = [column[start:at] for column in columns]
                yield NumberedItem(seqs[start], FactItem(_item(batch.group, *part), at - start))
                start, size = at, 0
            size += len(question)
        columns = [column[start:] for column in columns]
    yield NumberedItem(seqs[start], FactItem(_item(batch.group, *columns), len(questions) - start))


def _item(
    group: Group,
    _tools: object,
    _agents: object,
    seconds: Sequence[float],
    ids: Sequence[bytes],
    questions: Sequence[bytes],
    at: Sequence[float],
    seqs: Sequence[int],
    *took_and_revisions: Any,
) -> bytes:
    took, revisions = took_and_revisions[: len(group)], took_and_revisions[len(group) :]
    begin = _begin(questions)
    differ = len(begin)
    doubles = Struct(f">{len(at)}d").pack
    fields = {
        "event": "agreed",
        "seq": seqs[0],
        "at": doubles(*at),
        "ids": b"".join(ids),
        "seconds": doubles(*seconds),
        "asked": [(name, priority, doubles(*own)) for (name, priority), own in zip(group, took, strict=True)],
        "begin": begin,
        "rest": [question[differ:] for question in questions],
    }
    if any(map(any, revisions)):
        fields["revisions"] = [_index_revisions(each) for each in revisions]
    if seqs[-1] - seqs[0] >= len(seqs):  # others came between them
        fields["offsets"] = bytes([seq - seqs[0] for seq in seqs])
    return packing.item(_NO_ID, 0, packing.pack(fields))


def _begin(questions: Sequence[bytes]) -> bytes:
    """Return the common beginning of all questions."""
    first, last = min(questions), max(questions)
    if first == last:
        return first
    low, high = 0, min(len(first), len(last))
    while low < high:  # they agree up to `low`
        middle = (low + high + 1) // 2
        if first[:middle] == last[:middle]:
            low = middle
        else:
            high = middle - 1
    return first[:low]


def each_decision(fact: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the `decision` facts that such a fact stands for, in their order. Raises CodecError."""
    rest = _of(fact, "rest", list)
    count = len(rest)
    if not 0 < count <= packing.MAX_ITEMS or not all(isinstance(one, bytes) for one in rest):
        raise CodecError("malformed", f"1 to {packing.MAX_ITEMS} decisions stand side by side")
    begin, seq = _of(fact, "begin", bytes), _of(fact, "seq", int)
    offsets = _offsets(fact, count)
    if len(begin) * count + sum(map(len, rest)) > packing.MAX_FRAME:
        raise CodecError("oversize", "the questions of decisions side by side")
    ids, doubles = _of(fact, "ids", bytes), Struct(f">{count}d")
    if len(ids) != packing.ID_BYTES * count:
        raise CodecError("malformed", "an id for each decision")
    asked = _of(fact, "asked", list)
    if len(asked) > MAX_RECIPIENTS:
        raise CodecError("oversize", f"at most {MAX_RECIPIENTS} were asked about decisions side by side")
    revisions = fact.get("revisions", [""] * len(asked))
    if not isinstance(revisions, list) or len(revisions) != len(asked):
        raise CodecError("malformed", "revisions for each of those who were asked")
    verdicts = [
        _verdicts(one, doubles, _each(named, count)) for one, named in zip(asked, revisions, strict=True)
    ]
    columns = (_numbers(fact.get("at"), doubles), _numbers(fact.get("seconds"), doubles), rest, offsets)
    for number, (at, seconds, end, offset) in enumerate(zip(*columns, strict=True)):
        yield {
            "event": "decision",
            "outcome": "continue",
            "why": "agreed",
            "seq": seq + offset,
            "at": at,
            "id": ids[packing.ID_BYTES * number :][: packing.ID_BYTES].hex(),
            "question": begin + end,
            "seconds": seconds,
            "verdicts": [each[number] for each in verdicts],
        }


def _offsets(fact: Mapping[str, Any], count: int) -> Sequence[int]:
    """Return how far each decision's number is from the first one's."""
    offsets = fact.get("offsets")
    if offsets is None:
        return range(count)
    if not isinstance(offsets, bytes) or len(offsets) != count or offsets[0]:
        raise CodecError("malformed", "an offset for each decision, the first of which is 0")
    if any(one >= other for one, other in pairwise(offsets)):
        raise CodecError("malformed", "offsets grow")
    return offsets


def last_offset(fact: Mapping[str, Any]) -> int:
    """Return the offset of the last decision in a fact that may be malformed; 0 if it has none."""
    offsets, rest = fact.get("offsets"), fact.get("rest")
    if isinstance(offsets, bytes) and offsets:
        return max(offsets)
    return len(rest) - 1 if isinstance(rest, list) and rest else 0


def _index_revisions(revisions: Sequence[str]) -> Any:
    """Return the revision of one scheduler's verdicts; or, if it changes, the revisions and their indexes."""
    different = list(dict.fromkeys(revisions))
    if len(different) == 1:
        return different[0]
    place = {revision: at for at, revision in enumerate(different)}
    return [different, bytes(place[revision] for revision in revisions)]


def _each(told: Any, count: int) -> list[str]:
    """Return the revision of each of `count` verdicts."""
    if isinstance(told, str):
        return [told] * count
    if isinstance(told, list) and len(told) == 2:
        different, places = told
        named = isinstance(different, list) and all(isinstance(one, str) for one in different)
        placed = isinstance(places, bytes) and len(places) == count
        if named and placed and max(places) < len(different):
            return [different[place] for place in places]
    raise CodecError("malformed", "a revision for each decision")


def _verdicts(told: Any, doubles: Struct, revisions: Sequence[str]) -> list[dict[str, Any]]:
    """Return the verdicts of one scheduler."""
    if not isinstance(told, list) or len(told) != 3:
        raise CodecError("malformed", "who was asked is a scheduler, its priority, and seconds")
    name, priority, took = told
    verdict = {"scheduler": name, "action": "continue", "phase": "select", "priority": priority}
    return [
        {**verdict, "seconds": seconds, **({"revision": revision} if revision else {})}
        for seconds, revision in zip(_numbers(took, doubles), revisions, strict=True)
    ]


def _numbers(raw: Any, doubles: Struct) -> tuple[float, ...]:
    """Read one number for each decision."""
    if not isinstance(raw, bytes) or len(raw) != doubles.size:
        raise CodecError("malformed", "a number for each decision")
    return doubles.unpack(raw)


def _of(fact: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    found = fact.get(name)
    if not isinstance(found, kind):
        raise CodecError("malformed", f"decisions side by side need {name}")
    return found
